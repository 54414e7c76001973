"""Where the products of steps lie between the worker that makes them and those that take them.

On one machine, or where all see one directory, they are files: whoever dies, what was made is still there. Elsewhere they
are objects of Ray's store, gone with the machine that has them.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grouplearn.runtime.steps import Product

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
class Shelf:
    """The directory of a run's products, private to it and removed with it."""

    directory: str

    def put(self, step: int, product: Product) -> None:
        """Keep a product; a step that died while it wrote is run again under another number."""
        self._path(step).write_bytes(pickle.dumps(product, pickle.HIGHEST_PROTOCOL))

    def get(self, step: int) -> Product:
        """Return the product of a step; raises Gone."""
        try:
            product: Product = pickle.loads(self._path(step).read_bytes())  # noqa: S301 - written by another worker
        except FileNotFoundError:
            raise Gone(step) from None
        return product

    def discard(self, step: int) -> None:
        """Forget the product of a step."""
        with suppress(FileNotFoundError):
            self._path(step).unlink()

    def _path(self, step: int) -> Path:
        return Path(self.directory, f"step-{step}")
