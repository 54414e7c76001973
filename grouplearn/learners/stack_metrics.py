"""The metrics of ``metrics`` for many small groups at once: padded rows, one number per group and config."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Task
from grouplearn.learners.metrics import equal_weight_auc

_EPSILON = float(np.finfo(np.float64).eps)


def measure_stack(
    task: Task, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray
) -> dict[str, FloatArray]:
    """Return every metric of the task, each (G, C), for ``scores`` (G, n, C, k), ``y`` and ``weight`` (G, n).

    Rows of weight 0 are padding. A metric is NaN where it is not defined, as in ``metrics.finish``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        if task is Task.REGRESSION:
            return _values(scores[..., 0], y, weight)
        return _binary(scores[..., 0], y, weight) if scores.shape[3] == 1 else _classes(n_classes, scores, y, weight)


def _over_rows(weight: FloatArray, values: npt.NDArray[np.float64]) -> FloatArray:
    """Return Σᵢ wᵢ·valuesᵢ per group and config, (G, C), for values (G, n, C)."""
    total: FloatArray = (weight[:, None, :] @ values)[:, 0, :]
    return total


def _values(predictions: FloatArray, y: FloatArray, weight: FloatArray) -> dict[str, FloatArray]:
    total = weight.sum(axis=1)
    mean = (weight * y).sum(axis=1) / total
    spread = (weight * (y - mean[:, None]) ** 2).sum(axis=1)[:, None]
    error = predictions - y[:, :, None]
    error[weight == 0] = 0.0
    square = _over_rows(weight, error * error)
    r2 = np.where(spread > 0, 1.0 - square / spread, np.where(square == 0, 1.0, 0.0))
    r2[(weight > 0).sum(axis=1) < 2] = np.nan
    return {
        "rmse": np.sqrt(square / total[:, None]),
        "mae": _over_rows(weight, np.abs(error)) / total[:, None],
        "r2": r2,
    }


def _binary(scores: FloatArray, y: FloatArray, weight: FloatArray) -> dict[str, FloatArray]:
    total = weight.sum(axis=1)[:, None]
    positive = (y == 1)[:, :, None]
    own = np.where(positive, scores, 1.0 - scores)
    own[weight == 0] = 0.5
    loss = -np.log(np.clip(own, _EPSILON, 1.0 - _EPSILON))
    predicted = scores > 0.5
    said = _over_rows(weight, predicted.astype(np.float64))
    hit = _over_rows(weight * (y == 1), predicted.astype(np.float64))
    actual = (weight * (y == 1)).sum(axis=1)[:, None]
    # Right are the positives that were hit, and the negatives that were not taken for positives.
    right = hit + (total - actual) - (said - hit)
    metrics = {
        "log_loss": _over_rows(weight, loss) / total,
        "auc": binary_auc(scores, y == 1, weight),
        "accuracy": right / total,
        "f1": np.where(actual + said > 0, 2.0 * hit / (actual + said), 0.0),
    }
    metrics["f1"][np.broadcast_to(total, said.shape) == 0] = np.nan
    return metrics


def binary_auc(scores: FloatArray, positive: npt.NDArray[np.bool_], weight: FloatArray) -> FloatArray:
    """Return Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) per group and config, for ``scores`` (G, n, C).

    NaN where one class has no weight or a score is NaN.
    """
    padded = weight == 0
    columns = np.ascontiguousarray(scores.transpose(0, 2, 1))
    if ((weight == weight.max(axis=1, keepdims=True)) | padded).all():
        columns[np.broadcast_to(padded[:, None, :], columns.shape)] = 2.0
        size = (~padded).sum(axis=1)[:, None]
        auc = equal_weight_auc(columns, (positive & ~padded)[:, None, :], size)
        return np.where(np.isfinite(auc), auc, np.nan)
    columns[np.broadcast_to(padded[:, None, :], columns.shape)] = np.inf  # last, and of no weight
    order = np.argsort(columns, axis=2)
    ranked = np.take_along_axis(columns, order, axis=2)
    above, below = weight * positive, weight * ~positive
    up = np.take_along_axis(np.broadcast_to(above[:, None, :], columns.shape), order, axis=2)
    down = np.take_along_axis(np.broadcast_to(below[:, None, :], columns.shape), order, axis=2)
    lower = np.cumsum(down, axis=2) - down
    area = (up * (lower + 0.5 * down)).sum(axis=2)
    tied = ((ranked[:, :, 1:] == ranked[:, :, :-1]) & (ranked[:, :, 1:] != np.inf)).any(axis=2)
    for group, config in np.argwhere(tied):
        area[group, config] = _tied_area(ranked[group, config], up[group, config], down[group, config])
    auc = area / (above.sum(axis=1) * below.sum(axis=1))[:, None]
    auc[np.isnan(ranked).any(axis=2)] = np.nan
    return np.where(np.isfinite(auc), auc, np.nan)


def _tied_area(ranked: FloatArray, up: FloatArray, down: FloatArray) -> float:
    """Runs of equal scores: half of the negatives in a run count for each of its positives."""
    start = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    positives, negatives = np.add.reduceat(up, start), np.add.reduceat(down, start)
    return float(positives @ (np.cumsum(negatives) - 0.5 * negatives))


def _classes(n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray) -> dict[str, FloatArray]:
    total = weight.sum(axis=1)[:, None]
    label = y.astype(np.intp)
    own = np.take_along_axis(scores, label[:, :, None, None], axis=3)[..., 0]
    own[weight == 0] = 0.5
    loss = -np.log(np.clip(own, _EPSILON, 1.0 - _EPSILON))
    predicted = scores.argmax(axis=3)
    f1, occurs = np.zeros(loss.shape[::2]), np.zeros(loss.shape[::2])
    areas, defined = np.zeros(loss.shape[::2]), np.zeros(loss.shape[::2])
    for each in range(n_classes):
        said = _over_rows(weight, (predicted == each).astype(np.float64))
        hit = _over_rows(weight * (label == each), (predicted == each).astype(np.float64))
        either = (weight * (label == each)).sum(axis=1)[:, None] + said
        f1 += np.where(either > 0, 2.0 * hit / either, 0.0)
        occurs += either > 0
        area = binary_auc(scores[..., each], label == each, weight)
        areas += np.nan_to_num(area)
        defined += ~np.isnan(area)
    return {
        "log_loss": _over_rows(weight, loss) / total,
        "auc": np.where(defined > 0, areas / defined, np.nan),
        "accuracy": _over_rows(weight, (predicted == label[:, :, None]).astype(np.float64)) / total,
        "f1": np.where(total > 0, f1 / occurs, np.nan),
    }
