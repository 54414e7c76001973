"""How well scores rank the rows of a class before all others: areas under curves, exact, with weights and ties."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.data.spilled import ByRow

#: From so many rows on an area is computed part by part, of so many rows.
_PART = 1 << 15


def area_under_curve(scores: ByRow, labels: ByRow, weights: ByRow, n_unseen: int) -> FloatArray:
    """Return the area under the ROC curve, of several classes the mean of one against the rest.

    The mean is over the classes that have rows in and out; it is NaN when there are none. Every row scores 0 for each of the
    ``n_unseen`` classes after those that have scores: their area is a half.
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
    """Return Σₙ (Rₙ - Rₙ₋₁)·Pₙ over the scores as thresholds, highest first, of recall R and precision P; of several classes
    the mean of one against the rest, over the classes that have rows.

    As scikit-learn's ``average_precision_score``; NaN without a row of the class. A class that nothing scores has the share of
    its rows.
    """
    configs, classes, _ = scores.shape
    weight = weights.whole()
    if classes == 1:
        return _precisions(scores, 0, weight * _equal(labels, 1), weight)
    found = [_precisions(scores, each, weight * _equal(labels, each), weight) for each in range(classes)]
    for each in range(classes, classes + n_unseen):
        share = _weight_of(labels, weights, each) / weight.sum() if weight.size else np.nan
        found.append(np.full(configs, share if share > 0 else np.nan))
    return _mean_over_classes(np.stack(found))


def _mean_over_classes(values: FloatArray) -> FloatArray:
    """Return the means of (classes, configs) over the classes that have a value in any config.

    A config that diverged has none of any class, and takes none from the others.
    """
    defined = ~np.isnan(values).all(axis=1)
    if not defined.any():
        return np.full(values.shape[1], np.nan)
    mean: FloatArray = values[defined].mean(axis=0)
    return mean


def _weight_of(labels: ByRow, weights: ByRow, number: int) -> float:
    return float(weights.whole()[_equal(labels, number)].sum())


def _precisions(scores: ByRow, number: int, positive: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the average precision of score ``number`` of every config, for weights of all rows and of the class's own."""
    if not positive.sum() > 0:
        return np.full(scores.shape[0], np.nan)
    columns = np.concatenate([part[:, number] for part in scores.parts], axis=1)
    return np.array([precision_of(column, positive, weight) for column in columns])


def precision_of(scores: FloatArray, positive: FloatArray, weight: FloatArray) -> float:
    """Return the average precision of one column of scores (n,); NaN if a score is."""
    order = np.argsort(-scores)
    ranked = scores[order]
    if np.isnan(ranked[-1]):  # NaN sorts last
        return np.nan
    start = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    hits, rows = np.add.reduceat(positive[order], start), np.add.reduceat(weight[order], start)
    found = np.cumsum(hits)
    taken = np.cumsum(rows)
    # Rows of weight 0 may come first: nothing is found among nothing.
    precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
    return float((hits * precision).sum() / found[-1])


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


def equal_weight_auc(scores: FloatArray, positive: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the AUC of every row of ``scores`` (..., n), by the ranks of the positives (Mann & Whitney 1947).

    Probabilities are not negative, so their bits order them as numbers; with the label below them, one sort of integers,
    faster than an argsort, brings scores and labels in order, negatives before positives of the same score. Of such pairs
    half a point is taken back. NaN where a score is NaN; ``positive`` broadcasts against ``scores``.
    """
    ordered = _keys(scores, positive)
    ordered.sort(axis=-1)
    label = (ordered & np.uint64(1)).astype(np.float64)
    count = np.asarray(positive.sum(axis=-1), dtype=np.float64)
    size = scores.shape[-1]
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
