"""WITH (replay = 'm'): the visits or pushes of an earlier run, checked against the statement that replays them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import OVER_LAGS
from grouplearn.messages import Span
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.messages import Push, Unit
from grouplearn.schedule.operators import OPERATORS
from grouplearn.schedule.options import REPLAY
from grouplearn.schedule.workload import Visits

#: Unit, group, configs and fold.
Trained = tuple[int, int, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """An earlier run from the catalog: its definition, the rows of its groups, its units, and the visits of its models or
    the pushes to them."""

    name: str
    operator: str
    learner: str
    seed: int
    configs: tuple[Config, ...]
    rows: tuple[int, ...]
    units: frozenset[Trained]
    visits: Visits
    pushes: Mapping[int, tuple[Push, ...]]


def check_same(checker: SqlChecker, bound: BoundTrain, earlier: EarlierRun) -> None:
    """Raise unless the statement trains what the earlier run trained, as far as can be known before rows are read."""
    name, operator = f'model "{earlier.name}"', bound.options.placement.operator
    problem = None
    if earlier.operator not in OPERATORS or OPERATORS[earlier.operator].plan.repeats is None:
        problem = f"{name} was trained by operator {earlier.operator}, which has no schedule to repeat"
    elif earlier.operator != operator:
        problem = f"{name} was trained by operator {earlier.operator}, and this statement is run by operator {operator}"
    elif earlier.learner != bound.learner.declaration.stored_name:
        of = earlier.learner.removeprefix(OVER_LAGS)
        problem = f"{name} is a model of {of}, and this one is of {bound.learner.declaration.name}"
    elif earlier.seed != bound.options.training.seed:
        problem = f"{name} was trained with seed = {earlier.seed}, and this statement has seed = {bound.options.training.seed}"
    elif not _alike(earlier.configs, bound.configs):
        problem = f"{name} was trained with other configurations"
    if problem:
        raise checker.error(problem, replay_span(bound), "A run is repeated by the statement that it was.")


def repeated(checker: SqlChecker, physical: PhysicalPlan, earlier: EarlierRun) -> PhysicalPlan:
    """Return the plan that repeats the earlier run; raise if that run had other rows."""
    units = _units_of(physical, earlier)
    if units is None or physical.stats.rows != earlier.rows:
        message = f'model "{earlier.name}" was trained on other rows: its groups differ from those of this statement'
        raise checker.error(message, replay_span(physical.bound), "A run is repeated on the rows that it had.")
    how, bound = OPERATORS[earlier.operator].plan.repeats, physical.bound
    if how is None:
        raise ValueError(f"operator {earlier.operator} repeats nothing")
    visits, pushes = (earlier.visits, {}) if how.visits else (None, earlier.pushes)
    options = bound.options.changed(how.options(bound.options.of_operators, pushes))
    plan = replace(physical, units=units, recorded=visits, pushes=pushes, bound=replace(bound, options=options))
    name, work = f'model "{earlier.name}"', plan.workload(plan.workers)
    problem = how.validation_error(name, pushes, plan.units, work, bound.options.of_operators)
    if problem:
        raise checker.error(problem, replay_span(bound), "A run is repeated by the statement that it was.")
    return plan


def _units_of(physical: PhysicalPlan, earlier: EarlierRun) -> tuple[Unit, ...] | None:
    """Return the units of the earlier run: today's with the packs of then; None if it had others."""
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
    return next(option.value.span for option in options if option.name.value.casefold() == REPLAY.name)


def _alike(ours: tuple[Config, ...], theirs: tuple[Config, ...]) -> bool:
    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    def shown(configs: tuple[Config, ...]) -> list[Mapping[str, str]]:
        return [{name: text(value) for name, value in config.items()} for config in configs]

    return shown(ours) == shown(theirs)
