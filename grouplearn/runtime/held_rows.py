"""What a worker has of split groups: runs of their blocks, encoded as they are needed, and the cells of rounds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grouplearn.schedule.messages import Blocks
from grouplearn.train.rounds import Cell
from grouplearn.train.rows.prepare import Prepared

#: Group, fold, a run of its blocks, and the pieces of its held-out rows.
PartKey = tuple[int, int, Blocks, Blocks]


@dataclass
class _Place:
    """Where a part will be; who makes it holds the lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    part: Prepared | None = None


class HeldRows:
    """Rows of split groups; workers that are threads of one process may share what they hold.

    Then a step that moves from one worker to another finds its rows, and the cells of rounds their predictions, where they are.
    A cell is one step's at a time, as all of a round end before the next begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: defaultdict[int, list[Blocks]] = defaultdict(list)
        self._parts: dict[PartKey, _Place] = {}
        self._cells: defaultdict[int, dict[int, dict[int, Cell]]] = defaultdict(dict)  # by group and unit

    def load(self, group: int, blocks: Blocks) -> None:
        """Note a run of blocks that is worked on."""
        with self._lock:
            self._runs[group].append(blocks)

    def runs(self, group: int) -> Sequence[Blocks]:
        """Return the runs of a group, the first to be loaded first."""
        with self._lock:
            return tuple(self._runs[group])

    def part(self, key: PartKey, make: Callable[[], Prepared]) -> Prepared:
        """Return rows, made by ``make`` with the first look; others wait meanwhile."""
        with self._lock:
            place = self._parts.setdefault(key, _Place())
        with place.lock:
            if place.part is None:
                place.part = make()
            return place.part

    def cells(self, group: int, unit: int) -> dict[int, Cell]:
        """Return the cells of a unit by number, with what is remembered of each, to which more are added."""
        with self._lock:
            return self._cells[group].setdefault(unit, {})

    def release(self, group: int) -> None:
        """Forget the rows of a group."""
        with self._lock:
            self._runs.pop(group, None)
            self._cells.pop(group, None)
            self._parts = {key: place for key, place in self._parts.items() if key[0] != group}
