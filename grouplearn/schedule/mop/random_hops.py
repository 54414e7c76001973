"""The randomised scheduler: an idle worker takes any idle unit that has not visited its shard in this epoch."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from grouplearn.schedule.mop.hop_progress import HopProgress
from grouplearn.schedule.sharded.steps.step_queues import MayBegin, StepQueues
from grouplearn.schedule.sharded.steps.unit_progress import ReadyStep

#: Draws before all idle units are searched: in the middle of a run about every second draw succeeds.
_DRAWS = 8


class _Bag:
    """Units of one group that can go to any place, by number: adding, removing and drawing take constant time."""

    def __init__(self) -> None:
        self._ready: list[ReadyStep] = []
        self._at: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def __iter__(self) -> Iterator[ReadyStep]:
        return iter(self._ready)

    def __getitem__(self, number: int) -> ReadyStep:
        return self._ready[number]

    def add(self, ready: ReadyStep) -> None:
        self.remove(ready.progress.unit.id)
        self._at[ready.progress.unit.id] = len(self._ready)
        self._ready.append(ready)

    def remove(self, unit: int) -> None:
        number = self._at.pop(unit, None)
        if number is None:
            return
        last = self._ready.pop()
        if number < len(self._ready):
            self._ready[number] = last
            self._at[last.progress.unit.id] = number


class RandomHops(StepQueues):
    """Algorithm 1 of Nakandala, Zhang and Kumar 2020 (5.3), with the availability of 5.5: a worker's places are its shards.

    All other tasks are queued, and go first. No worker idles without need, so with unit times T the makespan is at most
    max_j Σ_i T_ij + (p - 1) max T.
    """

    def __init__(self, groups_at: Mapping[int, Sequence[int]], seed: int) -> None:
        super().__init__()
        self._groups_at, self._chance = groups_at, random.Random(seed)  # noqa: S311
        self._bags: dict[int, _Bag] = {}
        self._group_of: dict[int, int] = {}
        self._idle: dict[int, set[int]] = {}  # free workers without a task, by place
        self._idle_places: dict[int, Sequence[int]] = {}

    def push(self, ready: ReadyStep) -> Iterable[int]:
        """Queue a task; return the places whose workers may want it."""
        if not ready.anywhere:
            return super().push(ready)
        unit = ready.progress.unit
        self._bags.setdefault(unit.group, _Bag()).add(ready)
        self._group_of[unit.id] = unit.group
        # Waking one worker is enough: the others cannot run the same task.
        wanting = self._idle.keys() & _left(ready)
        return (min(wanting),) if wanting else ()

    def take(self, worker: int, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        """Return the next task of a free worker that can work at ``places``; None if there is none."""
        self.leave(worker)
        found = super().take(worker, places, may_begin) or self._draw(places, may_begin)
        if found is None:
            self._idle_places[worker] = places
            for place in places:
                self._idle.setdefault(place, set()).add(worker)
        return found

    def leave(self, worker: int) -> None:
        """Forget that the worker waits: it does something else, or is lost."""
        for place in self._idle_places.pop(worker, ()):
            self._idle[place].discard(worker)
            if not self._idle[place]:
                del self._idle[place]

    def waiting(self, places: Iterable[int]) -> Collection[int]:
        """Return those of ``places`` whose workers may wait for a step to end."""
        places = [*places]
        return [*super().waiting(places), *(place for place in places if place in self._idle)]

    def close(self, unit: int) -> Collection[int]:
        """Forget a unit that is over."""
        if unit in self._group_of:
            self._bags[self._group_of.pop(unit)].remove(unit)
        return ()

    def _draw(self, places: Sequence[int], may_begin: MayBegin) -> ReadyStep | None:
        bags = [
            (place, bag)
            for place in places
            for group in self._groups_at.get(place, ())
            if (bag := self._bags.get(group))
        ]
        total = sum(len(bag) for _, bag in bags)
        for _ in range(_DRAWS if total else 0):
            number = self._chance.randrange(total)
            for place, bag in bags:
                if number < len(bag):
                    if _eligible(bag[number], place, may_begin):
                        return self._begin(bag[number], place)
                    break
                number -= len(bag)
        every = [(ready, place) for place, bag in bags for ready in bag if _eligible(ready, place, may_begin)]
        return self._begin(*self._chance.choice(every)) if every else None

    def _begin(self, ready: ReadyStep, place: int) -> ReadyStep:
        unit = ready.progress.unit
        self._bags[unit.group].remove(unit.id)
        return ready.at(place, cast(HopProgress, ready.progress).shard(place))


def _left(ready: ReadyStep) -> set[int]:
    return cast(HopProgress, ready.progress).left


def _eligible(ready: ReadyStep, place: int, may_begin: MayBegin) -> bool:
    return not ready.void and place in _left(ready) and may_begin(ready)
