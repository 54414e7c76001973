"""``multihot``: a column per element of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.category import places, seen
from grouplearn.data.encoding.columns import Columns, Reading, SparseColumns, SqlColumn
from grouplearn.data.encoding.encoder import FittedItem, Replay
from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.lists.listed import Listed, each_element, element_of, item_entries, times_counted
from grouplearn.data.encoding.wide import WideCategories


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
        element = element_of(column)
        return Reading(each_element(element.text), each_element(element.text_of))

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
            counts, codes, _ = item_entries(rows, fitted.item)
            counts, column, times = times_counted(counts, found[codes], len(fitted.categories))
            return SparseColumns(counts, column, np.ones(times.size))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return each element of a row once, compared bytewise whatever the session's collation."""
        each = f"SELECT number, group_id, unnest(CAST(entries AS VARCHAR[])) AS element FROM ({entries})"
        return (
            "SELECT DISTINCT number, group_id, (element) COLLATE POSIX AS value, CAST(1 AS DOUBLE) AS amount"
            f" FROM ({each}) WHERE element IS NOT NULL"
        )


class WideMultiHot(WideCategories, MultiHot):
    """Multi-hot columns of so many elements that most weights would be 0."""

    name: ClassVar[str] = "wide_multihot"
