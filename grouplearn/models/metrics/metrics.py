"""All metrics: weighted, for all configs at once, from mergeable sums."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.models.label import Label
from grouplearn.models.metrics.classes import CLASSES
from grouplearn.models.metrics.metric import Family, Metric, Scores
from grouplearn.models.metrics.metric import MetricSums as MetricSums
from grouplearn.models.metrics.values import merged_labels
from grouplearn.models.outputs.outputs import OUTPUTS

#: The metrics of labels by name; learners without a label have others.
METRICS: Mapping[str, Metric] = MappingProxyType(
    {each.name: each for output in OUTPUTS.values() for each in output.metrics.metrics}
)
#: Metrics that differ by less than this relative to the better one are tied.
TIED = 1e-9


def named(name: str) -> Metric:
    """Return the metric of a name, with its level if it has one; KeyError if there is none."""
    return METRICS.get(name) or CLASSES.named(name)


def family_of(label: Label) -> Family:
    """Return the metrics for a label."""
    return OUTPUTS[label].metrics


def first_best(values: FloatArray, greater_is_better: bool) -> npt.NDArray[np.intp]:
    """Return the place of the best value on the last axis, the first of those within ``TIED`` of it. NaN is never best; if
    all are NaN the place is 0."""
    badness = np.where(np.isnan(values), np.inf, -values if greater_is_better else values)
    least = badness.min(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # the difference of infinite values is NaN
        tied = (badness == least) | (badness - least <= TIED * np.abs(least))
    place: npt.NDArray[np.intp] = (tied & ~np.isnan(values)).argmax(axis=-1)
    return place


def measure(
    family: Family, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int = 0
) -> MetricSums:
    """Return the sums of some rows: a learner's ``scores`` (n, c, k), ``y`` and ``weight`` (n,).

    For array labels, ``y`` (n, L) and ``scores`` (n, c, k·L), every value is measured as a row. The ``n_unseen`` labels
    from ``n_classes`` on are classes without training rows: their probability is 0.
    """
    if y.ndim == 2:
        return _measure_arrays(family, n_classes, scores, y, weight, n_unseen)
    return family.measure(Scores(scores, y, weight, n_classes, n_unseen))


def _measure_arrays(
    family: Family, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int
) -> MetricSums:
    rows, length = y.shape
    split = scores.reshape(rows, scores.shape[1], -1, length).transpose(0, 3, 1, 2)
    by_value = split.reshape(rows * length, scores.shape[1], -1)
    weights = np.repeat(weight, length)
    return measure(family, n_classes, by_value, y.reshape(-1), weights, n_unseen).without_rows()


def merge(a: MetricSums, b: MetricSums) -> MetricSums:
    """Return the sums of the rows of both, ``a`` first."""
    left, right = a.tensors, b.tensors
    merged = {name: value + right[name] for name, value in left.items()}
    if "label_mean" in left:
        merged |= merged_labels(left, right)
    by_row = {name: values.followed_by(b.by_row[name]) for name, values in a.by_row.items()}
    return MetricSums(merged, by_row, a.binary, a.n_unseen)
