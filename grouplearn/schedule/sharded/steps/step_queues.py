"""The queues in which steps of split units wait for a worker that holds their rows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence

from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep

MayBegin = Callable[[ReadyStep], bool]


class StepQueues:
    """A queue at every place, first come first served; tasks that others wait for go to the front.

    ``takes_over``: an idle worker may take tasks that wait at others' places.
    """

    takes_over = False

    def __init__(self) -> None:
        self._queues: defaultdict[int, deque[ReadyStep]] = defaultdict(deque)

    def push(self, ready: ReadyStep) -> Iterable[int]:
        """Queue a task; return the places whose workers may want it."""
        line = self._queues[ready.place]
        if ready.urgent:
            line.appendleft(ready)
        else:
            line.append(ready)
        return (ready.place,)

    def take(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:  # noqa: ARG002
        """Return the next task of a free worker that can work at ``places``, the first place first; None if there is none."""
        found = (self._first(place, may_begin) for place in places)
        return next((each for each in found if each is not None), None)

    def waiting(self, places: Iterable[int]) -> Collection[int]:
        """Return those of ``places`` whose workers may wait for a step to end."""
        return [place for place in places if self._queues[place]]

    def take_over(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:  # noqa: ARG002
        """Return a task from another place for a free worker that found none at its own ``places``; None if there is none."""
        return None

    def idle(self) -> Collection[int]:
        """Return the workers that found no task and may want one from other places."""
        return ()

    def leave(self, worker: int) -> None:
        """Forget that the worker waits: it does something else, or is lost."""

    def forget(self, place: int) -> None:
        """Drop the tasks that wait at ``place``, which nobody will take."""
        self._queues.pop(place, None)

    def close(self, unit: int) -> Collection[int]:
        """Record that the unit is over; return the places whose workers may wait for that."""
        del unit
        return ()

    def _first(self, place: int, may_begin: MayBegin) -> ReadyStep | None:
        line = self._queues[place]
        while line and line[0].void:
            line.popleft()
        for number, ready in enumerate(line):
            if not ready.void and may_begin(ready):
                del line[number]
                return ready
        return None
