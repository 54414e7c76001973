"""The progress of a unit in rounds: work on every partition, reduce each part of the model, send all parts to everyone."""

from __future__ import annotations

from collections.abc import Callable

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Step, Unit
from grouplearn.schedule.rounds import stages
from grouplearn.schedule.rounds.stages import RoundTask, Shares, Stage
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, UnitProgress

#: Stages whose tasks take the model as it is at the beginning of the round.
_FROM_THE_MODEL = ("work", "evaluate")


class RoundProgress(UnitProgress):
    """Bulk synchronous rounds of stages; a stage begins when the previous one is complete.

    The model is what the last stage of a round made: parts and, if every epoch is evaluated, the note of the last update,
    with the epoch's metrics. Parts are kept until the next model exists, the note until the next update. An epoch has
    ``rounds`` rounds. If a worker is lost, those of its products that are still needed are made again; if that takes a part
    of the model that is lost, training begins again (durable runs: from what was kept on disk).

    ``make_round`` returns the stages of a round. After the last round follow an evaluation of all rows and the result.
    """

    def __init__(
        self,
        unit: Unit,
        shares: Shares,
        epochs: int,
        products: Products,
        make_round: Callable[[int], list[Stage]],
        rounds: int = 1,
    ) -> None:
        self.unit, self.generation, self.over = unit, 0, False
        self._shares, self._products, self._make_round = shares, products, make_round
        self._epochs, self._rounds = epochs, rounds
        self._judged = any(stage.kind == "update" for stage in make_round(rounds - 1))
        self._model: tuple[int, ...] = ()
        self._noted: tuple[int, ...] = ()
        self._stages: list[Stage] = []
        self._at, self._round, self._more = 0, 0, True
        self._inputs: dict[tuple[int, int | None], tuple[int, ...]] = {}

    def begin(self) -> list[ReadyStep]:
        """Return the tasks that may begin first."""
        self._model, self._noted, self._round, self._more = (), (), 0, True
        return self._enter([Stage((RoundTask("init", self._shares.places[self.unit.id % len(self._shares)]),))])

    def takes(self, ready: ReadyStep) -> tuple[int, ...]:
        """Return the steps whose products a task takes; tasks of a stage that take the same share one tuple."""
        stage, number = self._stages[ready.stage], ready.number
        task = stage.tasks[number]
        key = ready.stage, (None if task.inputs is None else number)
        if key not in self._inputs:
            self._inputs[key] = self._taken(ready.stage, task.inputs)
        return self._inputs[key]

    def before(self, ready: ReadyStep) -> tuple[int, ...]:
        """Return the step that made a task's part of the previous model; none for the initial model, which is in one piece."""
        from_before = self._stages[ready.stage].tasks[ready.number].from_before
        return (self._model[min(ready.number, len(self._model) - 1)],) if from_before else ()

    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``."""
        require(not ready.void and not self.over, f"step {step.id} of unit {self.unit.id} comes too late")
        require(ready.stage == self._at, f"step {step.id} of unit {self.unit.id} begins before its barrier")
        stage = self._stages[ready.stage]
        require(ready.number in stage.todo, f"task {ready.number} of stage {stage.kind} was begun twice")
        del stage.todo[ready.number]
        stage.running[step.id] = ready.number

    def expects(self, step: int) -> bool:
        """Whether the product of the running ``step`` is still wanted."""
        return not self.over and any(step in stage.running for stage in self._stages)

    def done(self, step: Step, worker: int, place: int, more: bool) -> list[ReadyStep]:  # noqa: ARG002
        """Record that an expected step is done; return what may begin now."""
        stage = next(stage for stage in self._stages if step.id in stage.running)
        number = stage.running.pop(step.id)
        stage.made[number] = step.id
        self._more = self._more and more
        return self._go_on() if self._stages[self._at].complete else []

    def lost(self, lost_step: int | None) -> list[ReadyStep]:
        """Record the loss of a worker with its products, and of ``lost_step`` of this unit; return all that may begin."""
        if not self._stages:
            return []
        for stage in self._stages:
            stage.made = {number: step for number, step in stage.made.items() if step in self._products}
            number = stage.running.pop(lost_step, None) if lost_step is not None else None
            if number is not None:
                stage.todo[number] = None
        self.generation += 1
        self._inputs.clear()
        self._stages[-1].want(range(len(self._stages[-1].tasks)))
        for at in range(len(self._stages) - 1, 0, -1):
            self._want_inputs(at)
        if self._misses_model():
            return self._begin_again()
        self._at = next((at for at, stage in enumerate(self._stages) if not stage.complete), self._at)
        return self._go_on() if self._stages[self._at].complete else self._offer()

    def end(self) -> None:
        """Drop everything: the unit is done or has failed."""
        self.over = True
        self.generation += 1
        self._drop_all()

    def _enter(self, stretch: list[Stage]) -> list[ReadyStep]:
        """Begin the stages that lead to a model, or to the result."""
        self._stages, self._at = stretch, 0
        self._inputs.clear()
        return self._offer()

    def _go_on(self) -> list[ReadyStep]:
        """Go to the next incomplete stage, or beyond the last one."""
        while self._stages[self._at].complete:
            if self._at + 1 == len(self._stages):
                return self._concluded()
            self._at += 1
            self._forget()
        return self._offer()

    def _forget(self) -> None:
        """Drop products that no task takes any more: those of partitions, once they are reduced."""
        if self._stages[self._at].kind in ("judge", "update"):
            for stage in self._stages[: self._at]:
                if stage.kind in ("work", "combine"):
                    self._drop(stage)

    def _concluded(self) -> list[ReadyStep]:
        """Continue after the last of the current stages."""
        last = self._stages[-1]
        if last.kind == "finish":
            self.end()
            return []
        if last.kind == "init":
            return self._next(last.products, last.products if self._judged else ())
        parts = next(stage for stage in reversed(self._stages) if stage.kind == "reduce")
        self._round += 1
        if last is parts:
            return self._next(parts.products, self._noted)
        return self._next((*parts.products, *last.products), last.products)

    def _next(self, model: tuple[int, ...], noted: tuple[int, ...]) -> list[ReadyStep]:
        """Continue from a new model: with the next round, or with the end."""
        made = (step for stage in self._stages for step in stage.made.values())
        for step in sorted({*self._model, *self._noted, *made} - {*model, *noted}):
            self._products.drop(step)
        self._model, self._noted = model, noted
        if self._more and self._round < self._epochs * self._rounds:
            return self._enter(self._make_round(self._round))
        finish = RoundTask("finish", self._shares.places[self.unit.id % len(self._shares)])
        return self._enter([stages.evaluations("evaluate", self._shares), Stage((finish,))])

    def _offer(self) -> list[ReadyStep]:
        stage = self._stages[self._at]
        return [self._ready(stage.tasks[number], number) for number in stage.todo]

    def _ready(self, task: RoundTask, number: int) -> ReadyStep:
        return task.ready(self, self._round // self._rounds, number, self._at)

    def _taken(self, at: int, inputs: tuple[int, ...] | None) -> tuple[int, ...]:
        stage = self._stages[at]
        match stage.kind:
            case "init":
                return ()
            case "work" | "evaluate":
                return self._model
            case "update":  # the previous update's note, or the initial state, comes last
                return (*self._stages[at - 2].products, *self._stages[at - 1].products, *self._noted)
            case "finish":
                return (*self._model, *self._stages[at - 1].products)
        made = self._stages[at - 1].products if inputs is None else self._stages[at - 1].made
        return tuple(made) if isinstance(made, tuple) else tuple(made[number] for number in inputs or ())

    def _want_inputs(self, at: int) -> None:
        """Repeat the lost inputs of a stage's remaining tasks."""
        stage, before = self._stages[at], self._stages[at - 1]
        for number in stage.todo:
            before.want(stage.inputs_of(number, before))
        if stage.todo and stage.kind == "update":
            self._stages[at - 2].want(range(len(self._stages[at - 2].tasks)))

    def _misses_model(self) -> bool:
        """Whether a needed part of the model, or of an update's note, is lost."""
        takes_model = any(stage.todo and self._takes_model(stage) for stage in self._stages)
        needed = (*(self._model if takes_model else ()), *(self._noted if self._stages[-1].kind != "finish" else ()))
        return any(step not in self._products for step in needed)

    def _begin_again(self) -> list[ReadyStep]:
        self._drop_all()
        return self.begin()

    def _takes_model(self, stage: Stage) -> bool:
        return stage.kind in (*_FROM_THE_MODEL, "finish") or stage.tasks[0].from_before

    def _drop(self, stage: Stage) -> None:
        for step in stage.made.values():
            self._products.drop(step)

    def _drop_all(self) -> None:
        self._drop_stages()
        for step in (*self._model, *self._noted):
            self._products.drop(step)

    def _drop_stages(self) -> None:
        for stage in self._stages:
            self._drop(stage)
            stage.running.clear()
            stage.todo.clear()
