"""The log-loss of several classes, −log p of the label's class for p = softmax of a score per class."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.models.label import SEVERAL_CLASSES
from grouplearn.models.losses.loss import Loss, within_shares


def _targets(y: FloatArray, outputs: int) -> FloatArray:
    """Return one 0/1 column per class."""
    indicators: FloatArray = (y[..., None] == np.arange(outputs)).astype(np.float64)
    return indicators


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the class shares, equal ones without an intercept."""
    if not with_intercept:
        return np.full(observed.shape, 1.0 / max(2, observed.shape[-1]))
    share = within_shares(observed)
    shares: FloatArray = share / share.sum(axis=-1, keepdims=True)
    return shares


def _scores(shares: FloatArray) -> FloatArray:
    """Return log p̄."""
    return logarithm(shares)


def _coupling(shares: FloatArray) -> FloatArray:
    """Return diag(p̄) − p̄p̄'."""
    coupling: FloatArray = -shares[..., :, None] * shares[..., None, :]
    place = np.arange(shares.shape[-1])
    coupling[..., place, place] = shares * (1.0 - shares)
    return coupling


def _mean_loss(observed: FloatArray, shares: FloatArray) -> FloatArray:
    """Return −Σ ȳ·log p̄."""
    loss: FloatArray = -(observed * logarithm(shares)).sum(axis=-1)
    return loss


SOFTMAX = Loss(
    name="softmax",
    labels=frozenset({SEVERAL_CLASSES}),
    targets=_targets,
    mean=_mean,
    scores=_scores,
    curvature=0.5,
    coupling=_coupling,
    mean_loss=_mean_loss,
    choice="logistic",
    judged_by="log_loss",
)
