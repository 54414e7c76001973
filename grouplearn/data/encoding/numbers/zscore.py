"""``zscore``: minus the mean, divided by the standard deviation."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.numbers.number import IMPUTE
from grouplearn.data.encoding.numbers.scaled import Scaled
from grouplearn.kernels.spreads import Spreads


class ZScore(Scaled):
    """Minus the mean, divided by the standard deviation."""

    name: ClassVar[str] = "zscore"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "zscore",
        {"zscore(x, ...)": "(x - mean) / standard deviation, over n as `stddev_pop`; weights do not count"},
        (SCOPE, IMPUTE),
        within="impute",
    )

    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """See ``Scaled``."""
        return found.mean, found.deviation
