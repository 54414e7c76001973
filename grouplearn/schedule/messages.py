"""Messages between a runtime and an operator's state machine: events in, instructions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from grouplearn.data.split import FINAL
from grouplearn.schedule.averages import Averages

#: What one worker does for a unit whose group is split between workers: each kind, with its inputs and its product.
#:
#: ``init``        takes nothing; makes the state before the first epoch.
#: ``accumulate``  (algebraic) takes the state and sums made earlier in the epoch; makes those sums with its blocks' added,
#:                 and the validation metric's sums at the state's accepted models.
#: ``update``      (algebraic) takes the state and all sums of the epoch; makes the next state. (sequential, when every epoch
#:                 is evaluated) takes the state and the sums of the evaluation; makes the state with the epoch's metrics.
#: ``train``       (sequential) takes the state; makes the state after its blocks were visited, in order.
#: ``work``        (rounds) takes the model, in parts or whole; makes the model after its partition's blocks were visited, or
#:                 the sums of gradients, in pieces, and the metric's sums of its held-out rows at the model that it took.
#: ``combine``     (rounds, tree) takes what some partitions made; makes their mean, or their sum.
#: ``reduce``      (rounds) takes one piece of what all partitions made and, where the next model depends on the previous
#:                 one, that part of it; makes that part of the next model.
#: ``push``        (parameter server) takes one piece of what some partitions pushed, and that part of the model; makes the
#:                 part with their changes.
#: ``judge``       (rounds, when every epoch is evaluated) takes the parts; makes the metric's sums of its held-out rows; an
#:                 ``update`` takes all of them.
#:
#: For a learner in rounds, ``work`` makes sums of its cells and ``reduce`` a part of the new values of the round's columns.
#: An epoch ends with an ``update``, which makes the state: steps of the next epoch take it and all parts made since.
#:
#: ``evaluate``    takes the state; makes the metrics' sums of its blocks (training and held-out rows).
#: ``finish``      takes the state and all sums of its evaluation; makes the unit's result.
#: ``boost``       (sampling) runs at the same time on every worker that has rows of the group; the workers exchange
#:                 statistics, and the one of rank 0 makes the unit's result.
#: ``descend``     (sequential, data parallel) as ``boost``: all workers of the group train one replica, batch by batch.
StepKind = Literal[
    "init",
    "accumulate",
    "update",
    "train",
    "work",
    "combine",
    "reduce",
    "push",
    "judge",
    "evaluate",
    "finish",
    "boost",
    "descend",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """A training unit: one pack (``configs`` of ``group``) on the group's rows, run without preemption.

    ``others`` are further small groups that train in the same unit, side by side (their rows gathered and padded); the unit
    is scheduled as one of ``group``. ``stacked``: its group or groups are small enough for a batched solve. ``fold`` is the
    held-out fold under VALIDATE FOLDS, or FINAL; a unit with ``folds`` k trains the models of all k folds and the final ones
    in one pass over the rows. ``cost`` is the estimated work in seconds. Schedules use it only to order units, so it never
    changes a model.
    """

    id: int
    group: int
    configs: tuple[int, ...]
    fold: int = FINAL
    cost: float = 0.0
    others: tuple[int, ...] = ()
    folds: int = 0
    stacked: bool = False

    @property
    def stays_whole(self) -> bool:
        """Whether its rows must stay on one worker: small groups side by side, or all folds in one pass."""
        return bool(self.others or self.folds or self.stacked)

    @property
    def is_final(self) -> bool:
        """Whether its models are those that are kept."""
        return self.fold == FINAL

    @property
    def groups(self) -> tuple[int, ...]:
        """Every group the unit trains."""
        return (self.group, *self.others)

    def of(self, group: int) -> Unit:
        """Return the unit for one of its groups alone."""
        return replace(self, group=group, others=(), stacked=False)


@dataclass(frozen=True, slots=True)
class BlockRange:
    """The blocks [first, last) of a group; for schedules this is a shard."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Part:
    """Part ``number``, from 0, of ``of`` parts: of a group's blocks, or of a step's product."""

    number: int
    of: int


#: All batches of an epoch.
EPOCH = Part(0, 1)


@dataclass(frozen=True, slots=True)
class Push:
    """A change that ``partition`` pushed to a model that had ``seen`` so many pushes."""

    partition: int
    seen: int


def is_possible_order(pushes: Sequence[Push]) -> bool:
    """Return whether pushes can have been applied in this order: each began after its partition's previous one."""
    last: dict[int, int] = {}
    for number, push in enumerate(pushes):
        if push.partition < 0 or not last.get(push.partition, -1) < push.seen <= number:
            return False
        last[push.partition] = number
    return True


