"""Arrays of numbers, as they are."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.columns import Columns, Numbers, Reading, SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem, OnnxGraph, Replay, Role
from grouplearn.data.encoding.encoder_calls import EncoderCall

#: DuckDB's longest array.
LONGEST_ARRAY = 100_000


class Array(Encoder):
    """Several numbers, equally many in each row, unchanged; or bytes. Its SQL is in ``bind.arrays``."""

    kind: ClassVar[str] = "array"
    name: ClassVar[str] = "array"
    call: ClassVar[EncoderCall | None] = None
    taken: ClassVar[str] = "arrays"
    role: ClassVar[Role] = "array"
    pure: ClassVar[bool] = False
    most: ClassVar[int | None] = LONGEST_ARRAY
    first: ClassVar[int] = 1

    def takes(self, column: SqlColumn) -> bool:
        """Return whether it is a list of numbers, or bytes."""
        return column.type == "BLOB" or (column.element is not None and column.element.kind == "numeric")

    def is_meant(self, column: SqlColumn) -> bool:
        """Return whether it takes the column."""
        return self.takes(column)

    def reading(self, column: SqlColumn, item: Item) -> Reading:  # noqa: ARG002
        """Return a cast to doubles; bytes are read unchanged."""
        around = ("(\n", "\n)") if column.type == "BLOB" else ("CAST((\n", "\n) AS DOUBLE[])")
        return Reading(around, around)

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item[place], counted from 1 as in SQL."""
        return self.numbered(fitted)

    def replay(self, fitted: FittedItem, columns: Columns) -> Replay:  # noqa: ARG002
        """Return a function that takes the values unchanged."""
        first, stop = fitted.item.column, fitted.item.column + fitted.item.buckets
        return lambda rows: Numbers(rows.numeric[:, first:stop])

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a DOUBLE input per value."""
        return [graph.input(fitted.item.name, "DOUBLE", fitted.item.buckets)]
