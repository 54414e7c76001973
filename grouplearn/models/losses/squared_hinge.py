"""The squared hinge, max(0, 1 - m)² of the margin m = (2y - 1)·s."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.losses.loss import Loss


def _targets(y: FloatArray, outputs: int) -> FloatArray:
    """Return 4·y, (..., n, 1): if all rows have one score b in [-1, 1], the slope is 2·(1 + b) - 4·y."""
    del outputs
    return 4.0 * y[..., None]


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the mean target; without an intercept, the mean target of the score 0."""
    return np.clip(observed, 0.0, 4.0) if with_intercept else np.full_like(observed, 2.0)


def _scores(mean: FloatArray) -> FloatArray:
    """Return mean/2 - 1."""
    scores: FloatArray = mean / 2 - 1
    return scores


def _coupling(mean: FloatArray) -> FloatArray:
    """Return 2, or 0 if all rows are of one class: then none is inside the margin."""
    return np.where((mean > 0) & (mean < 4), 2.0, 0.0)[..., None]


def _mean_loss(observed: FloatArray, mean: FloatArray) -> FloatArray:
    """Return ȳ·(1 - b)² + (1 - ȳ)·(1 + b)² for the share ȳ of the second class."""
    share, score = observed[..., 0] / 4, _scores(mean)[..., 0]
    loss: FloatArray = share * (1 - score) ** 2 + (1 - share) * (1 + score) ** 2
    return loss


SQUARED_HINGE = Loss(
    name="squared_hinge",
    labels=frozenset({TWO_CLASSES, SEVERAL_CLASSES}),
    targets=_targets,
    mean=_mean,
    scores=_scores,
    curvature=2.0,
    coupling=_coupling,
    mean_loss=_mean_loss,
    is_calibrated=False,
    by_class=True,
    doc="(1 - m)²",
)
