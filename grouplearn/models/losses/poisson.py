"""Half the deviance of a Poisson label, μ − y·log μ + y·log y − y of μ = exp(s)."""

from __future__ import annotations

import math

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.models.label import NUMBER
from grouplearn.models.losses.loss import Loss, above_zero
from grouplearn.models.losses.loss_metric import EPSILON, MEAN_SQL, LossMetric, Mean


def _targets(y: FloatArray, outputs: int) -> FloatArray:
    """Return y and y·log y − y."""
    del outputs
    return np.stack([y, y * logarithm(np.where(y > 0, y, 1.0)) - y], axis=-1)


def _mean(observed: FloatArray, with_intercept: bool) -> FloatArray:
    """Return the mean label, 1 without an intercept."""
    mean = observed[..., :1]
    return above_zero(mean) if with_intercept else np.ones_like(mean)


def _scores(mean: FloatArray) -> FloatArray:
    """Return log μ̄."""
    return logarithm(mean)


def _coupling(mean: FloatArray) -> FloatArray:
    """Return μ̄."""
    return mean[..., None]


def _mean_loss(observed: FloatArray, mean: FloatArray) -> FloatArray:
    """Return μ̄ − ȳ·log μ̄ + the average of y·log y − y."""
    loss: FloatArray = mean[..., 0] - observed[..., 0] * logarithm(mean[..., 0]) + observed[..., 1]
    return loss


def _typical_curvature(mean: float, deviation: float, parameter: float) -> float:
    """Return a large μ: two deviations above the mean label."""
    del parameter
    return mean + 2.0 * deviation


def _check_labels(y: FloatArray, weight: FloatArray, learner: str) -> None:
    """Raise ValueError when a label is negative, or so large that its metrics are not finite."""
    negative = int(((y < 0) & (weight > 0)).sum())
    if negative:
        rows = f"{negative} row" + ("" if negative == 1 else "s")
        raise ValueError(f"the label is negative in {rows}; {learner} predicts counts and rates, which are >= 0")
    largest = float(y.max(initial=0.0))
    if largest * largest == math.inf:
        raise ValueError("the squares of the label overflow; scale the label down")
    if ((y > 0) & (y < np.finfo(np.float64).tiny)).any():  # subnormal numbers have no logarithm here
        raise ValueError("the label has numbers between 0 and 2.3e-308; scale the label up")


def deviance(predicted: FloatArray, y: FloatArray, _: float = 0.0) -> FloatArray:
    """Return 2·(y·log(y/μ) - y + μ), with μ away from 0 before its logarithm."""
    mean = np.maximum(predicted, EPSILON)
    loss: FloatArray = 2.0 * (y * logarithm(np.where(y == 0, mean, y) / mean) - y + mean)
    return loss


def deviance_of_mean(y: FloatArray, mean: Mean, _: float = 0.0) -> FloatArray:
    """Return 2·(mean of y·log y - ȳ·log ȳ)."""
    constant = mean(y)
    return 2.0 * (mean(np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0)) - constant * np.log(constant))


def deviance_sql(_: float = 0.0) -> str:
    """Return the deviance as SQL, see ``LossMetric``."""
    return f"CASE WHEN y >= 0 THEN 2 * (CASE WHEN y > 0 THEN y * ln(y / {MEAN_SQL}) ELSE 0 END - y + {MEAN_SQL}) END"


POISSON_DEVIANCE = LossMetric(
    "poisson_deviance",
    "mean of 2·(y·log(y / ŷ) - y + ŷ); of labels >= 0",
    deviance,
    deviance_sql,
    of_constant=deviance_of_mean,
)
POISSON = Loss(
    name="poisson",
    labels=frozenset({NUMBER}),
    targets=_targets,
    mean=_mean,
    scores=_scores,
    curvature=None,
    typical_curvature=_typical_curvature,
    coupling=_coupling,
    mean_loss=_mean_loss,
    log_link=True,
    check_labels=_check_labels,
    judged_by=POISSON_DEVIANCE.name,
    metric=POISSON_DEVIANCE,
    learner="poisson_regression",
    summary="regression of counts and rates (log link)",
)
