"""The rounds of averaging, a parameter server and coordinate descent in numbers: how many, and what each moves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grouplearn.amounts import amount_of_bytes, counted
from grouplearn.learners.contract.config import Config
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.averages import SYNC, Averages
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.operators import PARTITIONING
from grouplearn.schedule.rounds import averaging
from grouplearn.schedule.rounds.averaging import Averaging
from grouplearn.schedule.rounds.coordinate_descent import CoordinateDescent
from grouplearn.schedule.rounds.parameter_server import ParameterServer
from grouplearn.schedule.rounds.stages import neighbours
from grouplearn.schedule.sharded.partition import blocks_of

#: Barriers of a round, by who takes the mean; two more where every epoch is scored.
_BARRIERS = {"scatter": 2, "star": 2, "tree": 3}
_JUDGED = 2


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The rounds of the largest group: most partitions, most rounds, barriers in each, and the bytes of a pack's models
    that the busiest worker sends and receives per round, with each partition on its own worker. With ``staleness`` there
    are no barriers, and rounds are counted per partition."""

    partitions: int
    rounds: int
    barriers: int
    busiest_bytes: float
    staleness: int = 0

    @property
    def words(self) -> str:
        """The facts as text."""
        if self.partitions < 2:
            return "no group has rows for two partitions"
        rounds, barriers = counted(self.rounds, "round"), counted(self.barriers, "barrier")
        moved = amount_of_bytes(round(self.busiest_bytes))
        how = f"{rounds} of {barriers}"
        if self.staleness:
            how = f"{rounds} each, none more than {self.staleness} ahead of another"
        return f"up to {self.partitions} partitions, {how}, {moved} a round on the busiest worker"


def told_of_rounds(physical: PhysicalPlan, operator: str) -> str:
    """Return a description of an operator's rounds, empty if it has none."""
    if operator in PARTITIONING:
        return f"; {round_facts(physical, physical.workers, operator).words}"
    if operator != CoordinateDescent.name:
        return ""
    leaves = "; workers of a machine that is to leave the cluster hand over what they have"
    shared = physical.bound.options.placement.address is not None
    return f"; {descent_facts(physical, physical.workers).words}{leaves if shared else ''}"


def by_rounds(physical: PhysicalPlan, operator: str, workers: int) -> PhysicalPlan:
    """Return the plan with the rounds of partitions as its epochs: all cost the same, so few have to be simulated."""
    rounds = rounds_of_epoch(physical, workers) if operator in PARTITIONING else 1
    if rounds == 1:
        return physical
    options = physical.bound.options.changed({SYNC.name: SYNC.default})
    return replace(physical, epochs=physical.epochs * rounds, bound=replace(physical.bound, options=options))


def rounds_of_epoch(physical: PhysicalPlan, workers: int) -> int:
    """Return the rounds per epoch of the largest group; 1 unless another operator may run it."""
    rows = physical.stats.rows
    if physical.bound.options.placement.operator not in PARTITIONING or not physical.units:
        return 1
    largest = max(range(len(rows)), key=rows.__getitem__)
    unit, work = Unit(0, largest, physical.units[0].configs), physical.workload(workers)
    cuts = averaging.partitions_of(unit, work)
    return averaging.rounds_of_epoch(cuts, unit, work) if len(cuts) > 1 else 1


def round_facts(physical: PhysicalPlan, workers: int, operator: str = Averaging.name) -> RoundFacts:
    """Return the rounds of a plan: each of k partitions moves (m + g) (k - 1) / k bytes, a star's centre (m + g) (k - 1),
    with m the bytes of the largest pack's models and g of what is sent, models or gradients (Zhang et al. 2019, IV-B).
    """
    averages = physical.workload(workers).averages
    blocks = blocks_of(max(physical.stats.rows, default=0), physical.block_rows)
    count = min(averages.partitions, max(1, blocks))
    packs = {unit.configs: physical.configs_of(unit) for tasks in physical.alike for unit in tasks.first}
    size = max((_moved(physical, averages, each) for each in packs.values()), default=0)
    runs = neighbours(count)
    others = {"scatter": (count - 1) / count, "star": count - 1, "tree": (len(runs) - 1 + count - 1) / 2}
    judged = physical.bound.options.training.early_stopping is not None
    barriers = _BARRIERS[averages.reduce] + (_JUDGED if judged else 0)
    rounds = physical.epochs * rounds_of_epoch(physical, workers)
    stale = averages.staleness if operator == ParameterServer.name else 0
    return RoundFacts(count, rounds, barriers, size * others[averages.reduce], stale)


def _moved(physical: PhysicalPlan, averages: Averages, configs: tuple[Config, ...]) -> int:
    """Return the bytes that one partition sends and receives."""
    learner = physical.bound.learner
    model, gradient = (
        n_bytes(learner, configs, physical.width, physical.outputs)
        for n_bytes in (cost.state_bytes, cost.gradient_bytes)
    )
    velocity = gradient if averages.momentum else 0
    return model + velocity + (gradient if averages.send == "gradient" else model)


@dataclass(frozen=True, slots=True)
class DescentFacts:
    """The rounds of an epoch of the largest group, as far as its items say, and about what reaches or leaves the worker that
    moves most in one: the sums of a block of columns from all others, and what becomes of them to all others. A worker's share
    is in ``items``, which those that wait take over."""

    rounds: int
    busiest_bytes: float
    items: int = 1

    @property
    def words(self) -> str:
        """The facts as text."""
        moved = amount_of_bytes(round(self.busiest_bytes))
        said = f"about {self.rounds} rounds of 2 barriers in an epoch, {moved} a round on the busiest worker"
        if self.items == 1:
            return said
        return f"{said}; a worker's rows are {self.items} work items, which workers that wait take over"


def descent_facts(physical: PhysicalPlan, workers: int) -> DescentFacts:
    """Return the rounds of a plan (Rendle et al. 2016, 4.3.2) with its cells spread over this many workers."""
    learner, work = physical.bound.learner, physical.workload(workers)
    packs = {unit.configs: physical.configs_of(unit) for tasks in physical.alike for unit in tasks.first}
    sizes = (
        cost.state_bytes(learner, each, physical.width, physical.outputs)
        + cost.sums_bytes(learner, each, physical.width, physical.outputs)
        for each in packs.values()
    )
    moved = max(sizes, default=0) * (workers - 1) / work.round_parts / work.epoch_rounds
    return DescentFacts(work.epoch_rounds, moved, work.work_items)
