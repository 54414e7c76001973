"""A list of values: the base of its encoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import Around, Columns, IntArray, SqlColumn
from grouplearn.data.encoding.encoder import Encoder, FittedItem, NoForm, OnnxGraph, Role


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


def element_of(column: SqlColumn) -> SqlColumn:
    """Return the element of a list column."""
    if column.element is None:
        raise TypeError(f"{column.type} is no list")
    return column.element


def each_element(around: Around) -> Around:
    """Return the SQL of a list with ``around`` applied to each element."""
    return "list_transform((\n", f"\n), lambda element: {'element'.join(around)})"


def item_entries(columns: Columns, item: Item) -> tuple[IntArray, npt.NDArray[np.int32], FloatArray]:
    """Return how many entries of an item each row has, their codes and their amounts."""
    if columns.lists is None:
        raise TypeError("these rows have no lists")
    return columns.lists.item(item.column)


def times_counted(counts: IntArray, column: IntArray, width: int) -> tuple[IntArray, IntArray, FloatArray]:
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
