"""``hash`` of lists: a column per hash bucket of their elements."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.hash import HASH, MAX_BUCKETS, MAX_WIDE, Hash, bucket
from grouplearn.data.encoding.columns import Columns, Reading, SparseColumns, SqlColumn
from grouplearn.data.encoding.encoder import FittedItem, Replay
from grouplearn.data.encoding.encoder_calls import EncoderCall
from grouplearn.data.encoding.lists.listed import Listed, each_element, element_of, item_entries, times_counted
from grouplearn.data.encoding.wide import Wide


class HashedList(Listed):
    """A column per bucket: how many elements of a row's list are hashed to it."""

    kind: ClassVar[str] = "hashes"
    name: ClassVar[str] = "hash"
    call: ClassVar[EncoderCall | None] = HASH
    taken: ClassVar[str] = Hash.taken
    most: ClassVar[int | None] = MAX_BUCKETS

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the numbers of the buckets of the elements' texts."""
        element, buckets = element_of(column), item.buckets
        return Reading(each_element(bucket(element.text, buckets)), each_element(bucket(element.text_of, buckets)))

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[bucket], counted from 0."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that counts."""

        def encoded(rows: Columns) -> SparseColumns:
            counts, codes, _ = item_entries(rows, fitted.item)
            return SparseColumns(*times_counted(counts, self.place(fitted, codes), self.fitted_width(fitted)))

        return encoded

    def entries_sql(self, item: Item, entries: str) -> str:  # noqa: ARG002
        """Return the buckets of the elements."""
        return f"SELECT number, group_id, unnest(entries) AS value, CAST(1 AS DOUBLE) AS amount FROM ({entries})"


class WideHashedList(Wide, HashedList):
    """Hashed lists with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_hash"
    most: ClassVar[int | None] = MAX_WIDE
