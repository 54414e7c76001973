"""Metrics of classification and regression: weighted, for all configs at once, from mergeable sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.data.spilled import ByRow
from grouplearn.learners.base import Task, Tensors

_CLASSIFICATION = frozenset({Task.BINARY, Task.MULTICLASS})
_REGRESSION = frozenset({Task.REGRESSION})
#: Probabilities are clipped to [eps, 1 − eps] before their logarithm, as scikit-learn does for float64.
_EPSILON = float(np.finfo(np.float64).eps)
#: From so many rows on an area is computed part by part, of so many rows.
_PART = 1 << 15


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
    ``by_row`` for the exact AUC ``scores`` (c, k, n), ``labels``, ``weights`` (n,). ``binary``: a score is one number.
    """

    tensors: Tensors
    by_row: Mapping[str, ByRow] = field(default_factory=dict)
    binary: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of all sums."""
        sums = sum(int(each.nbytes) for each in self.tensors.values())
        return sums + sum(each.nbytes for each in self.by_row.values())

    def without_rows(self) -> MetricSums:
        """Return the sums without what is kept of each row: AUC is then not defined."""
        return MetricSums(self.tensors, binary=self.binary)


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
    return measure(task, n_classes, by_value, y.reshape(-1), np.repeat(weight, length)).without_rows()


def merge(a: MetricSums, b: MetricSums) -> MetricSums:
    """Return the sums of the rows of both, those of ``a`` first."""
    left, right = a.tensors, b.tensors
    merged = {name: value + right[name] for name, value in left.items()}
    if "loss" in left:
        by_row = {name: values.followed_by(b.by_row[name]) for name, values in a.by_row.items()}
        return MetricSums(merged, by_row, a.binary)
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
    finished = _finish_classes(sums) if "loss" in sums.tensors else _finish_values(sums.tensors)
    return {name: compute() for name, compute in finished.items() if only in (None, name)}


def _over_rows(weight: FloatArray, values: npt.NDArray[Any]) -> FloatArray:
    """Return Σᵢ wᵢ·values[:, i]; the sum of each (of c) has the same bits whatever others stand beside it."""
    if (weight == 1.0).all():
        counted = np.count_nonzero(values, axis=1) if values.dtype == np.bool_ else values.sum(axis=1)
        return np.asarray(counted, dtype=np.float64)
    total: FloatArray = (values * weight).sum(axis=1)
    return total


def _measure_values(predictions: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    error = np.ascontiguousarray(predictions.T) - y
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
    columns = np.ascontiguousarray(scores.transpose(1, 2, 0))
    predicted = columns[:, 0] > 0.5 if binary else columns.argmax(axis=1)
    said = [predicted == each for each in range(n_classes)]
    actual = [label == each for each in range(n_classes)]
    hit = np.stack([_over_rows(weight, each & is_it) for each, is_it in zip(said, actual, strict=True)], axis=1)
    return MetricSums(
        {
            "weight": np.array(weight.sum()),
            "loss": _over_rows(weight, _log_loss(columns, label)),
            "correct": _over_rows(weight, predicted == label),
            "actual": _over_rows(weight, np.stack(actual)),
            "predicted": np.stack([_over_rows(weight, each) for each in said], axis=1),
            "hit": hit,
        },
        {"scores": ByRow((columns,)), "labels": ByRow((y,)), "weights": ByRow((weight,))},
        binary,
    )


def _log_loss(columns: FloatArray, label: npt.NDArray[np.intp]) -> FloatArray:
    """Return -log p of the label per config and row (c, n), for scores (c, k, n)."""
    if columns.shape[1] == 1:
        own = np.where(label == 1, columns[:, 0], 1.0 - columns[:, 0])
    else:
        own = np.take_along_axis(columns, label[None, None, :], axis=1)[:, 0]
    np.clip(own, _EPSILON, 1.0 - _EPSILON, out=own)
    np.log(own, out=own)
    loss: FloatArray = np.negative(own, out=own)
    return loss


def _finish_classes(sums: MetricSums) -> dict[str, Callable[[], FloatArray]]:
    tensors, weight = sums.tensors, sums.tensors["weight"]
    nowhere = np.full(tensors["loss"].shape, np.nan)
    return {
        "log_loss": lambda: _ratio(tensors["loss"], weight),
        "auc": lambda: _auc(**sums.by_row) if sums.by_row else nowhere,
        "accuracy": lambda: _ratio(tensors["correct"], weight),
        "f1": lambda: _f1(tensors, sums.binary) if weight > 0 else nowhere,
    }


def _f1(tensors: Tensors, binary: bool) -> FloatArray:
    """Return 2·hit/(actual + predicted) of class 1, or its mean over the classes that occur in label or prediction."""
    either = tensors["actual"] + tensors["predicted"]
    per_class = np.divide(2.0 * tensors["hit"], either, out=np.zeros_like(either), where=either > 0)
    if binary:
        positive: FloatArray = per_class[:, 1]
        return positive
    occurs = (either > 0).sum(axis=1)
    mean: FloatArray = per_class.sum(axis=1) / occurs
    return mean


def _auc(scores: ByRow, labels: ByRow, weights: ByRow) -> FloatArray:
    """Return the area under the ROC curve, of several classes the mean of one against the rest.

    The mean is over the classes that have rows in and out; it is NaN when there are none.
    """
    configs, classes, _ = scores.shape
    if classes == 1:
        return _binary_auc(scores, 0, _equal(labels, 1), weights)
    areas = np.stack([_binary_auc(scores, each, _equal(labels, each), weights) for each in range(classes)])
    defined = ~np.isnan(areas[:, 0]) if areas.size else np.zeros(len(areas), dtype=bool)
    if not defined.any():
        return np.full(configs, np.nan)
    mean: FloatArray = areas[defined].mean(axis=0)
    return mean


def _binary_auc(scores: ByRow, number: int, positive: npt.NDArray[np.bool_], weights: ByRow) -> FloatArray:
    """Return Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) of score ``number`` of every config."""
    configs = range(scores.shape[0])
    equal = positive.size > 0 and bool(_equal(weights, weights.parts[0][0]).all())
    if equal and positive.size >= _PART:
        keys = np.empty(positive.size, dtype=np.uint64)
        return np.array([_long_auc(scores, (config, number), positive, keys) for config in configs])
    weight = weights.whole()
    above, below = weight * positive, weight * ~positive
    pairs = above.sum() * below.sum()
    if not pairs > 0:
        return np.full(scores.shape[0], np.nan)
    columns = np.concatenate([part[:, number] for part in scores.parts], axis=1)
    if equal:
        return equal_weight_auc(columns, positive)
    return np.array([_area(column, above, below) / pairs for column in columns])


def _equal(values: ByRow, value: float) -> npt.NDArray[np.bool_]:
    """Return ``values == value``."""
    return np.concatenate([run == value for _, run in values.runs()])


def _keys(scores: FloatArray, positive: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Return whole numbers in the order of scores, which are not negative: their bits, and the label as the last one."""
    keys: npt.NDArray[np.uint64] = (scores.view(np.uint64) << np.uint64(1)) | positive
    return keys


