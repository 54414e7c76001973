"""Bytes as named tensors, through safetensors, with one error for everything invalid."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

#: Bytes at the beginning that give the header's length.
_SIZE = 8


class NotTensors(ValueError):
    """Bytes are not tensors, or of a type that is never written here."""


def named_tensors(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file; raises NotTensors.

    The library checks header, offsets and sizes against the bytes before it allocates arrays; number types unknown to numpy
    raise NotTensors too.
    """
    try:
        return dict(safetensors.numpy.load(data))
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise NotTensors(f"it is no file of tensors: {error}") from None


def tensor_bytes(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return tensors as a safetensors file: no code, and equal tensors give equal bytes.

    The library makes one header for all files with the same names, types and shapes: that takes as long as writing some
    hundred numbers.
    """
    shapes = tuple((name, tensor.dtype.str, tensor.shape) for name, tensor in sorted(tensors.items()))
    header, names = _header(shapes)
    return header + b"".join(np.ascontiguousarray(tensors[name]).tobytes() for name in names)


def tensor_rows(tensors: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
    """Return tensors with the same leading axis (n, ...) as n safetensors files of equal length, (n, bytes)."""
    shapes = tuple((name, tensor.dtype.str, tensor.shape[1:]) for name, tensor in sorted(tensors.items()))
    header, names = _header(shapes)
    count = len(tensors[names[0]])
    parts = [np.broadcast_to(np.frombuffer(header, np.uint8), (count, len(header)))]
    for name in names:
        flat = np.ascontiguousarray(tensors[name]).reshape(count, -1)
        parts.append(flat.view(np.uint8).reshape(count, -1))
    return np.concatenate(parts, axis=1)


def header_of(content: bytes) -> bytes:
    """Return the header of a safetensors file, with its length."""
    return content[: _SIZE + int.from_bytes(content[:_SIZE], "little")]


def tensors_of_rows(rows: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors (n, ...) of n files with one header, (n, bytes): the inverse of ``tensor_rows``."""
    first = named_tensors(rows[0].tobytes())
    shapes = tuple((name, tensor.dtype.str, tensor.shape) for name, tensor in sorted(first.items()))
    header, names = _header(shapes)
    found, start = {}, len(header)
    for name in names:
        stop = start + first[name].nbytes
        own = np.ascontiguousarray(rows[:, start:stop]).reshape(-1)
        found[name] = own.view(first[name].dtype).reshape(len(rows), *first[name].shape)
        start = stop
    return found


def parts(content: npt.NDArray[np.uint8]) -> tuple[str, bytes]:
    """Return the header of a safetensors file without its length, which many files share, and the rest of the file."""
    end = _SIZE + int.from_bytes(content[:_SIZE].tobytes(), "little")
    return content[_SIZE:end].tobytes().decode(), content[end:].tobytes()


def of_parts(header: str, rest: bytes) -> bytes:
    """Return the safetensors file of these ``parts``."""
    text = header.encode()
    return len(text).to_bytes(_SIZE, "little") + text + rest


@functools.lru_cache(maxsize=256)
def _header(shapes: tuple[tuple[str, str, tuple[int, ...]], ...]) -> tuple[bytes, tuple[str, ...]]:
    """Return the header bytes for such tensors, and the order of their data."""
    content = bytes(safetensors.numpy.save({name: np.zeros(shape, kind) for name, kind, shape in shapes}))
    end = _SIZE + int.from_bytes(content[:_SIZE], "little")
    places = {name: entry["data_offsets"] for name, entry in json.loads(content[_SIZE:end]).items()}
    return content[:end], tuple(sorted(places, key=lambda name: (places[name], name)))
