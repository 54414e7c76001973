"""Categories: a column per category (``onehot``), its rank (``ordinal``), or a column per hash bucket (``hash``)."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import (
    Around,
    ColumnPiece,
    Columns,
    IndicatorColumns,
    IntArray,
    Numbers,
    PlaceArray,
    Reading,
    SqlColumn,
)
from grouplearn.data.encoding.encoder import Encoder, FittedGroups, FittedItem, GroupRows, OnnxGraph, Replay, Role
from grouplearn.data.encoding.encoder_calls import EncoderCall, EncoderOption
from grouplearn.data.encoding.wide import Wide, WideCategories

#: A lookup table of all texts is built if it has at most this many entries per code looked up.
_TABLE = 16
#: Most columns of an item, and of a wide one.
MAX_BUCKETS, MAX_WIDE = 1 << 22, 1 << 30


def places(fitted: FittedItem, dictionary: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return for each code of a dictionary its place among the categories, -1 for none; the extra last entry is for code
    -1."""
    known, found = fitted.categories, np.full(len(dictionary) + 1, -1, np.int32)
    if len(known) == len(dictionary) and known == tuple(dictionary):  # a group that has them all
        found[:-1] = np.arange(len(known))
    elif known:
        place = dict(zip(known, range(len(known)), strict=True))
        found[:-1] = np.fromiter(map(place.get, dictionary, itertools.repeat(-1)), np.int32, len(dictionary))
    return found


def seen(codes: npt.NDArray[Any], dictionary: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of the codes, in dictionary order; -1 has none."""
    if _TABLE * codes.size < len(dictionary):
        met = np.unique(codes[codes >= 0])
    else:
        table = np.zeros(len(dictionary) + 1, np.bool_)  # the last entry is for -1
        table[codes] = True
        met = np.flatnonzero(table[:-1])
    return tuple(dictionary) if met.size == len(dictionary) else tuple(map(dictionary.__getitem__, met.tolist()))


class _GroupPlaces:
    """The places of codes among the categories that the rows of each of several groups have."""

    def __init__(self, codes: npt.NDArray[Any], n_codes: int, rows: GroupRows) -> None:
        self._n_codes = n_codes
        used = codes >= 0
        #: Group and code of each category, as one number, ascending.
        self._known = np.unique(self._numbers(codes[used], rows.of[used]))
        group, self.codes = np.divmod(self._known, max(1, n_codes))
        self.starts = np.searchsorted(group, np.arange(rows.n_groups + 1))
        self._place = np.arange(self._known.size) - self.starts[group]
        self._table: IntArray | None = None
        if rows.n_groups * n_codes <= _TABLE * codes.size:
            self._table = np.full(rows.n_groups * n_codes, -1, np.int64)
            self._table[self._known] = self._place

    def _numbers(self, codes: npt.NDArray[Any], of: npt.NDArray[np.intp]) -> IntArray:
        numbers: IntArray = of.astype(np.int64) * self._n_codes + codes
        return numbers

    def of(self, codes: npt.NDArray[Any], of: npt.NDArray[np.intp]) -> IntArray:
        """Return the places of rows' codes (n,) in their groups, -1 for none."""
        found, known = np.full(codes.size, -1, np.int64), np.flatnonzero(codes >= 0)
        if not known.size or not self._known.size:
            return found
        wanted = self._numbers(codes[known], of[known])
        if self._table is not None:
            found[known] = self._table[wanted]
        else:
            at = np.minimum(np.searchsorted(self._known, wanted), self._known.size - 1)
            found[known] = np.where(self._known[at] == wanted, self._place[at], -1)
        return found


def bucket(around: Around, buckets: int) -> Around:
    """Return the SQL of a bucket number, as the parts before and after that of a text.

    md5 gives the same bucket in every DuckDB version and client; DuckDB's own hash() does not promise that.
    """
    first, *between, last = around
    return f"CAST(md5_number_lower({first}", *between, f"{last}) % {buckets} AS INTEGER)"


class _Category(Encoder):
    """A category: its text is looked up among those in training rows."""

    kind: ClassVar[str] = "category"
    taken: ClassVar[str] = "single values"

    def takes(self, column: SqlColumn) -> bool:
        """Return whether values have texts that name categories."""
        return column.named

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return the text."""
        return Reading(column.text, column.text_of)

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:
        """Find the categories."""
        return FittedItem(item, categories=seen(values, dictionary))

    def fit_groups(
        self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str], rows: GroupRows
    ) -> FittedGroups:
        """Find the categories of each group."""
        places, whole = _GroupPlaces(values, len(dictionary), rows), FittedItem(item, categories=tuple(dictionary))
        fitted, texts = [], list(map(dictionary.__getitem__, places.codes.tolist()))
        for start, stop in itertools.pairwise(places.starts.tolist()):
            has_all = stop - start == len(dictionary)
            fitted.append(whole if has_all else FittedItem(item, categories=tuple(texts[start:stop])))
        return FittedGroups(fitted, lambda columns, of: self._piece(places.of(columns.codes[:, item.column], of)))

    @abstractmethod
    def _piece(self, places: PlaceArray) -> ColumnPiece:
        """Return the feature columns of rows with categories at these places (n,), -1 for none."""

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return a function that looks up places."""
        positions = self._positions(fitted, columns)
        return lambda rows: self._piece(positions(rows))

    def _positions(self, fitted: FittedItem, columns: Columns) -> Callable[[Columns], PlaceArray]:
        found, column = places(fitted, columns.dictionary(fitted.item)), fitted.item.column
        return lambda rows: found[rows.codes[:, column]]

    def _onnx_places(self, graph: OnnxGraph, fitted: FittedItem) -> str:
        """Return the 0-based places of categories (int64), -1 for unknown ones."""
        known = fitted.categories or ("",)
        numbers = list(range(len(fitted.categories))) or [-1]
        options: dict[str, Any] = {"keys_strings": list(known), "values_int64s": numbers, "default_int64": -1}
        return graph.add("LabelEncoder", graph.input(fitted.item.name, "STRING"), domain="ai.onnx.ml", **options)


class OneHot(_Category):
    """A column for each category, 1 where a row has it."""

    name: ClassVar[str] = "onehot"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "onehot", {"onehot(x, ...)": "one of 0 and 1 for each value that was seen"}
    )
    role: ClassVar[Role] = "indicator"
    fills: ClassVar[bool] = True
    per_category: ClassVar[bool] = True

    def is_meant(self, column: SqlColumn) -> bool:
        """Return whether the type is a category's."""
        return column.kind == "category"

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item=category."""
        return tuple(f"{fitted.item.name}={category}" for category in fitted.categories)

    def _piece(self, places: PlaceArray) -> IndicatorColumns:
        return IndicatorColumns(places)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a STRING input; NULL is a text that was not in training."""
        place = self._onnx_places(graph, fitted)
        return [_indicators(graph, place, self.numbers(fitted))] if fitted.categories else []


