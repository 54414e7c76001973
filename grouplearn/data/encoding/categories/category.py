"""A category: its text is looked up among those that training rows have."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import Around, ColumnPiece, Columns, IntArray, PlaceArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Elsewhere, Encoder, FittedGroups, FittedItem, GroupRows, OnnxGraph, Replay
from grouplearn.data.encoding.encoder_calls import EncoderOption

#: A lookup table of all texts is built if it has at most this many entries per code looked up.
_TABLE = 16
#: The categories of NULL, and of rare and unknown texts. A text that looks like one is preceded by a backslash.
NULL, OTHER = "(null)", "(other)"
#: What no category is: a value that the column's type does not have.
_STRANGE = "(unknown)"
NULL_OPTION = EncoderOption("null", "truth", "whether NULL is a category of its own, `(null)`")
MIN_COUNT = EncoderOption(
    "min_count",
    "whole",
    "the fewest training rows of a category: rarer ones become one, `(other)`, to which unknown ones then belong, too",
    low=1,
    high=1 << 31,
    example="20",
)


def marked(column: SqlColumn, nulls: bool) -> Reading:
    """Return the reading of a column whose texts may stand beside ``(null)`` and ``(other)``; with ``nulls``, NULL is one."""

    def around(before: str, after: str) -> Around:
        apart = f"regexp_replace({before}", f"{after}, '^(\\\\*\\((null|other)\\))$', '\\\\\\1')"
        return (f"coalesce({apart[0]}", f"{apart[1]}, '{NULL}')") if nulls else apart

    if column.text_of == column.text:
        return Reading(around(*column.text), around(*column.text))
    missing = f"'{NULL}'" if nulls else "NULL"
    known = f"coalesce({'each'.join(around(*column.text_of))}, '{_STRANGE}')"
    return Reading(
        around(*column.text),
        ("list_transform([(\n", f"\n)], lambda each: CASE WHEN each IS NULL THEN {missing} ELSE {known} END)[1]"),
    )


def names_null(item: Item) -> bool:
    """Return whether NULL is a category of an item."""
    return item.has("null") and bool(item.option("null"))


def frequent(codes: npt.NDArray[Any], dictionary: Sequence[str], least: int) -> tuple[str, ...]:
    """Return the texts of codes that occur at least so often, in dictionary order, and ``(other)`` if there are rarer ones."""
    counts = np.bincount(codes[codes >= 0], minlength=len(dictionary))
    kept = tuple(map(dictionary.__getitem__, np.flatnonzero(counts >= least).tolist()))
    return (*kept, OTHER) if ((counts > 0) & (counts < least)).any() else kept


def places(fitted: FittedItem, dictionary: Sequence[str], rest: str | None = None) -> npt.NDArray[np.int32]:
    """Return for each code of a dictionary its place among the categories, that of the ``rest``, or -1; the extra last entry
    is for code -1."""
    known, found = fitted.categories, np.full(len(dictionary) + 1, -1, np.int32)
    if len(known) == len(dictionary) and known == tuple(dictionary):  # a group that has them all
        found[:-1] = np.arange(len(known))
    elif known:
        place: dict[str | None, int] = dict(zip(known, range(len(known)), strict=True))
        found[:-1] = np.fromiter(
            map(place.get, dictionary, itertools.repeat(place.get(rest, -1))), np.int32, len(dictionary)
        )
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


class GroupPlaces:
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


class Category(Encoder):
    """A category: its text is looked up among those in training rows."""

    kind: ClassVar[str] = "category"
    elsewhere: ClassVar[Elsewhere] = "value"
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

    def _positions(self, fitted: FittedItem, columns: Columns) -> Callable[[Columns], PlaceArray]:
        found, column = places(fitted, columns.dictionary(fitted.item), self.rest(fitted.item)), fitted.item.column
        return lambda rows: found[rows.codes[:, column]]

    def _onnx_places(self, graph: OnnxGraph, fitted: FittedItem) -> str:
        """Return the 0-based places of categories (int64), -1 for unknown ones, unless one stands for these."""
        numbers = {text: place for place, text in enumerate(fitted.categories)} or {"": -1}
        rest = numbers.get(self.rest(fitted.item) or "", -1) if fitted.categories else -1
        if not names_null(fitted.item):
            numbers.setdefault(NULL, -1)
        options: dict[str, Any] = {
            "keys_strings": list(numbers),
            "values_int64s": list(numbers.values()),
            "default_int64": rest,
        }
        return graph.add("LabelEncoder", graph.input(fitted.item.name, "STRING"), domain="ai.onnx.ml", **options)


class PlacedCategory(Category):
    """A category whose columns follow from its place among those of the group."""

    def fit_groups(
        self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str], rows: GroupRows
    ) -> FittedGroups | None:
        """Find the categories of each group."""
        places, whole = GroupPlaces(values, len(dictionary), rows), FittedItem(item, categories=tuple(dictionary))
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


def indicators(graph: OnnxGraph, place: str, numbers: IntArray) -> str:
    """Add 0s and a 1 at a place, for each of these column numbers."""
    return graph.doubles(graph.add("Equal", place, graph.constant(numbers[None])))
