"""WITH (replay = 'm'): the visits of an earlier run, checked against the statement that repeats them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.config import Config
from grouplearn.messages import Span
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.workload import Visits

#: Unit, group, configs and fold.
Trained = tuple[int, int, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Earlier:
    """A run as the catalog has it: what made it what it is, the rows of its groups, its units, and the visits of its models."""

    name: str
    operator: str
    learner: str
    seed: int
    configs: tuple[Config, ...]
    rows: tuple[int, ...]
    units: frozenset[Trained]
    visits: Visits


def check_same(checker: SqlChecker, bound: BoundTrain, earlier: Earlier) -> None:
    """Raise unless the statement trains what the earlier run trained, as far as is known before rows are read."""
    name = f'model "{earlier.name}"'
    problem = None
    if earlier.operator != "mop":
        problem = f"{name} was trained by operator {earlier.operator}, which has no schedule to repeat"
    elif earlier.learner != bound.learner.name:
        problem = f"{name} is a model of {earlier.learner}, and this one is of {bound.learner.name}"
    elif earlier.seed != bound.options.seed:
        problem = f"{name} was trained with seed = {earlier.seed}, and this statement has seed = {bound.options.seed}"
    elif not _alike(earlier.configs, bound.configs):
        problem = f"{name} was trained with other configurations"
    if problem:
        raise checker.error(problem, replay_span(bound), "A run is repeated by the statement that it was.")


def repeated(checker: SqlChecker, physical: PhysicalPlan, earlier: Earlier) -> PhysicalPlan:
    """Return the plan that repeats the earlier run; raise where its rows were others."""
    units = _units_of(physical, earlier)
    if units is None or physical.stats.rows != earlier.rows:
        message = f'model "{earlier.name}" was trained on other rows: its groups are not those of this statement'
        raise checker.error(message, replay_span(physical.bound), "A run is repeated on the rows that it had.")
    return replace(physical, units=units, recorded=earlier.visits)


def _units_of(physical: PhysicalPlan, earlier: Earlier) -> tuple[Unit, ...] | None:
    """Return the units of the earlier run, as the planner makes them but with the packs of then; None if it has others."""
    planned = {(frozenset(unit.groups), unit.fold): unit for unit in physical.units}
    groups: defaultdict[tuple[int, tuple[int, ...], int], set[int]] = defaultdict(set)
    for unit, group, configs, fold in earlier.units:
        groups[unit, configs, fold].add(group)
    units: list[Unit] = []
    for (number, configs, fold), members in sorted(groups.items()):
        like = planned.get((frozenset(members), fold))
        if like is None:
            return None
        cost = like.cost * len(configs) / len(like.configs)
        units.append(replace(like, id=number, configs=configs, cost=cost))
    trained = sorted((group, unit.fold, config) for unit in units for group in unit.groups for config in unit.configs)
    wanted = {(g, unit.fold, config) for unit in physical.units for g in unit.groups for config in unit.configs}
    return tuple(units) if trained == sorted(wanted) else None


def replay_span(bound: BoundTrain) -> Span:
    """Return where the statement names the run to repeat."""
    options = bound.statement.options
    return next(option.value.span for option in options if option.name.value.casefold() == "replay")


def _alike(ours: tuple[Config, ...], theirs: tuple[Config, ...]) -> bool:
    def shown(configs: tuple[Config, ...]) -> list[Mapping[str, str]]:
        return [{name: str(value) for name, value in config.items()} for config in configs]

    return shown(ours) == shown(theirs)
