"""What each worker is running, and what must not run at the same time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from grouplearn.schedule.invariants import BrokenSchedule, require
from grouplearn.schedule.messages import Step, Unit
from grouplearn.schedule.sharded.gangs import ScheduledGang
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A running step and its origin: the ``ready`` step of a unit's progress, or a ``gang``."""

    step: Step
    ready: ReadyStep | None = None
    gang: ScheduledGang | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether a unit's progress still waits for its product; the step of a gang is always wanted."""
        return self.ready is None or self.ready.progress.expects(self.step.id)


class Running:
    """The running unit or step of each worker, one at a time; a pack trains on one worker at a time."""

    def __init__(self) -> None:
        self._at: dict[int, RunningStep | Unit] = {}
        self._of_group: Counter[int] = Counter()
        self._of_unit: Counter[int] = Counter()

    def __contains__(self, worker: int) -> bool:
        return worker in self._at

    def __bool__(self) -> bool:
        return bool(self._at)

    def steps_of_group(self, group: int) -> int:
        """Return how many steps of the group's units run."""
        return self._of_group[group]

    def steps_of(self, unit: Unit) -> int:
        """Return how many steps of a unit run."""
        return self._of_unit[unit.id]

    def begin_unit(self, worker: int, unit: Unit) -> None:
        """Record that a free worker begins a whole unit."""
        self._refuse_busy(worker)
        self._at[worker] = unit

    def begin_step(self, worker: int, running: RunningStep) -> None:
        """Record that a free worker begins a step."""
        unit = running.step.unit
        self._refuse_busy(worker)
        isolated = running.step.kind != "train" or not self._of_unit[unit.id]
        require(isolated, f"unit {unit.id} is to train in two places at a time")
        self._at[worker] = running
        self._of_group[unit.group] += 1
        self._of_unit[unit.id] += 1

    def end_unit(self, worker: int, unit: Unit) -> None:
        """Record that a worker has done its whole unit."""
        require(self._at.get(worker) == unit, f"worker {worker} was not running unit {unit.id}")
        del self._at[worker]

    def end_step(self, worker: int, step: Step) -> RunningStep:
        """Record that a worker has done a step; return the step and its origin."""
        running = self._at.get(worker)
        if not isinstance(running, RunningStep) or running.step != step:
            raise BrokenSchedule(f"worker {worker} was not running step {step.id}")
        self._ended(worker, running)
        return running

    def lose(self, worker: int) -> RunningStep | Unit | None:
        """Record that a worker is gone; return what it was running."""
        running = self._at.get(worker)
        if isinstance(running, RunningStep):
            self._ended(worker, running)
        else:
            self._at.pop(worker, None)
        return running

    def _ended(self, worker: int, running: RunningStep) -> None:
        del self._at[worker]
        self._of_group[running.step.unit.group] -= 1
        self._of_unit[running.step.unit.id] -= 1

    def _refuse_busy(self, worker: int) -> None:
        require(worker not in self._at, f"worker {worker} is to do two things at a time")
