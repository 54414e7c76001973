"""Lists: a column per element (``multihot``), per hash bucket (``hash``), or per index (``sparse``)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.categories import HASH, MAX_BUCKETS, MAX_WIDE, SIZE, Hash, bucket, places, seen
from grouplearn.data.encoding.columns import Around, Columns, IntArray, Reading, SparseColumns, SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem, NoForm, OnnxGraph, Replay, Role
from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.wide import Wide, WideCategories

_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM")
#: The field names in a list of ``sparse``.
INDEX, VALUE = "i", "v"
#: The beginning of the flaw of a list of ``sparse`` whose indices are not columns.
OUTSIDE = "an index that is not"


class Listed(Encoder):
    """A list as a set or bag: order does not count, NULL elements are ignored, a NULL list is empty."""

    role: ClassVar[Role] = "list"
    pure: ClassVar[bool] = False
    fills: ClassVar[bool] = True

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a list of values whose texts name categories."""
        return column.element is not None and column.element.named

    @abstractmethod
    def entries_sql(self, item: Item, entries: str) -> str:
        """Return a query of the entries of rows: ``number``, ``group_id``, ``value`` as in ``columns_sql``, ``amount``.

        ``entries`` is a query of a number, a group and a list called ``entries``.
        """

    def column_sql(self, element: str) -> str:
        """Return SQL for the column number of an element as read."""
        return element

    def validation_sql(self, item: Item) -> Mapping[str, str]:  # noqa: ARG002 - some look at it
        """Return SQL conditions under which a list ``entries`` is invalid, by their description."""
        return {}

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Raise NoForm: tensors have the same number of values in every row."""
        raise NoForm(
            f'the feature "{fitted.item.name}" is a list ({self.shown}), and rows of an ONNX tensor are all of one length'
        )


class MultiHot(Listed):
    """A column per element of training rows, 1 if the row's list contains it, however often."""

    kind: ClassVar[str] = "categories"
    name: ClassVar[str] = "multihot"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "multihot",
        {
            "multihot(list, ...)": "of a list: 0 or 1 for each element that was seen in a list, however often a row has it"
        },
    )
    taken: ClassVar[str] = "lists of single values"
    per_category: ClassVar[bool] = True

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return the texts of the elements."""
        element = _element(column)
        return Reading(_each(element.text), _each(element.text_of))

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:
        """Find the elements."""
        return FittedItem(item, categories=seen(values, dictionary))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item=element."""
        return tuple(f"{fitted.item.name}={category}" for category in fitted.categories)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return a function that looks up places."""
        found = places(fitted, columns.dictionary(fitted.item)).astype(np.int64)

        def encoded(rows: Columns) -> SparseColumns:
            counts, codes, _ = _item(rows, fitted.item)
            counts, column, times = _counted(counts, found[codes], len(fitted.categories))
            return SparseColumns(counts, column, np.ones(times.size))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return each element of a row once, compared bytewise whatever the session's collation."""
        each = f"SELECT number, group_id, unnest(CAST(entries AS VARCHAR[])) AS element FROM ({entries})"
        return (
            "SELECT DISTINCT number, group_id, (element) COLLATE POSIX AS value, CAST(1 AS DOUBLE) AS amount"
            f" FROM ({each}) WHERE element IS NOT NULL"
        )


