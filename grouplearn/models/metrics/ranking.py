"""How well scores rank a class's rows before all others: areas under curves, exact, with weights and ties."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.metrics import areas
from grouplearn.layout.pages import forget_pages, mapped_file
from grouplearn.layout.spilled import ByRow


def area_under_curve(scores: ByRow, labels: ByRow, weights: ByRow, n_unseen: int) -> FloatArray:
    """Return the area under the ROC curve; for several classes the mean of one against the rest.

    The mean is over the classes that have rows in and out, NaN if there are none. The ``n_unseen`` classes after those with
    scores have score 0 in every row, so an area of a half.
    """
    configs, classes, _ = scores.shape
    if classes == 1:
        return _binary_auc(scores, 0, _equal(labels, 1), weights)
    areas = [_binary_auc(scores, each, _equal(labels, each), weights) for each in range(classes)]
    for each in range(classes, classes + n_unseen):
        weight = _weight_of(labels, weights, each)
        areas.append(np.full(configs, 0.5 if 0 < weight < weights.whole().sum() else np.nan))
    return _mean_over_classes(np.stack(areas))


def average_precision(scores: ByRow, labels: ByRow, weights: ByRow, n_unseen: int) -> FloatArray:
    """Return Σₙ (Rₙ - Rₙ₋₁)·Pₙ over the scores as thresholds, highest first, for recall R and precision P; for several
    classes the mean of one against the rest, over the classes that have rows.

    As scikit-learn's ``average_precision_score``; NaN without a row of the class. A class without scores has the share of
    its rows.
    """
    configs, classes, _ = scores.shape
    weight = None if _alike(weights) else weights.whole()
    if classes == 1:
        return _precisions(scores, 0, _equal(labels, 1), weight)
    found = [_precisions(scores, each, _equal(labels, each), weight) for each in range(classes)]
    for each in range(classes, classes + n_unseen):
        whole = weights.whole()
        share = _weight_of(labels, weights, each) / float(in_order(whole)) if whole.size else np.nan
        found.append(np.full(configs, share if share > 0 else np.nan))
    return _mean_over_classes(np.stack(found))


def _mean_over_classes(values: FloatArray) -> FloatArray:
    """Return the means of (classes, configs) over the classes that have a value in any config.

    A diverged config has none and does not affect the others.
    """
    defined = ~np.isnan(values).all(axis=1)
    if not defined.any():
        return np.full(values.shape[1], np.nan)
    mean: FloatArray = in_order(values[defined]) / defined.sum()
    return mean


def in_order(values: FloatArray) -> FloatArray:
    """Return the sum over the first axis in order, as kernels add: NumPy's order depends on the other axes."""
    return np.add.accumulate(values)[-1] if len(values) else np.zeros(values.shape[1:])


def _weight_of(labels: ByRow, weights: ByRow, number: int) -> float:
    return float(in_order(weights.whole()[_equal(labels, number)]))


def _alike(weights: ByRow) -> bool:
    """Whether all rows, at least one, have the same weight, which then does not matter."""
    return bool(weights.shape[0] and weights.parts[0][0] > 0 and _equal(weights, weights.parts[0][0]).all())


def _precisions(scores: ByRow, number: int, positive: npt.NDArray[np.bool_], weight: FloatArray | None) -> FloatArray:
    """Return the average precision of score ``number`` of every config."""
    return _areas(scores, number, lambda runs: areas(runs, positive, weight, precision=True))


def _binary_auc(scores: ByRow, number: int, positive: npt.NDArray[np.bool_], weights: ByRow) -> FloatArray:
    """Return Σ over pairs w⁺w⁻·([s⁺ > s⁻] + ½[s⁺ = s⁻]) / (Σw⁺·Σw⁻) of score ``number`` of every config."""
    weight = None if _alike(weights) else weights.whole()
    return _areas(scores, number, lambda runs: areas(runs, positive, weight))


def _areas(scores: ByRow, number: int, area: Callable[[Sequence[FloatArray]], FloatArray]) -> FloatArray:
    """Return ``area`` of score ``number`` for every config, one by one for scores in a file, whose pages are freed."""
    if all(mapped_file(part) is None for part in scores.parts):
        return area([part[:, number] for part in scores.parts])
    found = np.empty(scores.shape[0])
    for config in range(len(found)):
        runs = [part[config : config + 1, number] for part in scores.parts]
        found[config] = area(runs)[0]
        for run in runs:
            forget_pages(run[0])
    return found


def _equal(values: ByRow, value: float) -> npt.NDArray[np.bool_]:
    """Return ``values == value``."""
    return np.concatenate([run == value for _, run in values.runs()])
