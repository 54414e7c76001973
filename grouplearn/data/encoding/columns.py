"""What encoders read and make: an SQL column as binding sees it, columns of rows as training does, pieces of a design matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FeatureArray, FloatArray, Item
from grouplearn.data.lists import Lists

#: What stands before and after an expression, or around several, one more than there are.
Around = tuple[str, ...]
IntArray = npt.NDArray[np.int64]
#: How many entries each row has, in whichever whole numbers.
Counts = npt.NDArray[np.int8] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """The type of an expression, and what a feature may be made of it.

    ``kind`` is what it is without an encoder; ``named``: its values have texts that name categories. ``text`` reads it as such a
    text, ``text_of`` an expression that may have another type by now. ``element`` is the type in a list, None for no list.
    ``others`` are the columns that stand after it in a call that takes several as one item.
    """

    type: str
    kind: Literal["numeric", "category", "other"]
    named: bool
    text: Around
    text_of: Around
    element: SqlColumn | None = None
    others: tuple[SqlColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """The SQL around an expression: where rows are read to train on, and where it is replayed to predict."""

    extract: Around
    replayed: Around


def woven(around: Around, texts: Sequence[str]) -> str:
    """Return texts with what stands around them."""
    return "".join(f"{before}{text}" for before, text in zip(around, texts, strict=False)) + around[-1]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of some rows, not yet encoded, as in ``Dataset``: ``lists`` is None where no item is a list."""

    numeric: FeatureArray
    codes: npt.NDArray[np.int32]
    lists: Lists | None
    dictionaries: Sequence[Sequence[str]]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.numeric.shape[0])

    def dictionary(self, item: Item) -> Sequence[str]:
        """Return the texts that the codes of an item are of."""
        return self.dictionaries[item.column + (self.codes.shape[1] if item.is_list else 0)]

    def taken(self, rows: IntArray, dictionaries: Sequence[Sequence[str]]) -> Columns:
        """Return rows by number, whose codes are of these dictionaries."""
        lists = None if self.lists is None else self.lists.rows(rows)
        return Columns(self.numeric[rows], self.codes[rows], lists, dictionaries)

    def rows(self, rows: slice) -> Columns:
        """Return adjoining rows without copying them."""
        lists = None if self.lists is None else self.lists.rows(rows)
        return Columns(self.numeric[rows], self.codes[rows], lists, self.dictionaries)


class ColumnPiece(Protocol):
    """The feature columns that an item makes of n rows, counted from its first."""

    def write(self, x: FeatureArray) -> None:
        """Write them into ``x`` (n, width), which is zero."""
        ...

    def nonzeros(self) -> tuple[Counts, IntArray, FloatArray]:
        """Return how many there are in each row (n,), and of each, row by row, its column and its value."""
        ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers as they are: ``values`` (n, width)."""

    values: npt.NDArray[Any]

    def write(self, x: FeatureArray) -> None:
        """See ``Piece``."""
        x[:] = self.values

    def nonzeros(self) -> tuple[Counts, IntArray, FloatArray]:
        """See ``Piece``."""
        present = self.values != 0
        return present.sum(axis=1), np.nonzero(present)[1], self.values[present].astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class Places:
    """A 1 at the ``column`` (n,) of each row; -1 for none."""

    column: IntArray

    def write(self, x: FeatureArray) -> None:
        """See ``Piece``."""
        present = np.flatnonzero(self.column >= 0)
        x[present, self.column[present]] = 1.0

    def nonzeros(self) -> tuple[Counts, IntArray, FloatArray]:
        """See ``Piece``."""
        present = self.column >= 0
        column = self.column if present.all() else self.column[present]
        return present.view(np.int8), column, np.broadcast_to(1.0, column.shape)


@dataclass(frozen=True, slots=True)
class Entries:
    """Several values in a row: ``counts`` (n,) of them, by ``column`` and ``value`` (m,), ascending and each column once."""

    counts: IntArray
    column: IntArray
    value: FloatArray

    def write(self, x: FeatureArray) -> None:
        """See ``Piece``."""
        x[np.repeat(np.arange(self.counts.size), self.counts), self.column] = self.value

    def nonzeros(self) -> tuple[Counts, IntArray, FloatArray]:
        """See ``Piece``."""
        return self.counts, self.column, self.value
