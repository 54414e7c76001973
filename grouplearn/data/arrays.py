"""Array features and labels: lists and bytes of an Arrow column become rows of numbers, all of one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.dataset import FloatArray, Item

#: Most values of arrays in a block of rows (2 MiB), and the fewest rows of a block.
BLOCK_VALUES = 1 << 18
_FEWEST_ROWS = 32
#: A byte of a BLOB feature, such as a pixel, becomes byte/255.
BYTE_SCALE = 255.0


class LengthError(ValueError):
    """The arrays of a column differ in length."""

    def __init__(self, rows: int, length: int) -> None:
        super().__init__(f"{rows} rows have arrays of another length than {length}")
        self.rows = rows


def numbers(column: Any, length: int, byte_scale: float = BYTE_SCALE) -> FloatArray:
    """Return an Arrow column of number lists or BLOBs as (n, length); NULLs are NaN, bytes are divided by ``byte_scale``.

    Raises LengthError when an array is not ``length`` long.
    """
    known = np.asarray(column.is_valid())
    present = column.drop_null() if column.null_count else column
    is_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    lengths = np.asarray(pc.binary_length(present) if is_bytes else pc.list_value_length(present))
    if (lengths != length).any():
        raise LengthError(int((lengths != length).sum()), length)
    flat = _bytes(present) / byte_scale if is_bytes else _floats(present.flatten())
    rows = flat.reshape(len(present), length)
    if known.all():
        return rows
    placed = np.full((len(column), length), np.nan)
    placed[known] = rows
    return placed


def _bytes(column: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of all rows, concatenated; none may be NULL."""
    cast = column.cast(pa.large_binary())
    offsets = np.frombuffer(cast.buffers()[1], np.int64)[cast.offset : cast.offset + len(cast) + 1]
    content = cast.buffers()[2]
    if content is None or not len(cast):
        return np.empty(0, np.uint8)
    return np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]


def _floats(values: Any) -> FloatArray:
    return np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def class_numbers(values: FloatArray, classes: Sequence[str]) -> FloatArray:
    """Return the place of each value in the sorted whole numbers ``classes``; NaN for NaN and for other values."""
    if not classes:
        return np.full(values.shape, np.nan)
    known = np.array([float(text) for text in classes])
    place = np.minimum(np.searchsorted(known, values), known.size - 1)
    return np.where(known[place] == values, place, np.nan).astype(np.float64)


def block_rows(items: Sequence[Item], most: int) -> int:
    """Return the rows of a block: ``most``, or fewer where arrays are long."""
    values = sum(item.buckets for item in items if item.kind == "array")
    return min(most, max(_FEWEST_ROWS, BLOCK_VALUES // values)) if values else most
