"""The log-loss of two classes, −y·log p − (1 − y)·log(1 − p) of p = 1/(1 + e^−s)."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.models.label import TWO_CLASSES
from grouplearn.models.losses.loss import Loss, as_column, within_shares


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the share of the second class, ½ without an intercept."""
    return within_shares(observed) if with_intercept else np.full(observed.shape, 0.5)


def _scores(share: FloatArray) -> FloatArray:
    """Return log(p̄/(1 − p̄))."""
    return logarithm(share / (1.0 - share))


def _coupling(share: FloatArray) -> FloatArray:
    """Return p̄(1 − p̄)."""
    coupling: FloatArray = (share * (1.0 - share))[..., None]
    return coupling


def _mean_loss(observed: FloatArray, share: FloatArray) -> FloatArray:
    """Return −ȳ·log p̄ − (1 − ȳ)·log(1 − p̄)."""
    loss: FloatArray = -(observed * logarithm(share)).sum(axis=-1) - ((1.0 - observed) * logarithm(1.0 - share)).sum(
        axis=-1
    )
    return loss


LOGISTIC = Loss(
    name="logistic",
    labels=frozenset({TWO_CLASSES}),
    targets=as_column,
    mean=_mean,
    scores=_scores,
    curvature=0.25,
    coupling=_coupling,
    mean_loss=_mean_loss,
    judged_by="log_loss",
)
