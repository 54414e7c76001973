"""Numbers that are centred and scaled: the base of their encoders."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.numbers.number import Number
from grouplearn.kernels import spreads
from grouplearn.kernels.spreads import Spreads

#: Numbers whose range is below this share of the largest, a few ulps, are constant up to rounding.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


class Scaled(Number):
    """A number that is centred and scaled by training rows."""

    scales: ClassVar[bool] = True
    plain: ClassVar[bool] = False

    def needs_fit(self, item: Item) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def keeps_single(self, item: Item) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def _scaling(self, item: Item, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:
        found = spreads.of_runs(known, start)
        # A constant column carries no information: with scale 1 it becomes zeros, without a division by 0 or by rounding
        # errors.
        with np.errstate(over="ignore"):
            largest = np.maximum(np.abs(found.low), np.abs(found.high))
            varies = found.high - found.low > _ROUNDING * largest
            center, scale = self.spread(item, found, known, start)
        return np.where(varies, center, found.low), np.where(varies, scale, 1.0)

    @abstractmethod
    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return centre and scale (R,) of runs of numbers that differ; the runs of ``known`` begin at ``start`` (R + 1,)."""
