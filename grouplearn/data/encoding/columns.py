"""What encoders read and make: SQL columns in binding, columns of rows in training, pieces of a design matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FeatureArray, FloatArray, Item
from grouplearn.data.lists import Lists

#: Text around expressions: one more part than there are expressions.
Around = tuple[str, ...]
IntArray = npt.NDArray[np.int64]
#: Columns or categories by number, as narrow as they are known.
PlaceArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]
#: How many entries each row has, in whichever whole numbers.
Counts = npt.NDArray[np.int8] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """The type of an expression, and which features may be made of it.

    ``kind`` is its feature kind without an encoder; ``named``: its values have texts that name categories. ``text`` reads
    it as such a text, ``text_of`` does so for an expression whose type may have changed. ``element`` is the element type of
    a list, else None. ``others`` are the further columns of a call that takes several as one item.
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
    """The SQL around an expression: to read training rows, and to replay it for predictions."""

    extract: Around
    replayed: Around


def woven(around: Around, texts: Sequence[str]) -> str:
    """Return texts interleaved with the parts around them."""
    return "".join(f"{before}{text}" for before, text in zip(around, texts, strict=False)) + around[-1]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of some rows, not yet encoded, as in ``Dataset``: ``lists`` is None if no item is a list.

    ``place`` (n,) is each row's place among the training rows of its group, for items that learn from labels; None if the
    rows do not train.
    """

    numeric: FeatureArray
    codes: npt.NDArray[np.int32]
    lists: Lists | None
    dictionaries: Sequence[Sequence[str]]
    place: IntArray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.numeric.shape[0])

    def dictionary(self, item: Item) -> Sequence[str]:
        """Return the texts that an item's codes refer to."""
        return self.dictionaries[item.column + (self.codes.shape[1] if item.is_list else 0)]

    def taken(self, rows: IntArray, dictionaries: Sequence[Sequence[str]]) -> Columns:
        """Return some rows by number; codes keep their dictionaries."""
        lists = None if self.lists is None else self.lists.rows(rows)
        return Columns(self.numeric[rows], self.codes[rows], lists, dictionaries)

    def rows(self, rows: slice) -> Columns:
        """Return consecutive rows without copying them."""
        lists = None if self.lists is None else self.lists.rows(rows)
        place = None if self.place is None else self.place[rows]
        return Columns(self.numeric[rows], self.codes[rows], lists, self.dictionaries, place)


class DensePiece(Protocol):
    """The feature columns that an item makes of n rows."""

    def write(self, x: FeatureArray) -> None:
        """Write them into ``x`` (n, width), which is zero before."""
        ...


class ColumnPiece(DensePiece, Protocol):
    """Columns that rows may set few of; they are counted from the item's first."""

    def nonzeros(self) -> tuple[Counts, PlaceArray, FloatArray]:
        """Return how many there are in each row (n,), and of each, row by row, its column and its value."""
        ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers as they are: ``values`` (n, width)."""

    values: npt.NDArray[Any]

    def write(self, x: FeatureArray) -> None:
        """See ``ColumnPiece``."""
        x[:] = self.values

    def nonzeros(self) -> tuple[Counts, PlaceArray, FloatArray]:
        """See ``Piece``."""
        present = self.values != 0
        return present.sum(axis=1), np.nonzero(present)[1], self.values[present].astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class AdjacentColumns:
    """The columns of runs of rows."""

    runs: Sequence[tuple[slice, DensePiece]]

    def write(self, x: FeatureArray) -> None:
        """See ``DensePiece``."""
        for rows, piece in self.runs:
            piece.write(x[rows])


@dataclass(frozen=True, slots=True)
class IndicatorColumns:
    """A 1 at the ``column`` (n,) of each row; -1 for none."""

    column: PlaceArray

    def write(self, x: FeatureArray) -> None:
        """See ``ColumnPiece``."""
        present = np.flatnonzero(self.column >= 0)
        x[present, self.column[present]] = 1.0

    def nonzeros(self) -> tuple[Counts, PlaceArray, FloatArray]:
        """See ``Piece``."""
        present = self.column >= 0
        column = self.column if present.all() else self.column[present]
        return present.view(np.int8), column, np.broadcast_to(1.0, column.shape)


@dataclass(frozen=True, slots=True)
class SparseColumns:
    """Several values per row: ``counts`` (n,), and their ``column`` and ``value`` (m,), columns ascending and distinct."""

    counts: IntArray
    column: IntArray
    value: FloatArray

    def write(self, x: FeatureArray) -> None:
        """See ``ColumnPiece``."""
        x[np.repeat(np.arange(self.counts.size), self.counts), self.column] = self.value

    def nonzeros(self) -> tuple[Counts, PlaceArray, FloatArray]:
        """See ``Piece``."""
        return self.counts, self.column, self.value
