"""The order of rows by group and hash, and of a draw in each group (``source/rows/row_order.cpp``, ``split.cpp``)."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]
_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


class GroupPositions:
    """The places of rows that arrive in any order: by group, and within a group by hash.

    ``sizes`` (N,) are the rows of each group number, ``order`` (G,) the numbers of groups in order; they begin at ``start``
    (G + 1,). Once all rows are added and all groups sorted, ``place`` (n,) is where each row goes, and ``tied`` (n,) says
    by place which rows have the group and hash of the row before. Rows of equal group and hash keep their order.
    """

    def __init__(self, sizes: IntArray, order: IntArray) -> None:
        self.start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[order], dtype=np.int64)])
        self._next = np.empty(sizes.size, np.int64)
        self._next[order] = self.start[:-1]
        n_rows, self._n_added = int(self.start[-1]), 0
        self._rows = np.empty((n_rows, 2), np.uint64)
        self.place = np.empty(n_rows, np.int64)
        self.tied = np.empty(n_rows, np.bool_)

    def add(self, group: npt.NDArray[np.int32], hashes: HashArray) -> None:
        """Add rows by their group numbers (m,) and hashes (m,)."""
        function("rows_by_group", _POINTER, _POINTER, _LONG, _LONG, _POINTER, _POINTER)(
            *(address(group), address(hashes), group.size, self._n_added, address(self._next), address(self._rows))
        )
        self._n_added += group.size

    def sort(self, first: int, last: int) -> None:
        """Sort groups [first, last) in the order of groups."""
        call = function("sort_groups", _POINTER, _POINTER, _LONG, _POINTER, _POINTER, returns=_INT)
        start = self.start[first : last + 1]
        if call(*map(address, (self._rows, start)), last - first, *map(address, (self.place, self.tied))):
            raise MemoryError


@dataclass(frozen=True, slots=True)
class Draw:
    """The order in which rows (n,) are held out: by ``SplitHash``, those without a label (not ``labelled``) last.

    Rows of equal ``rounded`` hash are numbered by their ``exact`` one, and each takes that many steps of a generator that
    the hash seeds: so equal rows are drawn independently, not all or none. The exact hashes are overwritten.
    """

    rounded: HashArray
    exact: HashArray
    labelled: npt.NDArray[np.bool_]

    def mark(
        self, split: npt.NDArray[np.int16], start: IntArray, value: IntArray, folds: int = 0, *, together: int
    ) -> None:
        """Write ``split`` (n,) in groups that begin at ``start`` (G + 1,): 1 for the first ``value`` (G,) rows of a draw.

        With ``folds``: the place in the draw plus ``value``, modulo folds. In long groups ``together`` rows are sorted at a
        time.
        """
        kinds = (_POINTER, _LONG, *[_POINTER] * 4, _LONG, _LONG, _POINTER)
        rows = map(address, (self.rounded, self.exact, self.labelled, value))
        if function("draw_split", *kinds, returns=_INT)(
            address(start), start.size - 1, *rows, folds, together, address(split)
        ):
            raise MemoryError
