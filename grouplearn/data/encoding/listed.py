"""Lists: a column for each element (``multihot``), for many by a hash (``hash``), or by its index (``sparse``)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.categories import MAX_BUCKETS, MAX_WIDE, Hash, bucket, places, seen
from grouplearn.data.encoding.columns import Around, Columns, Entries, IntArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem, NoForm, OnnxGraph, Replay, Role
from grouplearn.data.encoding.wide import Wide, WideCategories

_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM")
#: The names of what stands in a list of ``sparse``.
INDEX, VALUE = "i", "v"


class Listed(Encoder):
    """A list: what is in it counts, in whatever order. NULL elements are ignored, and a NULL list is as an empty one."""

    role: ClassVar[Role] = "list"
    pure: ClassVar[bool] = False
    fills: ClassVar[bool] = True

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a list of values whose texts name categories."""
        return column.element is not None and column.element.named

    @abstractmethod
    def entries_sql(self, item: Item, entries: str) -> str:
        """Return a query of what rows have: ``number``, ``group_id``, ``value`` as in ``columns_sql``, ``amount``.

        ``entries`` is a query of the number, the group and a list, ``entries``.
        """

    def column_sql(self, element: str) -> str:
        """Return what says of an element, as it is read, which column it is of."""
        return element

    def flaws_sql(self, item: Item) -> Mapping[str, str]:  # noqa: ARG002 - some look at it
        """Return by what is wrong with it, in words, the condition that a list ``entries`` cannot be taken."""
        return {}

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Raise NoForm: a tensor has as many values in each row."""
        raise NoForm(
            f'the feature "{fitted.item.name}" is a list ({self.call}), and rows of an ONNX tensor are all of one length;'
            " FORMAT sql and native take it"
        )


class MultiHot(Listed):
    """A column for each element of the training rows, 1 where a row's list has it, however often."""

    kind: ClassVar[str] = "categories"
    name: ClassVar[str] = "multihot"
    call: ClassVar[str | None] = "multihot"
    taken: ClassVar[str] = "lists of single values"
    per_category: ClassVar[bool] = True

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return the texts of the elements."""
        element = _element(column)
        return Reading(_each(element.text), _each(element.text_of))

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return that it does."""
        return True

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:
        """Find the elements."""
        return FittedItem(item, categories=seen(values, dictionary))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item=element."""
        return tuple(f"{fitted.item.name}={category}" for category in fitted.categories)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:
        """Return what finds places."""
        found = places(fitted, columns.dictionary(fitted.item))

        def encoded(rows: Columns) -> Entries:
            counts, codes, _ = _item(rows, fitted.item)
            counts, column, times = _counted(counts, found[codes], len(fitted.categories))
            return Entries(counts, column, np.ones(times.size))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return each element of a row once, told apart whatever the collation of the session."""
        each = f"SELECT number, group_id, unnest(CAST(entries AS VARCHAR[])) AS element FROM ({entries})"
        return (
            "SELECT DISTINCT number, group_id, (element) COLLATE POSIX AS value, CAST(1 AS DOUBLE) AS amount"
            f" FROM ({each}) WHERE element IS NOT NULL"
        )


