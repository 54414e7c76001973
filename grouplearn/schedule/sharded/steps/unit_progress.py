"""The progress of a unit whose group is split: which steps come next, from the initial state to the unit's result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import EPOCH, BlockRange, EpochRound, Part, Push, Step, StepKind, Unit
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.sums import PassSums
from grouplearn.schedule.visit_order import visits


@dataclass(frozen=True, slots=True)
class ReadyStep:
    """A step that may begin at a place; void once the unit's progress has a later ``generation``.

    ``urgent``: others wait for its product. ``alone``: no other step of the unit may run at the same time. ``partition``,
    ``piece``, ``pieces``, ``stretch`` and ``round`` are passed to its step; progress in rounds identifies it by its
    ``stage`` and ``number``.
    """

    progress: UnitProgress
    generation: int
    place: int
    kind: StepKind
    epoch: int
    blocks: BlockRange | None = None
    urgent: bool = False
    alone: bool = False
    partition: Part | None = None
    piece: Part | None = None
    pieces: int = 1
    stretch: Part = EPOCH
    stage: int = 0
    number: int = 0
    round: EpochRound | None = None

    @property
    def void(self) -> bool:
        """Whether the unit's generation has changed since, as after the loss of a worker."""
        return self.generation != self.progress.generation

    @property
    def anywhere(self) -> bool:
        """Whether it may begin at any place that the unit has not visited yet."""
        return self.kind == "train" and self.blocks is None

    def at(self, place: int, blocks: BlockRange) -> ReadyStep:
        """Return the same task for one place."""
        return replace(self, place=place, blocks=blocks)


@dataclass(frozen=True, slots=True)
class _State:
    """A state of the unit: the step and the worker that made it, and the progress of training.

    ``visit`` counts the shards visited in ``epoch``; ``over``: there is no further epoch.
    """

    step: int
    worker: int
    epoch: int
    visit: int = 0
    over: bool = False


