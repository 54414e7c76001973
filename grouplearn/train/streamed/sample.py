"""A random sample of each group's rows while they pass, on which models are measured afterwards."""

from __future__ import annotations

import numpy as np

from grouplearn.data.arrivals import Arrivals, BoolArray, IntArray
from grouplearn.data.dataset import FeatureArray, FloatArray
from grouplearn.data.shard import Shard

#: Most rows of a group, most rows of all groups, and rows of a group that are kept however many groups there are.
MOST_ROWS, _MOST_TOGETHER, _FEWEST = 1000, 1 << 18, 32
#: Rows that are added before the sample is cut again.
_ADDED = 1 << 16


class RowSample:
    """Rows of each group, as many as there is room for: those with the smallest ``lot``, a random number in [0, 1)."""

    def __init__(self) -> None:
        #: Group, lot, features, label, weight of the rows.
        self._rows: list[tuple[IntArray, FloatArray, FeatureArray, FloatArray, FloatArray]] = []
        self._added = 0
        #: By group, the lots that it is too late for.
        self._closed = np.empty(0)

    def add(self, rows: Arrivals, lot: FloatArray, among: BoolArray) -> None:
        """Add those ``among`` rows (n,) that have a chance."""
        most = int(rows.group.max(initial=-1)) + 1
        if most > self._closed.size:
            self._closed = np.append(self._closed, np.ones(most - self._closed.size))
        at = np.flatnonzero(among & (lot < self._closed[rows.group]))
        self._rows.append((rows.group[at], lot[at], rows.x[at], rows.y[at], rows.weight[at]))
        self._added += at.size
        if self._added >= _ADDED:
            self._cut()

    def rows_of(self, group: int) -> Shard | None:
        """Return the rows of a group, None if there are none."""
        if len(self._rows) > 1 or self._added:
            self._cut()
        for groups, _, x, y, weight in self._rows:
            own = slice(*np.searchsorted(groups, [group, group + 1]).tolist())
            if own.start < own.stop:
                return Shard(x[own], y[own], weight[own])
        return None

    def _cut(self) -> None:
        """Keep the rows of each group for which there is room, in order of groups and lots."""
        columns = [np.concatenate(each) for each in zip(*self._rows, strict=True)]
        group, lot = columns[0], columns[1]
        order = np.lexsort((lot, group))
        starts = np.searchsorted(group[order], np.arange(self._closed.size + 1))
        room = min(MOST_ROWS, max(_FEWEST, _MOST_TOGETHER // max(1, self._closed.size)))
        rank = np.arange(order.size) - np.repeat(starts[:-1], np.diff(starts))
        last = np.flatnonzero(np.diff(starts) >= room)
        self._closed[last] = lot[order[starts[:-1][last] + room - 1]]
        order = order[rank < room]
        self._rows, self._added = [tuple(each[order] for each in columns)], 0  # type: ignore[list-item]
