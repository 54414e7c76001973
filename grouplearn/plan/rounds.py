"""What rounds of averaging and of coordinate descent are, in numbers: how many, and what moves in each."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.amounts import amount_of_bytes, counted
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.rounds.stages import neighbours
from grouplearn.schedule.sharded.partition import blocks_of

#: What all wait for in a round, by who takes the mean; where every epoch is judged, two more.
_BARRIERS = {"scatter": 2, "star": 2, "tree": 3}
_JUDGED = 2


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """The rounds of the largest group: most partitions, rounds at most, barriers in each, and bytes of a pack's models that
    reach or leave the worker that moves most in one, each partition on a worker of its own."""

    partitions: int
    rounds: int
    barriers: int
    busiest_bytes: float

    @property
    def words(self) -> str:
        """The facts as a person reads them."""
        if self.partitions < 2:
            return "no group has rows for two partitions"
        rounds, barriers = counted(self.rounds, "round"), counted(self.barriers, "barrier")
        moved = amount_of_bytes(round(self.busiest_bytes))
        return f"up to {self.partitions} partitions, {rounds} of {barriers}, {moved} a round on the busiest worker"


def round_facts(physical: PhysicalPlan, workers: int) -> RoundFacts:
    """Return what the rounds of a plan are: 2 m (k - 1) / k bytes for each of k partitions, or 2 m (k - 1) for a star's centre,
    m the bytes of the largest pack's models (Zhang et al. 2019, IV-B)."""
    options, learner = physical.bound.options, physical.bound.learner
    averages = physical.workload(workers).averages
    blocks = blocks_of(max(physical.stats.rows, default=0), physical.block_rows)
    count = min(averages.partitions, max(1, blocks))
    packs = {unit.configs: physical.configs_of(unit) for tasks in physical.alike for unit in tasks.first}
    size = max(
        (cost.state_bytes(learner, each, physical.width, physical.outputs) for each in packs.values()), default=0
    )
    runs = neighbours(count)
    others = {"scatter": (count - 1) / count, "star": count - 1, "tree": (len(runs) - 1 + count - 1) / 2}
    barriers = _BARRIERS[averages.reduce] + (_JUDGED if options.early_stopping is not None else 0)
    return RoundFacts(count, physical.epochs, barriers, 2 * size * others[averages.reduce])


@dataclass(frozen=True, slots=True)
class DescentFacts:
    """The rounds of an epoch of the largest group, as far as its items say, and about what reaches or leaves the worker that
    moves most in one: the sums of a block of columns from all others, and what becomes of them to all others."""

    rounds: int
    busiest_bytes: float

    @property
    def words(self) -> str:
        """The facts as a person reads them."""
        moved = amount_of_bytes(round(self.busiest_bytes))
        return f"about {self.rounds} rounds of 2 barriers in an epoch, {moved} a round on the busiest worker"


def descent_facts(physical: PhysicalPlan, workers: int) -> DescentFacts:
    """Return what the rounds of a plan are (Rendle et al. 2016, 4.3.2), its cells spread over so many workers."""
    learner, work = physical.bound.learner, physical.workload(workers)
    packs = {unit.configs: physical.configs_of(unit) for tasks in physical.alike for unit in tasks.first}
    sizes = (
        cost.state_bytes(learner, each, physical.width, physical.outputs)
        + cost.sums_bytes(learner, each, physical.width, physical.outputs)
        for each in packs.values()
    )
    moved = max(sizes, default=0) * (workers - 1) / work.round_parts / work.epoch_rounds
    return DescentFacts(work.epoch_rounds, moved)
