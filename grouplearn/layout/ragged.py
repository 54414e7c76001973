"""Arrays with different numbers of rows, stored in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Starts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Arrays of ``values`` (N, ...): array i has the rows ``start[i]`` to ``start[i + 1]`` (half-open), maybe none.

    Raises ValueError if ``start`` does not cover ``values`` exactly.
    """

    values: npt.NDArray[Any]
    start: Starts

    def __post_init__(self) -> None:
        start = self.start
        cuts = start.ndim == 1 and start.size > 0 and self.values.ndim > 0
        if not cuts or start[0] != 0 or start[-1] != len(self.values) or (start[1:] < start[:-1]).any():
            raise ValueError(f"{len(start)} bounds do not cut values of shape {self.values.shape} into arrays")

    def __len__(self) -> int:
        """Return the number of arrays."""
        return self.start.size - 1

    def __getitem__(self, place: int) -> npt.NDArray[Any]:
        """Return an array."""
        return self.values[self.start[place] : self.start[place + 1]]

    @classmethod
    def of_sizes(cls, values: npt.NDArray[Any], sizes: npt.ArrayLike) -> Ragged:
        """Return values (N, ...) cut into arrays of these sizes."""
        return cls(values, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)]))

    @classmethod
    def of_equal(cls, values: npt.NDArray[Any], count: int) -> Ragged:
        """Return values whose first axes index arrays of one shape, as ``count`` arrays."""
        rows = len(values) // count if count else 0
        return cls(values, np.arange(count + 1, dtype=np.int64) * rows)

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[Any]]) -> Ragged:
        """Return one or more arrays whose other axes agree."""
        return cls.of_sizes(np.concatenate(arrays), [len(each) for each in arrays])

    @classmethod
    def joined(cls, parts: Sequence[Ragged]) -> Ragged:
        """Return the arrays of all parts, at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls.of_sizes(
            np.concatenate([each.values for each in parts]), np.concatenate([each.sizes for each in parts])
        )

    @property
    def sizes(self) -> Starts:
        """Rows of each array."""
        return np.diff(self.start)

    def part(self, first: int, last: int) -> Ragged:
        """Return arrays [first, last) without copying them."""
        start = self.start[first : last + 1]
        return Ragged(self.values[start[0] : start[-1]], start - start[0])

    def take(self, places: npt.NDArray[Any]) -> Ragged:
        """Return the arrays at these places, in this order."""
        sizes = self.sizes[places]
        before = np.cumsum(sizes) - sizes
        rows = np.repeat(self.start[:-1][places] - before, sizes) + np.arange(sizes.sum())
        return Ragged.of_sizes(self.values[rows], sizes)

    def none(self, count: int) -> Ragged:
        """Return ``count`` empty arrays of the same shape and type."""
        return Ragged(self.values[:0], np.zeros(count + 1, np.int64))

    def flat(self) -> Ragged:
        """Return the numbers of each array as one flat row."""
        width = int(np.prod(self.values.shape[1:], dtype=np.int64))
        return Ragged(np.ascontiguousarray(self.values).reshape(-1), self.start * width)
