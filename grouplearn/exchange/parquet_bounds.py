"""Parquet from a stranger, bounded before it is expanded: a few bytes can say that a value is repeated a billion times.

The reader takes sizes from the pages themselves and follows nested types as deep as they go. So the footer and the heads of
all pages are read here first, which is little: how deep the columns are, how many values each page has, how large it is
unpacked. What then is read comes in batches, texts by their dictionary, and is counted before they are repeated.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_MAGIC = b"PAR1"
#: Columns and levels of nesting: our tables have 60 and 8.
_MOST_COLUMNS, _DEEPEST = 1000, 32
#: Bytes that a value takes while it is read: itself, or its place in a dictionary, and its levels.
_VALUE = 16
#: Bytes of the texts of one batch, about, and its rows at most.
_BATCH_BYTES, _BATCH_ROWS = 1 << 28, 1 << 16
_DICTIONARY_PAGE = 2
#: The field of a page's head that says how many values it has, by the kind of the page: data, dictionary, data of version 2.
_HEADS = {0: 5, _DICTIONARY_PAGE: 7, 3: 8}
_BYTE_ARRAY = 6


class Unbounded(ValueError):
    """A Parquet file is damaged, or would take more memory than there is."""


def read_table(content: bytes, room: int) -> Any:
    """Return the rows of a Parquet file; raises Unbounded where they take more than ``room`` bytes, and ArrowException."""
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
    """Return a field without what Arrow says of it besides its type; raises Unbounded for a type that no table of ours has.

    A file may say that Arrow is to make other types of its columns: lists of a fixed size, which one NULL fills, or types that
    DuckDB takes for its own and reads beyond what there is.
    """
    kind, of = field.type, pa.types
    if of.is_list(kind):
        return pa.field(field.name, pa.list_(_plain(kind.value_field)), field.nullable)
    if of.is_map(kind):
        return pa.field(field.name, pa.map_(_plain(kind.key_field), _plain(kind.item_field)), field.nullable)
    if of.is_struct(kind):
        return pa.field(field.name, pa.struct([_plain(each) for each in kind]), field.nullable)
    numbers = of.is_boolean(kind) or of.is_signed_integer(kind) or of.is_float32(kind) or of.is_float64(kind)
    if numbers or of.is_string(kind) or of.is_binary(kind) or of.is_timestamp(kind) or of.is_null(kind):
        return pa.field(field.name, kind, field.nullable)
    raise Unbounded(f'column "{field.name}" is of type {kind}, which no export has')


def _expanded(array: Any) -> int:
    """Return the bytes of an array whose texts are written out."""
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
    """A chunk of a column: its values, and its bytes unpacked."""

    is_text: bool
    values: int
    unpacked: int


def _columns(content: bytes) -> Iterator[_Column]:
    """Yield the chunks of all columns by what their pages say; raises Unbounded where that is not what the footer says."""
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
    if not about.get(7) and not about.get(5):  # of no row there is no page
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
    """Thrift's compact protocol, in which Parquet's footer and the heads of its pages are: structures by number of field."""

    def __init__(self, content: bytes, place: int, end: int) -> None:
        self._content, self._place, self._end = content, place, end

    def structure(self, depth: int = 0) -> tuple[dict[int, Any], int]:
        """Return a structure, and where it ends."""
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
