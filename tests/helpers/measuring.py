"""Metrics by label, for tests of learners and kernels."""

from __future__ import annotations

from grouplearn.learners import registry
from grouplearn.models.label import CLUSTERING, NUMBER, PROJECTION, TWO_CLASSES, Label
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metric import Family
from grouplearn.models.metrics.metrics import METRICS, FloatArray, MetricSums, first_best, merge

__all__ = [
    "METRICS", "MetricSums", "default_metric", "every_metric", "family_of", "finish", "first_best", "measure", "merge",
    "metrics_for",
]  # fmt: skip


def family_of(label: Label) -> Family:
    return next(output for each, output in registry.outputs() if each == label).metrics


def every_metric(label: Label, arrays: bool = False) -> tuple[str, ...]:
    return family_of(label).names(arrays)


def metrics_for(label: Label, arrays: bool = False, *also: str) -> tuple[str, ...]:
    return family_of(label).usual(arrays, *also)


def default_metric(label: Label) -> str:
    return family_of(label).default


def measure(
    label: Label, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int = 0
) -> MetricSums:
    return metrics.measure(family_of(label), n_classes, scores, y, weight, n_unseen)


def finish(found: MetricSums, *only: str) -> dict[str, FloatArray]:
    """The metrics from sums, which say by their names whose they are."""
    labels = {"label_mean": NUMBER, "clustered": CLUSTERING, "projected": PROJECTION}
    label = next((label for name, label in labels.items() if name in found.tensors), TWO_CLASSES)
    return family_of(label).finish(found, *only)