class UnitProgress(ABC):
    """Turns events of one unit into tasks that may begin; tasks of an earlier ``generation`` may no longer begin."""

    unit: Unit
    generation: int
    over: bool

    @abstractmethod
    def begin(self) -> list[ReadyStep]:
        """Return the tasks that may begin first."""

    @abstractmethod
    def takes(self, ready: ReadyStep) -> tuple[int, ...]:
        """Return the steps whose products a task takes if it begins now, the state first."""

    def before(self, ready: ReadyStep) -> tuple[int, ...]:  # noqa: ARG002
        """Return the step whose product a task takes besides those that its stage has in common."""
        return ()

    def pushes(self, ready: ReadyStep) -> tuple[Push, ...]:  # noqa: ARG002
        """Return the pushes that made the model of a result, with a parameter server."""
        return ()

    @abstractmethod
    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``."""

    @abstractmethod
    def expects(self, step: int) -> bool:
        """Whether the product of the running ``step`` is still wanted."""

    @abstractmethod
    def done(self, step: Step, worker: int, place: int, more: bool) -> list[ReadyStep]:
        """Record that an expected step is done; return what may begin now."""

    @abstractmethod
    def lost(self, lost_step: int | None) -> list[ReadyStep]:
        """Record the loss of a worker with its products, and of ``lost_step`` of this unit; return all that may begin."""

    @abstractmethod
    def end(self) -> None:
        """Drop everything: the unit is done or has failed."""


class SingleState(UnitProgress):
    """The progress of a unit that has one state at a time.

    Two states are kept: the newest, and the last one that another worker made. If the worker with the newest state is lost,
    training resumes from the other one, or from the start. A running step has its inputs.
    """

    def __init__(self, unit: Unit, shards: Mapping[int, BlockRange], epochs: int, products: Products) -> None:
        require(len(shards) > 0, f"the group of unit {unit.id} is on no worker")
        self.unit, self.generation, self.over = unit, 0, False
        self._shards, self._epochs, self._products = shards, epochs, products
        self._state: _State | None = None
        self._older: _State | None = None
        self._pass: PassSums | None = None
        self._single: tuple[int, int] | None = None  # step and place of a step that runs alone
        self._last_place = next(iter(shards))

    @property
    def places(self) -> tuple[int, ...]:
        """The places that have the group's rows."""
        return tuple(self._shards)

    def begin(self) -> list[ReadyStep]:
        """Return the tasks that may begin first."""
        return [self._ready(self._first_place(), "init", 0, urgent=True)]

    def takes(self, ready: ReadyStep) -> tuple[int, ...]:  # noqa: ARG002
        """Return the steps whose products a task takes if it begins now, the state first."""
        if self._state is None:
            return ()
        if self._pass is None:
            return (self._state.step,)
        return (self._state.step, *(self._pass.unmerged if self._pass.complete else self._pass.offered()))

    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``."""
        require(not ready.void and not self.over, f"step {step.id} of unit {self.unit.id} comes too late")
        require(self._single is None, f"a step of unit {self.unit.id} runs that nothing may run beside")
        if self._pass is not None and not self._pass.complete:
            self._pass.started(step.id, ready.place, step.takes[1:])
        else:
            self._single = (step.id, ready.place)

    def expects(self, step: int) -> bool:
        """Whether the product of the running ``step`` is still wanted."""
        single = self._single is not None and self._single[0] == step
        return not self.over and (single or (self._pass is not None and self._pass.is_running(step)))

    def done(self, step: Step, worker: int, place: int, more: bool) -> list[ReadyStep]:
        """Record that an expected step is done; return what may begin now."""
        self._last_place = place
        if self._pass is not None and self._pass.is_running(step.id):
            self._pass.done(step.id)
            return self._conclude() if self._pass.complete else []
        self._single = None
        if step.kind == "finish":
            self.end()
            return []
        self._advance(self._made(step, worker, more))
        return self._go_on()

    def lost(self, lost_step: int | None) -> list[ReadyStep]:
        """Record the loss of a worker with its products, and of ``lost_step`` of this unit; return all that may begin."""
        if self._older is not None and self._older.step not in self._products:
            self._older = None
        if self._single is not None and self._single[0] != lost_step:
            return []  # it continues, as it has its inputs
        self._single = None
        self.generation += 1
        if self._state is None:
            return self.begin()
        if self._state.step not in self._products:
            self._leave_pass()
            self._state, self._older = self._older, None
            return self.begin() if self._state is None else self._go_on()
        if self._pass is None:
            return self._go_on()
        self._pass.repair(lost_step)
        return self._conclude() if self._pass.complete else self._visit_all(self._pass.todo)

    def end(self) -> None:
        """Drop everything: the unit is done or has failed."""
        self.over = True
        self.generation += 1
        self._leave_pass()
        for state in (self._state, self._older):
            if state is not None:
                self._products.drop(state.step)

    def _advance(self, state: _State) -> None:
        """Go to a new state; of the older ones, keep the last that another worker made."""
        self._leave_pass()
        older = [each for each in (self._state, self._older) if each is not None]
        kept = next((each for each in older if each.worker != state.worker and each.step in self._products), None)
        for each in older:
            if each is not kept:
                self._products.drop(each.step)
        self._state, self._older = state, kept

    def _leave_pass(self) -> None:
        if self._pass is not None:
            self._pass.drop()
            self._pass = None

    def _spread(self, lazy: bool) -> list[ReadyStep]:
        """Begin a pass over all shards."""
        self._pass = PassSums(self._shards, lazy, self._products)
        return self._visit_all(self.places)

    def _visit_all(self, places: tuple[int, ...]) -> list[ReadyStep]:
        kind, epoch = self._pass_kind(), self._now.epoch
        return [self._ready(place, kind, epoch, self._shards[place]) for place in places]

    def _conclude(self) -> list[ReadyStep]:
        """End a pass, whose sums are all made: the worker that made the last ones merges them."""
        return [self._ready(self._last_place, "finish" if self._now.over else "update", self._now.epoch, urgent=True)]

    def _ready(
        self, place: int, kind: StepKind, epoch: int, blocks: BlockRange | None = None, urgent: bool = False
    ) -> ReadyStep:
        return ReadyStep(self, self.generation, place, kind, epoch, blocks, urgent, kind == "train")

    @property
    def _now(self) -> _State:
        if self._state is None:
            raise AssertionError("training has no state yet")
        return self._state

    def _made(self, step: Step, worker: int, more: bool) -> _State:
        """Return the state made by ``step``, with the progress of training."""
        if step.kind == "init":
            return _State(step.id, worker, 0)
        return _State(step.id, worker, step.epoch + 1, over=not more or step.epoch + 1 == self._epochs)

    @abstractmethod
    def _first_place(self) -> int:
        """Return the place that makes the initial state."""

    @abstractmethod
    def _go_on(self) -> list[ReadyStep]:
        """Return the tasks that may begin after the newest state."""

    @abstractmethod
    def _pass_kind(self) -> StepKind:
        """Return the kind of steps in the newest state's pass."""


