"""The metrics of forecasts: errors against the seasonal naive forecast, percentages, quantiles and intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.models.metrics.metric import (
    TARGET,
    Asked,
    Family,
    Judged,
    Metric,
    MetricSums,
    Scores,
    mean_of,
)

#: The level of the interval that metrics judge.
LEVEL = 0.9
#: In a model, a deviation or a scale that is not known: models have finite numbers.
UNKNOWN = -1.0
#: Deviations from the mean to the ends of that interval.
WIDTH = NormalDist().inv_cdf((1 + LEVEL) / 2)
#: The quantiles whose losses wql sums, and their deviations from the mean.
_QUANTILES = tuple(number / 10 for number in range(1, 10))
_DEVIATIONS = tuple(NormalDist().inv_cdf(quantile) for quantile in _QUANTILES)


def sums_of_runs(
    scores: FloatArray, y: FloatArray, weight: FloatArray, start: npt.NDArray[np.int64]
) -> dict[str, FloatArray]:
    """Return the sums of runs of rows with ``scores`` (n, c, 4), (G, c) each: those of the rows that have a forecast.

    Scores are the mean, the deviation, and the mean absolute and squared errors of the seasonal naive forecast.
    """
    mean, deviation, scale, scale_square = (scores[:, :, number] for number in range(4))
    label, w = y[:, None], np.where(np.isfinite(mean), weight[:, None], 0.0)
    with np.errstate(all="ignore"):  # what is not known is NaN, and its weight is 0
        error = label - mean
        absolute, width = np.abs(error), WIDTH * deviation
        beyond = np.maximum(absolute - width, 0.0)
        each = {
            "weight": np.ones_like(mean),
            "absolute": absolute,
            "square": error**2,
            "size": np.broadcast_to(np.abs(label), mean.shape),
            "relative": absolute / np.abs(label),
            "of_both": 2 * absolute / (np.abs(label) + np.abs(mean)),
            "scaled": absolute / scale,
            "scaled_square": error**2 / scale_square,
            "interval": (2 * width + 2 / (1 - LEVEL) * beyond) / scale,
            "covered": np.where(np.isfinite(width), (absolute <= width).astype(np.float64), np.nan),
            "quantile": sum(
                np.maximum(quantile * (error - at * deviation), (quantile - 1) * (error - at * deviation))
                for quantile, at in zip(_QUANTILES, _DEVIATIONS, strict=True)
            ),
        }
        each["of_both"] = np.where(absolute == 0, 0.0, each["of_both"])
        known = {
            name: np.where(w > 0, np.where(np.isinf(values), np.nan, values) * w, 0.0) for name, values in each.items()
        }
    return {name: _run_sums(values, start) for name, values in known.items()}


def _run_sums(values: FloatArray, start: npt.NDArray[np.int64]) -> FloatArray:
    """Return the sums of runs (G, c), 0 of an empty run."""
    found = np.zeros((start.size - 1, values.shape[1]))
    some = np.flatnonzero(np.diff(start))
    if some.size:
        found[some] = np.add.reduceat(values, start[some], axis=0)
    return found


def _measure(rows: Scores) -> MetricSums:
    sums = sums_of_runs(rows.scores, rows.y, rows.weight, np.array([0, len(rows.y)]))
    return MetricSums({name: each[0] for name, each in sums.items()})


def _root(name: str) -> Callable[[MetricSums], FloatArray]:
    return lambda sums: np.sqrt(mean_of(name)(sums))


_SQL: Mapping[str, str] = {
    "absolute": "abs(y - p)",
    "square": "(y - p) ** 2",
    "size": "abs(y)",
    "relative": "abs(y - p) / nullif(abs(y), 0)",
    "of_both": "CASE WHEN y = p THEN 0 ELSE 2 * abs(y - p) / (abs(y) + abs(p)) END",
    "scaled": "abs(y - p) / nullif(a, 0)",
    "scaled_square": "(y - p) ** 2 / nullif(b, 0)",
    "interval": f"(2 * {WIDTH} * s + 2 / {1 - LEVEL} * greatest(abs(y - p) - {WIDTH} * s, 0)) / nullif(a, 0)",
    "covered": f"CASE WHEN s IS NOT NULL THEN CAST(abs(y - p) <= {WIDTH} * s AS DOUBLE) END",
    "quantile": " + ".join(
        f"greatest({q} * (y - p - {z} * s), {q - 1} * (y - p - {z} * s))"
        for q, z in zip(_QUANTILES, _DEVIATIONS, strict=True)
    ),
}


def _judged(_: Asked) -> Judged:
    # A sum is unknown if it is unknown of one row.
    sums = {
        name: f"CASE WHEN bool_and({sql} IS NOT NULL) FILTER (ok) THEN sum(w * ({sql})) FILTER (ok) END"
        for name, sql in _SQL.items()
    }
    row = {"y": TARGET, "p": "prediction", "s": "deviation", "a": "scale", "b": "scale_square"}
    known = f"coalesce(isfinite({TARGET}), false) AND prediction IS NOT NULL"
    columns = "".join(f", {sql} AS {name}" for name, sql in sums.items())
    counts = "count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped, any_value(unit) AS unit, sum(w) FILTER (ok) AS total"
    return Judged(row, known, f"judged AS (SELECT id, {counts}{columns} FROM known GROUP BY id)")


FORECASTS = Family(
    (
        Metric(
            "mase",
            False,
            "mean of |y - ŷ| / (mean absolute error of the seasonal naive forecast on the training rows)",
            mean_of("scaled"),
            "scaled / total",
            "mean",
        ),
        Metric(
            "rmsse",
            False,
            "root of the mean of (y - ŷ)² / (mean squared error of the seasonal naive forecast on the training rows)",
            _root("scaled_square"),
            "sqrt(scaled_square / total)",
            "root",
            always=False,
        ),
        Metric(
            "smape",
            False,
            "mean of 2 |y - ŷ| / (|y| + |ŷ|)",
            mean_of("of_both"),
            "of_both / total",
            "mean",
        ),
        Metric(
            "mape",
            False,
            "mean of |y - ŷ| / |y|, NULL if a label is 0",
            mean_of("relative"),
            "relative / total",
            "mean",
            always=False,
        ),
        Metric("mae", False, "mean of |y - ŷ|", mean_of("absolute"), "absolute / total", "mean"),
        Metric("rmse", False, "root of the mean of (y - ŷ)²", _root("square"), "sqrt(square / total)", "root"),
        Metric(
            "wql",
            False,
            "2 / 9 · Σ of the losses of the quantiles 0.1 to 0.9 / Σ |y|; of quantile q the loss is max(q (y - ŷq), "
            "(q - 1) (y - ŷq))",
            lambda sums: mean_of("quantile", "size")(sums) * (2 / len(_QUANTILES)),
            f"{2 / len(_QUANTILES)} * quantile / nullif(size, 0)",
            always=False,
        ),
        Metric(
            "msis",
            False,
            "mean of (u - l + 20 · (distance of y from the interval)) / (mean absolute error of the seasonal naive forecast on "
            "the training rows), for the interval from l to u of level 0.9",
            mean_of("interval"),
            "interval / total",
            "mean",
            always=False,
        ),
        Metric(
            "coverage",
            True,
            "share of the rows in their interval of level 0.9",
            mean_of("covered"),
            "covered / total",
            "mean",
        ),
    ),
    _measure,
    _judged,
)
