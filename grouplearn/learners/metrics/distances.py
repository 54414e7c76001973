"""Metrics of answers without a label: of clusters by distances to centroids, of projections by what is left of a row."""

from __future__ import annotations

import numpy as np

from grouplearn.kernels import clustering, projections
from grouplearn.learners.contract.problem import Task
from grouplearn.learners.metrics.metric import Family, Judged, Metric, MetricSums, Scores, ratio, summed

_CLUSTERING, _PROJECTION = frozenset({Task.CLUSTERING}), frozenset({Task.PROJECTION})
_DISTANCES = "sum of weighted squared distances"


def _cluster_sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 3): cluster, distance a to its centroid, distance b to the second nearest.

    ``clustered`` Σw (scalar), ``square`` Σw·a², ``width`` Σw·(1 − a/b), 0 for each row where there is no second one (c,).
    """
    return MetricSums(clustering.sums_of_scores(rows.scores, rows.weight)._asdict())


def _projection_sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 1 + k): the residual, and coordinates, NaN beyond those of a config.

    ``projected`` Σw (scalar), ``residual`` Σw·r², ``explained`` Σw·‖p‖² (c,).
    """
    return MetricSums(projections.sums(rows.scores, rows.weight)._asdict())


CLUSTERS = Family(
    (
        Metric(
            "silhouette",
            _CLUSTERING,
            True,
            "sum of weighted widths",
            "mean of 1 - a/b, a the distance to the nearest centroid, b to the second nearest; 0 of one cluster (the "
            "simplified silhouette: of centroids in place of all pairs of rows)",
            lambda sums: ratio(sums.tensors["width"], sums.tensors["clustered"]),
            "width / total",
            "mean",
        ),
        Metric(
            "inertia",
            _CLUSTERING,
            False,
            _DISTANCES,
            "sum of squared distances to the nearest centroid",
            lambda sums: np.where(sums.tensors["clustered"] > 0, sums.tensors["square"], np.nan),
            "square * unit",
        ),
        Metric(
            "mean_squared_distance",
            _CLUSTERING,
            False,
            _DISTANCES,
            "mean of squared distances to the nearest centroid",
            lambda sums: ratio(sums.tensors["square"], sums.tensors["clustered"]),
            "square / total",
            "mean",
        ),
    ),
    _cluster_sums,
    "clustered",
)
PROJECTIONS = Family(
    (
        Metric(
            "explained_variance",
            _PROJECTION,
            True,
            "sums of weighted squared lengths of projections and of residuals",
            "share of the squared distances from the mean of the training rows that projections keep",
            lambda sums: ratio(sums.tensors["explained"], sums.tensors["explained"] + sums.tensors["residual"]),
            "explained / nullif(explained + residual, 0)",
        ),
        Metric(
            "reconstruction_error",
            _PROJECTION,
            False,
            "sum of weighted squared residuals",
            "mean of squared residuals",
            lambda sums: ratio(sums.tensors["residual"], sums.tensors["projected"]),
            "residual / total",
            "mean",
        ),
    ),
    _projection_sums,
    "projected",
)


def judged_clusters(distance: str, second: str) -> Judged:
    """Return how clusters are measured by the distances to the nearest centroid and to the second nearest."""
    width = "CASE WHEN e IS NULL THEN 0 WHEN e > 0 THEN (e - d) / e ELSE 0 END"
    sums = summed("known", {"square": "sum(w * d ** 2)", "width": f"sum(w * {width})"})
    metrics = {each.name: each.sql for each in CLUSTERS.metrics}
    return Judged({"d": distance, "e": second}, f"{distance} IS NOT NULL", sums, metrics)


def judged_projections(residual: str, projection: str) -> Judged:
    """Return how projections are measured by the residual and the list of coordinates."""
    # Of what CASE leaves NULL DuckDB takes the values to be NULL, which list_dot_product refuses, but not of a slice of it.
    length = f"list_dot_product({projection}[:], {projection}[:])"
    sums = summed("known", {"residual": "sum(w * r)", "explained": "sum(w * p)"})
    metrics = {each.name: each.sql for each in PROJECTIONS.metrics}
    return Judged({"r": f"{residual} ** 2", "p": length}, f"{residual} IS NOT NULL", sums, metrics)
