"""``hash``: a column per hash bucket of a category."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.category import indicators
from grouplearn.data.encoding.columns import Around, Columns, IndicatorColumns, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Elsewhere, Encoder, FittedItem, OnnxGraph, Replay, Role
from grouplearn.data.encoding.encoder_calls import EncoderCall, EncoderOption
from grouplearn.data.encoding.wide import Wide

#: Most columns of an item, and of a wide one.
MAX_BUCKETS, MAX_WIDE = 1 << 22, 1 << 30
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


def bucket(around: Around, buckets: int) -> Around:
    """Return the SQL of a bucket number, as the parts before and after that of a text.

    md5 gives the same bucket in every DuckDB version and client; DuckDB's own hash() does not promise that.
    """
    first, *between, last = around
    return f"CAST(md5_number_lower({first}", *between, f"{last}) % {buckets} AS INTEGER)"


class Hash(Encoder):
    """A column per bucket; each category's text is hashed to one."""

    kind: ClassVar[str] = "hash"
    name: ClassVar[str] = "hash"
    call: ClassVar[EncoderCall | None] = HASH
    taken: ClassVar[str] = "single values and lists of them"
    role: ClassVar[Role] = "indicator"
    elsewhere: ClassVar[Elsewhere] = "digest"
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
        return [indicators(graph, bucket, self.numbers(fitted))] if self.fitted_width(fitted) else []


class WideHash(Wide, Hash):
    """A hash with so many columns that most weights would be 0."""

    name: ClassVar[str] = "wide_hash"
    most: ClassVar[int | None] = MAX_WIDE
