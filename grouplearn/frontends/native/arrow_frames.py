"""Arrow batches as bytes of frames and back: the same layout as ``udfs/native/arrow_frames.cpp``.

Arrow's C structures (https://arrow.apache.org/docs/format/CDataInterface.html) are written out node by node. What comes
in is not copied: the arrays lie in the bytes of the frame, which live as long as they do.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
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


def packed_batch(batch: pa.RecordBatch) -> list[bytes | memoryview]:
    """Return the parts of a BATCH body. Slices are packed with all that they are a slice of: ``take`` rows first."""
    exported = _ArrowArray()
    batch._export_to_c(ctypes.addressof(exported))
    buffers = {each.address: each for column in batch.columns for each in column.buffers() if each is not None}
    packing = _Packing(buffers)
    try:
        packing.add(exported)
    finally:
        exported.release(ctypes.byref(exported))
    described = b"".join(packing.header)
    start = _padded(8 + len(described))
    return [struct.pack("=q", start), described, bytes(start - 8 - len(described)), *packing.pieces]


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Packing:
    """The arrays of a batch, described depth first, and their buffers, found by address."""

    def __init__(self, buffers: dict[int, Any]) -> None:
        self.header: list[bytes] = []
        self.pieces: list[bytes | memoryview] = []
        self._buffers = buffers
        self._total = 0

    def add(self, node: Any) -> None:
        """Add an array and those below it."""
        self.header.append(
            struct.pack(
                "=qqqqqq",
                *(node.length, node.null_count, node.offset, node.n_buffers, node.n_children, bool(node.dictionary)),
            )
        )
        for number in range(node.n_buffers):
            self._add_buffer(self._buffers.get(node.buffers[number] or 0))
        for number in range(node.n_children):
            self.add(node.children[number].contents)
        if node.dictionary:
            self.add(node.dictionary.contents)

    def _add_buffer(self, buffer: Any) -> None:
        size = 0 if buffer is None else buffer.size
        self.header.append(struct.pack("=qq", self._total if buffer is not None else _ABSENT, size))
        if buffer is not None:
            self.pieces += [memoryview(buffer), bytes(_padded(size) - size)]
            self._total += _padded(size)
