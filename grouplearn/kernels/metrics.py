"""All metrics of all configs of groups of rows, from their models or from scores (``source/metrics/metrics.cpp``)."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double

FloatArray: TypeAlias = npt.NDArray[np.float64]

#: In the kernel's order.
NAMES = (
    *("rmse", "mae", "r2", "mape", "log_loss", "auc", "accuracy", "f1", "precision", "recall"),
    *("balanced_accuracy", "pr_auc", "brier"),
)
#: The kernel's numbers for what a linear score means: itself, exp(score), the logit of the positive class, or one of the
#: scores whose softmax are the class probabilities.
VALUES, LOG_VALUES, BINARY, CLASSES = range(4)
_POINTER = ctypes.c_void_p


class LabelledRows(NamedTuple):
    """Rows of groups, concatenated: ``y`` and ``weight`` (n,), ``start`` (G + 1,); ``part``: the number of parts, and each
    row's part (n,)."""

    y: FloatArray
    weight: FloatArray
    start: npt.NDArray[np.int64]
    part: tuple[npt.NDArray[np.int16], int] | None = None


class ClassCount(NamedTuple):
    """How many classes have scores, and how many further labels there are."""

    known: int = 0
    unseen: int = 0


def of_models(
    rows: LabelledRows,
    x: npt.NDArray[Any],
    models: tuple[FloatArray, FloatArray],
    task: int,
    classes: ClassCount,
    wanted: Collection[str],
) -> dict[str, FloatArray]:
    """Return the ``wanted`` metrics of linear models for rows x (n, d), float32 or float64: (G, C), or (G, parts, C).

    ``models`` are weights (G, C, k, d) and intercepts (G, C, k); with parts (G, m, C, k, d) and (G, m, C, k), part p's at
    place p. Metrics are NaN where undefined, as in ``models.metrics.finish``.
    """
    weights, intercept = (np.ascontiguousarray(each, np.float64) for each in models)
    configs, outputs, d = weights.shape[-3:]
    sets = 1 if rows.part is None else weights.shape[1]
    shape = (task, configs, outputs, *classes)
    x = features(x)
    pointers = (*single_or_double(x), None, address(weights), address(intercept))
    return _metrics(rows, (d, sets), shape, wanted, pointers)


def of_scores(
    rows: LabelledRows, scores: FloatArray, task: int, classes: ClassCount, wanted: Collection[str]
) -> dict[str, FloatArray]:
    """Return the ``wanted`` metrics for values or probabilities (n, C, k), as ``of_models`` does."""
    scores = np.ascontiguousarray(scores, np.float64)
    shape = (task, *scores.shape[1:], *classes)
    return _metrics(rows, (0, 1), shape, wanted, (None, None, address(scores), None, None))


class LabelSums(NamedTuple):
    """Sums of labels: Σw, their weighted mean, Σw(y - mean)², and the least and greatest of positive weight."""

    total: float
    mean: float
    spread: float
    low: float
    high: float


def label_sums(y: FloatArray, weight: FloatArray) -> LabelSums:
    """Return the sums of labels y (n,), added in the order of ``of_scores``."""
    given, found = [np.ascontiguousarray(each, np.float64) for each in (y, weight)], np.empty(5)
    function("label_sums", _POINTER, _POINTER, ctypes.c_int64, _POINTER)(*map(address, given), y.size, address(found))
    return LabelSums(*found.tolist())


def error_sums(predicted: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σwe², Σw|e| and Σw|e|/|y|, (C,) each, of the errors e of predictions (n, C) of labels y (n,); |y| is at least ε."""
    given = [np.ascontiguousarray(each, np.float64) for each in (predicted, y, weight)]
    found = np.empty((3, predicted.shape[1]))
    function("error_sums", *[_POINTER] * 3, ctypes.c_int64, ctypes.c_int64, _POINTER)(
        *(*map(address, given), *predicted.shape, address(found))
    )
    return found[0], found[1], found[2]


def class_sums(scores: FloatArray, y: FloatArray, weight: FloatArray, classes: ClassCount) -> FloatArray:
    """Return the sums for class metrics over rows with probabilities (n, C, k), labels y (n,) and weights (n,).

    (2 + 3K, C): Σw·log loss, Σw·squared error, and for each of the K classes, known and unseen, the weight of its rows, of
    rows predicted to be in it, and of those that are both. The loss is NaN if a probability is.
    """
    given = [np.ascontiguousarray(each, np.float64) for each in (scores, y, weight)]
    n, configs, outputs = scores.shape
    sizes = np.array([n, BINARY if outputs == 1 else CLASSES, configs, outputs, *classes], np.int64)
    found = np.empty((2 + 3 * sum(classes), configs))
    function("class_sums", *[_POINTER] * 5)(address(sizes), *map(address, given), address(found))
    return found


def areas(
    runs: Sequence[FloatArray], positive: npt.NDArray[np.bool_], weight: FloatArray | None, *, precision: bool = False
) -> FloatArray:
    """Return the areas (C,) under the ROC curves of nonnegative scores in ``runs`` (C, n together), or average precisions.

    Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻), or Σₙ (Rₙ - Rₙ₋₁)·Pₙ, highest first
    (``source/metrics/ranking.hpp``). ``positive`` and ``weight`` are (n,) over all runs, None for equal weights. NaN if a
    score is NaN, or there is no such pair.
    """
    rows = [each if each.strides[-1] == each.itemsize else np.ascontiguousarray(each) for each in runs]
    given = np.ascontiguousarray(positive, np.bool_)
    weights = None if weight is None else np.ascontiguousarray(weight, np.float64)
    lengths = np.array(
        [[each.shape[1] for each in rows], [each.strides[0] // each.itemsize for each in rows]], np.int64
    )
    found, number = np.empty(rows[0].shape[0]), ctypes.c_int64
    kinds = (number, *[_POINTER] * 3, number, number, _POINTER, _POINTER, number, _POINTER)
    outcome = function("areas", *kinds, returns=ctypes.c_int)(
        *(len(rows), (_POINTER * len(rows))(*(each.ctypes.data for each in rows)), *map(address, lengths), len(found)),
        *(given.size, address(given), None if weights is None else address(weights), int(precision), address(found)),
    )
    if outcome:
        raise MemoryError
    return found


def _metrics(
    rows: LabelledRows,
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    wanted: Collection[str],
    pointers: tuple[int | None, ...],
) -> dict[str, FloatArray]:
    groups, (d, sets) = rows.start.size - 1, sizes
    part, parts = (None, 1) if rows.part is None else (np.ascontiguousarray(rows.part[0], np.int16), rows.part[1])
    numbers = np.array([d, groups, parts, sets, *shape], np.int64)
    chosen = np.array([name in wanted for name in NAMES], np.uint8)
    out = np.empty((len(NAMES), groups, parts, shape[1]))
    y, weight = (np.ascontiguousarray(each, np.float64) for each in (rows.y, rows.weight))
    start = np.ascontiguousarray(rows.start, np.int64)
    single, double, scores, weights, intercept = pointers
    function("row_metrics", *[_POINTER] * 12)(
        *(address(numbers), single, double, address(y), address(weight), scores, address(start)),
        *(None if part is None else address(part), weights, intercept, address(chosen), address(out)),
    )
    found = out[:, :, 0] if rows.part is None else out
    return {name: found[number] for number, name in enumerate(NAMES) if name in wanted}
