"""The finest groups in the order of rows, and how they form the groups of coarser grouping sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import runs_of
from grouplearn.extract.row_order import Keys
from grouplearn.interrupting import check_interrupt, with_checks

IntArray = npt.NDArray[np.int64]
#: Limit for group numbers, so that combining them with the next key cannot overflow.
_MOST_GROUPS = 1 << 31


@dataclass(frozen=True, slots=True)
class FinestGroups:
    """``keys`` are the texts of each finest group in row order, ``offsets`` (one more) their first rows.

    ``codes`` (leaves, keys) int32 number each key's texts in any order; -1 is NULL. ``checksums`` are the sums of each one's
    row hashes.
    """

    keys: Sequence[Keys]
    offsets: IntArray
    codes: npt.NDArray[np.int32]
    checksums: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    def checksums_of(self, members: Sequence[int]) -> Mapping[Keys, int]:
        """Return by key the sum of the row hashes of each group of a grouping set, modulo 2^64."""
        if tuple(members) == tuple(range(self.codes.shape[1])):
            return dict(zip(self.keys, self.checksums.tolist(), strict=True))
        group = self._numbered(members)
        sums = np.zeros(int(group.max(initial=-1)) + 1, np.uint64)
        np.add.at(sums, group, self.checksums)
        _, first = np.unique(group, return_index=True)
        named = (tuple([self.keys[leaf][key] for key in members]) for leaf in with_checks(first.tolist()))
        return dict(zip(named, sums.tolist(), strict=True))

    def runs(self, members: Sequence[int]) -> Mapping[Keys, Sequence[tuple[int, int]]]:
        """Return by key the runs of rows of each group of a grouping set; adjacent runs are merged."""
        check_interrupt()
        if tuple(members) == tuple(range(self.codes.shape[1])):
            offsets = self.offsets.tolist()
            spans = zip(self.keys, offsets, offsets[1:], strict=False)
            return {keys: ((start, stop),) for keys, start, stop in with_checks(spans)}
        group = self._numbered(members)
        order = np.argsort(group, kind="stable")
        starts, stops, group = self.offsets[order], self.offsets[order + 1], group[order]
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = (group[1:] != group[:-1]) | (starts[1:] != stops[:-1])
        first = np.flatnonzero(begins)
        ends = np.append(first[1:], len(order)) - 1 if len(order) else first
        bounds = np.stack([starts[first], stops[ends]], axis=1)
        cuts = np.searchsorted(group[first], np.arange(int(group.max(initial=-1)) + 2)).tolist()
        examples = order[first[cuts[:-1]]].tolist()
        made = zip(examples, cuts, cuts[1:], strict=False)
        return {
            tuple([self.keys[leaf][key] for key in members]): runs_of(bounds, low, high)
            for leaf, low, high in with_checks(made)
        }

    def _numbered(self, members: Sequence[int]) -> IntArray:
        """Return the number of each leaf's group, from 0 without gaps."""
        group = np.zeros(len(self.keys), dtype=np.int64)
        for member in members:
            column = self.codes[:, member]
            if group.max(initial=0) >= _MOST_GROUPS:
                group = np.unique(group, return_inverse=True)[1]
            group = group * (int(column.max(initial=0)) + 2) + column + 1
        return np.unique(group, return_inverse=True)[1].astype(np.int64)
