"""Pages of mapped files: which arrays lie in one, what is freed, and what is read ahead."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

#: Bytes of a file that are mapped together.
_WINDOW = 1 << 16
#: Linux reads no more than this ahead when it is asked once, whatever it is asked for (read_ahead_kb).
READ_AHEAD_BYTES = 128 << 10


def mapped_file(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """Return the memory map that the array is in, if any."""
    base: Any = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None


def forget_pages(rows: npt.NDArray[Any]) -> None:
    """Let the operating system free the memory of rows of a mapped file; other arrays are left alone.

    Whole windows of pages are freed, as the kernel also maps pages around those that are read.
    """
    _advise(rows, mmap.MADV_DONTNEED)


def read_ahead(rows: npt.NDArray[Any]) -> None:
    """Let the operating system begin to read rows of a mapped file, which are soon looked at, and do not wait for it; others are
    left as they are."""
    _advise(rows, mmap.MADV_WILLNEED, READ_AHEAD_BYTES)


def _advise(rows: npt.NDArray[Any], advice: int, at_a_time: int | None = None) -> None:
    pages = mapped_file(rows)
    if pages is None or not rows.nbytes:
        return
    start, _ = np.lib.array_utils.byte_bounds(np.frombuffer(pages, np.uint8))
    first, last = (bound - start for bound in np.lib.array_utils.byte_bounds(rows))
    begin, end = first // _WINDOW * _WINDOW, math.ceil(last / _WINDOW) * _WINDOW
    end = min(end, len(pages))
    for start in range(begin, end, at_a_time or end - begin):
        pages.madvise(advice, start, min(at_a_time or end, end - start))
