"""Queues from which an idle worker takes what others have not begun (Rendle et al. 2016, 4.4.1; Blumofe & Leiserson 1999)."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from grouplearn.schedule.sharded.steps.step_queues import MayBegin, StepQueues
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep


@dataclass
class _Behind:
    """How a place delays others: the ``stage`` last seen, how many rounds of an item were ``lost`` by waiting so far, and
    whether some of its items were ``taken`` over for it."""

    stage: tuple[object, ...] = ()
    lost: float = 0.0
    taken: bool = False


class StealingQueues(StepQueues):
    """A worker takes tasks of its own places first; if there are none, the last item of the place where most items wait.

    A worker that takes over an item must read its rows and compute its predictions, which costs as much as ``takeover``
    rounds of the item. There is no clock here, and one slow round may be chance. So an item is taken only once its place
    has cost the others that much: in each round, half of the items that still waited there when the others were done. As
    when one rents until the rent has reached the price of buying, the cost is at most twice the least (Karlin, Manasse,
    Rudolph & Sleator 1988). Items that cost nothing to take are taken at once.
    """

    takes_over = True

    def __init__(self, takeover: float = 0.0) -> None:
        super().__init__()
        self._takeover = takeover
        self._behind: defaultdict[int, _Behind] = defaultdict(_Behind)
        self._offered: dict[int, int] = {}  # most items that may wait at each place
        self._most: list[tuple[int, int]] = []  # heap of (-count, place); outdated entries are skipped
        self._idle: dict[int, None] = {}

    def push(self, ready: ReadyStep) -> Iterable[int]:
        """Queue a task; return the places whose workers may want it."""
        if _may_move(ready):
            self._offer(ready.place, self._offered.get(ready.place, 0) + 1)
        return super().push(ready)

    def take(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        """Return the next task of a free worker that can work at ``places``, the first place first; None if there is none."""
        self._idle.pop(worker, None)
        found = super().take(worker, places, may_begin)
        if found is not None and _may_move(found):
            self._offer(found.place, self._offered.get(found.place, 1) - 1)
        return found

    def take_over(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        """Return a task from another place for a free worker that found none at its own ``places``; None if there is none."""
        found = self._taken_over(places, may_begin)
        if found is None:
            self._idle[worker] = None
        return found

    def leave(self, worker: int) -> None:
        """Forget that the worker waits: it does something else, or is lost."""
        self._idle.pop(worker, None)

    def idle(self) -> Collection[int]:
        """Return the workers that may take items of other places."""
        return tuple(self._idle) if self._offered else ()

    def _offer(self, place: int, count: int) -> None:
        if count > 0:
            self._offered[place] = count
            heapq.heappush(self._most, (-count, place))
        else:
            self._offered.pop(place, None)
        if not self._offered:
            self._most.clear()

    def _taken_over(self, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        home = next((place for place in places if place >= 0), None)
        place, items = self._longest(may_begin)
        if home is None or not items or not self._is_worth_it(place, items):
            return None
        item = items[-1]
        self._queues[place].remove(item)
        self._offer(place, len(items) - 1)
        self._behind[place].taken = True
        return item.at(home, item.blocks) if item.blocks is not None else item

    def _longest(self, may_begin: MayBegin) -> tuple[int, list[ReadyStep]]:
        """Return the place where most items wait, the lowest if several have as many, and these items."""
        while self._most:
            count, place = self._most[0]
            if self._offered.get(place) == -count:
                items = [each for each in self._queues[place] if _may_move(each) and not each.void and may_begin(each)]
                if len(items) == -count:
                    return place, items
                self._offer(place, len(items))
            if self._most:
                heapq.heappop(self._most)
        return 0, []

    def _is_worth_it(self, place: int, items: Sequence[ReadyStep]) -> bool:
        if not self._takeover:
            return True
        behind, first = self._behind[place], items[0]
        stage = (first.progress.unit.id, first.epoch, first.round)
        if behind.stage != stage:
            behind.stage, behind.lost = stage, (0.0 if behind.taken else behind.lost) + len(items) / 2
            behind.taken = False
        return behind.lost >= self._takeover


def _may_move(ready: ReadyStep) -> bool:
    """Whether any worker can read its rows; a whole group's task by epochs has no place and stays with its worker."""
    return ready.blocks is not None and ready.place >= 0
