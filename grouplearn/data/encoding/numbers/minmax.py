"""``minmax``: scaled to [0, 1]."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.numbers.number import IMPUTE
from grouplearn.data.encoding.numbers.scaled import Scaled
from grouplearn.kernels.spreads import Spreads


class MinMax(Scaled):
    """Scaled to [0, 1] between the minimum and maximum of training rows."""

    name: ClassVar[str] = "minmax"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "minmax", {"minmax(x, ...)": "(x - least) / (most - least)"}, (SCOPE, IMPUTE), within="impute"
    )

    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """See ``Scaled``."""
        return found.low, found.high - found.low
