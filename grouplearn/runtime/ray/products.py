"""Where the products of steps are stored between the worker that makes them and those that take them.

On one machine, or where all machines see one directory, they are files, which exist longer than the workers. Otherwise they
are objects of Ray's store, lost with the machine that has them.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from grouplearn.schedule.messages import Part
from grouplearn.train.sharded.averaging import Pieces
from grouplearn.train.sharded.descent import Product

#: Arrays of at least so many bytes are mapped from their file; smaller ones are copied, which is faster. In files they
#: begin at multiples of so many bytes.
MAPPED_BYTES, _ALIGNMENT = 1 << 20, 64
#: How long a worker waits for rows, or for another worker's product.
FETCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Made:
    """The location of a step's product: an object of Ray's store (a tuple of them for a product in pieces), or None for a
    file named by the step. ``piece`` is the part of it that is taken."""

    step: int
    worker: int
    product: Any = None
    piece: Part | None = None

    def taken(self, piece: Part | None) -> Made:
        """Return the location, restricted to the piece that a step takes."""
        if piece is None or not isinstance(self.product, tuple):
            return replace(self, piece=piece)
        return replace(self, piece=piece, product=self.product[piece.number])


class ProductGone(Exception):
    """A product no longer exists."""


@dataclass(frozen=True, slots=True)
class ProductStore:
    """The private directory of a run's products, removed with it."""

    directory: str

    def put(self, step: int, product: Product) -> None:
        """Store a product; a step that died while writing is run again under another number.

        The file has the number of pieces (0 for a product not in pieces, stored as one), the offsets where they begin, and
        the pieces.
        """
        pieces: Sequence[Any] = product.pieces if isinstance(product, Pieces) else (product,)
        with self._path(step).open("wb") as file:
            file.write(bytes(8 * (len(pieces) + 1)))
            starts = [_write(file, piece) for piece in pieces]
            file.seek(0)
            file.write(struct.pack(f"<{len(starts) + 1}Q", len(pieces) if isinstance(product, Pieces) else 0, *starts))

    def get(self, step: int, piece: Part | None = None) -> Product:
        """Return a step's product or a piece of it, with large arrays mapped copy-on-write.

        Only that part of the file is read. Raises ProductGone.
        """
        try:
            with self._path(step).open("rb") as file:
                pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except FileNotFoundError:
            raise ProductGone(step) from None
        (count,) = struct.unpack_from("<Q", pages)
        starts = struct.unpack_from(f"<{max(1, count)}Q", pages, 8)
        if not count or piece is not None:
            product: Product = _read(pages, starts[piece.number if count and piece is not None else 0])
            return product
        return Pieces(tuple(_read(pages, start) for start in starts))

    def discard(self, step: int) -> None:
        """Delete a step's product."""
        with suppress(FileNotFoundError):
            self._path(step).unlink()

    def _path(self, step: int) -> Path:
        return Path(self.directory, f"step-{step}")


def _write(file: BinaryIO, product: Any) -> int:
    """Write a product or a piece: the sizes of the head and of the large arrays, the head (everything else), and the arrays.

    Return the offset where it begins.
    """
    large: list[pickle.PickleBuffer] = []
    head = pickle.dumps(product, 5, buffer_callback=lambda buffer: _stays_inside(buffer, large))
    parts = [memoryview(head), *(buffer.raw() for buffer in large)]
    sizes = [part.nbytes for part in parts]
    file.write(bytes(-file.tell() % _ALIGNMENT))
    start = file.tell()
    file.write(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))
    for part in parts:
        file.write(bytes(-file.tell() % _ALIGNMENT))
        file.write(part)
    return start


def _read(pages: memoryview, start: int) -> Any:
    """Inverse of ``_write``."""
    (count,) = struct.unpack_from("<Q", pages, start)
    sizes = struct.unpack_from(f"<{count}Q", pages, start + 8)
    parts, end = [], start + 8 * (count + 1)
    for size in sizes:
        begin = end + -end % _ALIGNMENT
        end = begin + size
        parts.append(pages[begin:end])
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - written by another worker


def _stays_inside(buffer: pickle.PickleBuffer, large: list[pickle.PickleBuffer]) -> bool:
    """Whether an array is written with the head of a product; large ones are added to ``large`` instead."""
    inside = buffer.raw().nbytes < MAPPED_BYTES
    if not inside:
        large.append(buffer)
    return inside
