"""Where the products of steps lie between the worker that makes them and those that take them.

On one machine, or where all see one directory, they are files: whoever dies, what was made is still there. Elsewhere they
are objects of Ray's store, gone with the machine that has them.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.train.steps import Product

#: Arrays of at least so many bytes are mapped where they lie; smaller ones are faster copied. In files they begin at multiples
#: of this many bytes.
MAPPED_BYTES, _ALIGNMENT = 1 << 20, 64
#: How long a worker waits for rows, or for a product that another one made.
FETCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Made:
    """Where the product of a step is: an object of Ray's store, or (None) a file named by the step."""

    step: int
    worker: int
    product: Any = None


class Gone(Exception):
    """A product is not there any more."""


@dataclass(frozen=True, slots=True)
class ProductStore:
    """The directory of a run's products, private to it and removed with it."""

    directory: str

    def put(self, step: int, product: Product) -> None:
        """Keep a product; a step that died while it wrote is run again under another number.

        The file: the sizes of the head and of the large arrays, the head (the product without them), and the arrays.
        """
        large: list[pickle.PickleBuffer] = []
        head = pickle.dumps(product, 5, buffer_callback=lambda buffer: _stays_inside(buffer, large))
        parts = [memoryview(head), *(buffer.raw() for buffer in large)]
        sizes = [part.nbytes for part in parts]
        with self._path(step).open("wb") as file:
            file.write(struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes))
            for part in parts:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(part)

    def get(self, step: int) -> Product:
        """Return the product of a step, its large arrays mapped: what is written to them stays here; raises Gone."""
        try:
            with self._path(step).open("rb") as file:
                pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except FileNotFoundError:
            raise Gone(step) from None
        (count,) = struct.unpack_from("<Q", pages)
        sizes = struct.unpack_from(f"<{count}Q", pages, 8)
        parts, end = [], 8 * (count + 1)
        for size in sizes:
            start = end + -end % _ALIGNMENT
            end = start + size
            parts.append(pages[start:end])
        product: Product = pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - written by another worker
        return product

    def discard(self, step: int) -> None:
        """Forget the product of a step."""
        with suppress(FileNotFoundError):
            self._path(step).unlink()

    def _path(self, step: int) -> Path:
        return Path(self.directory, f"step-{step}")


def _stays_inside(buffer: pickle.PickleBuffer, large: list[pickle.PickleBuffer]) -> bool:
    """Whether an array is written with the rest of a product; those that are not are noted in ``large``."""
    inside = buffer.raw().nbytes < MAPPED_BYTES
    if not inside:
        large.append(buffer)
    return inside