class Algebraic(SingleState):
    """Sums over all shards, then one step of the solver, once per epoch; any number of workers at the same time.

    ``eager``: all workers' sums are merged at the end of the epoch, as in data-parallel systems, instead of being passed on
    from worker to worker.
    """

    def __init__(
        self, unit: Unit, shards: Mapping[int, BlockRange], epochs: int, products: Products, eager: bool = False
    ) -> None:
        super().__init__(unit, shards, epochs, products)
        self._eager = eager

    def _first_place(self) -> int:
        # Packs begin at different workers.
        return self.places[self.unit.id % len(self.places)]

    def _go_on(self) -> list[ReadyStep]:
        return self._spread(lazy=not self._now.over and not self._eager)

    def _pass_kind(self) -> StepKind:
        return "evaluate" if self._now.over else "accumulate"


class Sequential(SingleState):
    """One shard after another, in the order of their blocks; one worker at a time, to which the state hops.

    ``evaluate_epochs``: every epoch ends with the metrics' sums of all shards and an ``update``, which records them in the
    state and decides whether there is ``more``; otherwise the last ``train`` of an epoch decides.
    """

    def __init__(
        self,
        unit: Unit,
        shards: Mapping[int, BlockRange],
        epochs: int,
        products: Products,
        evaluate_epochs: bool = False,
    ) -> None:
        super().__init__(unit, shards, epochs, products)
        self._visits = visits(shards)
        self._evaluate_epochs = evaluate_epochs

    def _first_place(self) -> int:
        return self._route(0)[0][0]

    def _go_on(self) -> list[ReadyStep]:
        state = self._now
        if state.over or state.visit == self._visit_count(state.epoch):
            return self._spread(lazy=False)
        return [self._next_visit()]

    def _route(self, epoch: int) -> tuple[tuple[int, BlockRange], ...]:  # noqa: ARG002
        """Return which place visits which blocks in an epoch, in order."""
        return self._visits

    def _visit_count(self, epoch: int) -> int:
        return len(self._route(epoch))

    def _next_visit(self) -> ReadyStep:
        place, blocks = self._route(self._now.epoch)[self._now.visit]
        return self._ready(place, "train", self._now.epoch, blocks)

    def _pass_kind(self) -> StepKind:
        return "evaluate"

    def _made(self, step: Step, worker: int, more: bool) -> _State:
        if step.kind != "train":
            return super()._made(step, worker, more)
        visit = self._now.visit + 1
        last = visit == self._visit_count(step.epoch)
        final = last and (not more or step.epoch + 1 == self._epochs)
        if final or not last or self._evaluate_epochs:
            return _State(step.id, worker, step.epoch, visit, final)
        return _State(step.id, worker, step.epoch + 1)
