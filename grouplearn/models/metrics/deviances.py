"""Metrics of numbers that are means of a row loss: deviances, the pinball loss, the cross entropy of shares.

With the prediction μ and e = y - μ; both are kept away from 0 before a logarithm:

    pinball           max(α·e, (α - 1)·e)
    poisson_deviance  2·(y·log(y/μ) - y + μ)
    gamma_deviance    2·(log(μ/y) + y/μ - 1)
    tweedie_deviance  2·(y^(2-p)/((1-p)(2-p)) - y·μ^(1-p)/(1-p) + μ^(2-p)/(2-p)),  1 < p < 2; that of Poisson for p = 1
    cross_entropy     -(y·log μ + (1 - y)·log(1 - μ))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import exponential, logarithm
from grouplearn.models.losses.loss_metric import EPSILON, MEAN_SQL, LossMetric, Mean
from grouplearn.models.losses.losses import LOSSES
from grouplearn.models.losses.poisson import deviance, deviance_of_mean, deviance_sql
from grouplearn.models.metrics.metric import DEVIATION, FAR, SOME_LEFT, Metric, MetricSums, mean_of
from grouplearn.models.state import Tensors


@dataclass(frozen=True, slots=True)
class RowLoss:
    """A metric's row loss with its parameter: α of the pinball loss, p of Tweedie's deviance; else None."""

    name: str
    parameter: float | None = None

    def of(self, predicted: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each row; ``predicted`` and ``y`` broadcast. NaN for labels without a loss."""
        with np.errstate(all="ignore"):
            return _METRICS[self.name].of(predicted, y, self.parameter or 0.0)

    def of_constant(self, y: FloatArray, mean: Mean) -> FloatArray:
        """Return the metric of the best constant, the mean label; ``mean`` takes the mean of values per row, by group."""
        found = _METRICS[self.name].of_constant
        if found is None:
            raise ValueError(f"the mean is not the best constant by {self.name}")
        return found(y, mean, self.parameter or 0.0)


def has_constant(name: str) -> bool:
    """Return whether a metric is a row loss of which the mean label is the best constant."""
    return name in _METRICS and _METRICS[name].of_constant is not None


def row_losses(names: Collection[str], config: Mapping[str, Any]) -> tuple[RowLoss, ...]:
    """Return the row losses among some metrics, with a config's parameters for them; KeyError if one is missing."""
    found = [_METRICS[name] for name in dict.fromkeys(names) if name in _METRICS]
    numbers = ((each.name, None if each.parameter is None else config[each.parameter]) for each in found)
    return tuple(RowLoss(name, None if number is None else float(number)) for name, number in numbers)


def with_losses(
    sums: MetricSums, losses: Collection[RowLoss], scores: FloatArray, y: FloatArray, weight: FloatArray
) -> MetricSums:
    """Return the sums of some rows extended by further losses: ``scores`` (n, c, 1), ``y`` and ``weight`` (n,)."""
    if not losses:
        return sums
    found = loss_sums(losses, scores, y, weight)
    return MetricSums({**sums.tensors, **found}, sums.by_row, sums.binary, sums.n_unseen)


def loss_sums(losses: Collection[RowLoss], scores: FloatArray, y: FloatArray, weight: FloatArray) -> Tensors:
    """Return Σw·loss (c,) of each loss, without rows of weight 0, for ``scores`` (n, c, 1), ``y`` and ``weight`` (n,)."""
    predicted, counts = np.ascontiguousarray(scores[:, :, 0].T), weight > 0
    return {loss.name: np.where(counts, loss.of(predicted, y) * weight, 0.0).sum(axis=1) for loss in losses}


def loss_sql(loss: RowLoss) -> str:
    """Return a row's loss as SQL over the columns ``y`` and ``p``, NULL for labels without one."""
    return _METRICS[loss.name].sql(loss.parameter or 0.0)


def _pinball(predicted: FloatArray, y: FloatArray, alpha: float) -> FloatArray:
    error = y - predicted
    loss: FloatArray = np.maximum(alpha * error, (alpha - 1.0) * error)
    return loss


def _gamma(predicted: FloatArray, y: FloatArray, _: float) -> FloatArray:
    ratio = np.where(y > 0, y, np.nan) / np.maximum(predicted, EPSILON)
    return 2.0 * (ratio - logarithm(ratio) - 1.0)


def _tweedie(predicted: FloatArray, y: FloatArray, power: float) -> FloatArray:
    if power == 1.0:
        return deviance(predicted, y)
    mean, one, two = np.maximum(predicted, EPSILON), 1.0 - power, 2.0 - power
    loss: FloatArray = _power(y, two) / (one * two) - y * _power(mean, one) / one + _power(mean, two) / two
    return 2.0 * loss


