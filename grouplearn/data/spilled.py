"""Values of each row of the data, as runs of rows that follow one another: once they are large they are in a file."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import forget_pages, mapped_file

NewArray = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

#: Values of at least so many bytes go to a file.
SPILLED_BYTES = 1 << 25


@dataclass(frozen=True, slots=True)
class ByRow:
    """The runs, at least one, each of shape (..., n of its rows). They are joined without a copy of what they hold."""

    parts: tuple[npt.NDArray[Any], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (..., n) of all values."""
        return (*self.parts[0].shape[:-1], sum(part.shape[-1] for part in self.parts))

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return sum(part.nbytes for part in self.parts)

    def followed_by(self, later: ByRow) -> ByRow:
        """Return these values and then those of ``later``; those in memory go to a file if they are large and it has room."""
        parts = tuple(part for part in (*self.parts, *later.parts) if part.size) or self.parts
        if sum(part.nbytes for part in parts if mapped_file(part) is None) < SPILLED_BYTES:
            return ByRow(parts)
        try:
            return ByRow(_in_file(parts))
        except OSError:
            return ByRow(parts)

    def whole(self) -> npt.NDArray[Any]:
        """Return all values as one array (..., n)."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts, axis=-1)

    def runs(self, *place: int) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield the rows of each run, and its values at ``place`` of the axes before rows; pages of a file are given back."""
        start = 0
        for part in self.parts:
            values = part[place]
            yield slice(start, start + part.shape[-1]), values
            forget_pages(values)
            start += part.shape[-1]


def array(directory: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in an unnamed file of a directory, whose values do not matter; in memory where it is empty, or there is no
    room in the directory."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        return np.ndarray(shape, dtype, buffer=_pages(n_bytes, directory)) if n_bytes else np.empty(shape, dtype)
    except OSError:
        return np.empty(shape, dtype)


def _in_file(parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
    """Return the same values, those that were in memory in one unnamed file; OSError when the disk is full."""
    pages = _pages(sum(part.nbytes for part in parts if mapped_file(part) is None))
    offset, moved = 0, []
    for part in parts:
        if mapped_file(part) is None:
            copy: npt.NDArray[Any] = np.ndarray(part.shape, part.dtype, buffer=pages, offset=offset)
            copy[...] = part
            forget_pages(copy)
            offset += part.nbytes
            part = copy
        moved.append(part)
    return tuple(moved)


def _pages(n_bytes: int, directory: str | None = None) -> mmap.mmap:
    """Return the pages of a new unnamed file, which goes with them; OSError when the disk is full."""
    with tempfile.TemporaryFile(dir=directory) as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and not the end of the process later
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
        return mmap.mmap(file.fileno(), n_bytes)
