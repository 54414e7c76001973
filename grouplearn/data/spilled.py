"""Arrays with a value per row of the data: once they are large they are maps of unnamed files, and not all in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import forget_pages

#: Arrays of at least so many bytes are kept in files; so many bytes of them are looked at together.
SPILLED_BYTES, _RUN_BYTES = 1 << 25, 1 << 22


def joined(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the rows of ``left`` and then those of ``right``, in a file if they are large and the disk has room."""
    if left.nbytes + right.nbytes < SPILLED_BYTES:
        return np.concatenate([left, right])
    try:
        whole = _in_file((len(left) + len(right), *left.shape[1:]), left.dtype)
    except OSError:
        return np.concatenate([left, right])
    for part, place in ((left, whole[: len(left)]), (right, whole[len(left) :])):
        for rows in runs(part):
            place[rows] = part[rows]
            forget_pages(place[rows])
    return whole


def runs(array: npt.NDArray[Any]) -> Iterator[slice]:
    """Yield slices of few rows, in order; their pages are given back after each."""
    step = max(1, _RUN_BYTES * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), step):
        rows = slice(start, min(start + step, len(array)))
        yield rows
        forget_pages(array[rows])


def _in_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    n_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and not the end of the process later
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            file.truncate(n_bytes)
        pages = mmap.mmap(file.fileno(), n_bytes)
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=pages)
    return array