class HashedList(Listed):
    """A column per bucket: how many elements of a row's list are hashed to it."""

    kind: ClassVar[str] = "hashes"
    name: ClassVar[str] = "hash"
    call: ClassVar[EncoderCall | None] = HASH
    taken: ClassVar[str] = Hash.taken
    most: ClassVar[int | None] = MAX_BUCKETS

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the numbers of the buckets of the elements' texts."""
        element, buckets = _element(column), item.buckets
        return Reading(_each(bucket(element.text, buckets)), _each(bucket(element.text_of, buckets)))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[bucket], counted from 0."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that counts."""

        def encoded(rows: Columns) -> SparseColumns:
            counts, codes, _ = _item(rows, fitted.item)
            return SparseColumns(*_counted(counts, self.place(fitted, codes), self.fitted_width(fitted)))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return the buckets of the elements."""
        return f"SELECT number, group_id, unnest(entries) AS value, CAST(1 AS DOUBLE) AS amount FROM ({entries})"


class Sparse(Listed):
    """A column per index (from 1): the values of a row's second list at the indices in its first."""

    kind: ClassVar[str] = "entries"
    name: ClassVar[str] = "sparse"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "sparse",
        {
            "sparse(indices, values, n)": "of two lists of one length: n columns, at each index (from 1) the value,"
            " elsewhere 0"
        },
        (replace(SIZE, name="columns", words="the number of columns"),),
        unnamed=("columns",),
        hint="For example sparse(indices, values, 1000).",
        together=2,
    )
    taken: ClassVar[str] = "two lists, of whole numbers and of numbers: sparse(indices, values, 1000)"
    most: ClassVar[int | None] = MAX_BUCKETS
    first: ClassVar[int] = 1

    def takes(self, column: SqlColumn) -> bool:
        """Return whether these are a list of integers and a list of numbers."""
        first, others = column.element, column.others
        whole = first is not None and _WHOLE.fullmatch(first.type) is not None
        return whole and len(others) == 1 and others[0].element is not None and others[0].element.kind == "numeric"

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return one list of both; if one is shorter it is filled with NULLs.

        Prediction rows may have fractional indices: a cast would round them, so they become 0, which is not an index either.
        """

        def around(kind: str, index: str) -> Around:
            return (
                "list_transform(list_zip(CAST((\n",
                f"\n) AS {kind}[]), CAST((\n",
                f"\n) AS DOUBLE[])), lambda entry: {{'{INDEX}': {index}, '{VALUE}': entry[2]}})",
            )

        whole = "CASE WHEN entry[1] = floor(entry[1]) OR entry[1] IS NULL THEN try_cast(entry[1] AS BIGINT) ELSE 0 END"
        return Reading(around("BIGINT", "entry[1]"), around("DOUBLE", whole))

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002
        """Return False: values are doubles."""
        return False

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[index], counted from 1."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that takes the nonzero values."""

        def encoded(rows: Columns) -> SparseColumns:
            counts, codes, amounts = _item(rows, fitted.item)
            column = self.place(fitted, codes)
            kept = (amounts != 0) & (column >= 0)
            row = np.repeat(np.arange(counts.size), counts)[kept]
            column, value = column[kept], amounts[kept]
            order = np.argsort(row * self.fitted_width(fitted) + column, kind="stable")
            return SparseColumns(np.bincount(row, minlength=counts.size), column[order], value[order])

        return encoded

    def column_sql(self, element: str) -> str:
        """Return its index."""
        return f"{element}.{INDEX}"

    def validation_sql(self, item: Item) -> Mapping[str, str]:
        """Return what LIBSVM does not allow."""
        indices = f"list_transform(entries, lambda entry: entry.{INDEX})"

        def some(condition: str) -> str:
            return f"len(list_filter(entries, lambda entry: {condition})) > 0"

        return {
            "NULL in a list, or lists of different length": some(f"entry.{INDEX} IS NULL OR entry.{VALUE} IS NULL"),
            f"{OUTSIDE} from 1 to {item.buckets:,}": some(f"entry.{INDEX} NOT BETWEEN 1 AND {item.buckets}"),
            "an index twice": f"len(list_distinct({indices})) < len(list_filter({indices}, lambda i: i IS NOT NULL))",
            "a value that is NaN or infinite": some(f"NOT isfinite(entry.{VALUE})"),
        }

    def entries_sql(self, item: Item, entries: str) -> str:
        """Return the values by index; raises where a condition of ``validation_sql`` holds."""
        name = item.name.replace("'", "''")
        wrong = " ".join(
            f"WHEN {condition} THEN error('the lists of \"{name}\" have {flaw}')"
            for flaw, condition in self.validation_sql(item).items()
        )
        checked = f"SELECT number, group_id, unnest(CASE {wrong} ELSE entries END) AS entry FROM ({entries})"
        return f"SELECT number, group_id, entry.{INDEX} AS value, entry.{VALUE} AS amount FROM ({checked})"


class WideMultiHot(WideCategories, MultiHot):
    """Multi-hot columns of so many elements that most weights would be 0."""

    name: ClassVar[str] = "wide_multihot"


class WideHashedList(Wide, HashedList):
    """Hashed lists with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_hash"
    most: ClassVar[int | None] = MAX_WIDE


class WideSparse(Wide, Sparse):
    """Sparse lists with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_sparse"
    most: ClassVar[int | None] = MAX_WIDE


def _element(column: SqlColumn) -> SqlColumn:
    if column.element is None:
        raise TypeError(f"{column.type} is no list")
    return column.element


def _each(around: Around) -> Around:
    """Return the SQL of a list with ``around`` applied to each element."""
    return "list_transform((\n", f"\n), lambda element: {'element'.join(around)})"


def _item(columns: Columns, item: Item) -> tuple[IntArray, npt.NDArray[np.int32], FloatArray]:
    if columns.lists is None:
        raise TypeError("these rows have no lists")
    return columns.lists.item(item.column)


def _counted(counts: IntArray, column: IntArray, width: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return each row's columns (-1 is none) once, ascending, and how often each occurred."""
    kept = column >= 0
    rows = np.repeat(np.arange(counts.size), counts)[kept]
    keys = rows * width + column[kept]
    times = np.ones(keys.size)
    if (keys[1:] <= keys[:-1]).any():
        keys, found = np.unique(keys, return_counts=True)
        times = found.astype(np.float64)
    rows, own = np.divmod(keys, max(1, width))
    return np.bincount(rows, minlength=counts.size), own, times


LISTS = (MultiHot(), HashedList(), Sparse(), WideMultiHot(), WideHashedList(), WideSparse())
