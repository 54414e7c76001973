"""Which feature alone predicts the label where a model is too good: the label may be known from it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.shard import FloatArray
from grouplearn.statements.notes.best_trials import BestTrials, Part
from grouplearn.train.job import Job

#: A feature whose score is above predicts the label alone.
_ALONE = 0.999
#: Groups, rows of each (which lie in the order of a hash) and features that are looked at.
_MOST_GROUPS, _MOST_ROWS, _MOST_FEATURES = 100, 10_000, 200
#: The fewest rows: with fewer, many a feature predicts the label by chance.
_FEWEST = 20
#: Rows per value that a feature has at least, for its values to say something about others.
_ROWS_PER_VALUE = 10


def leaks(job: Job, definition: ModelDefinition, best: BestTrials) -> Mapping[int, str]:
    """Return by group number the note on the feature that alone predicts the label of a group whose model is too good."""
    limits = {
        name: limit for name in definition.metrics if (limit := definition.family.named(name).too_good) is not None
    }
    if not limits or job.dataset.y.ndim > 1:
        return {}
    name, limit = next(iter(limits.items()))
    held_out = best.metric(name, "valid")
    part: Part = "train" if np.isnan(held_out).all() else "valid"
    values = best.metric(name, part)
    found = {}
    for place in np.flatnonzero(values > limit)[:_MOST_GROUPS].tolist():
        reason = _reason(job, definition, best.groups[place])
        if reason is not None:
            known_later = f"a leak? Leave it out if it is known only after {definition.target_name}"
            found[best.groups[place].id] = f"{part}_{name} is {values[place]:.4g}, {reason}: {known_later}"
    return found


def _reason(job: Job, definition: ModelDefinition, group: Group) -> str | None:
    """Return which feature of a group equals the label, or alone predicts it; None if none does."""
    start, stop = next(iter(group.ranges))
    rows = job.dataset.rows(start, min(stop, start + _MOST_ROWS))
    items = [item for item in job.items if item.kind == "numeric" or item.is_named][:_MOST_FEATURES]
    columns = [_column(rows, item) for item in items]
    n_classes = len(definition.classes)
    if not n_classes:
        same = [item.name for item, column in zip(items, columns, strict=True) if np.array_equal(column, rows.y)]
        if same:
            return f"as {same[0]} equals the label"
    scores = [_score(column, rows.y, item, n_classes) for item, column in zip(items, columns, strict=True)]
    alone = int(np.argmax(scores)) if len(job.items) > 1 and scores else None
    return None if alone is None or scores[alone] <= _ALONE else f"as {items[alone].name} alone predicts it"


def _column(rows: Dataset, item: Item) -> FloatArray:
    """Return a feature's numbers, or the codes of its categories; NaN for missing ones."""
    if item.kind == "numeric":
        return rows.numeric[:, item.column].astype(np.float64)
    codes = rows.codes[:, item.column].astype(np.float64)
    return np.where(codes < 0, np.nan, codes)


def _score(values: FloatArray, label: FloatArray, item: Item, n_classes: int) -> float:
    """Return how well a feature alone, or that it is missing, predicts the label, a number or a class: 1 for exactly."""
    labelled = np.isfinite(label)
    values, label = values[labelled], label[labelled]
    if label.size < _FEWEST or np.ptp(label) == 0:
        return 0.0
    known = np.isfinite(values)
    missing = _score_by_value(known.astype(np.float64), label, n_classes)
    values, label = values[known], label[known]
    if values.size < max(_FEWEST, known.size / 2) or np.ptp(values) == 0 or np.ptp(label) == 0:
        return missing
    scores = [missing, _score_by_value(values, label, n_classes)]
    if item.kind == "numeric" and not n_classes:
        scores.append(float(np.corrcoef(values, label)[0, 1] ** 2))
    if item.kind == "numeric" and n_classes == 2:
        area = _area_under_curve(values, label)
        scores.append(max(area, 1 - area))
    return float(np.nan_to_num(scores).max())


def _score_by_value(values: FloatArray, label: FloatArray, n_classes: int) -> float:
    """Return the share of the label's errors that is explained by a prediction per value; 0 for values that seldom repeat."""
    distinct, value = np.unique(values, return_inverse=True)
    if distinct.size > values.size / _ROWS_PER_VALUE:
        return 0.0
    if not n_classes:
        mean = np.bincount(value, label) / np.bincount(value)
        return float(1 - np.square(label - mean[value]).sum() / np.square(label - label.mean()).sum())
    counts = np.bincount(value * n_classes + label.astype(np.intp), minlength=distinct.size * n_classes)
    wrong = label.size - int(counts.reshape(distinct.size, n_classes).max(axis=1).sum())
    return 1 - wrong / (label.size - int(np.bincount(label.astype(np.intp)).max()))


def _area_under_curve(values: FloatArray, label: FloatArray) -> float:
    """Return the share of pairs of two classes that the values put in order; ties count half."""
    _, value, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[value]
    positive = label == label.max()
    n = int(positive.sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * (label.size - n)))
