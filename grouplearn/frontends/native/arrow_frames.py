"""Arrow batches as bytes of frames and back: the same layout as ``udfs/native/channel/arrow_frames.cpp``.

Arrow's C structures (https://arrow.apache.org/docs/format/CDataInterface.html) are written node by node. Received data are
not copied: arrays point into the bytes of the frame, which are kept alive.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import pyarrow as pa

from grouplearn.frontends.native.arrow_checks import DEEPEST, ArrowArray, ArrowLayout, check_array, check_counts, width
from grouplearn.frontends.native.frames import Body, Malformed, blob

_ABSENT = -1
_ALIGNMENT = 64


class _ArrowSchema(ctypes.Structure):
    pass


class _ArrowArray(ctypes.Structure):
    pass


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowSchema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_ArrowArray))
_ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowSchema))),
    ("dictionary", ctypes.POINTER(_ArrowSchema)),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
_ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_ArrowArray))),
    ("dictionary", ctypes.POINTER(_ArrowArray)),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]


class _Owned:
    """Numbered objects that imported arrays point into, kept until Arrow releases them."""

    arrays: ClassVar[dict[int, list[Any]]] = {}
    numbers = itertools.count(1)


def _release_array(array: Any) -> None:
    _Owned.arrays.pop(array.contents.private_data, None)
    array.contents.release = _ReleaseArray()


def _release_child(array: Any) -> None:
    array.contents.release = _ReleaseArray()


def _release_schema(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


_RELEASE_ARRAY, _RELEASE_CHILD = _ReleaseArray(_release_array), _ReleaseArray(_release_child)
_RELEASE_SCHEMA = _ReleaseSchema(_release_schema)


@dataclass(frozen=True, slots=True)
class Described:
    """A SCHEMA body as a schema and as the types of its batches."""

    schema: pa.Schema
    layout: ArrowLayout


def described(content: bytes | bytearray | memoryview) -> Described:
    """Read a SCHEMA body; raises Malformed."""
    return _described(bytes(content))


@lru_cache(maxsize=32)  # all chunks of a query share one
def _described(content: bytes) -> Described:
    kept: list[Any] = []
    root = _schema_node(Body(content), kept)
    layout = _layout(root)
    return Described(pa.Schema._import_from_c(ctypes.addressof(root)), layout)


def _schema_node(body: Body, kept: list[Any], depth: int = 1) -> Any:
    if depth > DEEPEST:
        raise Malformed(f"a type is nested more than {DEEPEST} levels deep")
    node = _ArrowSchema()
    node.format, node.name = bytes(body.blob()), bytes(body.blob())
    metadata = bytes(body.blob())
    if metadata:
        _check_metadata(metadata)
        kept.append(ctypes.create_string_buffer(metadata, len(metadata)))
        node.metadata = ctypes.addressof(kept[-1])
    node.flags, node.n_children, dictionary = body.numbers(3)
    if not 0 <= node.n_children <= body.left():
        raise Malformed("more children than there is room for")
    children = [_schema_node(body, kept, depth + 1) for _ in range(node.n_children)]
    node.children = _pointers(_ArrowSchema, children, kept)
    if dictionary:
        node.dictionary = ctypes.pointer(_schema_node(body, kept, depth + 1))
    node.release = _RELEASE_SCHEMA
    kept.append(node)
    return node


def _check_metadata(metadata: bytes) -> None:
    pairs, at = int.from_bytes(metadata[:4], sys.byteorder, signed=True), 4
    if not 0 <= pairs <= len(metadata):
        raise Malformed("metadata with a wrong count")
    for _ in range(2 * pairs):
        size = int.from_bytes(metadata[at : at + 4], sys.byteorder, signed=True)
        at += 4 + size
        if size < 0 or at > len(metadata):
            raise Malformed("metadata with a wrong size")


def _layout(node: Any) -> ArrowLayout:
    children = tuple(_layout(node.children[child].contents) for child in range(node.n_children))
    dictionary = _layout(node.dictionary.contents) if node.dictionary else None
    return ArrowLayout(str(node.format, "ascii", "replace"), children, dictionary)


def _pointers(kind: Any, children: list[Any], kept: list[Any]) -> Any:
    pointers = (ctypes.POINTER(kind) * max(1, len(children)))(*map(ctypes.pointer, children))
    kept.append(pointers)
    return pointers


def batch_of(content: bytearray, of: Described) -> pa.RecordBatch:
    """Return the batch in a BATCH body; its arrays point into ``content``. Raises Malformed."""
    body = Body(content)
    start = body.number()
    if not 0 <= start <= len(content):
        raise Malformed("no place for the buffers")
    kept: list[Any] = [content]
    root, rows = _array_node(body, memoryview(content)[start:], of.layout, kept)
    if root.offset or any(root.children[child].contents.length != rows for child in range(root.n_children)):
        raise Malformed("columns of several lengths")
    number = next(_Owned.numbers)
    _Owned.arrays[number] = kept
    root.private_data, root.release = number, _RELEASE_ARRAY
    return pa.RecordBatch._import_from_c(ctypes.addressof(root), of.schema)


def _array_node(body: Body, data: memoryview, layout: ArrowLayout, kept: list[Any]) -> tuple[Any, int]:
    """Return an array of the type, and its length."""
    node = _ArrowArray()
    length, null_count, offset, n_buffers, n_children, dictionary = body.numbers(6)
    check_counts((length, null_count + 1, length - null_count, offset, n_buffers, n_children))
    if n_children != len(layout.children) or bool(dictionary) != (layout.dictionary is not None):
        raise Malformed("an array of another type")
    if not layout.has_buffers(n_buffers) or n_buffers > body.left():
        raise Malformed("an array with other buffers")
    node.length, node.null_count, node.offset = length, null_count, offset
    node.n_buffers, node.n_children = n_buffers, n_children
    places = body.numbers(2 * n_buffers)
    buffers = tuple(itertools.starmap(partial(_buffer, data), zip(places[::2], places[1::2], strict=True)))
    node.buffers = (ctypes.c_void_p * max(1, n_buffers))(*map(_address, buffers))
    kept.append(node.buffers)
    children = [_array_node(body, data, child, kept) for child in layout.children]
    node.children = _pointers(_ArrowArray, [child for child, _ in children], kept)
    entries = -1
    if layout.dictionary is not None:
        below, entries = _array_node(body, data, layout.dictionary, kept)
        node.dictionary = ctypes.pointer(below)
    check_array(layout, ArrowArray(length, null_count, offset, buffers, tuple(each for _, each in children), entries))
    node.release = _RELEASE_CHILD
    kept.append(node)
    return node, length


def _buffer(data: memoryview, position: int, size: int) -> memoryview | None:
    if position == _ABSENT:
        return None
    if not (0 <= position <= len(data) and 0 <= size <= len(data) - position) or position % 8:
        raise Malformed("a buffer outside of the message")
    return data[position : position + size]


def _address(buffer: memoryview | None) -> int | None:
    if buffer is None:
        return None
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if len(buffer) else ctypes.addressof(_NOTHING)


#: The address of empty buffers.
_NOTHING = ctypes.create_string_buffer(_ALIGNMENT)


def packed_schema(schema: pa.Schema) -> bytes:
    """Return a schema as a SCHEMA body."""
    exported = _ArrowSchema()
    schema._export_to_c(ctypes.addressof(exported))
    try:
        return _packed_schema(exported)
    finally:
        exported.release(ctypes.byref(exported))


def _packed_schema(node: Any) -> bytes:
    metadata = ctypes.string_at(node.metadata, _metadata_size(node.metadata)) if node.metadata else b""
    parts = [blob(node.format), blob(node.name or b""), blob(metadata)]
    parts.append(struct.pack("=qqq", node.flags, node.n_children, bool(node.dictionary)))
    parts += [_packed_schema(node.children[child].contents) for child in range(node.n_children)]
    if node.dictionary:
        parts.append(_packed_schema(node.dictionary.contents))
    return b"".join(parts)


def _metadata_size(address: int) -> int:
    at = address
    pairs = ctypes.c_int32.from_address(at).value
    at += 4
    for _ in range(2 * pairs):
        at += 4 + ctypes.c_int32.from_address(at).value
    return at - address


def packed_batch(batch: pa.RecordBatch) -> list[bytes]:
    """Return the parts of a BATCH body. A slice would be packed with all rows of its base: ``take`` its rows first."""
    array, schema = _ArrowArray(), _ArrowSchema()
    batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
    packing = _Packing()
    try:
        packing.add(array, schema)
    finally:
        array.release(ctypes.byref(array))
        schema.release(ctypes.byref(schema))
    described = b"".join(packing.header)
    start = _padded(8 + len(described))
    return [struct.pack("=q", start), described, bytes(start - 8 - len(described)), *packing.pieces]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Packing:
    """A batch's arrays, described depth first, and their buffers."""

    def __init__(self) -> None:
        self.header: list[bytes] = []
        self.pieces: list[bytes] = []
        self._total = 0

    def add(self, array: Any, schema: Any) -> None:
        """Add an array and its children."""
        counts = (array.length, array.null_count, array.offset, array.n_buffers, array.n_children)
        self.header.append(struct.pack("=qqqqqq", *counts, bool(array.dictionary)))
        for number in range(array.n_buffers):
            self._add_buffer(array.buffers[number], schema.format.decode(), array, number)
        for number in range(array.n_children):
            self.add(array.children[number].contents, schema.children[number].contents)
        if array.dictionary:
            self.add(array.dictionary.contents, schema.dictionary.contents)

    def _add_buffer(self, address: int | None, kind: str, array: Any, number: int) -> None:
        size = buffer_bytes(kind, array, number) if address else 0
        self.header.append(struct.pack("=qq", self._total if address else _ABSENT, size))
        if address:
            self.pieces += [ctypes.string_at(address, size), bytes(_padded(size) - size)]
            self._total += _padded(size)


def buffer_bytes(kind: str, array: Any, number: int) -> int:
    """Return the size of a buffer, which C structures do not have: from the type's layout, or the last offset."""
    count = array.length + array.offset
    if kind.startswith("+u"):  # unions have no validity: type ids, then offsets of dense ones
        return int(count * (1 if number == 0 else 4))
    if number == 0 or kind == "b":
        return int(-(-count // 8))
    if (fixed := width(kind)) > 0:
        return int(fixed * count)
    if kind in ("+l", "+m", "u", "z", "+L", "U", "Z"):
        offset = 8 if kind in ("+L", "U", "Z") else 4
        size = (count + 1) * offset
        if number == 1:
            return int(size)
        last = ctypes.string_at(array.buffers[1] + size - offset, offset)
        return int.from_bytes(last, sys.byteorder)
    raise TypeError(f"an Arrow type cannot be sent to the database: {kind}")
