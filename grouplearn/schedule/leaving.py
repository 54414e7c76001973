"""Workers that are asked to leave: they end what they run, and may go when nobody needs what they have."""

from __future__ import annotations

from collections.abc import Callable

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Dismiss, WorkerLeaving


class Leavers:
    """Who is asked and still at work, and who has no more work but still has products that others take."""

    def __init__(self) -> None:
        self._at_work: dict[int, WorkerLeaving] = {}
        self._waiting: dict[int, bool] = {}  # and whether their products lie elsewhere

    def ask(self, event: WorkerLeaving) -> None:
        """Ask a worker to leave."""
        asked = event.worker in self._at_work or event.worker in self._waiting
        require(not asked, f"worker {event.worker} was asked to leave twice")
        self._at_work[event.worker] = event

    def done(self, is_busy: Callable[[int], bool]) -> list[WorkerLeaving]:
        """Return those that have ended what they ran: they have no more work."""
        found = [event for worker, event in self._at_work.items() if not is_busy(worker)]
        for event in found:
            del self._at_work[event.worker]
            self._waiting[event.worker] = event.kept
        return found

    def dismissed(self, is_needed: Callable[[int], bool]) -> list[Dismiss]:
        """Return who may go: all whose products are gone, or lie elsewhere."""
        found = [worker for worker, kept in self._waiting.items() if kept or not is_needed(worker)]
        for worker in found:
            del self._waiting[worker]
        return [Dismiss(worker) for worker in found]

    def lose(self, worker: int) -> None:
        """A worker is gone before it was to go."""
        self._at_work.pop(worker, None)
        self._waiting.pop(worker, None)

    def is_asked(self, worker: int) -> bool:
        """Whether a worker is to leave once it has ended what it runs."""
        return worker in self._at_work

    def is_waiting(self, worker: int) -> bool:
        """Whether a worker has no more work, and is there for what it made."""
        return worker in self._waiting
