"""WITH (replay = 'm'): the visits or pushes of an earlier run, checked against the statement that replays them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.learners.contract.config import Config
from grouplearn.messages import Span
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.averages import PARTITIONS, STALENESS
from grouplearn.schedule.messages import Push, Unit
from grouplearn.schedule.operators import HOPPING, REPEATABLE
from grouplearn.schedule.options import REPLAY
from grouplearn.schedule.rounds.averaging import partitions_of, rounds_of_epoch
from grouplearn.schedule.workload import Visits

#: Unit, group, configs and fold.
Trained = tuple[int, int, tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Earlier:
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


def check_same(checker: SqlChecker, bound: BoundTrain, earlier: Earlier) -> None:
    """Raise unless the statement trains what the earlier run trained, as far as can be known before rows are read."""
    name, operator = f'model "{earlier.name}"', bound.options.placement.operator
    problem = None
    if earlier.operator not in REPEATABLE:
        problem = f"{name} was trained by operator {earlier.operator}, which has no schedule to repeat"
    elif earlier.operator != operator:
        problem = f"{name} was trained by operator {earlier.operator}, and this statement is run by operator {operator}"
    elif earlier.learner != bound.learner.name:
        problem = f"{name} is a model of {earlier.learner}, and this one is of {bound.learner.name}"
    elif earlier.seed != bound.options.training.seed:
        problem = f"{name} was trained with seed = {earlier.seed}, and this statement has seed = {bound.options.training.seed}"
    elif not _alike(earlier.configs, bound.configs):
        problem = f"{name} was trained with other configurations"
    if problem:
        raise checker.error(problem, replay_span(bound), "A run is repeated by the statement that it was.")


def repeated(checker: SqlChecker, physical: PhysicalPlan, earlier: Earlier) -> PhysicalPlan:
    """Return the plan that repeats the earlier run; raise if that run had other rows."""
    units = _units_of(physical, earlier)
    if units is None or physical.stats.rows != earlier.rows:
        message = f'model "{earlier.name}" was trained on other rows: its groups are not those of this statement'
        raise checker.error(message, replay_span(physical.bound), "A run is repeated on the rows that it had.")
    if earlier.operator in HOPPING:
        return replace(physical, units=units, recorded=earlier.visits)
    return _with_pushes(checker, replace(physical, units=units), earlier)


def could_be(pushes: Sequence[Push]) -> bool:
    """Return whether pushes can have been applied in this order: each began after its partition's previous one."""
    last: dict[int, int] = {}
    for number, push in enumerate(pushes):
        if push.partition < 0 or not last.get(push.partition, -1) < push.seen <= number:
            return False
        last[push.partition] = number
    return True


def _with_pushes(checker: SqlChecker, physical: PhysicalPlan, earlier: Earlier) -> PhysicalPlan:
    """Return the plan that repeats pushes with the same partitions; raise where they do not fit this statement."""
    name, options = f'model "{earlier.name}"', physical.bound.options
    partitions, staleness = options.of_operators[PARTITIONS.name], options.of_operators[STALENESS.name]
    count = max((push.partition + 1 for pushes in earlier.pushes.values() for push in pushes), default=1)
    plan = replace(
        physical,
        pushes=earlier.pushes,
        bound=replace(physical.bound, options=options.changed({PARTITIONS.name: partitions or count})),
    )
    problem = None
    if not any(earlier.pushes.values()) and staleness:
        problem = (
            f"{name} has no order of pushes: staleness = 0, no group of two partitions, or a run that went on from disk"
        )
    elif earlier.pushes and not staleness:
        problem = f"{name} was trained with a staleness, and this statement has staleness = 0"
    elif not all(could_be(pushes) for pushes in earlier.pushes.values()):
        problem = f"the pushes of {name} cannot have been in that order"
    elif not all(_fits(plan, unit, earlier.pushes.get(unit.id, ())) for unit in plan.units):
        problem = f"{name} was trained in other partitions, or in more epochs or rounds of them"
    if problem:
        raise checker.error(problem, replay_span(physical.bound), "A run is repeated by the statement that it was.")
    return plan


def _fits(physical: PhysicalPlan, unit: Unit, pushes: Sequence[Push]) -> bool:
    """Return whether a unit has these partitions, each in so many rounds."""
    work, counts = physical.workload(physical.workers), Counter(push.partition for push in pushes)
    cuts = partitions_of(unit, work)
    most = work.epochs * rounds_of_epoch(cuts, unit, work) if counts else 0
    return all(partition < len(cuts) and count <= most for partition, count in counts.items())


def _units_of(physical: PhysicalPlan, earlier: Earlier) -> tuple[Unit, ...] | None:
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