def _gamma_of_mean(y: FloatArray, mean: Mean, _: float) -> FloatArray:
    """Return 2·(log ȳ - mean of log y)."""
    return 2.0 * (np.log(mean(y)) - mean(np.log(y)))


def _tweedie_of_mean(y: FloatArray, mean: Mean, power: float) -> FloatArray:
    """Return 2·(mean of y^(2-p) - ȳ^(2-p)) / ((1-p)(2-p))."""
    if power == 1.0:
        return deviance_of_mean(y, mean)
    one, two = 1.0 - power, 2.0 - power
    return 2.0 * (mean(y**two) - mean(y) ** two) / (one * two)


def _power(base: FloatArray, exponent: float) -> FloatArray:
    """Return base^exponent for base ≥ 0."""
    return exponential(exponent * logarithm(base))


def _cross_entropy(predicted: FloatArray, y: FloatArray, _: float) -> FloatArray:
    share = np.clip(predicted, EPSILON, 1.0 - EPSILON)
    loss: FloatArray = -(y * logarithm(share) + (1.0 - y) * logarithm(1.0 - share))
    return np.where((y >= 0) & (y <= 1), loss, np.nan)


_SHARE = f"least(greatest(p, {EPSILON}), {1.0 - EPSILON})"


def _tweedie_sql(power: float) -> str:
    if power == 1:
        return deviance_sql()
    one, two = 1 - power, 2 - power
    parts = f"pow(y, {two}) / {one * two} - y * pow({MEAN_SQL}, {one}) / {one} + pow({MEAN_SQL}, {two}) / {two}"
    return f"CASE WHEN y >= 0 THEN 2 * ({parts}) END"


def _metric(loss: LossMetric) -> Metric:
    """Return the mean of a loss as a metric."""
    return Metric(
        loss.name,
        False,
        loss.meaning,
        mean_of(loss.name),
        f"CASE WHEN all_{loss.name} THEN sum_{loss.name} / total END",
        "mean",
        always=False,
        row_loss=True,
        parameter=loss.parameter,
        worse_than_constant=loss.worse_than_constant,
    )


#: The quantile ``alpha`` is at most this many deviations from the mean.
_OF_QUANTILE = f"{FAR} * {DEVIATION} * sqrt({{alpha}} * (1 - {{alpha}}))"

_METRICS: Mapping[str, LossMetric] = MappingProxyType(
    {
        loss.name: loss
        for loss in (
            LossMetric(
                "pinball",
                "mean of alpha·(y - ŷ) if positive, else of (alpha - 1)·(y - ŷ)",
                _pinball,
                lambda alpha: f"greatest({alpha} * (y - p), {alpha - 1} * (y - p))",
                "alpha",
                # Without the sums of this loss: it is at least the smaller factor times |y - ŷ|.
                (
                    f"{SOME_LEFT} {{pinball}} > {_OF_QUANTILE}",
                    f"{SOME_LEFT} least({{alpha}}, 1 - {{alpha}}) * {{mae}} > {_OF_QUANTILE}",
                ),
            ),
            *(each.metric for each in LOSSES if each.metric is not None),
            LossMetric(
                "gamma_deviance",
                "mean of 2·(log(ŷ / y) + y / ŷ - 1); of labels > 0",
                _gamma,
                lambda _: f"CASE WHEN y > 0 THEN 2 * (y / {MEAN_SQL} - ln(y / {MEAN_SQL}) - 1) END",
                of_constant=_gamma_of_mean,
            ),
            LossMetric(
                "tweedie_deviance",
                "mean of 2·(y^(2-p) / ((1-p)(2-p)) - y·ŷ^(1-p) / (1-p) + ŷ^(2-p) / (2-p)), p hyperparameter "
                "tweedie_variance_power; of labels >= 0",
                _tweedie,
                _tweedie_sql,
                "tweedie_variance_power",
                of_constant=_tweedie_of_mean,
            ),
            LossMetric(
                "cross_entropy",
                "mean of -(y·log ŷ + (1 - y)·log(1 - ŷ)), ŷ as for log_loss; of labels from 0 to 1",
                _cross_entropy,
                lambda _: f"CASE WHEN y BETWEEN 0 AND 1 THEN -(y * ln({_SHARE}) + (1 - y) * ln(1 - {_SHARE})) END",
                worse_than_constant=(f"{{cross_entropy}} > {FAR} * ln(2)",),  # the cross entropy of 1/2
            ),
        )
    }
)
DEVIANCES: tuple[Metric, ...] = tuple(map(_metric, _METRICS.values()))
