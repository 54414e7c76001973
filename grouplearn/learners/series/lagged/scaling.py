"""How the values of series are scaled before a learner of rows sees them, and deviations of forecasts from past errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.series.batch import IntArray, SeriesBatch

SCALE = Hyperparameter(
    "scale",
    "str",
    "auto",
    "what is learned of each series: standard: (y - mean) / sd; mean: y / mean abs(y), so that effects of features are parts of"
    " y; none: y, so that effects are in units of y. auto: standard where a group has several series or the learner is mlp,"
    " mean where several have forecasts that are exp of a score (poisson_regression), else none",
    "Montero-Manso & Hyndman 2021",
    choices=("auto", "standard", "mean", "none"),
)
#: The least size of a series that it is divided by, as a part of the size of all.
_LEAST_PART = 1e-3


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaled values of series: (y - ``shift``) / ``factor``, (G,) each.

    ``mean``: shift 0, factor mean |y|. ``standard``: shift mean y, factor the standard deviation. ``none``: 0 and 1. A factor
    is at least a thousandth of the mean factor of all series, so that a series of zeros among others stays small.
    """

    shift: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, series: SeriesBatch, y: FloatArray, how: str) -> Scaling:
        """Return how series are scaled by their values ``y`` (n,)."""
        known, count = np.isfinite(y), series.n_series
        of, y = series.of[known], y[known]
        sizes = np.maximum(np.bincount(of, minlength=count), 1)
        shift, factor = np.zeros(count), np.ones(count)
        if how == "mean":
            factor = np.bincount(of, np.abs(y), count) / sizes
        elif how == "standard":
            shift = np.bincount(of, y, count) / sizes
            factor = np.sqrt(np.bincount(of, (y - shift[of]) ** 2, count) / sizes)
        least = _LEAST_PART * factor.mean()
        return cls(shift, np.maximum(factor, least if least > 0 else 1.0))

    def scaled(self, series: SeriesBatch) -> FloatArray:
        """Return the values of series, (n,), scaled."""
        return (series.y - self.shift[series.of]) / self.factor[series.of]

    def undone(self, values: FloatArray, of: IntArray) -> FloatArray:
        """Return ``values``, which are scaled, of the series ``of``, as they were."""
        return values * self.factor[of] + self.shift[of]


#: So many errors that count as much as those of a series itself; fewer of a step do not measure it.
_OF_ALL, _FEWEST = 10, 2
#: (z² + 1) / 4 at the normal quantile of 0.95: how much a Student quantile is above it, for one degree of freedom.
_STUDENT = 0.926


def deviations(error: FloatArray, of: IntArray, factor: FloatArray) -> FloatArray:
    """Return the deviations of forecasts 1 to H steps ahead, (G, H), by the ``error`` (m, H) of past ones of series ``of`` (m,).

    That of step h is the root of the mean square of the errors, divided by ``factor`` (G,), of all series; times ``factor``, and
    for a series the root of the mean square of its own errors of one step, among ten of all series; times 1 + 0.926 / d, which
    makes of a normal quantile of 0.95 about that of Student's distribution with d = n / √h degrees of freedom, n the number of
    errors of step h, as errors of h steps overlap. A step with d < 2 has the deviation of the last other one, growing with √h.
    NaN if no error is known.
    """
    error = error / factor[of][:, None]
    square, count = np.where(np.isfinite(error), error**2, 0.0), np.isfinite(error).sum(axis=0)
    if not count[:1].any():
        return np.full((factor.size, error.shape[1]), np.nan)
    step = np.arange(1, count.size + 1)
    degrees = count / np.sqrt(step)
    mean = square.sum(axis=0) / np.maximum(count, 1)
    size = np.sqrt(mean) * (1 + _STUDENT / np.maximum(degrees, 1))
    measured = np.maximum.accumulate(np.where((degrees >= _FEWEST) | (step == 1), step, 0))
    size = size[measured - 1] * np.sqrt(step / measured)
    known = np.bincount(of, np.isfinite(error[:, 0]), factor.size)
    own = np.bincount(of, square[:, 0], factor.size) / (mean[0] or 1.0)
    own = (_OF_ALL + own) / (_OF_ALL + known)
    return np.asarray(factor[:, None] * np.sqrt(own)[:, None] * size)