class WideOneHot(WideCategories, OneHot):
    """One-hot columns of so many categories that most weights would be 0."""

    name: ClassVar[str] = "wide_onehot"


class Ordinal(_Category):
    """The rank of a category in the order of texts."""

    name: ClassVar[str] = "ordinal"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "ordinal",
        {
            "ordinal(x, ...)": "the position of the value among those seen, in the order of their texts (of numbers, too: `10`"
            " before `2`); a category to `gbdt`"
        },
    )
    role: ClassVar[Role] = "place"

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the item's name."""
        return (fitted.item.name,)

    def _piece(self, places: PlaceArray) -> Numbers:
        """Return the ranks, NaN for unknown categories."""
        return Numbers(np.where(places < 0, np.nan, places.astype(np.float64))[:, None])

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a STRING input; NULL is a text that was not in training."""
        place = self._onnx_places(graph, fitted)
        unknown = graph.add("Less", place, graph.constant(np.array(0, dtype=np.int64)))
        return [graph.add("Where", unknown, graph.number(np.nan), graph.doubles(place))]


#: The number of columns, for calls whose user gives it.
SIZE = EncoderOption(
    "buckets",
    "whole",
    "how many columns there are",
    required=True,
    low=1,
    high=MAX_WIDE,
    words="the number of buckets",
    example="64",
    sets="buckets",
)
HASH = EncoderCall(
    "hash",
    {
        "hash(x, n)": "n columns, each value in one of them",
        "hash(list, n)": "of a list: n columns, how many of its elements are in each",
    },
    (replace(SIZE, hint="{call} takes one column and a number; write an item for each column."),),
    unnamed=("buckets",),
    hint="For example hash(column, 64); DuckDB's own function is main.hash(column).",
)


class Hash(Encoder):
    """A column per bucket; each category's text is hashed to one."""

    kind: ClassVar[str] = "hash"
    name: ClassVar[str] = "hash"
    call: ClassVar[EncoderCall | None] = HASH
    taken: ClassVar[str] = "single values and lists of them"
    role: ClassVar[Role] = "indicator"
    fills: ClassVar[bool] = True
    most: ClassVar[int | None] = MAX_BUCKETS

    def takes(self, column: SqlColumn) -> bool:
        """Return whether values have texts that name categories."""
        return column.named

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return SQL for the bucket number of the text."""
        return Reading(bucket(column.text, item.buckets), bucket(column.text_of, item.buckets))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[bucket], counted from 0."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that takes the bucket as place."""
        column = fitted.item.column
        return lambda rows: IndicatorColumns(self.place(fitted, rows.codes[:, column]))

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add an INT64 input, the bucket number, -1 for NULL."""
        bucket = graph.input(fitted.item.name, "INT64")
        return [_indicators(graph, bucket, self.numbers(fitted))] if self.fitted_width(fitted) else []


class WideHash(Wide, Hash):
    """A hash with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_hash"
    most: ClassVar[int | None] = MAX_WIDE


def _indicators(graph: OnnxGraph, place: str, numbers: IntArray) -> str:
    return graph.doubles(graph.add("Equal", place, graph.constant(numbers[None])))


CATEGORIES = (OneHot(), WideOneHot(), Ordinal(), Hash(), WideHash())
