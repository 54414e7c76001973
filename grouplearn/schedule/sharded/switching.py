"""Switching parallelism: data parallel while groups are large, then task parallel (the baseline SP of Li and Kumar 2021, 5)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import (
    Dismiss,
    Event,
    Finish,
    Instruction,
    Operator,
    Unit,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.task_parallel import GroupTaskParallel
from grouplearn.schedule.workload import Workload


class Switching:
    """Groups with more rows than the median group train data parallel; then the rest, one task per group."""

    name = "switching"

    def __init__(self, units: Iterable[Unit], workload: Workload) -> None:
        units = tuple(units)
        rows = {unit.group: workload.rows_of(unit) for unit in units}
        middle = median(rows.values()) if rows else 0
        large = [unit for unit in units if rows[unit.group] > middle]
        small = [unit for unit in units if rows[unit.group] <= middle]
        self._now: Operator = DataParallel(large, workload)
        self._next: Operator | None = GroupTaskParallel(small)
        self._workers: set[int] = set()
        self._leaving: dict[int, WorkerLeaving] = {}

    def on(self, event: Event) -> tuple[Instruction, ...]:
        """Handle an event; return what is to be done now, in order; an impossible event raises BrokenSchedule."""
        if isinstance(event, WorkerReady):
            require(event.worker not in self._workers, f"worker {event.worker} joined twice")
            self._workers.add(event.worker)
        if isinstance(event, WorkerLeaving):
            self._leaving[event.worker] = event
        instructions = self._now.on(event)
        for gone in (event, *instructions):
            if isinstance(gone, WorkerLost | Dismiss):
                self._workers.discard(gone.worker)
                self._leaving.pop(gone.worker, None)
        if self._next is None or Finish() not in instructions:
            return instructions
        self._now, self._next = self._next, None
        switched = [each for each in instructions if each != Finish()]
        for worker in sorted(self._workers):
            switched += self._now.on(WorkerReady(worker))
            if worker in self._leaving:
                switched += self._now.on(self._leaving[worker])
        return tuple(switched)
