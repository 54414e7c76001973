"""Lists of several items as codes: flat arrays, and where the entries of each row begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: The arrays of ``Lists``, by field name.
LIST_ARRAYS = ("bounds", "entries", "amounts")
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lists:
    """Row i has for item j the entries ``bounds[i, j]`` to ``bounds[i, j + 1]`` (half-open).

    ``bounds`` (n, items + 1) int64; ``entries`` (m,) int32 are codes, -1 for NULL; ``amounts`` (m,) are their values, (0,)
    if no item has any. Subsets of rows share the flat arrays.
    """

    bounds: IntArray
    entries: npt.NDArray[np.int32]
    amounts: npt.NDArray[np.float64]

    @property
    def n_items(self) -> int:
        """Number of items that are lists."""
        return int(self.bounds.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of these rows and their own entries."""
        n_entries = int((self.bounds[:, -1] - self.bounds[:, 0]).sum())
        each = self.entries.itemsize + (self.amounts.itemsize if self.amounts.size else 0)
        return int(self.bounds.nbytes) + n_entries * each

    def rows(self, rows: slice | IntArray) -> Lists:
        """Return some rows, sharing the flat arrays."""
        return Lists(self.bounds[rows], self.entries, self.amounts)

    def item(self, number: int) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """Return an item's number of entries per row (n,), and its entries and amounts, row by row."""
        counts, at = self.bounds[:, number + 1] - self.bounds[:, number], self.places(number)
        return counts, self.entries[at], self._amounts(at)

    def places(self, number: int) -> IntArray | slice:
        """Return where the entries of an item are, row by row."""
        return _flat(self.bounds[:, number], self.bounds[:, number + 1] - self.bounds[:, number])

    def packed(self) -> Lists:
        """Return the rows with only their own entries, row after row."""
        first, counts = self.bounds[:, 0], self.bounds[:, -1] - self.bounds[:, 0]
        at = _flat(first, counts)
        starts = np.cumsum(counts) - counts
        bounds = self.bounds - (first - starts)[:, None]
        return Lists(bounds, np.asarray(self.entries[at]), np.asarray(self._amounts(at)))

    def _amounts(self, at: IntArray | slice) -> npt.NDArray[np.float64]:
        return self.amounts[at] if self.amounts.size else self.amounts

    @staticmethod
    def joined(parts: Sequence[Lists]) -> Lists:
        """Return the rows of all parts, in order."""
        packed = [part.packed() for part in parts]
        before = np.cumsum([0, *(part.entries.size for part in packed)])
        return Lists(
            np.concatenate([part.bounds + shift for part, shift in zip(packed, before, strict=False)]),
            np.concatenate([part.entries for part in packed]),
            np.concatenate([part.amounts for part in packed]),
        )

    def validation_error(self, limits: Sequence[int]) -> str | None:
        """Return in words what is invalid: entries out of range, or beyond an item's number of names (``limits``); else
        None."""
        if self.n_items != len(limits) or self.amounts.size not in (0, self.entries.size):
            return f"there are {self.n_items} items that are lists, and names for {len(limits)}"
        if not self.bounds.size:
            return None
        if self.bounds.min() < 0 or self.bounds.max() > self.entries.size or (np.diff(self.bounds, axis=1) < 0).any():
            return "a list has entries that are not there"
        for number, limit in enumerate(limits):
            _, entries, _ = self.item(number)
            if ((entries < -1) | (entries >= limit)).any():
                return "an entry of a list has no name"
        return None


def _flat(first: IntArray, counts: IntArray) -> IntArray | slice:
    """Return the places of ``counts`` entries from each of ``first``; a slice if they are consecutive."""
    ends = first + counts
    if not first.size:
        return slice(0, 0)
    if (first[1:] == ends[:-1]).all():
        return slice(int(first[0]), int(ends[-1]))
    before = np.cumsum(counts) - counts
    places: IntArray = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
    return places
