"""Values per row as consecutive runs of rows, which go to a file when they are large."""

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

from grouplearn.layout.pages import forget_pages, mapped_file

NewArray = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

#: Bytes from which values go to a file.
SPILLED_BYTES = 1 << 25


@dataclass(frozen=True, slots=True)
class ByRow:
    """One or more runs, each of shape (..., rows of the run). Joining them does not copy."""

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
        """Return these values followed by ``later``; large ones in memory go to a file if it has room."""
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
        """Yield each run's rows and its values at ``place`` of the other axes; file pages are freed afterwards."""
        start = 0
        for part in self.parts:
            values = part[place]
            yield slice(start, start + part.shape[-1]), values
            forget_pages(values)
            start += part.shape[-1]


def array(directory: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array in an unnamed file of a directory; in memory if it is empty or the disk is full."""
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    try:
        return np.ndarray(shape, dtype, buffer=_pages(n_bytes, directory)) if n_bytes else np.empty(shape, dtype)
    except OSError:
        return np.empty(shape, dtype)


def _in_file(parts: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
    """Return the same values with those in memory moved to one unnamed file; OSError if the disk is full."""
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
    """Return the memory map of a new unnamed file, deleted with it; OSError if the disk is full."""
    with tempfile.TemporaryFile(dir=directory) as file:
        if hasattr(os, "posix_fallocate"):  # a full disk raises here instead of killing the process later
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
        return mmap.mmap(file.fileno(), n_bytes)
