"""``onehot``: a column per category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy.typing as npt

from grouplearn.data.dataset import Item
from grouplearn.data.encoding.categories.category import (
    MIN_COUNT,
    NULL_OPTION,
    OTHER,
    PlacedCategory,
    frequent,
    indicators,
    marked,
    names_null,
)
from grouplearn.data.encoding.columns import IndicatorColumns, PlaceArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import FittedGroups, FittedItem, GroupRows, OnnxGraph, Role
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.wide import WideCategories


class OneHot(PlacedCategory):
    """A column for each category, 1 where a row has it.

    Without options NULL and unknown texts are all zeros. With ``null`` NULL is a category as any other. With ``min_count``
    categories of fewer training rows are one, ``(other)``; if there are such, unknown texts belong to it.
    """

    name: ClassVar[str] = "onehot"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "onehot", {"onehot(x, ...)": "one of 0 and 1 for each value that was seen"}, (SCOPE, NULL_OPTION, MIN_COUNT)
    )
    role: ClassVar[Role] = "indicator"
    fills: ClassVar[bool] = True
    per_category: ClassVar[bool] = True

    def is_meant(self, column: SqlColumn) -> bool:
        """Return whether the type is a category's."""
        return column.kind == "category"

    def rest(self, item: Item) -> str | None:
        """Return ``(other)`` if there is a least count."""
        return OTHER if item.has("min_count") else None

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        """Return the text, marked where other categories may stand beside it."""
        nulls = names_null(item)
        return marked(column, nulls) if nulls or item.has("min_count") else super().reading(column, item)

    def fit(self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str]) -> FittedItem:
        """Find the categories that are frequent enough."""
        if not item.has("min_count"):
            return super().fit(item, values, dictionary)
        return FittedItem(item, categories=frequent(values, dictionary, item.option("min_count")))

    def fit_groups(
        self, item: Item, values: npt.NDArray[Any], dictionary: Sequence[str], rows: GroupRows
    ) -> FittedGroups | None:
        """Find the categories of each group; with a least count, one by one."""
        return None if item.has("min_count") else super().fit_groups(item, values, dictionary, rows)

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return item=category."""
        return tuple(f"{fitted.item.name}={category}" for category in fitted.categories)

    def _piece(self, places: PlaceArray) -> IndicatorColumns:
        return IndicatorColumns(places)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a STRING input; NULL is ``(null)`` if there are options, else a text that was not in training."""
        place = self._onnx_places(graph, fitted)
        return [indicators(graph, place, self.numbers(fitted))] if fitted.categories else []


class WideOneHot(WideCategories, OneHot):
    """One-hot columns of so many categories that most weights would be 0."""

    name: ClassVar[str] = "wide_onehot"
