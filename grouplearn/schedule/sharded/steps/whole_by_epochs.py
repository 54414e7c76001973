"""Whole units that run epoch by epoch, so that steps of shards on the same worker need not wait for the whole unit."""

from __future__ import annotations

from collections.abc import Iterator

from grouplearn.schedule.messages import BlockRange, Step, Unit
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep, UnitProgress
from grouplearn.schedule.workload import Workload


def slot_of(unit: Unit) -> int:
    """Return the place for the steps of a whole unit: it has no shard, and moves with the unit."""
    return -1 - unit.id


class WholeByEpochs:
    """The unit that each worker trains epoch by epoch, and units of lost workers whose state was kept."""

    def __init__(self, assignment: Assignment, workload: Workload, products: Products) -> None:
        self._assignment, self._workload, self._products = assignment, workload, products
        self._pass_cost = assignment.pass_cost(workload)
        self._at: dict[int, UnitProgress] = {}
        self._resting: dict[int, tuple[UnitProgress, int | None]] = {}  # with the step that its worker was running

    def suits(self, unit: Unit, waiting: Iterator[int]) -> bool:
        """Whether the unit takes longer than the longest step of a split group that is ``waiting``, and may run in steps."""
        assignment = self._assignment
        if assignment.progress is None or assignment.one_by_one or unit.stays_whole:
            return False
        if self._workload.blocks_of(unit) < assignment.by_epochs_from:
            return False
        return any(unit.cost > self._pass_cost[group] for group in waiting)

    def rests(self, unit: Unit) -> bool:
        """Whether the unit was begun on a worker that was lost."""
        return unit.id in self._resting

    def begin(self, worker: int, unit: Unit) -> list[ReadyStep]:
        """Begin such a unit on a worker, or resume an interrupted one; return the steps that may begin."""
        if unit.id in self._resting:
            self._at[worker], lost_step = self._resting.pop(unit.id)
            return self._at[worker].lost(lost_step)
        make = self._assignment.progress
        if make is None:
            raise AssertionError("no unit suits where there are no steps")
        blocks = BlockRange(0, self._workload.blocks_of(unit))
        self._at[worker] = make(unit, {slot_of(unit): blocks}, self._products)
        return self._at[worker].begin()

    def slots(self, worker: int) -> tuple[int, ...]:
        """Return the place of the worker's unit, if it has one."""
        return (slot_of(self._at[worker].unit),) if worker in self._at else ()

    def near(self, place: int) -> Iterator[int]:
        """Yield the worker whose unit has that place."""
        return (worker for worker, progress in self._at.items() if slot_of(progress.unit) == place)

    def done(self, worker: int) -> None:
        """Forget the worker's unit, which is over."""
        del self._at[worker]

    def lose(self, worker: int, step: Step | None, kept: bool) -> Unit | None:
        """Return the unit of a lost worker; it resumes elsewhere if its state was kept."""
        progress = self._at.pop(worker, None)
        if progress is None:
            return None
        unit = progress.unit
        if kept:
            self._resting[unit.id] = (progress, step.id if step is not None and step.unit == unit else None)
        else:
            progress.end()
        return unit
