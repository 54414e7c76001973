"""The products of steps, and which worker has each, until they are no longer needed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from grouplearn.schedule.invariants import require
from grouplearn.schedule.messages import Discard


@dataclass
class _Held:
    """Products that ``takers`` running steps have taken together, of which ``checked`` were checked to exist."""

    steps: tuple[int, ...]
    takers: int = 0
    checked: bool = False


class Products:
    """The existing products: made by a step, kept while wanted or taken by a running step, lost with a worker.

    A thousand steps that take the same thousand products share one tuple, which is checked once.
    """

    def __init__(self) -> None:
        self._maker: dict[int, int] = {}
        self._taken: Counter[int] = Counter()
        self._held: dict[int, _Held] = {}
        self._unwanted: set[int] = set()
        self._discarded: list[int] = []

    def __contains__(self, step: int) -> bool:
        return step in self._maker and step not in self._unwanted

    def made(self, step: int, worker: int) -> None:
        """Record that ``step`` made its product on ``worker``."""
        require(step not in self._maker, f"step {step} was done twice")
        self._maker[step] = worker

    def take(self, steps: tuple[int, ...]) -> None:
        """Record that a step that takes these products begins."""
        if not steps:
            return
        held = self._held.setdefault(id(steps), _Held(steps))
        if not held.checked:
            for step in steps:
                require(step in self, f"the product of step {step} does not exist")
            held.checked = True
        held.takers += 1
        if held.takers == 1:
            for step in steps:
                self._taken[step] += 1

    def give_back(self, steps: tuple[int, ...]) -> None:
        """Record that a step that took these products has ended; it must be the same tuple object."""
        if not steps:
            return
        held = self._held[id(steps)]
        held.takers -= 1
        if held.takers:
            return
        del self._held[id(steps)]
        for step in steps:
            self._taken[step] -= 1
            if not self._taken[step]:
                del self._taken[step]
                if step in self._unwanted:
                    self._discard(step)

    def drop(self, step: int) -> None:
        """Record that no task will take this product any more; it may be lost."""
        if step in self:
            self._look_again()
            self._unwanted.add(step)
            if step not in self._taken:
                self._discard(step)

    def lose(self, worker: int) -> None:
        """Record that all products made by ``worker`` are gone."""
        self._look_again()
        for step in [step for step, maker in self._maker.items() if maker == worker]:
            del self._maker[step]
            self._unwanted.discard(step)

    def are_at(self, worker: int) -> bool:
        """Whether a product made by a worker still exists."""
        return worker in self._maker.values()

    def _look_again(self) -> None:
        for held in self._held.values():
            held.checked = False

    def discarded(self) -> list[Discard]:
        """Return the products that became unneeded since the last call."""
        steps, self._discarded = tuple(self._discarded), []
        return [Discard(steps)] if steps else []

    def _discard(self, step: int) -> None:
        self._unwanted.discard(step)
        if self._maker.pop(step, None) is not None:
            self._discarded.append(step)

    @property
    def empty(self) -> bool:
        """Whether there are no products."""
        return not self._maker