def _long_auc(
    scores: ByRow, place: tuple[int, int], positive: npt.NDArray[np.bool_], keys: npt.NDArray[np.uint64]
) -> float:
    """Return one area of ``equal_weight_auc``, the same to the last bit, with little more in memory than ``keys`` (n,).

    Part by part, so that what is at hand stays in the processor's cache. Ranks are whole numbers: their sums are exact in
    any order. ``keys`` is overwritten.
    """
    size, undefined = positive.size, False
    for rows, run in scores.runs(*place):
        for start in range(0, run.size, _PART):
            part = run[start : start + _PART]
            at = slice(rows.start + start, rows.start + start + part.size)
            undefined |= bool(np.isnan(part).any())
            keys[at] = _keys(part, positive[at])
    count = int(np.count_nonzero(positive))
    if undefined or not 0 < count < size:
        return np.nan
    keys.sort()
    ranks, last = 0, []
    for start in range(0, size, _PART):
        part_keys = keys[start : start + _PART + 1]
        last.append(start + _last_negatives(part_keys))
        places = np.flatnonzero(part_keys[:_PART] & np.uint64(1))
        ranks += start * places.size + int(places.sum())
    won = ranks - count * (count - 1) / 2 - _tied(keys, np.concatenate(last)) / 2
    return float(won / (count * (size - count)))


def _last_negatives(ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Return where the negatives end in each run of equal scores that goes on with positives."""
    return np.flatnonzero(ordered[1:] ^ ordered[:-1] == 1)


def _tied(ordered: npt.NDArray[np.uint64], last: npt.NDArray[np.intp]) -> int:
    """Return the number of pairs of a positive and a negative at one score, from sorted keys (n,)."""
    keys = ordered[last]
    negatives = last + 1 - np.searchsorted(ordered, keys)
    positives = np.searchsorted(ordered, keys | np.uint64(1), side="right") - 1 - last
    return int(negatives @ positives)


def equal_weight_auc(scores: FloatArray, positive: npt.NDArray[np.bool_], size: Any = None) -> FloatArray:
    """Return the AUC of every row of ``scores`` (..., n), by the ranks of the positives (Mann & Whitney 1947).

    ``size`` is how many of the n are there; the others are padding: not positive, and with scores above 1.

    Probabilities are not negative, so their bits order them as numbers; with the label below them, one sort of integers,
    faster than an argsort, brings scores and labels in order, negatives before positives of the same score. Of such pairs
    half a point is taken back. NaN where a score is NaN; ``positive`` broadcasts against ``scores``.
    """
    ordered = _keys(scores, positive)
    ordered.sort(axis=-1)
    label = (ordered & np.uint64(1)).astype(np.float64)
    count = np.asarray(positive.sum(axis=-1), dtype=np.float64)
    size = scores.shape[-1] if size is None else size
    won = np.asarray(label @ np.arange(scores.shape[-1], dtype=np.float64) - count * (count - 1) / 2)
    mixed = (ordered[..., 1:] ^ ordered[..., :-1] == 1).any(axis=-1)
    for place in map(tuple, np.argwhere(mixed).tolist()):
        won[place] -= _tied(ordered[place], _last_negatives(ordered[place])) / 2
    auc: FloatArray = np.asarray(won / (count * (size - count)))
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