class HashedList(Listed):
    """As many columns as buckets: how often elements of a row's list are in the bucket that their texts say."""

    kind: ClassVar[str] = "hashes"
    name: ClassVar[str] = "hash"
    call: ClassVar[str | None] = "hash"
    taken: ClassVar[str] = Hash.taken
    size: ClassVar[str | None] = "buckets"
    most: ClassVar[int | None] = MAX_BUCKETS

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the numbers of the buckets of the elements' texts."""
        element, buckets = _element(column), item.buckets
        return Reading(_each(bucket(element.text, buckets)), _each(bucket(element.text_of, buckets)))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[bucket], counted from 0."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return what counts."""

        def encoded(rows: Columns) -> Entries:
            counts, codes, _ = _item(rows, fitted.item)
            return Entries(*_counted(counts, self.place(fitted, codes), fitted.width))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return the buckets of the elements."""
        return f"SELECT number, group_id, unnest(entries) AS value, CAST(1 AS DOUBLE) AS amount FROM ({entries})"


class Sparse(Listed):
    """As many columns as said: at each index (from 1) of a row's first list the value at the same place of its second."""

    kind: ClassVar[str] = "entries"
    name: ClassVar[str] = "sparse"
    call: ClassVar[str | None] = "sparse"
    taken: ClassVar[str] = "two lists, of whole numbers and of numbers: sparse(indices, values, 1000)"
    size: ClassVar[str | None] = "columns"
    most: ClassVar[int | None] = MAX_BUCKETS
    first: ClassVar[int] = 1

    def takes(self, column: SqlColumn) -> bool:
        """Return whether these are a list of whole numbers and a list of numbers."""
        first, others = column.element, column.others
        whole = first is not None and _WHOLE.fullmatch(first.type) is not None
        return whole and len(others) == 1 and others[0].element is not None and others[0].element.kind == "numeric"

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return one list of both; where one of them is shorter it has NULLs.

        Other rows than those of training may have fractions: 0 is no index, either, and a cast would round.
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
        """Return that it does not: values are doubles."""
        return False

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[index], counted from 1."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return what takes the values that are not 0."""

        def encoded(rows: Columns) -> Entries:
            counts, codes, amounts = _item(rows, fitted.item)
            column = self.place(fitted, codes)
            kept = (amounts != 0) & (column >= 0)
            row = np.repeat(np.arange(counts.size), counts)[kept]
            column, value = column[kept], amounts[kept]
            order = np.argsort(row * fitted.width + column, kind="stable")
            return Entries(np.bincount(row, minlength=counts.size), column[order], value[order])

        return encoded

    def column_sql(self, element: str) -> str:
        """Return its index."""
        return f"{element}.{INDEX}"

    def flaws_sql(self, item: Item) -> Mapping[str, str]:
        """Return what LIBSVM would not have written."""
        indices = f"list_transform(entries, lambda entry: entry.{INDEX})"

        def some(condition: str) -> str:
            return f"len(list_filter(entries, lambda entry: {condition})) > 0"

        return {
            "NULL in a list, or lists of different length": some(f"entry.{INDEX} IS NULL OR entry.{VALUE} IS NULL"),
            f"an index that is not from 1 to {item.buckets:,}": some(f"entry.{INDEX} NOT BETWEEN 1 AND {item.buckets}"),
            "an index twice": f"len(list_distinct({indices})) < len(list_filter({indices}, lambda i: i IS NOT NULL))",
            "a value that is NaN or infinite": some(f"NOT isfinite(entry.{VALUE})"),
        }

    def entries_sql(self, item: Item, entries: str) -> str:
        """Return the values by index; raises where ``flaws_sql`` has something."""
        name = item.name.replace("'", "''")
        wrong = " ".join(
            f"WHEN {condition} THEN error('the lists of \"{name}\" have {flaw}')"
            for flaw, condition in self.flaws_sql(item).items()
        )
        checked = f"SELECT number, group_id, unnest(CASE {wrong} ELSE entries END) AS entry FROM ({entries})"
        return f"SELECT number, group_id, entry.{INDEX} AS value, entry.{VALUE} AS amount FROM ({checked})"


class WideMultiHot(WideCategories, MultiHot):
    """Columns of more elements than are worth a weight each."""

    name: ClassVar[str] = "wide_multihot"


class WideHashedList(Wide, HashedList):
    """A hash of lists of more columns than are worth a weight each."""

    name: ClassVar[str] = "wide_hash"
    most: ClassVar[int | None] = MAX_WIDE


class WideSparse(Wide, Sparse):
    """Two lists of more columns than are worth a weight each."""

    name: ClassVar[str] = "wide_sparse"
    most: ClassVar[int | None] = MAX_WIDE


def _element(column: SqlColumn) -> SqlColumn:
    if column.element is None:
        raise TypeError(f"{column.type} is no list")
    return column.element


def _each(around: Around) -> Around:
    """Return the SQL of a list of what ``around`` makes of each element."""
    return "list_transform((\n", f"\n), lambda element: {'element'.join(around)})"


def _item(columns: Columns, item: Item) -> tuple[IntArray, npt.NDArray[np.int32], FloatArray]:
    if columns.lists is None:
        raise TypeError("these rows have no lists")
    return columns.lists.item(item.column)


def _counted(counts: IntArray, column: IntArray, width: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the columns (-1 is none) of each row once, ascending, and how often each was there."""
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
