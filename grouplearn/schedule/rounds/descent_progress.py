"""The progress of a unit whose learner trains in rounds: an epoch has many, and each changes only a part of the model."""

from __future__ import annotations

from dataclasses import replace

from grouplearn.schedule.messages import EpochRound, Part, Step, Unit
from grouplearn.schedule.rounds import stages
from grouplearn.schedule.rounds.round_progress import RoundProgress
from grouplearn.schedule.rounds.stages import RoundTask, Shares, Stage
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep
from grouplearn.schedule.workload import Workload

#: Most rounds between two states. Every step names the parts of all rounds since, so that without a bound an epoch's steps
#: would cost as much as the square of its rounds.
MOST_ROUNDS = 64


class DescentProgress(RoundProgress):
    """Rounds of two stages, ``work`` and ``reduce``, until the epoch is complete; then ``judge`` and ``update``.

    The model of a round is the state that the last ``update`` made and the parts that have been reduced since. Workers keep
    what they have taken of it, so they fetch only the parts of the last round. Two workers make the update, so that one
    state remains if a worker is lost. If a part is lost, training goes on from that state. In an epoch of many rounds there
    is also an ``update`` after every ``MOST_ROUNDS``.

    A share is processed in ``items``. A worker that takes over an item keeps it, as it then has its rows and predictions.
    """

    def __init__(
        self, unit: Unit, shares: Shares, workload: Workload, products: Products, items: Shares | None = None
    ) -> None:
        self._expected = workload.epoch_rounds
        self._items = items or shares
        self._places = [*self._items.places]
        self._parts = min(workload.round_parts, len(shares))
        self._complete = 0
        self._ends = False
        self._copies: tuple[int, ...] = ()
        super().__init__(unit, shares, workload.epochs, products, self._stretch)
        self._judged = workload.evaluate_epochs

    def begin(self) -> list[ReadyStep]:
        """Return the tasks that may begin first."""
        self._complete, self._copies = 0, ()
        return super().begin()

    def lost(self, lost_step: int | None) -> list[ReadyStep]:
        """Record the loss of a worker with its products, and of ``lost_step`` of this unit; return all that may begin."""
        self._copies = tuple(step for step in self._copies if step in self._products)
        if self._copies:
            self._model = (self._copies[0], *self._model[1:])
        return super().lost(lost_step)

    def _stretch(self, epoch: int) -> list[Stage]:
        """Return the stages of a round; the places that reduce change from round to round, and from unit to unit."""
        first = self.unit.id + epoch + self._complete
        places = [self._place(first + part) for part in range(self._parts)]
        reduced = (RoundTask("reduce", place, piece=Part(part, self._parts)) for part, place in enumerate(places))
        return [stages.work(self._held, self._parts, light=False), Stage(tuple(reduced))]

    def _to_a_state(self) -> list[Stage]:
        """Return the stages that lead to the next state: at the end of an epoch, or within a long one."""
        count = min(2, len(self._shares))
        makers = ((self._place(self.unit.id + copy), Part(copy, count)) for copy in range(count))
        update = Stage(tuple(RoundTask("update", place, partition=copy, pieces=3) for place, copy in makers))
        return [stages.evaluations("judge", self._held), update] if self._judged and self._ends else [update]

    @property
    def _held(self) -> Shares:
        """The items, each at the place that has it now."""
        return Shares(tuple(self._places), self._items.blocks)

    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``; if at another place, that place has the item from now on."""
        super().started(ready, step)
        if ready.blocks is not None:
            self._places[ready.number] = ready.place

    def _place(self, number: int) -> int:
        return self._shares.places[number % len(self._shares)]

    def _concluded(self) -> list[ReadyStep]:
        """Continue after the last of the current stages."""
        last = self._stages[-1]
        match last.kind:
            case "finish":
                self.end()
                return []
            case "reduce":
                self._drop(self._stages[0])
                self._model = (*self._model, *last.products)
                self._complete += 1
                self._ends, self._more = not self._more, True
                goes_on = not self._ends and self._complete < MOST_ROUNDS
                return self._enter(self._stretch(self._round) if goes_on else self._to_a_state())
            case "update":
                self._round += self._ends
                self._more = self._more or not self._ends  # an epoch that has begun is completed
        for stage in self._stages[:-1]:
            self._drop(stage)
        self._drop_model()
        self._copies = last.products
        return self._from_state()

    def _from_state(self) -> list[ReadyStep]:
        """Continue from a state: with the next round, or with the end."""
        self._model, self._complete = self._copies[:1], 0
        if self._more and self._round < self._epochs:
            return self._enter(self._stretch(self._round))
        finish = Stage((RoundTask("finish", self._place(self.unit.id)),))
        return self._enter([stages.evaluations("evaluate", self._held), finish])

    def _misses_model(self) -> bool:
        goes_on = self._stages[-1].kind == "reduce" or any(stage.todo for stage in self._stages)
        return goes_on and any(step not in self._products for step in self._model)

    def _begin_again(self) -> list[ReadyStep]:
        if not self._copies:
            return super()._begin_again()
        self._drop_stages()
        for step in self._model[1:]:
            self._products.drop(step)
        at_the_end = self._stages[-1].kind == "finish"
        self._more = not at_the_end
        return self._from_state()

    def _drop_all(self) -> None:
        self._drop_stages()
        self._drop_model()

    def _drop_model(self) -> None:
        for step in (*self._model, *self._copies):
            self._products.drop(step)

    def _ready(self, task: RoundTask, number: int) -> ReadyStep:
        ready = super()._ready(task, number)
        if task.kind == "init":
            return ready
        return replace(ready, round=EpochRound(self._complete, self._expected, self._parts))

    def _taken(self, at: int, inputs: tuple[int, ...] | None) -> tuple[int, ...]:
        del inputs
        if self._stages[at].kind == "init":
            return ()
        return self._model if at == 0 else (*self._model, *self._stages[at - 1].products)

    def _forget(self) -> None:
        """Drop nothing: the products of cells are needed until all are reduced."""
