"""Half the squared error, ½(y − s)²."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.models.label import NUMBER
from grouplearn.models.losses.loss import Loss, as_column


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the mean label, 0 without an intercept."""
    return observed if with_intercept else np.zeros_like(observed)


def _scores(mean: FloatArray) -> FloatArray:
    return mean


SQUARES = Loss(
    name="squares",
    labels=frozenset({NUMBER}),
    targets=as_column,
    mean=_mean,
    scores=_scores,
    curvature=1.0,
    is_quadratic=True,
    choice="squared",
)
