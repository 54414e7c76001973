"""Units that stay whole: every place has a list of tasks, and an idle worker takes from the longest list."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Instruction, Load, Release, Run, Unit
from grouplearn.schedule.task_parallel import GroupTask

_Left = tuple[float, int]


class _Longest:
    """The key with most work left, by estimated seconds and then units; outdated heap entries are skipped."""

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}
        self._heap: list[tuple[float, int, int]] = []

    def add(self, key: int, task: GroupTask, sign: int) -> None:
        cost, number = self._left.get(key, (0.0, 0))
        left = self._left[key] = (cost + sign * task.cost, number + sign * len(task.units))
        if left[1]:
            heapq.heappush(self._heap, (-left[0], -left[1], key))

    def forget(self, key: int) -> None:
        self._left.pop(key, None)

    def top(self) -> int | None:
        """Return the key with most work left, the lowest if several have as much; None if none has any."""
        while self._heap:
            cost, number, key = self._heap[0]
            if self._left.get(key) == (-cost, -number):
                return key
            heapq.heappop(self._heap)
        return None


@dataclass(frozen=True, slots=True)
class _Begun:
    """A task that a worker has begun, and its units that have not begun."""

    group: int
    units: deque[Unit]


class WholeWork:
    """Runs tasks (units of one group) where their rows were placed, largest first.

    ``steal``: a worker whose list is empty takes the first task of the longest list or, if all tasks have begun, the second
    half of the remaining units of one. Work stealing goes beyond the paper, where only the partition balances workers. It
    helps against wrong estimates and indivisible groups, but loads a group again. Without ``divide``, tasks that have begun
    are not divided, so that a group is on one worker at a time.
    """

    def __init__(self, lists: Sequence[Iterable[GroupTask]], steal: bool, divide: bool = True) -> None:
        self._lists = [deque(sorted(tasks, key=lambda task: task.priority)) for tasks in lists]
        self._steals, self._divides = steal, divide
        self._waiting, self._rest = _Longest(), _Longest()
        for place, tasks in enumerate(self._lists):
            for task in tasks:
                self._waiting.add(place, task, +1)
        self._begun: dict[int, _Begun] = {}

    def next(self, worker: int, places: Iterable[int]) -> list[Instruction]:
        """Return the next instructions of ``worker``, which holds ``places``; none if it has nothing to do."""
        begun = self._begun.get(worker)
        if begun is not None and begun.units:
            return [self._run(worker, begun)]
        if begun is not None:  # others have taken its remaining units
            return [*self._leave(worker), *self.next(worker, places)]
        place = next((place for place in places if self._lists[place]), None)
        task = self._take(place) if place is not None else self._stolen() if self._steals else None
        if task is None:
            return []
        begun = self._begun[worker] = _Begun(task.group, deque(task.units))
        self._rest.add(worker, task, +1)
        return [Load(worker, task.group), self._run(worker, begun)]

    def done(self, worker: int) -> list[Instruction]:
        """Record that the worker has done a unit; its rows are released after the task's last unit."""
        return [] if self._begun[worker].units else self._leave(worker)

    def lose(self, worker: int, running: Unit | None) -> None:
        """Queue the lost worker's unfinished units again, at the shortest list."""
        begun = self._begun.pop(worker, None)
        self._rest.forget(worker)
        units = (*(() if running is None else (running,)), *(begun.units if begun is not None else ()))
        if units:
            shortest = min(range(len(self._lists)), key=lambda place: (len(self._lists[place]), place))
            self.add(shortest, GroupTask(units))

    def add(self, place: int, task: GroupTask) -> None:
        """Put a task at the front of the list of ``place``."""
        self._lists[place].appendleft(task)
        self._waiting.add(place, task, +1)

    def _run(self, worker: int, begun: _Begun) -> Run:
        unit = begun.units.popleft()
        self._rest.add(worker, GroupTask((unit,)), -1)
        return Run(worker, unit)

    def _leave(self, worker: int) -> list[Instruction]:
        return [Release(worker, self._begun.pop(worker).group)]

    def _take(self, place: int) -> GroupTask:
        task = self._lists[place].popleft()
        self._waiting.add(place, task, -1)
        return task

    def _stolen(self) -> GroupTask | None:
        place = self._waiting.top()
        if place is not None:
            return self._take(place)
        victim = self._rest.top() if self._divides else None
        if victim is None:
            return None
        units = self._begun[victim].units
        require(len(units) > 0, f"worker {victim} has nothing left to take")
        taken = [units.pop() for _ in range(-(-len(units) // 2))]
        task = GroupTask(tuple(reversed(taken)))
        self._rest.add(victim, task, -1)
        return task
