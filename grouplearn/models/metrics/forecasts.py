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
#: The vectors of a model that one-step forecasts are made of, each as long as ``fitted`` or not there; and those from which a
#: series goes on: the numbers of its method, and its last states.
COMPONENTS, ENDED = ("level", "trend", "season", "remainder"), ("parameters", "state")
#: Deviations from the mean to the ends of that interval.
WIDTH = NormalDist().inv_cdf((1 + LEVEL) / 2)
#: The probabilities of the quantiles that a sampled forecast keeps of each step.
GRID = (0.005, *(number / 100 for number in range(1, 100)), 0.995)
#: Those that metrics judge: the ends of the interval, and between them the ones whose losses wql sums.
JUDGED = ((1 - LEVEL) / 2, *(number / 10 for number in range(1, 10)), (1 + LEVEL) / 2)
#: Their deviations from the mean of a normal distribution.
DEVIATIONS = (-WIDTH, *(NormalDist().inv_cdf(quantile) for quantile in JUDGED[1:-1]), WIDTH)
#: The numbers of a score before its quantiles, if it has any.
_SCORES = 4


def sums_of_runs(
    scores: FloatArray, y: FloatArray, weight: FloatArray, start: npt.NDArray[np.int64]
) -> dict[str, FloatArray]:
    """Return the sums of runs of rows with ``scores`` (n, c, k), (G, c) each: those of the rows that have a forecast.

    Scores are the mean, the deviation, and the mean absolute and squared errors of the seasonal naive forecast. Then may
    follow the quantiles ``JUDGED``; without them the distribution is normal.
    """
    mean, deviation, scale, scale_square = (scores[:, :, number] for number in range(_SCORES))
    label, w = y[:, None], np.where(np.isfinite(mean), weight[:, None], 0.0)
    with np.errstate(all="ignore"):  # what is not known is NaN, and its weight is 0
        error = label - mean
        absolute = np.abs(error)
        if scores.shape[2] > _SCORES:
            quantiles = [scores[:, :, _SCORES + number] for number in range(len(JUDGED))]
        else:
            quantiles = [mean + at * deviation for at in DEVIATIONS]
        low, high = quantiles[0], quantiles[-1]
        beyond = np.maximum(np.maximum(low - label, label - high), 0.0)
        each = {
            "weight": np.ones_like(mean),
            "absolute": absolute,
            "square": error**2,
            "size": np.broadcast_to(np.abs(label), mean.shape),
            "relative": absolute / np.abs(label),
            "of_both": 2 * absolute / (np.abs(label) + np.abs(mean)),
            "scaled": absolute / scale,
            "scaled_square": error**2 / scale_square,
            "interval": (high - low + 2 / (1 - LEVEL) * beyond) / scale,
            "covered": np.where(np.isfinite(high), ((low <= label) & (label <= high)).astype(np.float64), np.nan),
            "quantile": sum(
                np.maximum(quantile * (label - at), (quantile - 1) * (label - at))
                for quantile, at in zip(JUDGED[1:-1], quantiles[1:-1], strict=True)
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
    "interval": f"(q[-1] - q[1] + 2 / {1 - LEVEL} * greatest(q[1] - y, y - q[-1], 0)) / nullif(a, 0)",
    "covered": "CASE WHEN q[1] IS NOT NULL THEN CAST(y BETWEEN q[1] AND q[-1] AS DOUBLE) END",
    "quantile": " + ".join(
        f"greatest({quantile} * (y - q[{place}]), {quantile - 1} * (y - q[{place}]))"
        for place, quantile in enumerate(JUDGED[1:-1], start=2)
    ),
}


def _judged(_: Asked) -> Judged:
    # A sum is unknown if it is unknown of one row.
    sums = {
        name: f"CASE WHEN bool_and({sql} IS NOT NULL) FILTER (ok) THEN sum(w * ({sql})) FILTER (ok) END"
        for name, sql in _SQL.items()
    }
    row = {"y": TARGET, "p": "prediction", "q": "quantiles", "a": "scale", "b": "scale_square"}
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
            lambda sums: mean_of("quantile", "size")(sums) * (2 / len(JUDGED[1:-1])),
            f"{2 / len(JUDGED[1:-1])} * quantile / nullif(size, 0)",
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
    fallback="mae",
)
