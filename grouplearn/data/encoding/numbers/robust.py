"""``robust``: minus the median, divided by the distance between the quartiles."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall
from grouplearn.data.encoding.numbers.number import IMPUTE
from grouplearn.data.encoding.numbers.quantiles import quantiles
from grouplearn.data.encoding.numbers.scaled import Scaled
from grouplearn.kernels.spreads import Spreads


class Robust(Scaled):
    """Minus the median, divided by the third minus the first quartile, as scikit-learn's ``RobustScaler``.

    If both quartiles are equal, the median is subtracted and nothing is divided.
    """

    name: ClassVar[str] = "robust"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "robust",
        {
            "robust(x, ...)": "(x - median) / (third - first quartile), which outliers hardly move; divided by 1 where the"
            " quartiles are equal"
        },
        (SCOPE, IMPUTE),
        within="impute",
    )
    suggested: ClassVar[bool] = False

    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """See ``Scaled``."""
        first, median, third = quantiles(known, start, (0.25, 0.5, 0.75)).T
        return median, np.where(third > first, third - first, 1.0)
