"""Arrow columns of numbers as rows of a matrix."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.kernels.library import address, function, single_or_double

_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64
#: Bytes of Arrow's C structure ``ArrowArray``.
_ARROW_ARRAY = 80
#: Most digits of a decimal that fit the lower half of its 128 bits.
_DIGITS = 18
#: Kinds of columns in the order of ``Kind`` in rows.hpp, followed by DECIMAL.
_KINDS = {
    kind: place
    for place, kind in enumerate(
        (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64(), pa.bool_()),
        )
    )
}
_DECIMAL = len(_KINDS)


def is_readable(kind: pa.DataType) -> bool:
    """Return whether the kernel can read columns of this Arrow type."""
    return kind in _KINDS or (pa.types.is_decimal128(kind) and kind.precision <= _DIGITS and kind.scale >= 0)


class NumberReader:
    """Reads columns ``fields`` of struct arrays as DOUBLE or FLOAT, cast as by DuckDB, into columns ``places``."""

    def __init__(self, kind: pa.StructType, fields: Sequence[int], places: Sequence[int]) -> None:
        kinds = [kind.field(place).type for place in fields]
        self._fields = np.array(fields, dtype=np.int32)
        self._kinds = np.array([_KINDS.get(each, _DECIMAL) for each in kinds], dtype=np.int32)
        self._places = np.array(places, dtype=np.int32)
        scales = [each.scale if pa.types.is_decimal128(each) else 0 for each in kinds]
        self._powers = np.array([10**scale for scale in scales], dtype=np.int64)

    def read(self, rows: Any, out: npt.NDArray[Any], to: npt.NDArray[np.int64] | None = None) -> None:
        """Write the columns of ``rows`` (n), which has no NULLs, into ``out`` (m, width); NULL in a column becomes NaN.

        They become the first rows, or those numbered ``to`` (n,). If ``out`` is float32 it must hold all numbers exactly.
        """
        if not self._fields.size:
            return
        exported = ctypes.create_string_buffer(_ARROW_ARRAY)
        rows._export_to_c(ctypes.addressof(exported))
        kinds = (_POINTER, _LONG, *[_POINTER] * 4, _LONG, *[_POINTER] * 3, _LONG)
        function("read_numbers", *kinds)(
            ctypes.addressof(exported),
            len(rows),
            *[address(each) for each in (self._fields, self._kinds, self._powers, self._places)],
            self._fields.size,
            None if to is None else address(to),
            *single_or_double(out),
            out.shape[1],
        )
