"""A cluster: ``cluster`` is the number of the nearest centroid, ``distance`` the distance to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.kernels.clusters import distances
from grouplearn.models.metrics.metric import Asked, Family, Judged, Metric, MetricSums, Scores, mean_of, summed
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.output import BoolArray, Output, Scored, list_array
from grouplearn.models.outputs.vectors import FEATURES, VectorSql, VectorView
from grouplearn.models.state import FloatArray

#: In SQL: a group's distances to its centroids in order, NaN for those without rows.
DISTANCES = "__grouplearn_distances"
_NEAREST = "__grouplearn_nearest"
_CENTROIDS = "__grouplearn_centroids"


def _with_distances(rows: str) -> str:
    each = f"list_transform({_CENTROIDS}, lambda c: list_distance({FEATURES}, c))"
    return f"SELECT *, {each} AS {DISTANCES} FROM ({rows})"


#: The item of the feature column i (from 0): the last that begins at or before it.
_ITEM = "list_max(list_filter(range(1, len(g.starts) + 1), lambda j: g.starts[j] <= i))"
_ORIGINAL = (
    "list_transform(range(len(f.vector)), lambda i: f.vector[i + 1]"
    f" * coalesce(g.scales[{_ITEM}], 1) + coalesce(g.centers[{_ITEM}], 0))"
)
_VIEW = VectorView(
    "_centroids",
    "Centroids of the clusters of each group's best trial: on the encoded features, and in the units of the columns.",
    "centroid",
    (
        ("cluster", "f.place"),
        ("n_rows", "CAST(f.value AS BIGINT)"),
        ("feature", "unnest(g.features)"),
        ("value", "unnest(f.vector)"),
        ("value_original", f"unnest({_ORIGINAL})"),
    ),
)


def _sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 3): cluster, distance a to its centroid, distance b to the second
    nearest.

    ``clustered`` Σw (scalar), ``square`` Σw·a², ``width`` Σw·(1 − a/b), with 0 for rows without a second centroid (c,).
    """
    return MetricSums(distances.sums(rows.scores, rows.weight)._asdict())


def _judged(_: Asked) -> Judged:
    width = "CASE WHEN e IS NULL THEN 0 WHEN e > 0 THEN (e - d) / e ELSE 0 END"
    sums = summed("known", {"square": "sum(w * d ** 2)", "width": f"sum(w * {width})"})
    return Judged({"d": "distance", "e": "second"}, "distance IS NOT NULL", sums)


METRICS = Family(
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
    _sums,
    _judged,
)


class Clusters(Output):
    """A score is the number of the nearest centroid, from 1, its Euclidean distance, and that of the second nearest.

    The first of equal distances counts. Without a second centroid its distance is infinite. A row at no finite distance
    from any centroid has no cluster.
    """

    width = 3
    shown = ("cluster", "distance")
    metrics = METRICS
    vectors = VectorSql(("centroid",), {_CENTROIDS: "v.centroid"}, _with_distances, views=(_VIEW,))

    def select(self, scored: Scored) -> str:
        """Return cluster and distance; with ``judged`` also the distance to the second nearest centroid, NULL without one."""
        finite = f"list_filter({DISTANCES}, lambda d: isfinite(d))"
        known = f"isfinite({_NEAREST})"
        columns = [
            scored.head,
            f"CASE WHEN {known} THEN list_position({DISTANCES}, {_NEAREST}) END AS cluster",
            f"CASE WHEN {known} THEN {_NEAREST} END AS distance",
            *([f"list_sort({finite})[2] AS second"] if scored.judged else []),
            f"{scored.level} AS model_level",
        ]
        return (
            f"SELECT {', '.join(columns)} FROM (SELECT *, list_min({DISTANCES}) AS {_NEAREST} FROM {scored.relation})"
        )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``prediction`` as a number, and ``value``."""
        del threshold
        second = (f"nullif({predicted}.predicted[2], 'inf'::DOUBLE) AS second",) if judged else ()
        return f"CAST({predicted}.prediction AS INTEGER) AS cluster", f"{predicted}.value AS distance", *second

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores."""
        del classes
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the number of the cluster, its distance as ``value``, and both distances as ``predicted``."""
        number = np.where(missing, 0, outputs[:, 0]).astype(np.int32)
        return {
            "prediction": pa.array(number, mask=missing).cast(pa.string()),
            "value": pa.array(np.ascontiguousarray(outputs[:, 1]), mask=missing),
            "predicted": list_array(outputs[:, 1:], np.full(len(outputs), 2), missing),
        }

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        """Add the number of the nearest centroid, 0 if there is none, and its distance."""
        centroids, axis = model.tensors["centroids"], np.array([1])
        rows = graph.add("Unsqueeze", model.features, graph.constant(axis))
        apart = graph.add("Sub", rows, graph.constant(centroids[None]))
        squares = graph.add("ReduceSum", graph.add("Mul", apart, apart), graph.constant(np.array([2])), keepdims=0)
        nearest = graph.add("ArgMin", squares, axis=1, keepdims=1)
        square = graph.add("GatherElements", squares, nearest, axis=1)
        nowhere = graph.add("IsInf", square)
        if model.missing is not None:
            nowhere = graph.add("Or", model.missing, nowhere)
        number = graph.add("Add", nearest, graph.constant(np.array(1, dtype=np.int64)))
        none = graph.constant(np.array(0, dtype=np.int64))
        graph.output(graph.add("Where", nowhere, none, number), "cluster", "INT64", 1)
        distance = graph.add("Where", nowhere, graph.number(np.nan), graph.add("Sqrt", square))
        graph.output(distance, "distance", "DOUBLE", 1)

    def value(self) -> int | None:
        """Return the place of the distance."""
        return 1
