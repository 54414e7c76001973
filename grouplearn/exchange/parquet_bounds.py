"""Bounds for untrusted Parquet, checked before it is decoded: a few bytes can repeat a value a billion times.

Arrow's reader trusts the sizes in pages and recurses into nested types without limit. So the footer and all page headers,
which are small, are parsed here first: the depth of columns, the number of values of each page, its decompressed size. Then
the file is read in batches, texts by dictionary, and their size is counted before they are expanded.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MAGIC = b"PAR1"
#: Most columns and levels of nesting: our tables have 60 and 8.
_MOST_COLUMNS, _DEEPEST = 1000, 32
#: Bytes per value while reading: the value, or its dictionary index, and its levels.
_VALUE = 16
#: Approximate bytes of text in a batch, and its most rows.
_BATCH_BYTES, _BATCH_ROWS = 1 << 28, 1 << 16
_DICTIONARY_PAGE = 2
#: The field of a page header with the number of values, by page type: data, dictionary, data version 2.
_HEADS = {0: 5, _DICTIONARY_PAGE: 7, 3: 8}
_BYTE_ARRAY = 6


class Unbounded(ValueError):
    """A Parquet file is damaged, or would take more memory than allowed."""


def read_table(content: bytes, room: int) -> Any:
    """Return the rows of a Parquet file; raises Unbounded if they take more than ``room`` bytes, and ArrowException."""
    import pyarrow.parquet

    columns = list(_columns(content))
    needed = sum(column.unpacked + _VALUE * column.values for column in columns)
    if needed > room:
        raise Unbounded(f"its rows would take {needed:,} bytes")
    texts = [column for column in columns if column.is_text]
    mean = max((column.unpacked // max(1, column.values) for column in texts), default=0)
    plain = pyarrow.parquet.ParquetFile(io.BytesIO(content))
    written = pa.schema([_plain(field) for field in plain.schema_arrow])
    schema = plain.metadata.schema
    columns_there = map(schema.column, range(len(schema)))
    paths = [column.path for column in columns_there if column.physical_type == "BYTE_ARRAY"]
    file = pyarrow.parquet.ParquetFile(io.BytesIO(content), metadata=plain.metadata, read_dictionary=paths)
    batches, taken = [], 0
    for batch in file.iter_batches(max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, mean)))):
        taken += sum(_expanded(column) for column in batch.columns)
        if taken > room:
            raise Unbounded(f"its rows would take more than {room:,} bytes")
        batches.append(batch.cast(written))
    return pa.Table.from_batches(batches, written)


def _plain(field: Any) -> Any:
    """Return a field with only its type; raises Unbounded for a type that our tables do not have.

    A file's metadata may make Arrow produce other types: lists of fixed size, which a single NULL fills, or DuckDB's
    extension types, which DuckDB would read out of bounds.
    """
    kind, of = field.type, pa.types
    if of.is_list(kind):
        return pa.field(field.name, pa.list_(_plain(kind.value_field)), field.nullable)
    if of.is_map(kind):
        return pa.field(field.name, pa.map_(_plain(kind.key_field), _plain(kind.item_field)), field.nullable)
    if of.is_struct(kind):
        return pa.field(field.name, pa.struct([_plain(each) for each in kind]), field.nullable)
    numbers = of.is_boolean(kind) or of.is_integer(kind) or of.is_float32(kind) or of.is_float64(kind)
    numbers = numbers or kind == pa.decimal128(38, 0)  # a HUGEINT
    if numbers or of.is_string(kind) or of.is_binary(kind) or of.is_timestamp(kind) or of.is_null(kind):
        return pa.field(field.name, kind, field.nullable)
    raise Unbounded(f'column "{field.name}" is of type {kind}, which no export has')


def _expanded(array: Any) -> int:
    """Return the bytes of an array with its dictionary expanded."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.cast(pc.binary_length(array.dictionary), pa.int64())
        return 8 * len(array) + int(pc.sum(pc.take(lengths, array.indices)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(_expanded(each) for each in array.flatten())
    if pa.types.is_map(kind):
        return _expanded(array.keys) + _expanded(array.items) + 8 * len(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _expanded(array.flatten()) + 8 * len(array)
    return int(array.nbytes)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column chunk: its number of values, and its decompressed bytes."""

    is_text: bool
    values: int
    unpacked: int


def _columns(content: bytes) -> Iterator[_Column]:
    """Yield the chunks of all columns according to their pages; raises Unbounded if the footer says otherwise."""
    size = int.from_bytes(content[-8:-4], "little")
    if content[:4] != _MAGIC or content[-4:] != _MAGIC or not 0 < size <= len(content) - 12:
        raise Unbounded("it is not Parquet")
    footer, _ = _Thrift(content, len(content) - 8 - size, len(content) - 8).structure()
    _check_schema(_list(footer, 2))
    for group in _list(footer, 4):
        for chunk in _list(_structure(group), 1):
            yield _column(content, _structure(_structure(chunk).get(3)))


def _check_schema(elements: list[Any]) -> None:
    if not 1 < len(elements) <= _MOST_COLUMNS:
        raise Unbounded(f"it has {len(elements)} columns")
    open_levels: list[int] = []
    for element in elements:
        while open_levels and not open_levels[-1]:
            open_levels.pop()
        if open_levels:
            open_levels[-1] -= 1
        open_levels.append(_whole(_structure(element).get(5, 0)))
        if len(open_levels) > _DEEPEST:
            raise Unbounded("its columns are nested too deep")
    if any(open_levels):
        raise Unbounded("its columns are not all there")


def _column(content: bytes, about: Mapping[int, Any]) -> _Column:
    is_text = about.get(1) == _BYTE_ARRAY
    if not about.get(7) and not about.get(5):  # without rows there is no page
        return _Column(is_text, 0, 0)
    starts = [_whole(about[place]) for place in (9, 11) if about.get(place)]
    place = min(starts, default=0)
    end = place + _whole(about.get(7))
    if not 4 <= place <= end <= len(content):
        raise Unbounded("a column is outside of it")
    values = unpacked = 0
    while place < end:
        head, place = _Thrift(content, place, end).structure()
        place += _whole(head.get(3))
        unpacked += _whole(head.get(2))
        kind = _whole(head.get(1))
        number = _whole(_structure(head.get(_HEADS.get(kind, 0))).get(1))
        if kind == _DICTIONARY_PAGE:
            if number > _whole(head.get(2)):
                raise Unbounded("a dictionary has more values than bytes")
        else:
            values += number
    if place != end or values != _whole(about.get(5)):
        raise Unbounded("a column's pages are not those that it says")
    return _Column(is_text, values, unpacked)


def _structure(value: Any) -> dict[int, Any]:
    if not isinstance(value, dict):
        raise Unbounded("it is damaged")
    return value


def _list(structure: Mapping[int, Any], field: int) -> list[Any]:
    value = structure.get(field, [])
    if not isinstance(value, list):
        raise Unbounded("it is damaged")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Unbounded("it is damaged")
    return value


class _Thrift:
    """Thrift's compact protocol, in which Parquet's footer and page headers are written: structures by field number."""

    def __init__(self, content: bytes, place: int, end: int) -> None:
        self._content, self._place, self._end = content, place, end

    def structure(self, depth: int = 0) -> tuple[dict[int, Any], int]:
        """Return a structure, and the position after it."""
        if depth > _DEEPEST:
            raise Unbounded("it is damaged")
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            found[field] = self._value(head & 15, depth)
        return found, self._place

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._unsigned())
            case 9 | 10:
                return self._values(depth)
            case 12:
                return self.structure(depth + 1)[0]
        raise Unbounded("it is damaged")

    def _values(self, depth: int) -> list[Any]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        count = self._unsigned() if count == 15 else count
        if count > self._end - self._place or depth > _DEEPEST:
            raise Unbounded("it is damaged")
        if kind in (1, 2):
            return [self._byte() == 1 for _ in range(count)]
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _bytes(self, count: int) -> bytes:
        start, self._place = self._place, self._place + count
        if self._place > self._end:
            raise Unbounded("it is damaged")
        return self._content[start : self._place]

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise Unbounded("it is damaged")

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
