"""``ordinal``: the rank of a category."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grouplearn.data.encoding.categories.category import PlacedCategory
from grouplearn.data.encoding.columns import Numbers, PlaceArray
from grouplearn.data.encoding.encoder import FittedItem, OnnxGraph, Role
from grouplearn.data.encoding.encoder_calls import EncoderCall


class Ordinal(PlacedCategory):
    """The rank of a category in the order of texts."""

    name: ClassVar[str] = "ordinal"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "ordinal",
        {
            "ordinal(x, ...)": "the position of the value among those seen, in the order of their texts (of numbers, too: `10`"
            " before `2`); a category to `gbdt`"
        },
    )
    role: ClassVar[Role] = "place"

    def features(self, fitted: FittedItem) -> tuple[str, ...]:
        """Return the item's name."""
        return (fitted.item.name,)

    def _piece(self, places: PlaceArray) -> Numbers:
        """Return the ranks, NaN for unknown categories."""
        return Numbers(np.where(places < 0, np.nan, places.astype(np.float64))[:, None])

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:  # noqa: ARG002
        """Add a STRING input; NULL is a text that was not in training."""
        place = self._onnx_places(graph, fitted)
        unknown = graph.add("Less", place, graph.constant(np.array(0, dtype=np.int64)))
        return [graph.add("Where", unknown, graph.number(np.nan), graph.doubles(place))]
