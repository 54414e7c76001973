"""Looks up Arrow values among known ones, with DuckDB's equality."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.sqltext import identifier

Codes = npt.NDArray[np.int32]
#: Up to this many known texts Arrow builds its hash table for each lookup; for more, one is kept.
_FEW = 1024
#: Largest range of integers that are looked up in a table.
_MOST = 1 << 16
_NAME = "__grouplearn_known"


class KnownValues:
    """Values of a SQL type, given as texts; ``codes`` are places among these.

    A text that is not of the type equals nothing. ``values`` are the texts themselves for a text type.
    """

    def __init__(self, values: Any) -> None:
        self._values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values

    @classmethod
    def of(cls, texts: Sequence[str], kind: str, cursor: duckdb.DuckDBPyConnection) -> KnownValues | None:
        """Return the values of texts in a type, None if Arrow cannot compare them."""
        listed = pa.array(texts, pa.string())
        if kind == "VARCHAR" or kind.startswith("ENUM("):
            return cls(listed)
        cursor.register(_NAME, pa.table({"place": np.arange(len(texts)), "text": listed}))
        try:
            sql = f"SELECT TRY_CAST(text AS {kind}) AS value FROM {identifier(_NAME)} ORDER BY place ASC"
            found = cursor.sql(sql).to_arrow_table()
        finally:
            cursor.unregister(_NAME)
        # Types that Arrow has as text, such as UUID, are compared by other rules in DuckDB.
        return cls(found.column(0)) if _is_number(found.schema.field(0)) else None

    @property
    def type(self) -> pa.DataType:
        """The type of the values in Arrow."""
        return self._values.type

    @property
    def count(self) -> int:
        """Number of values."""
        return len(self._values)

    def takes(self, field: pa.Field) -> bool:
        """Return whether a column's values can be compared without a cast by DuckDB."""
        if _is_text(self.type):
            return not field.metadata and _is_text(field.type)
        return _is_number(field) and _common(self.type, field.type) is not None

    def codes(self, column: Any) -> Codes:
        """Return the code of each value of a column that ``takes`` accepts; -1 for NULL and unknown values."""
        if pa.types.is_dictionary(column.type):
            codes = np.append(self.codes(column.dictionary), np.int32(-1))
            found: Codes = codes[np.asarray(column.indices.cast(pa.int64()).fill_null(len(codes) - 1))]
            return found
        if _is_text(self.type):
            return self._codes_of_texts(column.cast(pa.string()))
        common = _common(self.type, column.type)
        known, places = self._sorted(common)
        given = _as_integers(column, common)
        if not column.null_count and (table := self._tables.get(common)) is not None:
            # One comparison checks both ends of the range, as unsigned integers wrap around.
            distance = np.subtract(given, table.least).view(np.uint64)
            return table.places[np.minimum(distance, np.uint64(len(table.places) - 1)).view(np.int64)]
        at = np.minimum(np.searchsorted(known, given), max(len(known) - 1, 0))
        if not len(known):
            return np.full(len(column), -1, dtype=np.int32)
        found = known[at] == given
        if column.null_count:
            found &= np.asarray(column.is_valid())
        return np.where(found, places[at], np.int32(-1))

    def _sorted(self, common: pa.DataType) -> tuple[npt.NDArray[np.int64], Codes]:
        """Return the non-NULL values as sorted integers, and the place of each."""
        if common not in self._kept:
            numbers = _as_integers(self._values, common)
            places = np.flatnonzero(np.asarray(self._values.is_valid()))
            places = places[np.argsort(numbers[places], kind="stable")]
            self._kept[common] = numbers[places], places.astype(np.int32)
            if (table := _table(*self._kept[common])) is not None:
                self._tables[common] = table
        return self._kept[common]

    @cached_property
    def _kept(self) -> dict[pa.DataType, tuple[npt.NDArray[np.int64], Codes]]:
        return {}

    @cached_property
    def _tables(self) -> dict[pa.DataType, _Table]:
        return {}

    def _codes_of_texts(self, column: Any) -> Codes:
        if len(self._values) <= _FEW:
            found = pc.index_in(column, value_set=self._values, skip_nulls=True)
            return np.asarray(found.fill_null(-1), dtype=np.int32)
        coded = column.dictionary_encode()
        places = [self._places.get(text, -1) for text in coded.dictionary.to_pylist()]
        codes: Codes = np.array([*places, -1], dtype=np.int32)[np.asarray(coded.indices.fill_null(len(places)))]
        return codes

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: place for place, text in enumerate(self._values.to_pylist())}


class _Table(NamedTuple):
    """The places of integers from ``least`` on, -1 for unknown ones and in the last entry."""

    least: np.int64
    places: Codes


def _table(known: npt.NDArray[np.int64], places: Codes) -> _Table | None:
    """Return the places of sorted known values as a table, None if it would be large."""
    if not len(known) or int(known[-1]) - int(known[0]) >= _MOST:
        return None
    table = np.full(int(known[-1]) - int(known[0]) + 2, -1, dtype=np.int32)
    table[known - known[0]] = places
    return _Table(known[0], table)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(field: pa.Field) -> bool:
    """Return whether values of this type are compared as 64-bit integers."""
    kind = field.type
    plain = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32, pa.types.is_timestamp)
    floating = pa.types.is_float32(kind) or pa.types.is_float64(kind)
    decimal = pa.types.is_decimal128(kind) and kind.precision <= 18
    return not field.metadata and (any(test(kind) for test in plain) or floating or bool(decimal))


def _common(known: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    """Return the type in which DuckDB compares a column cast to ``known``; None if only DuckDB can."""
    if known == given:
        return known
    if pa.types.is_timestamp(known) and pa.types.is_timestamp(given):  # the zone only affects how they are shown
        moments = known.tz is not None and given.tz is not None and known.unit == given.unit
        return known if moments else None
    whole = [pa.types.is_integer(kind) and kind != pa.uint64() for kind in (known, given)]
    if all(whole):
        return pa.int64()
    if known == pa.float64() and (whole[1] or given == pa.float32()):
        return known
    if known == pa.float32() and whole[1]:
        return known
    narrow = whole[0] and known.bit_width <= 32
    return pa.float64() if narrow and pa.types.is_floating(given) else None


def _as_integers(column: Any, common: pa.DataType) -> npt.NDArray[np.int64]:
    """Return a column's values as integers that are equal if and only if the values are; arbitrary for NULL."""
    column = column.cast(common, safe=False) if column.type != common else column
    if pa.types.is_boolean(common):
        column = column.cast(pa.int8())
    first, stop = column.offset, column.offset + len(column)
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.empty(0, dtype=np.int64)
    if pa.types.is_decimal128(common):  # of the 128 bits, 18 digits need only the lower half
        return np.ascontiguousarray(np.frombuffer(buffer, np.int64)[2 * first : 2 * stop : 2])
    if pa.types.is_floating(common):
        values = np.frombuffer(buffer, common.to_pandas_dtype())[first:stop].astype(np.float64)
        # DuckDB treats 0.0 and -0.0 as equal, and all NaNs.
        return np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    size = {8: "1", 16: "2", 32: "4", 64: "8"}[column.type.bit_width]
    sign = "u" if pa.types.is_unsigned_integer(column.type) else "i"
    return np.frombuffer(buffer, f"{sign}{size}")[first:stop].astype(np.int64)
