"""Scheduler that follows a plan: at every shard units come in the plan's order."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from grouplearn.schedule.mop.open_shop import Visit
from grouplearn.schedule.sharded.steps.step_queues import MayBegin, StepQueues
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep


class PlannedHops(StepQueues):
    """Repeats ``plan``, the visits of one epoch in order of their start, in every epoch.

    The next unit at a place is the one whose visit there is first by (epoch, position in the plan); a worker waits for it.
    All units follow the same order, so the first of the remaining visits can always begin (no deadlock).
    """

    def __init__(self, plan: Sequence[Visit]) -> None:
        super().__init__()
        self._position = {visit: number for number, visit in enumerate(plan)}
        self._places: defaultdict[int, list[int]] = defaultdict(list)
        for unit, place in plan:
            self._places[unit].append(place)
        self._epoch = dict.fromkeys(plan, 0)  # the epoch of each next visit
        self._heads: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for visit in plan:
            self._expect(visit)
        self._closed: set[int] = set()
        self._trains: dict[int, ReadyStep] = {}

    def push(self, ready: ReadyStep) -> Iterable[int]:
        """Queue a task; return the places whose workers may want it."""
        unit = ready.progress.unit.id
        if ready.kind != "train" or (unit, ready.place) not in self._position:
            return super().push(ready)
        if self._epoch[unit, ready.place] != ready.epoch:
            return self._back(ready)
        self._trains[unit] = ready
        return (ready.place,)

    def take(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        """Return the next task of a free worker that can work at ``places``; None if there is none yet."""
        urgent = super().take(worker, places, lambda ready: ready.urgent and may_begin(ready))
        return urgent or self._planned(places, may_begin) or super().take(worker, places, may_begin)

    def _planned(self, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        heads = [head for place in places if (head := self._head(place)) is not None]
        for epoch, _, unit, place in sorted(heads):
            ready = self._trains.get(unit)
            here = ready is not None and not ready.void and (ready.epoch, ready.place) == (epoch, place)
            if ready is not None and here and may_begin(ready):
                del self._trains[unit]
                self._epoch[unit, place] += 1
                self._expect((unit, place))
                return ready
        return None

    def waiting(self, places: Iterable[int]) -> Collection[int]:
        """Return those of ``places`` whose workers may wait for a step to end."""
        return [*places]

    def close(self, unit: int) -> Collection[int]:
        """Record that the unit is over; return the places whose workers may wait for it."""
        self._closed.add(unit)
        self._trains.pop(unit, None)
        return self._places.get(unit, ())

    def _head(self, place: int) -> tuple[int, int, int, int] | None:
        heap = self._heads[place]
        while heap and (heap[0][2] in self._closed or self._epoch[heap[0][2], place] != heap[0][0]):
            heapq.heappop(heap)
        return (*heap[0], place) if heap else None

    def _expect(self, visit: Visit) -> None:
        unit, place = visit
        heapq.heappush(self._heads[place], (self._epoch[visit], self._position[visit], unit))

    def _back(self, ready: ReadyStep) -> Collection[int]:
        """Expect again the visits that the unit must repeat from an older state."""
        unit, epoch = ready.progress.unit.id, ready.epoch
        self._trains[unit] = ready
        now = self._position[unit, ready.place]
        for place in self._places[unit]:
            self._epoch[unit, place] = epoch + (self._position[unit, place] < now)
            self._expect((unit, place))
        return self._places[unit]
