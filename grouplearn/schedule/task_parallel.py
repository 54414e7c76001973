"""Task parallelism: a task is a run of units on one group's rows, executed by one worker from first to last."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from grouplearn.schedule.invariants import BrokenSchedule, require
from grouplearn.schedule.leaving import LeavingWorkers
from grouplearn.schedule.messages import (
    Event,
    Finish,
    Instruction,
    Load,
    Release,
    Run,
    StepDone,
    Unit,
    UnitDone,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Units of one group that one worker runs in order; ``units[0]`` is the running or next one."""

    units: tuple[Unit, ...]

    @property
    def group(self) -> int:
        """The group of all its units."""
        return self.units[0].group

    @property
    def priority(self) -> tuple[float, int]:
        """Sort key: largest estimated cost first (LPT, Graham 1969), equal costs by unit number, to be deterministic."""
        return (-self.cost, self.units[0].id)

    @property
    def cost(self) -> float:
        """Estimated seconds."""
        return sum(unit.cost for unit in self.units)


def tasks_by_group(units: Iterable[Unit]) -> dict[int, GroupTask]:
    """Return one task per group; its units are ordered by fold, so that a worker encodes each fold once."""
    by_group: dict[int, list[Unit]] = defaultdict(list)
    for unit in units:
        by_group[unit.group].append(unit)
    return {
        group: GroupTask(tuple(sorted(each, key=lambda unit: (unit.fold, unit.id)))) for group, each in by_group.items()
    }


class TaskParallel:
    """Gives tasks, largest first, to idle workers; a lost worker's unfinished task is queued again.

    Invariants, checked at every event: a worker has at most one task and one running unit, a unit is on at most one worker,
    no unit is done twice, ``Finish`` is returned once, after the last unit.
    """

    name: str = "task_parallel"

    def __init__(self, tasks: Iterable[tuple[Unit, ...]]) -> None:
        self._waiting: list[tuple[tuple[float, int], GroupTask]] = []
        self._assigned: dict[int, GroupTask] = {}
        self._idle: set[int] = set()
        self._open: set[int] = set()
        self._finished = False
        self._leaving = LeavingWorkers()
        for units in tasks:
            require(len({unit.group for unit in units}) == 1, "a task is about one group")
            for unit in units:
                require(unit.id not in self._open, f"unit {unit.id} was given twice")
                self._open.add(unit.id)
            self._enqueue(GroupTask(units))

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Handle an event; return what is to be done now, in order; an impossible event raises BrokenSchedule."""
        match event:
            case WorkerReady(worker):
                instructions = self._joined(worker)
            case UnitDone(worker, unit):
                instructions = self._done(worker, unit)
            case WorkerLost(worker):
                instructions = self._lost(worker)
            case WorkerLeaving(worker):
                there = worker in self._idle or worker in self._assigned
                require(there, f"worker {worker} is not there to leave")
                self._leaving.ask(event)
                instructions = []
            case StepDone(worker, step):
                raise BrokenSchedule(f"worker {worker} was not running step {step.id}")
        for leaving in self._leaving.done(self._assigned.__contains__):
            self._idle.discard(leaving.worker)
        instructions += self._leaving.dismissed(lambda _: False)
        instructions += self._assign()
        if not self._open and not self._finished:
            require(not self._assigned and not self._waiting, "everything is done, yet a task is left")
            self._finished = True
            instructions.append(Finish())
        return tuple(instructions)

    def _joined(self, worker: int) -> list[Instruction]:
        require(worker not in self._idle and worker not in self._assigned, f"worker {worker} joined twice")
        self._idle.add(worker)
        return []

    def _done(self, worker: int, unit: Unit) -> list[Instruction]:
        task = self._assigned.get(worker)
        require(task is not None and task.units[0] == unit, f"worker {worker} was not running unit {unit.id}")
        require(unit.id in self._open, f"unit {unit.id} was done twice")
        self._open.remove(unit.id)
        rest = self._assigned.pop(worker).units[1:]
        if rest and self._leaving.is_asked(worker):
            self._enqueue(GroupTask(rest))
        elif rest:
            self._assigned[worker] = GroupTask(rest)
            return [Run(worker, rest[0])]
        self._idle.add(worker)
        return [Release(worker, unit.group)]

    def _lost(self, worker: int) -> list[Instruction]:
        require(worker in self._idle or worker in self._assigned, f"worker {worker} was not there to be lost")
        self._idle.discard(worker)
        self._leaving.lose(worker)
        task = self._assigned.pop(worker, None)
        if task is not None:
            self._enqueue(task)
        return []

    def _assign(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        while self._waiting and self._idle:
            _, task = heapq.heappop(self._waiting)
            worker = min(self._idle)
            self._idle.remove(worker)
            self._assigned[worker] = task
            instructions += [Load(worker, task.group), Run(worker, task.units[0])]
        return instructions

    def _enqueue(self, task: GroupTask) -> None:
        heapq.heappush(self._waiting, (task.priority, task))


class GroupTaskParallel(TaskParallel):
    """One task per group: its rows are loaded once and all its units run on one worker."""

    name = "group_task_parallel"

    def __init__(self, units: Iterable[Unit]) -> None:
        super().__init__(task.units for task in tasks_by_group(units).values())


class ModelTaskParallel(TaskParallel):
    """One task per unit: each loads its group's rows itself (the many-model pattern of task-based systems)."""

    name = "model_task_parallel"

    def __init__(self, units: Iterable[Unit]) -> None:
        super().__init__((unit,) for unit in units)
