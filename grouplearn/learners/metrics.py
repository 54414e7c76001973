"""Metrics of classification and regression: weighted, for all configs at once, from mergeable sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data import spilled
from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Task, Tensors

_CLASSIFICATION = frozenset({Task.BINARY, Task.MULTICLASS})
_REGRESSION = frozenset({Task.REGRESSION})
#: Probabilities are clipped to [eps, 1 − eps] before their logarithm, as scikit-learn does for float64.
#: From so many rows on an area is computed a piece at a time.
_LONG = 1 << 21
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, the tasks it applies to, its direction, and what must be kept to merge it over rows."""

    name: str
    tasks: frozenset[Task]
    greater_is_better: bool
    mergeable: str


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("log_loss", _CLASSIFICATION, False, "sum of weighted losses"),
            Metric(
                "auc", _CLASSIFICATION, True, "exact: the scores, labels and weights of all rows; one vs rest, mean"
            ),
            Metric("accuracy", _CLASSIFICATION, True, "sum of weights of rows predicted right"),
            Metric("f1", _CLASSIFICATION, True, "sums of weights per true and predicted class; several classes: mean"),
            Metric("rmse", _REGRESSION, False, "sum of weighted squared errors"),
            Metric("mae", _REGRESSION, False, "sum of weighted absolute errors"),
            Metric("r2", _REGRESSION, True, "sum of weighted squared errors; mean and squared deviations of the label"),
        )
    }
)


def metrics_for(task: Task, arrays: bool = False) -> tuple[str, ...]:
    """Return the names of the metrics of ``task``; for labels that are ``arrays`` without auc, which keeps every value."""
    return tuple(name for name, metric in METRICS.items() if task in metric.tasks and not (arrays and name == "auc"))


def default_metric(task: Task) -> str:
    """Return what is optimised unless the user says so: rmse, or log_loss for classes."""
    return "rmse" if task is Task.REGRESSION else "log_loss"


@dataclass(frozen=True, slots=True)
class MetricSums:
    """Sums over rows from which ``finish`` computes every metric of a task; arrays only, per config where they differ.

    Regression: ``rows``, ``weight``, ``label_mean``, ``label_square`` (scalars), ``absolute``, ``square`` (c,).
    Classification: ``weight`` (scalar), ``loss``, ``correct`` (c,), ``actual`` (K,), ``predicted``, ``hit`` (c, K), and
    for the exact AUC ``scores`` (n, c, k), ``labels``, ``weights`` (n,).
    """

    tensors: Tensors


