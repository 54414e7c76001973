"""The base of all encoders, and fitted items; other rooms ask the encoder, not its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import ColumnPiece, Columns, DensePiece, IntArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder_calls import EncoderCall, OptionValue
from grouplearn.sqltext import literal

#: What an item is in the SQL that predicts: a number, several, the place of its category, 0s and a 1, or a list.
Role = Literal["number", "array", "place", "indicator", "list"]
#: What the SQL of other databases reads of an item's column, if it can: its number, a part of its time, its value, the texts of
#: several values as one, or the MD5 of its text.
Elsewhere = Literal["number", "part", "value", "combination", "digest", "nothing"]
#: Makes an item's feature columns for rows.
Replay = Callable[[Columns], ColumnPiece]
#: The intercept's name among a linear model's features: no item is called so.
INTERCEPT = "(intercept)"
#: Bytes per column number.
_BYTES = 8


class NoForm(ValueError):
    """An item cannot be exported to a format; the message says why, and what can."""


class OnnxGraph(Protocol):
    """An ONNX graph under construction; see ``exchange.onnx_graph``."""

    def input(self, name: str, kind: str, width: int = 1) -> str:
        """Add an input."""
        ...

    def output(self, value: str, name: str, kind: str, width: int) -> None:
        """Add an output (rows, width) of type DOUBLE, INT64 or STRING."""
        ...

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant."""
        ...

    def number(self, value: float) -> str:
        """Add one double."""
        ...

    def tensor(self, values: npt.ArrayLike) -> Any:
        """Return values as an attribute of a node."""
        ...

    def doubles(self, value: str) -> str:
        """Cast to double."""
        ...

    def add(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node."""
        ...


class Encoder(ABC):
    """One way in which a column becomes feature columns, identified by the ``kind`` of its items and its ``name``.

    - ``call``: its function in FEATURES with the options that it takes, None for a plain expression. If several share a call,
    the first that ``takes`` the column.
    - ``most``: the largest number of columns that an option may ask for; ``first``: the number of the first column.
    - ``per_category``: there is one column per category.
    - ``wide``: a group stores only the columns that its training rows set, and models store weights by column.
    - ``pure``: a row has at most one nonzero in its columns.
    - ``fills``: it replaces missing values. ``scales``: it centres and scales by group.
    - ``plain``: it is not mentioned where items are shown. ``suggested``: hints name it for columns that it takes;
    not so if there is a usual one. ``learns_labels``: it is fitted by ``fit_labelled``.
    - ``required``: rows without it are of no use, whatever learners make of other missing values.
    - ``elsewhere``: what the SQL of other databases reads.
    - ``taken``: in words, the columns that it (or its call) takes.
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    call: ClassVar[EncoderCall | None]
    taken: ClassVar[str]
    role: ClassVar[Role]
    elsewhere: ClassVar[Elsewhere] = "nothing"
    pure: ClassVar[bool] = True
    fills: ClassVar[bool] = False
    scales: ClassVar[bool] = False
    per_category: ClassVar[bool] = False
    wide: ClassVar[bool] = False
    first: ClassVar[int] = 0
    plain: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    suggested: ClassVar[bool] = True
    learns_labels: ClassVar[bool] = False
    required: ClassVar[bool] = False

    @property
    def counted(self) -> bool:
        """Whether it has a column per distinct value, so that these are counted before rows are read."""
        return self.per_category or self.wide

    @property
    def shown(self) -> str:
        """Its name for users."""
        return self.call.name if self.wide and self.call else self.name

    @property
    def size(self) -> str | None:
        """The option for the number of columns."""
        options = self.call.options if self.call else ()
        return next((option.name for option in options if option.sets == "buckets"), None)

    def stored_options(self, texts: Mapping[str, str]) -> tuple[tuple[str, OptionValue], ...]:
        """Return an item's own options from their texts in the catalog; raises ValueError as ``EncoderCall.stored``."""
        if self.call is None and texts:
            raise ValueError(texts)
        options = self.call.stored(texts) if self.call else ()
        if (flaw := self.validation_error(dict(options))) is not None:
            raise ValueError(flaw)
        return options

    def validation_error(self, options: Mapping[str, OptionValue]) -> str | None:  # noqa: ARG002 - some look at it
        """Return why its own options, each of them allowed, do not go together, such as "low is above high"; None if they
        do."""
        return None

    def divided(self, column: SqlColumn, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """Return the options of each item that a column becomes, given those of the call: usually of one."""
        return (options,)

    def named(self, names: Sequence[str], options: Mapping[str, Any]) -> str:  # noqa: ARG002 - some look at it
        """Return the name of the item of columns with these names."""
        return names[0]

    def rest(self, item: Item) -> str | None:  # noqa: ARG002 - some look at it
        """Return the category that stands for all texts that a group does not list, None if nothing does."""
        return None

    @abstractmethod
    def takes(self, column: SqlColumn) -> bool:
        """Return whether it can encode a column of this type."""

    def is_meant(self, column: SqlColumn) -> bool:  # noqa: ARG002 - some look at it
        """Return whether it encodes plain expressions of this type."""
        return False

    @abstractmethod
    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the SQL that reads an item's column."""

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002 - some look at it
        """Return whether its fit depends on the training rows."""
        return False

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:  # noqa: ARG002
        """Return the item fitted on its column of training rows: numbers (NaN missing) or codes (-1 missing)."""
        return FittedItem(item)

    def fit_groups(
        self,
        item: Item,  # noqa: ARG002 - some look at it
        values: npt.NDArray[Any],  # noqa: ARG002
        dictionary: Sequence[str],  # noqa: ARG002
        rows: GroupRows,  # noqa: ARG002
    ) -> FittedGroups | None:
        """Return ``fit`` on the training rows of each of several groups, whose column is ``values`` (n,); None (the default)
        if they are fitted one by one, which is slow for many small ones."""
        return None

    def fit_labelled(
        self,
        item: Item,
        values: npt.NDArray[Any],
        dictionary: Sequence[str],
        labels: Labels,
        rows: GroupRows,
    ) -> FittedGroups:
        """Return ``fit_groups`` of an item that learns from labels."""
        raise NotImplementedError

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002 - some look at it
        """Return whether it keeps single-precision numbers, or codes, exact: it computes nothing."""
        return True

    def width(self, item: Item, categories: int) -> int:
        """Return the number of feature columns for this many categories, or set columns of a wide item."""
        if self.per_category:
            return categories
        return min(item.buckets, categories) if self.wide else item.buckets or 1

    def stored_width(self, item: Item, categories: int) -> int:
        """Return the number of columns with a weight in the dense list of weights, 0 for wide items."""
        return 0 if self.wide else self.width(item, categories)

    def fitted_width(self, fitted: FittedItem) -> int:
        """Return the number of feature columns of a fitted item."""
        return self.width(fitted.item, len(fitted.categories) or len(fitted.columns) // _BYTES)

    def numbers(self, fitted: FittedItem) -> IntArray:
        """Return the numbers of the feature columns, from 0, among all that the item can have."""
        by_number = self.wide and not self.per_category
        return np.frombuffer(fitted.columns, np.int64) if by_number else np.arange(self.fitted_width(fitted))

    def only(self, fitted: FittedItem, numbers: IntArray) -> FittedItem:
        """Return a wide item with only these columns."""
        if self.per_category:
            return replace(fitted, categories=tuple(fitted.categories[number] for number in numbers.tolist()))
        return replace(fitted, columns=numbers.astype(np.int64).tobytes())

    @abstractmethod
    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the names of the feature columns: ``x``, ``origin=JFK``, ``hash(tail)[3]``."""

    def numbered(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the names of the columns with these numbers."""
        return tuple(f"{fitted.item.name}[{number}]" for number in (self.numbers(fitted) + self.first).tolist())

    def place(self, fitted: FittedItem, codes: npt.NDArray[np.int32]) -> IntArray:  # noqa: ARG002 - some look at it
        """Return the places of column numbers among the feature columns, -1 for none."""
        return codes.astype(np.int64)

    @abstractmethod
    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return a function that makes the feature columns of these rows, or of any with the same dictionaries."""

    def columns_sql(self, item: Item, at: str) -> tuple[str, str]:
        """Return SQL for the number of an item's columns, and for the list of values that select each column.

        ``at`` is the list of the item's categories in a row of ``groups``.
        """
        every = f"range({self.first}, {item.buckets + self.first})" if self.first else f"range({item.buckets})"
        return (f"len({at})", at) if self.per_category else (str(item.buckets), every)

    def numbers_sql(self, numbers: str, at: str) -> str:  # noqa: ARG002 - some look at it
        """Return SQL for the values that select the columns in a list of column numbers, from 0; ``at`` as in
        ``columns_sql``."""
        return f"unnest({numbers}) + {self.first}"

    def named_sql(self, item: Item, value: str) -> str:
        """Return the SQL name of the column that a value selects."""
        return f"{literal(item.name + '[')} || {value} || ']'"

    @abstractmethod
    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:
        """Add its input to a graph and return its feature columns, NaN if missing; with ``finite``, NaN if infinite too.

        Raises NoForm.
        """


@dataclass(frozen=True, slots=True)
class FittedItem:
    """A fitted item: numeric columns become ``(coalesce(x, fill) - center) / scale``; ``categories`` are the texts seen.

    One-hot and multi-hot items have a column per category, in the order of ``categories``; an ordinal item has one column,
    the 0-based position in ``categories``; hash items, arrays and sparse items have ``buckets`` columns. NULL and unseen
    categories are all zeros in one-hot columns and missing in ordinal ones. A wide item has the ``columns`` that training
    rows set: their numbers from 0, ascending, as the bytes of int64. ``values`` are the encodings of categories, if these have
    some, as the bytes of float64, and ``fill`` that of all other texts. Rows that train have ``by_others`` instead, which no
    catalog keeps.
    """

    item: Item
    fill: float | None = None
    center: float = 0.0
    scale: float = 1.0
    categories: tuple[str, ...] = ()
    columns: bytes = b""
    values: bytes = b""
    by_others: bytes = b""


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels and weights of training rows, (n,), and each row's ``place`` among those of its group; None if nobody will train
    on them."""

    y: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    place: IntArray | None


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Training rows of several groups, group after group: ``of`` (n,) is each row's group, of ``n_groups``."""

    of: npt.NDArray[np.intp]
    n_groups: int

    @classmethod
    def of_one(cls, n_rows: int) -> GroupRows:
        """Return the rows of one group."""
        return cls(np.broadcast_to(np.intp(0), n_rows), 1)

    def counts(self, rows: npt.NDArray[np.bool_]) -> IntArray:
        """Return how many of these rows (n,) each group has, (G,)."""
        if self.n_groups == 1:  # it may have very many
            return np.array([np.count_nonzero(rows)])
        return np.bincount(self.of[rows], minlength=self.n_groups)

    def each(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return each row's value of those of groups (G,), of one group once: (n,) or (1,)."""
        return values if self.n_groups == 1 else values[self.of]


@dataclass(frozen=True, slots=True)
class FittedGroups:
    """An item fitted on each of several groups, ``fitted`` (G,). ``replay`` makes the feature columns of rows, given the group
    of each, (n,); these groups' items have equal widths."""

    fitted: Sequence[FittedItem]
    replay: Callable[[Columns, npt.NDArray[np.intp]], DensePiece]
