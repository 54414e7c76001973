"""Metrics of answers without a label: of clusters by distances to centroids, of projections by what is left of a row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels import clustering, projections
from grouplearn.learners.contract.state import Tensors


def cluster_sums(scores: FloatArray, weight: FloatArray) -> dict[str, FloatArray]:
    """Return the sums of rows with ``scores`` (n, c, 3): cluster, distance a to its centroid, distance b to the second nearest.

    ``clustered`` Σw (scalar), ``square`` Σw·a², ``width`` Σw·(1 − a/b), 0 for each row where there is no second one (c,).
    """
    return clustering.sums_of_scores(scores, weight)._asdict()


def projection_sums(scores: FloatArray, weight: FloatArray) -> dict[str, FloatArray]:
    """Return the sums of rows with ``scores`` (n, c, 1 + k): the residual, and coordinates, NaN beyond those of a config.

    ``projected`` Σw (scalar), ``residual`` Σw·r², ``explained`` Σw·‖p‖² (c,).
    """
    return projections.sums(scores, weight)._asdict()


def finish_clusters(sums: Tensors) -> dict[str, Callable[[], FloatArray]]:
    """Return the metrics of ``cluster_sums``."""
    return {
        "inertia": lambda: np.where(sums["clustered"] > 0, sums["square"], np.nan),
        "mean_squared_distance": lambda: _ratio(sums["square"], sums["clustered"]),
        "silhouette": lambda: _ratio(sums["width"], sums["clustered"]),
    }


def finish_projection(sums: Tensors) -> dict[str, Callable[[], FloatArray]]:
    """Return the metrics of ``projection_sums``."""
    return {
        "explained_variance": lambda: _ratio(sums["explained"], sums["explained"] + sums["residual"]),
        "reconstruction_error": lambda: _ratio(sums["residual"], sums["projected"]),
    }


def _ratio(value: FloatArray, by: FloatArray) -> FloatArray:
    """Return a quotient, NaN where it is one by 0."""
    by = np.broadcast_to(by, value.shape)
    ratio: FloatArray = np.divide(value, by, out=np.full(value.shape, np.nan), where=by > 0)
    return ratio
