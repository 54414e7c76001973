"""One pass over a group's shards whose sums are added, in any order of the workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from grouplearn.schedule.invariants import require
from grouplearn.schedule.sharded.steps.products import Products


@dataclass(frozen=True, slots=True)
class _Sums:
    """The product of a step over the shard of ``place``: its own sums together with those that it took."""

    step: int
    place: int
    taken: tuple[int, ...]


class PassSums:
    """A pass in which every place adds its sums once.

    ``lazy``: a step takes the sums that are ready, so that they are passed on from place to place. Sums are kept until the
    pass is over, also those that were taken: if a worker is lost with sums that include others', only its own are repeated.
    """

    def __init__(self, places: Iterable[int], lazy: bool, products: Products) -> None:
        self._places = tuple(places)
        self._lazy = lazy
        self._products = products
        self._todo = dict.fromkeys(self._places)
        self._running: dict[int, _Sums] = {}
        self._made: dict[int, _Sums] = {}
        self._ready: dict[int, None] = {}

    @property
    def todo(self) -> tuple[int, ...]:
        """Places whose step has not begun."""
        return tuple(self._todo)

    @property
    def complete(self) -> bool:
        """Whether the sums of all places are made."""
        return not self._todo and not self._running

    @property
    def unmerged(self) -> tuple[int, ...]:
        """Steps whose sums no other step has taken; together they cover every finished place."""
        return tuple(self._ready)

    def offered(self) -> tuple[int, ...]:
        """Return what a step that begins now takes."""
        return self.unmerged if self._lazy else ()

    def started(self, step: int, place: int, taken: tuple[int, ...]) -> None:
        """Record that a step over the shard of ``place`` begins."""
        require(place in self._todo, f"the shard of place {place} was visited twice in one pass")
        del self._todo[place]
        self._running[step] = _Sums(step, place, taken)
        for each in taken:
            del self._ready[each]

    def done(self, step: int) -> None:
        """Record that the step is done and its sums are ready."""
        self._made[step] = self._running.pop(step)
        self._ready[step] = None

    def is_running(self, step: int) -> bool:
        """Whether ``step`` is a running one of this pass."""
        return step in self._running

    def repair(self, lost_step: int | None) -> None:
        """After a loss, repeat the places that are in no remaining sums and no running step; ``lost_step`` no longer runs."""
        if lost_step is not None:
            self._running.pop(lost_step, None)
        held: set[int] = set()
        for running in self._running.values():
            held |= self._places_in(running)
        self._ready = {}
        # A step takes only what was made before it began, so the latest covers most places.
        for step in sorted(self._made, reverse=True):
            if step in self._products and self._made[step].place not in held:
                held |= self._places_in(self._made[step])
                self._ready[step] = None
        self._ready = dict.fromkeys(sorted(self._ready))
        self._todo = dict.fromkeys(place for place in self._places if place not in held)

    def _places_in(self, sums: _Sums) -> set[int]:
        places, left = set(), [sums]
        while left:
            each = left.pop()
            require(each.place not in places, f"the shard of place {each.place} is in the same sums twice")
            places.add(each.place)
            left += [self._made[step] for step in each.taken]
        return places

    def drop(self) -> None:
        """Drop the sums of the pass, which is over."""
        for step in self._made:
            self._products.drop(step)
