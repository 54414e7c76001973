"""Arrow batches as bytes of frames and back: the same layout as ``udfs/native/arrow_frames.cpp``.

Arrow's C structures (https://arrow.apache.org/docs/format/CDataInterface.html) are written out node by node. What comes
in is not copied: the arrays lie in the bytes of the frame, which live as long as they do.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from typing import Any, ClassVar

import pyarrow as pa

from grouplearn.frontends.native.frames import Body, blob

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
    """What imported arrays point into, by number, until Arrow lets go of them."""

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


def schema_of(content: bytes | bytearray | memoryview) -> pa.Schema:
    """Return the schema that a SCHEMA body describes."""
    kept: list[Any] = []
    root = _schema_node(Body(content), kept)
    return pa.Schema._import_from_c(ctypes.addressof(root))


def _schema_node(body: Body, kept: list[Any]) -> Any:
    node = _ArrowSchema()
    node.format, node.name = bytes(body.blob()), bytes(body.blob())
    metadata = bytes(body.blob())
    if metadata:
        kept.append(ctypes.create_string_buffer(metadata, len(metadata)))
        node.metadata = ctypes.addressof(kept[-1])
    node.flags, node.n_children, dictionary = body.number(), body.number(), body.number()
    children = [_schema_node(body, kept) for _ in range(node.n_children)]
    node.children = _pointers(_ArrowSchema, children, kept)
    if dictionary:
        node.dictionary = ctypes.pointer(_schema_node(body, kept))
    node.release = _RELEASE_SCHEMA
    kept.append(node)
    return node


def _pointers(kind: Any, children: list[Any], kept: list[Any]) -> Any:
    pointers = (ctypes.POINTER(kind) * max(1, len(children)))(*map(ctypes.pointer, children))
    kept.append(pointers)
    return pointers


def batch_of(content: bytearray | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch that a BATCH body holds; its arrays lie in ``content``."""
    body = Body(content)
    data = ctypes.addressof(ctypes.c_char.from_buffer(content)) + body.number()
    kept: list[Any] = [content]
    root = _array_node(body, data, kept)
    number = next(_Owned.numbers)
    _Owned.arrays[number] = kept
    root.private_data, root.release = number, _RELEASE_ARRAY
    return pa.RecordBatch._import_from_c(ctypes.addressof(root), schema)


def _array_node(body: Body, data: int, kept: list[Any]) -> Any:
    node = _ArrowArray()
    node.length, node.null_count, node.offset = body.number(), body.number(), body.number()
    node.n_buffers, node.n_children, dictionary = body.number(), body.number(), body.number()
    places = [(body.number(), body.number())[0] for _ in range(node.n_buffers)]
    addresses = [None if place == _ABSENT else data + place for place in places]
    node.buffers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
    kept.append(node.buffers)
    children = [_array_node(body, data, kept) for _ in range(node.n_children)]
    node.children = _pointers(_ArrowArray, children, kept)
    if dictionary:
        node.dictionary = ctypes.pointer(_array_node(body, data, kept))
    node.release = _RELEASE_CHILD
    kept.append(node)
    return node


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
    """Return the parts of a BATCH body. Of a slice all that it is a slice of is packed: ``take`` its rows first."""
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
    """The arrays of a batch, described depth first, and their buffers."""

    def __init__(self) -> None:
        self.header: list[bytes] = []
        self.pieces: list[bytes] = []
        self._total = 0

    def add(self, array: Any, schema: Any) -> None:
        """Add an array and those below it."""
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


_WIDTHS = dict(zip("cCsSeiIflLg", (1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8), strict=True))
_WIDTHS |= {"tdD": 4, "tdm": 8, "tts": 4, "ttm": 4, "ttu": 8, "ttn": 8, "tiM": 4, "tiD": 8, "tin": 16}


def _width(kind: str) -> int:
    """Return the bytes of a value of a type of fixed width, by Arrow's format string; 0 for all other types."""
    match kind[0]:
        case "w":
            return int(kind[2:])
        case "d":
            numbers = kind[2:].split(",")
            return int(numbers[2]) // 8 if len(numbers) > 2 else 16
        case "t":
            return _WIDTHS.get(kind, 8)  # timestamps and durations have a unit and a zone after their letter
    return _WIDTHS.get(kind, 0)


def buffer_bytes(kind: str, array: Any, number: int) -> int:
    """Return the size of a buffer, which C structures do not have: the rows of the type's layout, and the last offset."""
    count = array.length + array.offset
    if kind.startswith("+u"):  # unions have no validity: type ids, then offsets of dense ones
        return int(count * (1 if number == 0 else 4))
    if number == 0 or kind == "b":
        return int(-(-count // 8))
    width = _width(kind)
    if width:
        return int(width * count)
    if kind in ("+l", "+m", "u", "z", "+L", "U", "Z"):
        offset = 8 if kind in ("+L", "U", "Z") else 4
        size = (count + 1) * offset
        if number == 1:
            return int(size)
        last = ctypes.string_at(array.buffers[1] + size - offset, offset)
        return int.from_bytes(last, sys.byteorder)
    raise TypeError(f"an Arrow type cannot be sent to the database: {kind}")