@dataclass(frozen=True, slots=True)
class EpochRound:
    """Where a step stands in an epoch of a learner in rounds.

    ``number`` rounds, of about ``of``, are complete since the state that the step takes first; from each it takes ``parts``
    products, in order.
    """

    number: int
    of: int
    parts: int


@dataclass(frozen=True, slots=True)
class Step:
    """What one worker does, without preemption, for a unit whose group is split.

    ``id`` numbers a run's steps in the order of their instructions, and identifies their products. ``takes`` are the steps
    whose products it needs, the state first. ``rank`` of ``size`` places it among the steps of a ``boost`` or ``descend``,
    which start together.

    Rounds: ``partition`` is its part of the group's actual blocks, approximately ``blocks``. Its product is stored in
    ``pieces``. It takes one ``piece`` of products in pieces, or all (None), and only what it takes is sent. ``round`` is
    set if workers keep what they have taken: then they fetch only what is new. ``stretch`` is its part of the epoch's
    batches, ``averages`` says how they are averaged. ``before`` is the step that made its part of the previous model, if it
    takes one, as the last input. It is separate because a thousand steps share one tuple ``takes``. ``pushes`` made the
    model that it finishes, in order.
    """

    id: int
    unit: Unit
    kind: StepKind
    epoch: int = 0
    blocks: BlockRange | None = None
    takes: tuple[int, ...] = ()
    rank: int = 0
    size: int = 1
    cost: float = 0.0
    partition: Part | None = None
    piece: Part | None = None
    pieces: int = 1
    round: EpochRound | None = None
    stretch: Part = EPOCH
    averages: Averages = field(default_factory=Averages)
    before: tuple[int, ...] = ()
    pushes: tuple[Push, ...] = ()

    @property
    def new_from(self) -> int:
        """The first of ``takes`` that is new to a worker which took everything in the previous round."""
        if self.round is None or not self.round.number:
            return 0
        return 1 + (self.round.number - (self.kind != "reduce")) * self.round.parts

    @property
    def goes_on(self) -> bool:
        """The expected ``StepDone.more`` if nothing is trained: an epoch then has as many rounds as estimated."""
        return self.round is None or self.kind != "reduce" or self.round.number + 1 < self.round.of

    @property
    def inputs(self) -> tuple[int, ...]:
        """The steps whose products it needs, in order."""
        return (*self.takes, *self.before) if self.before else self.takes


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker joined and is idle."""

    worker: int


@dataclass(frozen=True, slots=True)
class UnitDone:
    """A worker finished a unit (successfully, or with a reason in its result) and is idle."""

    worker: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class StepDone:
    """A worker finished a step and is idle.

    ``more`` is False if no config of the unit needs a further epoch or, after a ``reduce`` of a learner in rounds, if that
    round was the last of an epoch.

    ``failed``: the step broke (its reason is in the unit's result); no further step of the unit may be instructed. If a
    worker of a ``boost`` or ``descend`` is lost, the others must stop, and their StepDone only says that they are idle: the
    unit begins again.
    """

    worker: int
    step: Step
    more: bool = True
    failed: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone with its rows and products; what it was running must run elsewhere.

    Steps running on other workers have their inputs; a worker that does not counts as lost too. ``kept``: its products
    still exist, as they are stored elsewhere. ``replaced``: another worker will join, for which gangs wait.
    """

    worker: int
    kept: bool = False
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLeaving:
    """A worker is to leave, as its machine is reclaimed: it finishes what it runs, and others do its remaining work.

    ``kept``: its products are stored elsewhere; otherwise the worker stays until nobody needs them. ``replaced``: another
    worker will join, for which gangs wait.
    """

    worker: int
    kept: bool = False
    replaced: bool = False


Event = WorkerReady | UnitDone | StepDone | WorkerLost | WorkerLeaving


@dataclass(frozen=True, slots=True)
class Load:
    """Prepare the encoded rows of ``group``, or of some of its blocks, on ``worker``, which keeps them until ``Release``.

    A worker may hold several groups and several runs of blocks of one group; a step's blocks lie within one of them.
    """

    worker: int
    group: int
    blocks: BlockRange | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """Run ``unit`` on ``worker``."""

    worker: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run ``step`` on ``worker``."""

    worker: int
    step: Step


@dataclass(frozen=True, slots=True)
class Discard:
    """The products of these steps are no longer needed."""

    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """``worker`` no longer needs any rows of ``group``."""

    worker: int
    group: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """``worker``, which was asked to leave, may go: it runs nothing, and nobody needs its products."""

    worker: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Every unit is done; workers may stop."""


Instruction = Load | Run | RunStep | Discard | Release | Dismiss | Finish


class Operator(Protocol):
    """A way to run units: a pure state machine without clock or input/output."""

    name: str

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Handle an event; return the instructions that follow, in order."""
        ...
