"""The queues in which steps of split units wait for a worker that holds their rows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence

from grouplearn.schedule.sharded.unit_progress import Ready

MayBegin = Callable[[Ready], bool]


class StepQueues:
    """A line at every place, first come first served; what others wait for stands in front.

    ``takes_over``: a worker with nothing to do may do what waits at others' places.
    """

    takes_over = False

    def __init__(self) -> None:
        self._queues: defaultdict[int, deque[Ready]] = defaultdict(deque)

    def push(self, ready: Ready) -> Iterable[int]:
        """Let something wait; return the places whose workers may want it."""
        line = self._queues[ready.place]
        if ready.urgent:
            line.appendleft(ready)
        else:
            line.append(ready)
        return (ready.place,)

    def take(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> Ready | None:  # noqa: ARG002
        """Return what a free worker that can work at ``places`` does next, the first place first; None if there is nothing."""
        found = (self._first(place, may_begin) for place in places)
        return next((each for each in found if each is not None), None)

    def waiting(self, places: Iterable[int]) -> Collection[int]:
        """Return those of ``places`` whose workers may have waited for a step to end."""
        return [place for place in places if self._queues[place]]

    def take_over(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> Ready | None:  # noqa: ARG002
        """Return what a free worker does that found nothing at its own ``places``: what waits at another's, or None."""
        return None

    def idle(self) -> Collection[int]:
        """Return workers that found nothing and may want what waits at places that are not theirs."""
        return ()

    def leave(self, worker: int) -> None:
        """The worker does something else, or is lost: it waits for nothing here."""

    def forget(self, place: int) -> None:
        """Nobody will ever ask for what waits at ``place``."""
        self._queues.pop(place, None)

    def close(self, unit: int) -> Collection[int]:
        """The unit is over; return the places whose workers may have waited for that."""
        del unit
        return ()

    def _first(self, place: int, may_begin: MayBegin) -> Ready | None:
        line = self._queues[place]
        while line and line[0].void:
            line.popleft()
        for number, ready in enumerate(line):
            if not ready.void and may_begin(ready):
                del line[number]
                return ready
        return None
