"""Arrow columns of lists read without an object per row: lengths and elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.lists import IntArray, Lists

#: Entries of rows: their number per row (n,), their codes, and their amounts; None for all 1.
Opened = tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.float64] | None]


def lengths(column: Any) -> IntArray:
    """Return the lengths of lists, 0 for NULL."""
    found: IntArray = np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)
    return found


def elements(column: Any) -> Any:
    """Return the elements of all lists, concatenated."""
    flat = column.flatten()
    return flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat


def whole_numbers(flat: Any) -> npt.NDArray[np.int64]:
    """Return whole numbers, -1 for NULL; raises ArrowException for other values."""
    return np.asarray(flat.cast(pa.int64()).fill_null(-1))


def indexed(flat: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return indices, counted from 0 (-1 for NULL), and values of structs whose index is counted from 1."""
    index, value = flat.flatten()
    values = value.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return whole_numbers(index) - 1, values


def lists_of(items: Sequence[Opened]) -> Lists:
    """Return the lists of several items in the same rows."""
    counts = np.stack([counts for counts, _, _ in items], axis=1)
    bounds = np.zeros((len(counts), len(items) + 1), np.int64)
    bounds[:, 1:] = np.cumsum(counts.ravel()).reshape(counts.shape)
    bounds[1:, 0] = bounds[:-1, -1]
    n_entries = int(bounds[-1, -1]) if len(bounds) else 0
    weighs = any(amounts is not None for _, _, amounts in items)
    found = Lists(bounds, np.empty(n_entries, np.int32), np.ones(n_entries if weighs else 0))
    for number, (_, codes, amounts) in enumerate(items):
        at = found.places(number)
        found.entries[at] = codes
        if amounts is not None:
            found.amounts[at] = amounts
    return found
