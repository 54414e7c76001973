"""What an encoder is, fitted or not: each is one object, and every room asks it what it has to know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import ColumnPiece, Columns, IntArray, Reading, SqlColumn
from grouplearn.sqltext import literal

#: How an item enters the SQL that predicts: as a number, as several, as the place of its category, as 0s and a 1, as a list.
Role = Literal["number", "array", "place", "indicator", "list"]
#: Makes an item's feature columns of rows.
Replay = Callable[[Columns], ColumnPiece]
#: Among the features of a linear model's weights, what is added to every row: no item has this name.
INTERCEPT = "(intercept)"
#: Bytes of the number of a column.
_BYTES = 8


class NoForm(ValueError):
    """An item has no form in an export; the message says why, and what has one."""


class OnnxGraph(Protocol):
    """A graph of ONNX that grows node by node; see ``exchange.onnx_graph``."""

    def input(self, name: str, kind: str, width: int = 1) -> str:
        """Add an input."""
        ...

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant."""
        ...

    def number(self, value: float) -> str:
        """Add one double."""
        ...

    def doubles(self, value: str) -> str:
        """Cast to double."""
        ...

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node."""
        ...


class Encoder(ABC):
    """One way in which a column becomes feature columns. It is known by the ``kind`` of its items and its ``name``.

    ``call`` is the function by which it is called in FEATURES, None where a plain expression is meant; of several with one call
    the first that ``takes`` a column is meant. ``size`` is the option that says how many columns there are, and ``most`` how many
    there may be, the ``first`` of which has this number in names and in rows; ``per_category``: there is one for each category.
    ``wide``: of so many columns a group has those alone that its training rows set, and models have their weights by column.
    ``pure``: a row has at most one nonzero in them. ``fills``: a row without a value is a row all the same. ``scales``: what is
    subtracted and divided by differs by group. ``linear``: those learners take it whose models are weights in SQL. ``plain``:
    where items are shown nothing is said of it. ``taken`` says in words what it, or all of its call, takes.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    call: ClassVar[str | None]
    taken: ClassVar[str]
    role: ClassVar[Role]
    pure: ClassVar[bool] = True
    fills: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    per_category: ClassVar[bool] = False
    wide: ClassVar[bool] = False
    first: ClassVar[int] = 0
    plain: ClassVar[bool] = False
    linear: ClassVar[bool] = True
    size: ClassVar[str | None] = None
    most: ClassVar[int | None] = None

    @property
    def counted(self) -> bool:
        """Whether its columns are as many as distinct values that rows have, which are counted before they are read."""
        return self.per_category or self.wide

    @property
    def shown(self) -> str:
        """Its name as people know it."""
        return self.call if self.wide and self.call else self.name

    @abstractmethod
    def takes(self, column: SqlColumn) -> bool:
        """Return whether it encodes a column of this type."""

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002 - some look at it
        """Return whether a plain expression of this type means it, without a call."""
        return False

    @abstractmethod
    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the SQL that reads an item of a column."""

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002 - some look at it
        """Return whether it is another one when other rows train."""
        return False

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:  # noqa: ARG002
        """Return the item fitted on its column of the training rows: numbers with NaN missing, or codes with -1 missing."""
        return FittedItem(item)

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002 - some look at it
        """Return whether it makes numbers of single precision of such numbers, or of codes: it computes nothing."""
        return True

    def width(self, item: Item, categories: int) -> int:
        """Return the number of feature columns of so many categories, or of a wide item of so many columns that are set."""
        if self.per_category:
            return categories
        return min(item.buckets, categories) if self.wide else item.buckets or 1

    def stored_width(self, item: Item, categories: int) -> int:
        """Return the number of those that have a weight each in a list of all, which a wide item's have not."""
        return 0 if self.wide else self.width(item, categories)

    @abstractmethod
    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the names of the feature columns."""

    def numbered(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the names of columns that are numbers."""
        return tuple(f"{fitted.item.name}[{number}]" for number in (fitted.numbers + self.first).tolist())

    def place(self, fitted: FittedItem, codes: npt.NDArray[np.int32]) -> IntArray:  # noqa: ARG002 - some look at it
        """Return the places among the feature columns of codes that are numbers of columns, -1 for none."""
        return codes.astype(np.int64)

    @abstractmethod
    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return what makes the feature columns of these rows, and of others whose codes are of the same dictionaries."""

    def columns_sql(self, item: Item, at: str) -> tuple[str, str]:
        """Return how many columns an item has, and the list of what a row says to mean each of them, as SQL.

        ``at`` is the list of its categories in a row of ``groups``.
        """
        every = f"range({self.first}, {item.buckets + self.first})" if self.first else f"range({item.buckets})"
        return (f"len({at})", at) if self.per_category else (str(item.buckets), every)

    def numbers_sql(self, numbers: str, at: str) -> str:  # noqa: ARG002 - some look at it
        """Return what rows say to mean the columns of a list of their numbers, from 0; ``at`` as in ``columns_sql``."""
        return f"unnest({numbers}) + {self.first}"

    def named_sql(self, item: Item, value: str) -> str:
        """Return the name of the column that a row means by a value."""
        return f"{literal(item.name + '[')} || {value} || ']'"

    @abstractmethod
    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:
        """Add its input to a graph and return its feature columns, NaN where missing; with ``finite`` infinity is, too.

        Raises NoForm.
        """


@dataclass(frozen=True, slots=True)
class FittedItem:
    """A fitted item: numeric columns become ``(coalesce(x, fill) - center) / scale``; ``categories`` are the texts seen.

    A one-hot item has one column per category, in the order of ``categories``, and so has a multi-hot one; an ordinal item has
    one column holding the 0-based position in ``categories``; a hash item has ``buckets`` columns, and so have an array, its
    values as they are, and a sparse item. NULL and unseen categories are all zeros in one-hot columns and missing in ordinal
    ones. A wide item has the ``columns`` that training rows set: their numbers from 0, ascending, as the bytes of int64.
    """

    item: Item
    fill: float | None = None
    center: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()
    columns: bytes = b""

    @property
    def encoder(self) -> Encoder:
        """What encodes it."""
        return encoder_of(self.item)

    @property
    def width(self) -> int:
        """Number of feature columns."""
        return self.encoder.width(self.item, len(self.categories) or len(self.columns) // _BYTES)

    @property
    def numbers(self) -> IntArray:
        """The numbers of its feature columns, from 0, among all that its item may have."""
        by_number = self.encoder.wide and not self.encoder.per_category
        return np.frombuffer(self.columns, np.int64) if by_number else np.arange(self.width)

    def only(self, numbers: IntArray) -> FittedItem:
        """Return a wide item with these of its columns."""
        if self.encoder.per_category:
            return replace(self, categories=tuple(self.categories[number] for number in numbers.tolist()))
        return replace(self, columns=numbers.astype(np.int64).tobytes())

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the feature columns: ``x``, ``origin=JFK``, ``hash(tail)[3]``."""
        return self.encoder.features(self)

    @property
    def pure(self) -> bool:
        """Whether a row has at most one nonzero in the feature columns."""
        return self.encoder.pure or self.width <= 1


_KNOWN: dict[tuple[str, str], Encoder] = {}


def register(encoders: Sequence[Encoder]) -> None:
    """Make encoders known by their kinds and names."""
    _KNOWN.update({(each.kind, each.name): each for each in encoders})


def known() -> Mapping[tuple[str, str], Encoder]:
    """Return all encoders by kind and name."""
    return _KNOWN


def encoder_of(item: Item) -> Encoder:
    """Return what encodes an item."""
    return _KNOWN[item.kind, item.encoder]
