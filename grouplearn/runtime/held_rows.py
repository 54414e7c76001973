"""A worker's rows of split groups: runs of blocks, encoded when they are needed, and the cells of rounds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grouplearn.schedule.messages import BlockRange
from grouplearn.train.local_rounds import Cell
from grouplearn.train.rows.prepare import Prepared

#: Group, fold, a run of its blocks, and the part of its held-out rows.
PartKey = tuple[int, int, BlockRange, BlockRange]


@dataclass
class _Place:
    """A part that may still be missing; the thread that makes it holds the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    part: Prepared | None = None


class HeldRows:
    """Rows of split groups; workers that are threads of one process may share what they hold.

    Then a step that moves to another worker finds its rows, and the cells of rounds their predictions, already there. One
    step at a time uses a cell, as all steps of a round end before the next round begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: defaultdict[int, list[BlockRange]] = defaultdict(list)
        self._parts: dict[PartKey, _Place] = {}
        self._cells: defaultdict[int, dict[int, dict[int, Cell]]] = defaultdict(dict)  # by group and unit

    def load(self, group: int, blocks: BlockRange) -> None:
        """Note a run of blocks that a worker must load."""
        with self._lock:
            self._runs[group].append(blocks)

    def runs(self, group: int) -> Sequence[BlockRange]:
        """Return the runs of a group, in the order in which they were loaded."""
        with self._lock:
            return tuple(self._runs[group])

    def part(self, key: PartKey, make: Callable[[], Prepared]) -> Prepared:
        """Return rows; the first caller makes them with ``make`` while others wait."""
        with self._lock:
            place = self._parts.setdefault(key, _Place())
        with place.lock:
            if place.part is None:
                place.part = make()
            return place.part

    def cells(self, group: int, unit: int) -> dict[int, Cell]:
        """Return the cells of a unit by number, with what is remembered of each; the caller adds more."""
        with self._lock:
            return self._cells[group].setdefault(unit, {})

    def release(self, group: int) -> None:
        """Forget the rows of a group."""
        with self._lock:
            self._runs.pop(group, None)
            self._cells.pop(group, None)
            self._parts = {key: place for key, place in self._parts.items() if key[0] != group}