def measure(task: Task, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    """Return the sums of some rows: ``scores`` (n, c, k) as a learner gives them, ``y`` and ``weight`` (n,).

    Where labels are arrays, ``y`` (n, L) and ``scores`` (n, c, k·L), every value of a label is measured as a row is.
    """
    if y.ndim == 2:
        return _measure_arrays(task, n_classes, scores, y, weight)
    if task is Task.REGRESSION:
        return _measure_values(scores[:, :, 0], y, weight)
    return _measure_classes(n_classes, scores, y, weight)


def _measure_arrays(task: Task, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    rows, length = y.shape
    split = scores.reshape(rows, scores.shape[1], -1, length).transpose(0, 3, 1, 2)
    by_value = split.reshape(rows * length, scores.shape[1], -1)
    sums = measure(task, n_classes, by_value, y.reshape(-1), np.repeat(weight, length))
    kept = {
        name: value[:0] if name in ("scores", "labels", "weights") else value for name, value in sums.tensors.items()
    }
    return MetricSums(kept)


def merge(a: MetricSums, b: MetricSums) -> MetricSums:
    """Return the sums of the rows of both, those of ``a`` first."""
    left, right = a.tensors, b.tensors
    if "labels" in left:
        by_row = {"scores", "labels", "weights"}
        return MetricSums(
            {
                name: spilled.joined(value, right[name]) if name in by_row else value + right[name]
                for name, value in left.items()
            }
        )
    merged = {name: value + right[name] for name, value in left.items()}
    total = merged["weight"]
    share = np.divide(right["weight"], total, out=np.zeros(()), where=total > 0)
    shift = right["label_mean"] - left["label_mean"]
    # Chan, Golub & LeVeque (1983).
    merged["label_mean"] = left["label_mean"] + share * shift
    merged["label_square"] = left["label_square"] + right["label_square"] + left["weight"] * share * shift**2
    return MetricSums(merged)


def finish(sums: MetricSums, only: str | None = None) -> dict[str, FloatArray]:
    """Return every metric of the task, each (c,); NaN where it is not defined (no rows, or one class for auc).

    ``only`` names the one metric that is wanted, for use after every epoch: auc alone needs a sort.
    """
    finished = _finish_classes(sums.tensors) if "labels" in sums.tensors else _finish_values(sums.tensors)
    return {name: compute() for name, compute in finished.items() if only in (None, name)}


def _over_rows(weight: FloatArray, values: npt.NDArray[Any]) -> FloatArray:
    """Return Σᵢ wᵢ·values[i, :]; each column's sum has the same bits whatever other columns stand beside it."""
    total: FloatArray = (np.ascontiguousarray(values.T) * weight).sum(axis=1)
    return total


def _measure_values(predictions: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    error = predictions - y[:, None]
    total = weight.sum()
    mean = (weight @ y) / total if total > 0 else 0.0
    return MetricSums(
        {
            "rows": np.array(float(len(y))),
            "weight": np.array(total),
            "label_mean": np.array(mean),
            "label_square": np.array(weight @ (y - mean) ** 2),
            "absolute": _over_rows(weight, np.abs(error)),
            "square": _over_rows(weight, error**2),
        }
    )


def _finish_values(tensors: Tensors) -> dict[str, Callable[[], FloatArray]]:
    return {
        "rmse": lambda: np.sqrt(_ratio(tensors["square"], tensors["weight"])),
        "mae": lambda: _ratio(tensors["absolute"], tensors["weight"]),
        "r2": lambda: _r2(tensors),
    }


def _r2(tensors: Tensors) -> FloatArray:
    """Return 1 - Σw(y-ŷ)²/Σw(y-ȳ)²; of a constant label 1 if predicted exactly and 0 otherwise."""
    square, spread = tensors["square"], tensors["label_square"]
    if tensors["rows"] < 2:
        return np.full(square.shape, np.nan)
    r2: FloatArray = 1.0 - square / spread if spread > 0 else np.where(square == 0, 1.0, 0.0)
    return r2


def _measure_classes(n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    label = y.astype(np.intp)
    binary = scores.shape[2] == 1
    predicted = (scores[:, :, 0] > 0.5).astype(np.intp) if binary else scores.argmax(axis=2)
    own = _probability_of_label(scores, label)
    correct = predicted == label[:, None]
    loss = -np.log(np.clip(own, _EPSILON, 1.0 - _EPSILON))
    classes = np.arange(n_classes)
    actual = label[:, None] == classes
    return MetricSums(
        {
            "weight": np.array(weight.sum()),
            "loss": _over_rows(weight, loss),
            "correct": _over_rows(weight, correct),
            "actual": weight @ actual,
            "predicted": np.stack([_over_rows(weight, predicted == each) for each in classes], axis=1),
            "hit": np.stack([_over_rows(weight * actual[:, each], predicted == each) for each in classes], axis=1),
            "scores": scores,
            "labels": y,
            "weights": weight,
        }
    )


def _probability_of_label(scores: FloatArray, label: npt.NDArray[np.intp]) -> FloatArray:
    if scores.shape[2] == 1:
        return np.where(label[:, None] == 1, scores[:, :, 0], 1.0 - scores[:, :, 0])
    own: FloatArray = np.take_along_axis(scores, label[:, None, None], axis=2)[:, :, 0]
    return own


def _finish_classes(tensors: Tensors) -> dict[str, Callable[[], FloatArray]]:
    weight = tensors["weight"]
    return {
        "log_loss": lambda: _ratio(tensors["loss"], weight),
        "auc": lambda: _auc(tensors["scores"], tensors["labels"], tensors["weights"]),
        "accuracy": lambda: _ratio(tensors["correct"], weight),
        "f1": lambda: _f1(tensors) if weight > 0 else np.full(tensors["loss"].shape, np.nan),
    }


def _f1(tensors: Tensors) -> FloatArray:
    """Return 2·hit/(actual + predicted) of class 1, or its mean over the classes that occur in label or prediction."""
    either = tensors["actual"] + tensors["predicted"]
    per_class = np.divide(2.0 * tensors["hit"], either, out=np.zeros_like(either), where=either > 0)
    if tensors["scores"].shape[2] == 1:
        positive: FloatArray = per_class[:, 1]
        return positive
    occurs = (either > 0).sum(axis=1)
    mean: FloatArray = per_class.sum(axis=1) / occurs
    return mean


def _auc(scores: FloatArray, labels: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the area under the ROC curve, of several classes the mean of one against the rest.

    The mean is over the classes that have rows in and out; it is NaN when there are none.
    """
    if scores.shape[2] == 1:
        return _binary_auc(scores[:, :, 0], _equal(labels, 1), weights)
    classes = range(scores.shape[2])
    areas = np.stack([_binary_auc(scores[:, :, each], _equal(labels, each), weights) for each in classes])
    defined = ~np.isnan(areas[:, 0]) if areas.size else np.zeros(len(areas), dtype=bool)
    if not defined.any():
        return np.full(scores.shape[1], np.nan)
    mean: FloatArray = areas[defined].mean(axis=0)
    return mean


def _binary_auc(scores: FloatArray, positive: npt.NDArray[np.bool_], weights: FloatArray) -> FloatArray:
    """Return Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) per column of ``scores`` (n, c)."""
    if len(weights) >= _LONG and _equal(weights, weights[0]).all():
        return np.array([_long_auc(column, positive) for column in scores.T])
    above, below = weights * positive, weights * ~positive
    pairs = above.sum() * below.sum()
    if not pairs > 0:
        return np.full(scores.shape[1], np.nan)
    columns = np.ascontiguousarray(scores.T)
    if (weights == weights[0]).all():
        return equal_weight_auc(columns, positive)
    return np.array([_area(column, above, below) / pairs for column in columns])


def _equal(values: FloatArray, value: float) -> npt.NDArray[np.bool_]:
    """Return ``values == value``, whose pages are given back if it is in a file."""
    return np.concatenate([np.empty(0, dtype=np.bool_), *(values[rows] == value for rows in spilled.runs(values))])


def _long_auc(scores: FloatArray, positive: npt.NDArray[np.bool_]) -> float:
    """Return the one area of ``equal_weight_auc``, the same to the last bit, with little more in memory than the keys.

    Ranks are whole numbers, so that their sums are exact in any order.
    """
    keys, undefined = np.empty(len(scores), dtype=np.int64), False
    for rows in spilled.runs(scores):
        part = np.ascontiguousarray(scores[rows])
        undefined |= bool(np.isnan(part).any())
        keys[rows] = (part.view(np.int64) & ~1) | positive[rows]
    count, size = float(positive.sum()), len(scores)
    if undefined or not 0 < count < size:
        return np.nan
    keys.sort()
    ranks, mixed = 0.0, []
    for start in range(0, size, _LONG):
        part_keys = keys[start : start + _LONG + 1]
        mixed.append(part_keys[:-1][part_keys[1:] - part_keys[:-1] == 1])
        label = part_keys[:_LONG] & 1
        ranks += float(label @ np.arange(float(start), float(start + label.size)))
    won = ranks - count * (count - 1) / 2 + _of_mixed(scores, positive, np.concatenate(mixed))
    return float(won / (count * (size - count)))


def _of_mixed(scores: FloatArray, positive: npt.NDArray[np.bool_], keys: npt.NDArray[np.int64]) -> float:
    """Return what ranks by ``keys``, at which there are positives and negatives, count too much, with a minus.

    The rows at these keys are looked at again: pairs of rows at different ones count the same both ways.
    """
    if not keys.size:
        return 0.0
    parts = []
    for rows in spilled.runs(scores):
        part = np.ascontiguousarray(scores[rows])
        chosen = np.isin(part.view(np.int64) & ~1, keys)
        parts.append((part[chosen], positive[rows][chosen]))
    found, above = (np.concatenate(each) for each in zip(*parts, strict=True))
    label = np.sort((found.view(np.int64) & ~1) | above) & 1
    count = float(above.sum())
    ranked = float(label @ np.arange(float(label.size))) - count * (count - 1) / 2
    return _area(found, above.astype(np.float64), (~above).astype(np.float64)) - ranked


def equal_weight_auc(scores: FloatArray, positive: npt.NDArray[np.bool_], size: Any = None) -> FloatArray:
    """Return the AUC of every row of ``scores`` (..., n), by the ranks of the positives (Mann & Whitney 1947).

    ``size`` is how many of the n are there; the others are padding: not positive, and with scores above 1.

    Probabilities are not negative, so their bits order them as numbers; the label takes the place of the last bit, and one
    sort of integers, faster than an argsort, brings scores and labels in order. Where that leaves positives and negatives
    at one score, they are counted by ``_area``. NaN where a score is NaN; ``positive`` broadcasts against ``scores``.
    """
    ordered = np.sort((scores.view(np.int64) & ~1) | positive, axis=-1)
    label = (ordered & 1).astype(np.float64)
    count = np.asarray(positive.sum(axis=-1), dtype=np.float64)
    size = scores.shape[-1] if size is None else size
    ranks = label @ np.arange(scores.shape[-1], dtype=np.float64)
    auc = np.asarray((ranks - count * (count - 1) / 2) / (count * (size - count)))
    # A negative is ordered before a positive of the same score: the next number is then greater by exactly one.
    mixed = (ordered[..., 1:] - ordered[..., :-1] == 1).any(axis=-1)
    for place in map(tuple, np.argwhere(mixed).tolist()):
        above = np.broadcast_to(positive, scores.shape)[place].astype(np.float64)
        below = (scores[place] <= 1.0) - above
        auc[place] = _area(scores[place], above, below) / (above.sum() * below.sum())
    auc[np.isnan(scores).any(axis=-1)] = np.nan
    return auc


def _area(scores: FloatArray, above: FloatArray, below: FloatArray) -> float:
    """Return Σᵢ w⁺ᵢ·(negative weight below sᵢ + half of that at sᵢ), for one config; NaN if a score is."""
    order = np.argsort(scores)
    ranked = scores[order]
    if np.isnan(ranked[-1]):  # NaN sorts last
        return np.nan
    # Runs of equal scores: half of the negatives in a run count for each of its positives.
    start = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    positives, negatives = np.add.reduceat(above[order], start), np.add.reduceat(below[order], start)
    return float(positives @ (np.cumsum(negatives) - 0.5 * negatives))


def _ratio(numerator: FloatArray, weight: FloatArray) -> FloatArray:
    return numerator / weight if weight > 0 else np.full(numerator.shape, np.nan)
