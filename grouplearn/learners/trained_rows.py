"""Predictions of training rows that fall out of training, so that nobody computes them again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix


@dataclass(frozen=True, slots=True)
class TrainedRows:
    """The finished models' predictions ``scores`` (n, c, k) of the training rows ``x`` (n, d)."""

    x: FloatArray
    scores: FloatArray

    def of(self, x: Matrix) -> FloatArray | None:
        """Return the predictions of ``x`` if it is a run of the training rows, in memory that they share; else None."""
        if not isinstance(x, np.ndarray) or x.shape[1:] != self.x.shape[1:] or x.strides != self.x.strides:
            return None
        first, between = divmod(_address(x) - _address(self.x), max(1, self.x.strides[0]))
        if between or not 0 <= first <= first + len(x) <= len(self.x):
            return None
        return self.scores[first : first + len(x)]


def _address(x: FloatArray) -> int:
    address: int = x.__array_interface__["data"][0]
    return address
