"""Workers that are asked to leave: they finish what they run, and may go when nobody needs their products."""

from __future__ import annotations

from collections.abc import Callable

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Dismiss, WorkerLeaving


class LeavingWorkers:
    """Workers that were asked to leave: those still at work, and those that stay only for their products."""

    def __init__(self) -> None:
        self._at_work: dict[int, WorkerLeaving] = {}
        self._waiting: dict[int, bool] = {}  # by worker, whether its products are stored elsewhere

    def ask(self, event: WorkerLeaving) -> None:
        """Ask a worker to leave."""
        asked = event.worker in self._at_work or event.worker in self._waiting
        require(not asked, f"worker {event.worker} was asked to leave twice")
        self._at_work[event.worker] = event

    def done(self, is_busy: Callable[[int], bool]) -> list[WorkerLeaving]:
        """Return the workers that have finished what they ran and get no more work."""
        found = [event for worker, event in self._at_work.items() if not is_busy(worker)]
        for event in found:
            del self._at_work[event.worker]
            self._waiting[event.worker] = event.kept
        return found

    def dismissed(self, is_needed: Callable[[int], bool]) -> list[Dismiss]:
        """Return the workers that may go: their products are no longer needed, or are stored elsewhere."""
        found = [worker for worker, kept in self._waiting.items() if kept or not is_needed(worker)]
        for worker in found:
            del self._waiting[worker]
        return [Dismiss(worker) for worker in found]

    def lose(self, worker: int) -> None:
        """Forget a worker that is lost before it was dismissed."""
        self._at_work.pop(worker, None)
        self._waiting.pop(worker, None)

    def is_asked(self, worker: int) -> bool:
        """Whether a worker is to leave when it has finished what it runs."""
        return worker in self._at_work

    def is_waiting(self, worker: int) -> bool:
        """Whether a worker has no more work, and stays only for its products."""
        return worker in self._waiting
