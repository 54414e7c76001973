"""Metrics of numbers that are means of a loss of each row: deviances, the pinball loss, the cross entropy of shares.

With the prediction μ, e = y - μ, and both kept apart from 0 where a logarithm is taken:

    pinball           max(α·e, (α - 1)·e)
    poisson_deviance  2·(y·log(y/μ) - y + μ)
    gamma_deviance    2·(log(μ/y) + y/μ - 1)
    tweedie_deviance  2·(y^(2-p)/((1-p)(2-p)) - y·μ^(1-p)/(1-p) + μ^(2-p)/(2-p)),  1 < p < 2; that of Poisson for p = 1
    cross_entropy     -(y·log μ + (1 - y)·log(1 - μ))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import exponential, logarithm
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.state import Tensors
from grouplearn.learners.metrics.sums import METRICS, MetricSums

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class RowLoss:
    """The loss of a metric with its parameter: α of the pinball loss, p of Tweedie's deviance; else None."""

    name: str
    parameter: float | None = None

    def of(self, predicted: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each row; ``predicted`` and ``y`` broadcast. NaN where a label has none."""
        with np.errstate(all="ignore"):
            return _LOSSES[self.name](predicted, y, 0.0 if self.parameter is None else self.parameter)


def row_losses(names: Collection[str], config: Config) -> tuple[RowLoss, ...]:
    """Return the losses among some metrics, with the parameters that a config has for them; KeyError where it lacks one."""
    found = [METRICS[name] for name in dict.fromkeys(names) if METRICS[name].row_loss]
    numbers = ((each.name, None if each.parameter is None else config[each.parameter]) for each in found)
    return tuple(RowLoss(name, None if number is None else float(number)) for name, number in numbers)  # type: ignore[arg-type]


def with_losses(
    sums: MetricSums, losses: Collection[RowLoss], scores: FloatArray, y: FloatArray, weight: FloatArray
) -> MetricSums:
    """Return the sums of some rows with those of further losses: ``scores`` (n, c, 1), ``y`` and ``weight`` (n,)."""
    if not losses:
        return sums
    found = loss_sums(losses, scores, y, weight)
    return MetricSums({**sums.tensors, **found}, sums.by_row, sums.binary, sums.n_unseen)


def loss_sums(losses: Collection[RowLoss], scores: FloatArray, y: FloatArray, weight: FloatArray) -> Tensors:
    """Return Σw·loss (c,) of each loss, rows of weight 0 left out, for ``scores`` (n, c, 1), ``y`` and ``weight`` (n,)."""
    predicted, counts = np.ascontiguousarray(scores[:, :, 0].T), weight > 0
    return {loss.name: np.where(counts, loss.of(predicted, y) * weight, 0.0).sum(axis=1) for loss in losses}


def _pinball(predicted: FloatArray, y: FloatArray, alpha: float) -> FloatArray:
    error = y - predicted
    loss: FloatArray = np.maximum(alpha * error, (alpha - 1.0) * error)
    return loss


def _poisson(predicted: FloatArray, y: FloatArray, _: float = 0.0) -> FloatArray:
    mean = np.maximum(predicted, _EPSILON)
    loss: FloatArray = 2.0 * (y * logarithm(np.where(y == 0, mean, y) / mean) - y + mean)
    return loss


def _gamma(predicted: FloatArray, y: FloatArray, _: float) -> FloatArray:
    ratio = np.where(y > 0, y, np.nan) / np.maximum(predicted, _EPSILON)
    return 2.0 * (ratio - logarithm(ratio) - 1.0)


def _tweedie(predicted: FloatArray, y: FloatArray, power: float) -> FloatArray:
    if power == 1.0:
        return _poisson(predicted, y)
    mean, one, two = np.maximum(predicted, _EPSILON), 1.0 - power, 2.0 - power
    loss: FloatArray = _power(y, two) / (one * two) - y * _power(mean, one) / one + _power(mean, two) / two
    return 2.0 * loss


def _power(base: FloatArray, exponent: float) -> FloatArray:
    """Return base^exponent for base ≥ 0."""
    return exponential(exponent * logarithm(base))


def _cross_entropy(predicted: FloatArray, y: FloatArray, _: float) -> FloatArray:
    share = np.clip(predicted, _EPSILON, 1.0 - _EPSILON)
    loss: FloatArray = -(y * logarithm(share) + (1.0 - y) * logarithm(1.0 - share))
    return np.where((y >= 0) & (y <= 1), loss, np.nan)


_LOSSES: Mapping[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = MappingProxyType(
    {
        "pinball": _pinball,
        "poisson_deviance": _poisson,
        "gamma_deviance": _gamma,
        "tweedie_deviance": _tweedie,
        "cross_entropy": _cross_entropy,
    }
)


def loss_sql(loss: RowLoss) -> str:
    """Return the loss of a row as SQL over the columns ``y`` and ``p``, NULL where a label has none."""
    mean, share = f"greatest(p, {_EPSILON})", f"least(greatest(p, {_EPSILON}), {1.0 - _EPSILON})"
    poisson = f"CASE WHEN y >= 0 THEN 2 * (CASE WHEN y > 0 THEN y * ln(y / {mean}) ELSE 0 END - y + {mean}) END"
    number = loss.parameter or 0.0
    if loss.name == "pinball":
        return f"greatest({number} * (y - p), {number - 1} * (y - p))"
    if loss.name == "gamma_deviance":
        return f"CASE WHEN y > 0 THEN 2 * (y / {mean} - ln(y / {mean}) - 1) END"
    if loss.name == "cross_entropy":
        return f"CASE WHEN y BETWEEN 0 AND 1 THEN -(y * ln({share}) + (1 - y) * ln(1 - {share})) END"
    if loss.name == "poisson_deviance" or number == 1:
        return poisson
    one, two = 1 - number, 2 - number
    parts = f"pow(y, {two}) / {one * two} - y * pow({mean}, {one}) / {one} + pow({mean}, {two}) / {two}"
    return f"CASE WHEN y >= 0 THEN 2 * ({parts}) END"
