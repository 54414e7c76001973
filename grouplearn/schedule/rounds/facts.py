"""The rounds of averaging, a parameter server and coordinate descent in numbers: how many, and what each moves."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.amounts import amount_of_bytes, counted
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.plan_rules import PackBytes, PlanSizes
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


def averaging_words(sizes: PlanSizes) -> str:
    """Return a description of the rounds of averaging."""
    return f"; {round_facts(sizes).words}"


def server_words(sizes: PlanSizes) -> str:
    """Return a description of the rounds of a parameter server."""
    return f"; {round_facts(sizes, sizes.work.averages.staleness).words}"


def descent_words(sizes: PlanSizes) -> str:
    """Return a description of the rounds of coordinate descent."""
    leaves = "; workers of a machine that is to leave the cluster hand over what they have"
    return f"; {descent_facts(sizes).words}{leaves if sizes.leaving else ''}"


def round_facts(sizes: PlanSizes, staleness: int = 0) -> RoundFacts:
    """Return the rounds of a plan: each of k partitions moves (m + g) (k - 1) / k bytes, a star's centre (m + g) (k - 1),
    with m the bytes of the largest pack's models and g of what is sent, models or gradients (Zhang et al. 2019, IV-B).
    """
    work = sizes.work
    averages = work.averages
    count = min(averages.partitions, max(1, blocks_of(max(work.rows, default=0), work.block_rows)))
    size = max((_moved(averages, pack) for pack in sizes.packs), default=0)
    runs = neighbours(count)
    others = {"scatter": (count - 1) / count, "star": count - 1, "tree": (len(runs) - 1 + count - 1) / 2}
    barriers = _BARRIERS[averages.reduce] + (_JUDGED if work.evaluate_epochs else 0)
    return RoundFacts(count, sizes.epochs * sizes.rounds, barriers, size * others[averages.reduce], staleness)


def _moved(averages: Averages, pack: PackBytes) -> int:
    """Return the bytes that one partition sends and receives."""
    velocity = pack.gradients if averages.momentum else 0
    return pack.state + velocity + (pack.gradients if averages.of_gradients else pack.state)


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


def descent_facts(sizes: PlanSizes) -> DescentFacts:
    """Return the rounds of a plan (Rendle et al. 2016, 4.3.2) with its cells spread over its workers."""
    work = sizes.work
    most = max((pack.state + pack.sums for pack in sizes.packs), default=0)
    moved = most * (work.workers - 1) / work.round_parts / work.epoch_rounds
    return DescentFacts(work.epoch_rounds, moved, work.work_items)
