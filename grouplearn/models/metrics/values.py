"""The metrics of numbers."""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.metrics import error_sums, label_sums
from grouplearn.models.losses.loss_metric import EPSILON
from grouplearn.models.metrics.deviances import DEVIANCES
from grouplearn.models.metrics.metric import (
    DEVIATION,
    FAR,
    SOME_LEFT,
    TARGET,
    Asked,
    Family,
    Judged,
    Metric,
    MetricSums,
    NoBetterThanConstant,
    Scores,
    mean_of,
    summed,
)
from grouplearn.models.state import Tensors

#: Labels whose range is below this share of their size, a few ulps, are constant up to rounding.
CONSTANT = 4 * EPSILON
#: A constant label counts as predicted exactly up to this relative error: a model's sums round more than the label.
EXACT = 1e-13
_SIZE = "greatest(abs(low), abs(high))"


def _r2(sums: MetricSums) -> FloatArray:
    """Return 1 - Σw(y-ŷ)²/Σw(y-ȳ)²; for a label that is constant up to rounding, 1 if predicted exactly (by the mean
    absolute error), else 0. NaN for fewer than two rows."""
    tensors = sums.tensors
    square, spread, low, high = (tensors[name] for name in ("square", "label_square", "label_low", "label_high"))
    if tensors["rows"] < 2:
        return np.full(square.shape, np.nan)
    size = np.maximum(np.abs(low), np.abs(high))
    exact = np.where(mean_of("absolute")(sums) <= EXACT * size, 1.0, 0.0)
    with np.errstate(all="ignore"):  # quotients by 0 are not used, and a range may overflow
        r2: FloatArray = np.where((spread > 0) & (high - low > CONSTANT * size), 1.0 - square / spread, exact)
    return r2


_METRICS = (
    Metric(
        "rmse",
        False,
        "root of the mean of (y - ŷ)²",
        lambda sums: np.sqrt(mean_of("square")(sums)),
        "sqrt(square / total)",
        "root",
        worse_than_constant=(f"{{r2}} < {1 - FAR}",),
    ),
    Metric(
        "mae",
        False,
        "mean of |y - ŷ|",
        mean_of("absolute"),
        "absolute / total",
        "mean",
        worse_than_constant=(f"{SOME_LEFT} {{mae}} > {FAR} * {DEVIATION}",),
    ),
    Metric(
        "r2",
        True,
        "1 - Σ(y - ŷ)² / Σ(y - mean of y)²; of a label that is constant but for rounding 1 if predicted exactly, else 0",
        _r2,
        f"CASE WHEN n_judged < 2 THEN NULL WHEN spread > 0 AND high - low > {CONSTANT} * {_SIZE} THEN 1 - square / spread"
        f" ELSE CAST(absolute / total <= {EXACT} * {_SIZE} AS DOUBLE) END",
        useless=NoBetterThanConstant(
            "{r2} < 0", "no better on held-out rows than the mean, valid_r2 = %.2g: try fewer features or more rows"
        ),
        too_good=0.999,
        constant=0.0,
    ),
    Metric(
        "mape",
        False,
        "mean of |y - ŷ| / |y|, |y| at least 2.2e-16",
        mean_of("relative"),
        "relative / total",
        "mean",
        always=False,
        worse_than_constant=(f"{{mape}} > {FAR}",),  # predicting 0 gives at most 1
    ),
)


def _measure(rows: Scores) -> MetricSums:
    y, weight = rows.y, rows.weight
    square, absolute, relative = error_sums(rows.scores[:, :, 0], y, weight)
    labels = label_sums(y, weight)
    return MetricSums(
        {
            "rows": np.array(float(len(y))),
            "weight": np.array(labels.total),
            "label_low": np.array(labels.low),
            "label_high": np.array(labels.high),
            "label_mean": np.array(labels.mean),
            "label_square": np.array(labels.spread),
            "absolute": absolute,
            "square": square,
            "relative": relative,
        }
    )


def merged_labels(left: Tensors, right: Tensors) -> dict[str, FloatArray]:
    """Return the merged sums that are not additive (Chan, Golub & LeVeque 1983)."""
    total = left["weight"] + right["weight"]
    share = np.divide(right["weight"], total, out=np.zeros(()), where=total > 0)
    shift = right["label_mean"] - left["label_mean"]
    return {
        "label_mean": left["label_mean"] + share * shift,
        "label_square": left["label_square"] + right["label_square"] + left["weight"] * share * shift**2,
        "label_low": np.minimum(left["label_low"], right["label_low"]),
        "label_high": np.maximum(left["label_high"], right["label_high"]),
    }


#: The sums of a group; ``mean`` is its labels'.
_SUMS = {
    "square": "sum(w * (p - y) ** 2)",
    "absolute": "sum(w * abs(p - y))",
    "relative": f"sum(w * abs(p - y) / greatest(abs(y), {EPSILON}))",
    "spread": "sum(w * (y - mean) ** 2)",
    "low": "min(y)",
    "high": "max(y)",
    "n_judged": "count(*)",
}


def _judged(asked: Asked) -> Judged:
    mean = "sum(w * y) FILTER (ok) OVER (PARTITION BY id) / sum(w) FILTER (ok) OVER (PARTITION BY id)"
    of_losses = {f"sum_{name}": f"sum(w * {sql})" for name, sql in asked.losses.items()}
    # If one label has no such loss, the group has none.
    defined = {f"all_{name}": f"bool_and({sql} IS NOT NULL)" for name, sql in asked.losses.items()}
    sums = summed("centred", {**_SUMS, **of_losses, **defined})
    known = f"coalesce(isfinite({TARGET}), false) AND prediction IS NOT NULL"
    return Judged({"y": TARGET, "p": "prediction"}, known, f"centred AS (SELECT *, {mean} AS mean FROM known), {sums}")


VALUES = Family((*_METRICS, *DEVIANCES), _measure, _judged)
