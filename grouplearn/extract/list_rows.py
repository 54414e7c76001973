"""List items from batches of rows: first how many entries each row has, then the entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.data import list_columns
from grouplearn.data.dataset import Item
from grouplearn.data.lists import Lists
from grouplearn.extract.row_order import IntArray
from grouplearn.kernels.texts import Texts


class ListRows:
    """The lists of rows: first ``count`` every batch, then ``settle``, then ``put`` them in any order, also concurrently.

    ``items`` are the list items by the number of their column in a batch. There is room for ``n_entries`` entries; if there
    are another number, ``misfit`` says so and nothing is stored.
    """

    def __init__(
        self,
        items: Sequence[tuple[int, Item]],
        n_rows: int,
        n_entries: int,
        new: Callable[[str, tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]],
    ) -> None:
        self._items = items
        weighs = any(item.kind == "entries" for _, item in items)
        self.lists = Lists(
            new("bounds", (n_rows, len(items) + 1), np.int64),
            new("entries", (n_entries,), np.int32),
            new("amounts", (n_entries if weighs else 0,), np.float64),
        )
        self._texts = {item.column: Texts() for _, item in items if item.kind == "categories"}
        self._end = 0
        self.misfit = False

    def count(self, batch: pa.RecordBatch, rows: slice | IntArray) -> None:
        """Store how many entries the rows of a batch have, whose places are ``rows``."""
        self.lists.bounds[rows, 0] = 0
        for number, item in self._items:
            self.lists.bounds[rows, item.column + 1] = list_columns.lengths(batch.column(f"x{number}"))

    def settle(self, rows: slice) -> None:
        """Compute where the entries of each row begin."""
        bounds = self.lists.bounds[rows]
        flat = bounds.reshape(-1)
        np.cumsum(flat, out=flat)
        flat += self._end
        self._end = int(flat[-1]) if flat.size else self._end
        self.misfit |= self._end > self.lists.entries.size

    def close(self) -> None:
        """Say that all rows were settled."""
        self.misfit |= self._end != self.lists.entries.size

    def put(self, batch: pa.RecordBatch, rows: slice | IntArray) -> None:
        """Store the entries of a batch."""
        if self.misfit:
            return
        own = self.lists.rows(rows)
        for number, item in self._items:
            at, flat = own.places(item.column), list_columns.elements(batch.column(f"x{number}"))
            if item.kind == "categories":
                own.entries[at] = self._texts[item.column].numbered(flat)
            elif item.kind == "hashes":
                own.entries[at] = list_columns.whole_numbers(flat)
            else:
                own.entries[at], own.amounts[at] = list_columns.indexed(flat)
            if own.amounts.size and item.kind != "entries":
                own.amounts[at] = 1.0

    def finish(self, chunks: Sequence[slice], forget_pages: Callable[[], None] | None) -> dict[int, tuple[str, ...]]:
        """Renumber texts by their place in the sorted dictionary, and return the dictionaries by item column."""
        found = {}
        for column, texts in self._texts.items():
            rank, in_order = texts.ranks()
            found[column] = tuple(in_order.to_pylist())
            for rows in chunks:
                at = self.lists.rows(rows).places(column)
                self.lists.entries[at] = rank[self.lists.entries[at]]  # -1 reads the last entry
                if forget_pages is not None:
                    forget_pages()
        return found
