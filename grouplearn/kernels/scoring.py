"""Predictions of many groups' models for rows in any order: numbers out of Arrow, encoded by group, scored, linked."""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.kernels.library import address, function

FloatArray = npt.NDArray[np.float64]
#: Numbers of a row come in lots of so many: lanes of double precision.
LANES = 8
_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
#: Bytes of Arrow's C structure ``ArrowArray``.
_ARROW_ARRAY = 80
#: Most digits of a decimal that are in the lower half of its 128 bits.
_DIGITS = 18
#: Kinds of columns in the order of ``Kind`` in rows.hpp; the last one is DECIMAL.
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


class Link(enum.IntEnum):
    """What predictions are of scores, in the order of ``Link`` in scoring.cpp."""

    VALUE = 0
    EXPONENTIAL = 1
    SIGMOID = 2
    SOFTMAX = 3


def is_readable(kind: pa.DataType) -> bool:
    """Return whether a kernel reads columns of this Arrow type as numbers."""
    return kind in _KINDS or (pa.types.is_decimal128(kind) and kind.precision <= _DIGITS and kind.scale >= 0)


class NumberReader:
    """Reads columns ``fields`` of struct arrays of one type as DOUBLE, as DuckDB casts them, into columns ``places``."""

    def __init__(self, kind: pa.StructType, fields: Sequence[int], places: Sequence[int]) -> None:
        kinds = [kind.field(place).type for place in fields]
        self._fields = np.array(fields, dtype=np.int32)
        self._kinds = np.array([_KINDS.get(each, _DECIMAL) for each in kinds], dtype=np.int32)
        self._places = np.array(places, dtype=np.int32)
        scales = [each.scale if pa.types.is_decimal128(each) else 0 for each in kinds]
        self._powers = np.array([10**scale for scale in scales], dtype=np.int64)

    def read(self, rows: Any, out: FloatArray) -> None:
        """Write the columns of ``rows``, none of which is NULL, into ``out`` (n, width); NULL in a column is NaN."""
        if not self._fields.size:
            return
        exported = ctypes.create_string_buffer(_ARROW_ARRAY)
        rows._export_to_c(ctypes.addressof(exported))
        kinds = (_POINTER, _LONG, *[_POINTER] * 4, _LONG, _POINTER, _LONG)
        function("read_numbers", *kinds)(
            ctypes.addressof(exported),
            len(rows),
            *[address(each) for each in (self._fields, self._kinds, self._powers, self._places)],
            self._fields.size,
            address(out),
            out.shape[1],
        )


@dataclass(frozen=True, slots=True)
class Encoders:
    """Parameters (groups, items) of the numeric items of a model: ``(coalesce(x, fill) - center) / scale``.

    A ``fill`` is NaN where missing numbers stay so. ``finite``: infinite numbers are missing, too.
    """

    fills: FloatArray
    centers: FloatArray
    scales: FloatArray
    finite: bool

    def encode(self, x: FloatArray, group: npt.NDArray[np.int32]) -> None:
        """Encode the first columns of ``x`` (n, width) in their place, by each row's group; -1: none."""
        symbol = function("encode_numbers", _POINTER, _LONG, _LONG, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, _INT)
        parameters = map(address, (self.fills, self.centers, self.scales))
        symbol(address(x), *x.shape, address(group), self.fills.shape[1], *parameters, int(self.finite))


@dataclass(frozen=True, slots=True)
class LinearModels:
    """Linear models of G groups with K outputs: weights (G, K, p) of numbers, p a multiple of 8, intercepts (G, K).

    Of one output each category's weight is in ``category_weights``, so far after ``starts`` (G, K, c) as its number says.
    """

    weights: FloatArray
    intercepts: FloatArray
    starts: npt.NDArray[np.int64]
    category_weights: FloatArray

    def scores(self, x: FloatArray, group: npt.NDArray[np.int32]) -> FloatArray:
        """Return the scores (n, K) of rows: p numbers, then the numbers of c categories, NaN for none. No group: NaN."""
        n_outputs, n_numbers = self.weights.shape[1:]
        if x.shape[1] != n_numbers + self.starts.shape[2] or n_numbers % LANES:
            raise ValueError(f"rows of {x.shape[1]} numbers, and the models have {n_numbers} and categories")
        out = np.empty((len(x), n_outputs))
        models = (self.weights, self.intercepts, self.starts, self.category_weights)
        symbol = function("score_linear", *(_POINTER, _LONG, _LONG, _POINTER, _LONG, _LONG), *[_POINTER] * 5)
        symbol(address(x), *x.shape, address(group), n_outputs, n_numbers, *map(address, models), address(out))
        return out


def linked(scores: FloatArray, link: Link) -> FloatArray:
    """Return predictions (n, K) of scores: values, exp of them, or the share of each class.

    SIGMOID takes scores (n, 1) of the second of two classes, and gives the probabilities (n, 2) of both.
    """
    out = scores
    if link is Link.SIGMOID:
        out = np.empty((len(scores), 2))
        out[:, 1] = scores[:, 0]
    if link is not Link.VALUE:
        call = function("link_scores", _POINTER, _LONG, _LONG, _INT, returns=_INT)
        if call(address(out), *out.shape, int(link)):
            raise MemoryError
    return out
