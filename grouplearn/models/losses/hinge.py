"""The hinge, max(0, 1 - m) of the margin m = (2y - 1)·s."""

from __future__ import annotations

import math

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES
from grouplearn.models.losses.loss import Loss

#: Training starts at the score 0 from the first smoothed form of the loss (μ = 1). With r = √5 there, c = (1 + r)/2 is the
#: golden ratio, and c + 1 its square. The slope is -s for the second class and s for the first.
_FAR = (1 + math.sqrt(5)) / 2
_SLOPE = _FAR / (_FAR + 1)
_BEND = 1 / ((_FAR + 1) ** 2 + (1 + 1 / _FAR) ** 2)


def _targets(y: FloatArray, outputs: int) -> FloatArray:
    """Return 2·s·y, (..., n, 1): the prediction is then s."""
    del outputs
    return 2 * _SLOPE * y[..., None]


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return s, the prediction at the score 0."""
    del with_intercept
    return np.full_like(observed, _SLOPE)


def _scores(mean: FloatArray) -> FloatArray:
    """Return 0."""
    return np.zeros_like(mean)


def _coupling(mean: FloatArray) -> FloatArray:
    """Return the second derivative of the smoothed loss at the score 0."""
    return np.full((*mean.shape, 1), _BEND)


def _mean_loss(observed: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the smoothed loss at the score 0: c + 1 - log((c + 1)²/c)."""
    del observed
    more = np.full(mean.shape[:-1], _FAR + 1)
    loss: FloatArray = more - logarithm(more * (more / _FAR))
    return loss


HINGE = Loss(
    name="hinge",
    labels=frozenset({TWO_CLASSES, SEVERAL_CLASSES}),
    targets=_targets,
    mean=_mean,
    scores=_scores,
    curvature=1.0,
    coupling=_coupling,
    mean_loss=_mean_loss,
    is_smooth=False,
    is_calibrated=False,
    by_class=True,
    doc="with hinge 1 - m, so that rows far on the wrong side weigh less; training takes several times as many epochs",
)
