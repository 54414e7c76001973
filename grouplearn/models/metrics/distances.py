"""Metrics of outputs without a label: for clusters from distances to centroids, for projections from residuals."""

from __future__ import annotations

import numpy as np

from grouplearn.kernels.clusters import distances, projections
from grouplearn.models.label import CLUSTERING, PROJECTION
from grouplearn.models.metrics.metric import Asked, Family, Judged, Metric, MetricSums, Scores, mean_of, ratio, summed


def _cluster_sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 3): cluster, distance a to its centroid, distance b to the second
    nearest.

    ``clustered`` Σw (scalar), ``square`` Σw·a², ``width`` Σw·(1 − a/b), with 0 for rows without a second centroid (c,).
    """
    return MetricSums(distances.sums(rows.scores, rows.weight)._asdict())


def _projection_sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 1 + k): the residual, then coordinates, NaN beyond a config's.

    ``projected`` Σw (scalar), ``residual`` Σw·r², ``explained`` Σw·‖p‖² (c,).
    """
    return MetricSums(projections.sums(rows.scores, rows.weight)._asdict())


def _judged_clusters(_: Asked) -> Judged:
    width = "CASE WHEN e IS NULL THEN 0 WHEN e > 0 THEN (e - d) / e ELSE 0 END"
    sums = summed("known", {"square": "sum(w * d ** 2)", "width": f"sum(w * {width})"})
    return Judged({"d": "distance", "e": "second"}, "distance IS NOT NULL", sums)


def _judged_projections(_: Asked) -> Judged:
    # After CASE, DuckDB assumes that the list's values may be NULL, which list_dot_product refuses; not so for a slice of it.
    length = "list_dot_product(projection[:], projection[:])"
    sums = summed("known", {"residual": "sum(w * r)", "explained": "sum(w * p)"})
    return Judged({"r": "residual ** 2", "p": length}, "residual IS NOT NULL", sums)


CLUSTERS = Family(
    frozenset({CLUSTERING}),
    (
        Metric(
            "silhouette",
            True,
            "mean of 1 - a/b, a the distance to the nearest centroid, b to the second nearest; 0 of one cluster (the "
            "simplified silhouette: of centroids in place of all pairs of rows)",
            mean_of("width", "clustered"),
            "width / total",
            "mean",
        ),
        Metric(
            "inertia",
            False,
            "sum of squared distances to the nearest centroid",
            lambda sums: np.where(sums.tensors["clustered"] > 0, sums.tensors["square"], np.nan),
            "square * unit",
        ),
        Metric(
            "mean_squared_distance",
            False,
            "mean of squared distances to the nearest centroid",
            mean_of("square", "clustered"),
            "square / total",
            "mean",
        ),
    ),
    _cluster_sums,
    _judged_clusters,
    "clustered",
)
PROJECTIONS = Family(
    frozenset({PROJECTION}),
    (
        Metric(
            "explained_variance",
            True,
            "share of the squared distances from the mean of the training rows that projections keep",
            lambda sums: ratio(sums.tensors["explained"], sums.tensors["explained"] + sums.tensors["residual"]),
            "explained / nullif(explained + residual, 0)",
        ),
        Metric(
            "reconstruction_error",
            False,
            "mean of squared residuals",
            mean_of("residual", "projected"),
            "residual / total",
            "mean",
        ),
    ),
    _projection_sums,
    _judged_projections,
    "projected",
)
