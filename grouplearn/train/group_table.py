"""Groups as columns: a hundred thousand groups are sent as a few arrays, not as single objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Group, runs_of

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupTable:
    """G groups: ``ids``, ``levels``, and the counts ``n_keys`` and ``n_ranges`` (G); ``keys`` and ``bounds`` (n, 2) of all
    groups, concatenated."""

    ids: _Numbers
    levels: _Numbers
    n_keys: _Numbers
    keys: tuple[str | None, ...]
    n_ranges: _Numbers
    bounds: _Numbers

    @classmethod
    def of(cls, groups: Sequence[Group]) -> GroupTable:
        """Return groups as columns."""
        return cls(
            ids=np.array([group.id for group in groups], dtype=np.int64),
            levels=np.array([group.level for group in groups], dtype=np.int64),
            n_keys=np.array([len(group.keys) for group in groups], dtype=np.int64),
            keys=tuple(chain.from_iterable(group.keys for group in groups)),
            n_ranges=np.array([len(group.ranges) for group in groups], dtype=np.int64),
            bounds=np.fromiter(
                (bound for group in groups for run in group.ranges for bound in run), dtype=np.int64
            ).reshape(-1, 2),
        )

    def groups(self) -> tuple[Group, ...]:
        """Return the groups."""
        keys = (self.keys[first:last] for first, last in _cuts(self.n_keys))
        ranges = (runs_of(self.bounds, first, last) for first, last in _cuts(self.n_ranges))
        return tuple(Group(*each) for each in zip(self.ids.tolist(), self.levels.tolist(), keys, ranges, strict=True))


def _cuts(counts: _Numbers) -> Iterable[tuple[int, int]]:
    return pairwise(accumulate(counts.tolist(), initial=0))
