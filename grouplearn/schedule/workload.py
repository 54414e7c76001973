"""What operators need to know of the work, besides its units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from grouplearn.learners.contract.access import AccessName
from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import BlockRange, EpochRound, Push, StepKind, Unit
from grouplearn.schedule.options import OneOf, OperatorOption, whole
from grouplearn.schedule.sharded.partition import blocks_of, rows_in

#: The blocks of each visit in order, by unit and epoch.
Visits = Mapping[int, Mapping[int, tuple[BlockRange, ...]]]
#: Who decides where a unit hops to (Nakandala, Zhang and Kumar 2020, 5.1 to 5.3).
Scheduler = Literal["randomized", "vector", "exact"]
SCHEDULERS: tuple[Scheduler, ...] = ("randomized", "vector", "exact")
#: The metrics need the scores of a pass, but no gradients: about a third of an epoch's arithmetic.
EVALUATION_EPOCHS = 1 / 3


@dataclass(frozen=True, slots=True)
class Hops:
    """How units hop: the scheduler, its seed, on how many workers the rows of each unit are, and the visits to repeat.

    Units without ``recorded`` visits visit blocks in order.
    """

    scheduler: Scheduler = "randomized"
    seed: int = 0
    replicas: int = 1
    recorded: Visits | None = None


SCHEDULER = OperatorOption(
    "scheduler", "who decides which networks go to which worker next", OneOf(*SCHEDULERS), "randomized"
)
REPLICAS = OperatorOption("replicas", "how many workers hold the same part of a group's rows", whole(1), 1)


@dataclass(frozen=True, slots=True)
class Workload:
    """How the learner reads data, rows by group number, workers that will be ready, epochs of a unit, rows of a block.

    ``group_isolation`` (sequential): no two workers are busy with one group at the same time (kingpin 4.2, invariant 4);
    without it, the packs of a group may be on different shards at the same time. ``evaluate_epochs`` (sequential): metrics
    after every epoch, for early stopping. ``hops`` is for operator mop; ``averages`` for averaging and parameter_server;
    ``pushes``, by unit and in order, are those that parameter_server repeats. ``options`` are those that the running operator
    declares, by name, as given or at their defaults.

    ``split_seconds`` (algebraic) is what a unit in steps costs each worker that has rows of it, besides its share of the
    work; ``split_row_seconds`` is the further cost per row and config. ``solving_seconds`` of a unit are no share of its rows:
    one worker solves when it has all sums. ``training_rows``, if known, are the rows by group
    number that train in any fold: members of a gang share these, and partitions divide them. ``batch_rows`` is the number
    of rows in a batch of each config, with which averaging counts batches.

    Rounds: an epoch has about ``epoch_rounds``, whose sums are reduced in at most ``round_parts`` parts;
    ``evaluate_epochs`` where rows are held out. A worker's share of a group's cells is cut into at most ``work_items``,
    which idle workers may take over. That costs them as much as ``takeover_rounds`` rounds of such an item, as they must
    read rows and compute predictions, but nothing with ``rows_shared``, where workers are threads that share both. Raises
    ValueError for fewer than one worker, epoch or row per block.
    """

    access: AccessName
    rows: tuple[int, ...]
    workers: int
    epochs: int
    block_rows: int
    group_isolation: bool = True
    evaluate_epochs: bool = False
    hops: Hops = Hops()
    averages: Averages = field(default_factory=Averages)
    pushes: Mapping[int, tuple[Push, ...]] = field(default_factory=dict)
    split_seconds: float = 0.0
    split_row_seconds: float = 0.0
    solving_seconds: float = 0.0
    training_rows: tuple[int, ...] = ()
    epoch_rounds: int = 1
    round_parts: int = 1
    work_items: int = 1
    takeover_rounds: float = 0.0
    rows_shared: bool = False
    batch_rows: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rounds = (
            ("round of an epoch", self.epoch_rounds),
            ("part of a round", self.round_parts),
            ("work item", self.work_items),
        )
        sizes = (("worker", self.workers), ("epoch", self.epochs), ("row per block", self.block_rows))
        for what, number in (*sizes, *rounds):
            if number < 1:
                raise ValueError(f"a schedule needs at least one {what}, not {number}")

    @property
    def most_places(self) -> int:
        """In how many places rows of one group may train."""
        return max(self.workers, self.averages.partitions)

    @property
    def in_gangs(self) -> bool:
        """Whether the workers of a unit train it together, each with rows of its own; sums are just added."""
        return self.access != "algebraic"

    def rows_of(self, unit: Unit) -> int:
        """Return the rows of all groups of ``unit``."""
        return sum(self.rows[group] for group in unit.groups)

    def blocks_of(self, unit: Unit) -> int:
        """Return the blocks of the rows of ``unit``."""
        return blocks_of(self.rows_of(unit), self.block_rows)

    def shared_rows_of(self, unit: Unit) -> int:
        """Return the rows of ``unit`` that members of a gang can share."""
        return sum((self.training_rows or self.rows)[group] for group in unit.groups)

    def cost(self, unit: Unit, kind: StepKind, blocks: BlockRange | None, within: EpochRound | None = None) -> float:
        """Return the estimated seconds of a step: its share of the unit's passes and rows, or of what solving takes, so that all
        steps add up to the unit; ``within`` an epoch of rounds, each round is an equal part of a pass."""
        if kind == "update":
            return self.solving_of(unit) / self.epochs
        evaluations = EVALUATION_EPOCHS * (self.epochs if self.evaluate_epochs else 1)
        passes = {
            "accumulate": 1.0,
            "train": 1.0,
            "work": 1.0 if within is None else 1.0 / within.of,
            "judge": EVALUATION_EPOCHS,
            "evaluate": EVALUATION_EPOCHS,
        }
        whole = {"boost": 1.0, "descend": 1.0}
        rows = self.rows_of(unit)
        share = rows_in(blocks, rows, self.block_rows) / rows if rows else 1.0
        shared = unit.cost - self.solving_of(unit)
        return shared * share * whole.get(kind, passes.get(kind, 0.0) / (self.epochs + evaluations))

    def solving_of(self, unit: Unit) -> float:
        """Return the part of a unit's estimated seconds that workers cannot share."""
        return min(self.solving_seconds, unit.cost)
