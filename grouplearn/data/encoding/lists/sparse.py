"""``sparse``: a column per index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.hash import MAX_BUCKETS, MAX_WIDE, SIZE
from grouplearn.data.encoding.columns import Around, Columns, Reading, SparseColumns, SqlColumn
from grouplearn.data.encoding.encoder import FittedItem, Replay
from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.lists.listed import Listed, item_entries
from grouplearn.data.encoding.wide import Wide

_WHOLE = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM")
#: The field names in a list of ``sparse``.
INDEX, VALUE = "i", "v"
#: The beginning of the flaw of a list of ``sparse`` whose indices are not columns.
OUTSIDE = "an index that is not"


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
            counts, codes, amounts = item_entries(rows, fitted.item)
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


class WideSparse(Wide, Sparse):
    """Sparse lists with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_sparse"
    most: ClassVar[int | None] = MAX_WIDE
