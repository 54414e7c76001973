"""The progress of a unit whose partitions push their changes without waiting for each other (Ho et al. 2013, SSP)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Part, Push, Step, Unit
from grouplearn.schedule.rounds import stages
from grouplearn.schedule.rounds.stages import RoundTask, Shares, Stage
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, UnitProgress
from grouplearn.schedule.workload import Workload

#: Most parts of a model: a partition's push costs one message per part.
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class _Worked:
    """A partition's pending push, made by ``step``."""

    push: Push
    step: int


class PushProgress(UnitProgress):
    """Partitions pull the model, work, and push their changes; none is more than ``staleness`` clocks ahead of the slowest.

    A clock is a partition's pass, or some batches of it. It begins with all pushes applied so far. Among them are all the
    partition's own, and those of every other partition except for the last ``staleness`` clocks. Pushes that arrive
    meanwhile are applied together, part by part, in the order of their arrival, by workers that have just pushed, so that
    no slow worker delays a part. A model is thus identified by the number of pushes it has seen, and a run by their order:
    ``workload.pushes`` repeats one, on any workers.

    A lost worker's pushes that were not applied are made again from the current model. If a part of that is lost, or if a
    repeated push would begin from a model that no longer exists, training begins again (durable runs: from the files kept).
    """

    def __init__(self, unit: Unit, shares: Shares, workload: Workload, products: Products, rounds: int) -> None:
        self.unit, self.generation, self.over = unit, 0, False
        self._shares, self._products, self._staleness = shares, products, workload.averages.staleness
        self._rounds, self._clocks = rounds, workload.epochs * rounds
        self._parts = min(len(shares), MOST_PARTS)
        self._repeats = workload.pushes.get(unit.id, ())
        self._begins_from, self._pulled = _pulls(self._repeats), sorted({push.seen for push in self._repeats})
        fits = all(each < len(shares) and len(pulls) <= self._clocks for each, pulls in self._begins_from.items())
        require(fits, f"the pushes to repeat are not of the partitions that unit {unit.id} has")
        self._model: tuple[int, ...] = ()
        self._order: list[Push] = []  # in the order in which pushes were applied
        self._clock = [0] * len(shares)
        self._todo: dict[int, None] = {}
        self._working: dict[int, Push] = {}  # by step
        self._waiting: list[_Worked] = []
        self._applied: tuple[_Worked, ...] = ()
        self._steps: tuple[int, ...] = ()
        self._apply: Stage | None = None
        self._stages: list[Stage] = []  # run in order: the initial model, or the evaluation and the result
        self._more, self._goes_on = True, True  # after the current model, and after the pushes that are being applied

    def begin(self) -> list[ReadyStep]:
        """Return the tasks that may begin first."""
        self._model, self._order, self._clock, self._more = (), [], [0] * len(self._shares), True
        self._stages = [Stage((RoundTask("init", self._home),))]
        return self._offer()

    def takes(self, ready: ReadyStep) -> tuple[int, ...]:
        """Return the steps whose products a task takes; tasks that take the same share one tuple."""
        match ready.kind:
            case "init":
                return ()
            case "push":
                return self._steps
            case "finish":
                return (*self._model, *self._stages[0].products)
        return self._model

    def before(self, ready: ReadyStep) -> tuple[int, ...]:
        """Return the step that made the part to which a push is applied; none for the initial model, which is in one piece."""
        return (self._model[min(ready.number, len(self._model) - 1)],) if ready.kind == "push" else ()

    def pushes(self, ready: ReadyStep) -> tuple[Push, ...]:
        """Return the pushes that made the model of a result."""
        return tuple(self._order) if ready.kind == "finish" else ()

    def started(self, ready: ReadyStep, step: Step) -> None:
        """Record that a task returned here begins as ``step``."""
        require(not ready.void and not self.over, f"step {step.id} of unit {self.unit.id} comes too late")
        if ready.kind == "work":
            ahead = self._clock[ready.number] - min(self._clock)
            may = self._repeating or ahead <= self._staleness  # a repeated run kept to its own staleness
            require(may, f"partition {ready.number} of unit {self.unit.id} is {ahead} clocks ahead")
            del self._todo[ready.number]
            self._working[step.id] = Push(ready.number, len(self._order))
            return
        stage = self._stage_of(ready)
        require(ready.number in stage.todo, f"task {ready.number} of stage {stage.kind} was begun twice")
        del stage.todo[ready.number]
        stage.running[step.id] = ready.number

    def expects(self, step: int) -> bool:
        """Whether the product of the running ``step`` is still wanted."""
        return not self.over and (step in self._working or any(step in stage.running for stage in self._every_stage))

    def done(self, step: Step, worker: int, place: int, more: bool) -> list[ReadyStep]:  # noqa: ARG002
        """Record that an expected step is done; return what may begin now."""
        if step.id in self._working:
            self._waiting.append(_Worked(self._working.pop(step.id), step.id))
            return self._go_on(place)
        stage = next(stage for stage in self._every_stage if step.id in stage.running)
        number = stage.running.pop(step.id)
        stage.made[number] = step.id
        if stage.kind != "push":
            self._more = self._more and more
        elif number == 0:  # the first part has the progress of all parts
            self._goes_on = more
        if not stage.complete:
            return []
        match stage.kind:
            case "init":
                self._model, self._stages = stage.products, []
                return self._go_on(place) if self._more else self._look()
            case "push":
                return self._pushed(stage, place)
            case "finish":
                self.end()
                return []
        return self._offer()

    def lost(self, lost_step: int | None) -> list[ReadyStep]:
        """Record the loss of a worker with its products, and of ``lost_step`` of this unit; return all that may begin."""
        self.generation += 1
        for stage in self._every_stage:
            number = stage.running.pop(lost_step, None) if lost_step is not None else None
            if number is not None:
                stage.todo[number] = None
            stage.made = {number: step for number, step in stage.made.items() if step in self._products}
            stage.want(range(len(stage.tasks)))
        if self._stages and self._stages[-1].running:
            return []  # the worker that makes the result, or the initial model, has its inputs
        if any(step not in self._products for step in self._model):
            return self._begin_again()
        again = [self._working.pop(lost_step)] if lost_step in self._working else []
        if any(each.step not in self._products for each in self._applied):
            self._leave_apply()
        again += [each.push for each in self._waiting if each.step not in self._products]
        self._waiting = [each for each in self._waiting if each.step in self._products]
        if self._repeating and any(push.seen != len(self._order) for push in again):
            return self._begin_again()
        self._todo.update(dict.fromkeys(push.partition for push in again))
        return self._offer() if self._stages else [*self._offer(), *self._begin_apply(self._home)]

    def end(self) -> None:
        """Drop everything: the unit is done or has failed."""
        self.over = True
        self._leave_pushes()
        self._drop_all()

    # Pushes

    def _go_on(self, place: int) -> list[ReadyStep]:
        """Apply pending pushes unless some are being applied, and start the partitions that may work."""
        busy = {push.partition for push in self._working.values()} | {*self._todo}
        busy |= {each.push.partition for each in (*self._waiting, *self._applied)}
        free = [partition for partition in range(len(self._shares)) if partition not in busy]
        slowest = min(self._clock)
        begins = [partition for partition in free if self._may_work(partition, slowest)]
        self._todo.update(dict.fromkeys(begins))
        return [*self._begin_apply(place), *map(self._work, begins)]

    def _may_work(self, partition: int, slowest: int) -> bool:
        clock = self._clock[partition]
        if self._repeating:
            pulls = self._begins_from.get(partition, [])
            return clock < len(pulls) and pulls[clock] == len(self._order)
        return clock < self._clocks and clock - slowest <= self._staleness

    @property
    def _repeating(self) -> bool:
        return len(self._order) < len(self._repeats)

    def _begin_apply(self, place: int) -> list[ReadyStep]:
        """Start to apply pending pushes: by the worker at ``place``, and by those that pushed and have nothing else to do."""
        if self._apply is not None:
            return []
        self._applied = tuple(self._next_in_order() if self._repeating else self._waiting)
        if not self._applied:
            return []
        self._waiting = [each for each in self._waiting if each not in self._applied]
        self._steps = tuple(each.step for each in self._applied)
        at = self._shares.places
        busy = {at[partition] for partition in (*self._todo, *(push.partition for push in self._working.values()))}
        pushers = (at[each.push.partition] for each in self._applied)
        places = [*dict.fromkeys((place, *(each for each in pushers if each not in busy)))]
        stretch, count = Part(0, self._rounds), self._parts
        tasks = (
            RoundTask("push", places[part % len(places)], piece=Part(part, count), stretch=stretch)
            for part in range(count)
        )
        self._apply = Stage(tuple(tasks))
        return self._ready_of(self._apply)

    def _next_in_order(self) -> list[_Worked]:
        """Return the pushes to apply next in a repeated run, up to the next model from which a partition begins.

        There are none while a partition has yet to begin from the current model.
        """
        if self._todo:
            return []
        first, waiting = len(self._order), {each.push.partition: each for each in self._waiting}
        at = bisect_right(self._pulled, first)
        last = self._pulled[at] if at < len(self._pulled) else len(self._repeats)
        found: list[_Worked] = []
        for push in self._repeats[first:last]:
            if push.partition not in waiting:
                break
            found.append(waiting[push.partition])
        return found

    def _pushed(self, stage: Stage, place: int) -> list[ReadyStep]:
        """Continue from the next model, as all its parts exist."""
        for each in self._applied:
            self._clock[each.push.partition] += 1
            self._products.drop(each.step)
        for step in self._model:
            self._products.drop(step)
        self._order += [each.push for each in self._applied]
        self._model, self._applied, self._apply = stage.products, (), None
        self._more = self._more and self._goes_on
        # The push that ended the earlier run may have been applied together with later pushes.
        if self._repeating or (self._more and min(self._clock) < self._clocks):
            return self._go_on(place)
        return self._look()

    def _look(self) -> list[ReadyStep]:
        """Evaluate all rows and make the result, as training has ended."""
        self._leave_pushes()
        self._stages = [stages.evaluations("evaluate", self._shares), Stage((RoundTask("finish", self._home),))]
        return self._offer()

    # Tasks that wait for a worker

    @property
    def _home(self) -> int:
        return self._shares.places[self.unit.id % len(self._shares)]

    @property
    def _every_stage(self) -> list[Stage]:
        return self._stages if self._apply is None else [*self._stages, self._apply]

    def _stage_of(self, ready: ReadyStep) -> Stage:
        return next(stage for stage in self._every_stage if stage.kind == ready.kind)

    def _offer(self) -> list[ReadyStep]:
        """Return all tasks that may begin and have not begun."""
        first = next((stage for stage in self._stages if not stage.complete), None)
        found = [] if first is None else self._ready_of(first)
        return [*found, *([] if self._apply is None else self._ready_of(self._apply)), *map(self._work, self._todo)]

    def _ready_of(self, stage: Stage) -> list[ReadyStep]:
        return [self._ready(stage.tasks[number], number) for number in stage.todo]

    def _work(self, partition: int) -> ReadyStep:
        of = Part(partition, len(self._shares))
        stretch = Part(self._clock[partition] % self._rounds, self._rounds)
        blocks, place = self._shares.blocks[partition], self._shares.places[partition]
        task = RoundTask("work", place, blocks, None, of, None, self._parts, stretch)
        return self._ready(task, partition)

    def _ready(self, task: RoundTask, number: int) -> ReadyStep:
        clock = self._clock[number] if task.kind == "work" else min(self._clock)
        return task.ready(self, clock // self._rounds, number)

    # What is abandoned

    def _begin_again(self) -> list[ReadyStep]:
        self._leave_pushes()
        self._drop_all()
        return self.begin()

    def _leave_apply(self) -> None:
        """Stop applying pushes; they become pending again."""
        if self._apply is not None:
            for step in self._apply.made.values():
                self._products.drop(step)
            self._waiting = [*self._applied, *self._waiting]
            self._applied, self._apply = (), None

    def _leave_pushes(self) -> None:
        """Ignore all further pushes."""
        self.generation += 1
        self._leave_apply()
        for each in self._waiting:
            self._products.drop(each.step)
        self._waiting = []
        self._working.clear()
        self._todo.clear()

    def _drop_all(self) -> None:
        for step in (*self._model, *(step for stage in self._stages for step in stage.made.values())):
            self._products.drop(step)
        self._stages = []


def _pulls(pushes: tuple[Push, ...]) -> dict[int, list[int]]:
    """Return, for each clock of each partition, the model from which it begins, as the number of pushes seen."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for push in pushes:
        found[push.partition].append(push.seen)
    return dict(found)
