"""A projection: a row's coordinates along its group's components, and its distance from the space that they span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.kernels.clusters import projections
from grouplearn.models.metrics.metric import Asked, Family, Judged, Metric, MetricSums, Scores, mean_of, ratio, summed
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.output import BoolArray, Output, Scored, list_array
from grouplearn.models.outputs.vectors import FEATURES, VectorSql, VectorView
from grouplearn.models.state import FloatArray

#: In SQL: a row's coordinates, and its distance from its projection.
COORDINATES, RESIDUAL = "__grouplearn_coordinates", "__grouplearn_residual"
_MEAN, _COMPONENTS, _LOADINGS, _SHRINK, _SHRUNK, _CENTRED = (
    f"__grouplearn_{name}" for name in ("mean", "components", "loadings", "shrink", "shrunk", "centred")
)


def _with_coordinates(rows: str) -> str:
    """Return rows with coordinates; the residual is computed directly, as a difference of squares would lose digits.

    A projection is Σ v'(x − m)·v/‖v‖² over the components v, whose lengths are not 1 where coordinates are whitened.
    """
    away = f"v - coalesce({_MEAN}[i], 'nan'::DOUBLE)"  # without a group: products of lists do not accept NULL
    centred = f"SELECT *, list_transform({FEATURES}, lambda v, i: {away}) AS {_CENTRED} FROM ({rows})"
    along = f"list_transform({_COMPONENTS}, lambda c: list_dot_product({_CENTRED}, c))"
    placed = f"SELECT *, {along} AS {COORDINATES} FROM ({centred})"
    shrunk = f"list_transform({COORDINATES}, lambda z, i: z * coalesce({_SHRINK}[i], 'nan'::DOUBLE))"
    point = f"list_transform({_LOADINGS}, lambda l: list_dot_product({_SHRUNK}, l))"
    return f"SELECT *, list_distance({_CENTRED}, {point}) AS {RESIDUAL} FROM (SELECT *, {shrunk} AS {_SHRUNK} FROM ({placed}))"


_SHARE = "f.value / nullif(o.value, 0)"
_VIEWS = (
    VectorView(
        "_components",
        "Principal components of each group's best trial: the weight of each encoded feature in each component.",
        "component",
        (("component", "f.place"), ("feature", "unnest(g.features)"), ("weight", "unnest(f.vector)")),
    ),
    VectorView(
        "_variance",
        "The variance along each principal component of each group's best trial, and its share of all.",
        "component",
        (
            ("component", "f.place"),
            ("variance", "f.value"),
            ("share", _SHARE),
            ("cumulative_share", f"sum({_SHARE}) OVER (PARTITION BY f.group_id ORDER BY f.place ASC)"),
        ),
    ),
)
#: Loadings are, per feature, its weights in all components.
_GIVEN = {
    _COMPONENTS: "v.component",
    _MEAN: "v.mean[1]",
    _LOADINGS: "list_transform(v.mean[1], lambda m, i: list_transform(v.component, lambda c: c[i]))",
    _SHRINK: "list_transform(v.component, lambda c: 1 / list_dot_product(c, c))",
}


def _sums(rows: Scores) -> MetricSums:
    """Return the sums of rows with ``scores`` (n, c, 2 + k): residual, squared length of the projection, coordinates.

    ``projected`` Σw (scalar), ``residual`` Σw·r², ``explained`` Σw·‖p‖² (c,).
    """
    return MetricSums(projections.sums(rows.scores, rows.weight)._asdict())


def _judged(_: Asked) -> Judged:
    length = "list_sum(list_transform(projection, lambda z, i: z * z * v.shrink[i]))"
    shrink = "list(1 / list_dot_product(vector, vector) ORDER BY place ASC) FILTER (part = 'component')"
    sums = summed("known", {"residual": "sum(w * r)", "explained": "sum(w * p)"})
    return Judged({"r": "residual ** 2", "p": length}, "residual IS NOT NULL", sums, {"shrink": shrink})


METRICS = Family(
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
    _sums,
    _judged,
)


class Projection(Output):
    """A score is the residual, the squared length of the projection, and the coordinates, as many as a group has components."""

    width = projections.BEFORE
    shown = ("projection", "residual")
    metrics = METRICS
    vectors = VectorSql(("component",), _GIVEN, _with_coordinates, single=("mean",), views=_VIEWS)

    def select(self, scored: Scored) -> str:
        """Return the coordinates as a list, and the residual."""
        known = f"isfinite({RESIDUAL})"
        return (
            f"SELECT {scored.head}, CASE WHEN {known} THEN {COORDINATES} END AS projection,"
            f" CASE WHEN {known} THEN {RESIDUAL} END AS residual, {scored.level} AS model_level FROM {scored.relation}"
        )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the fields ``predicted`` and ``value``."""
        del threshold, judged
        return f"{predicted}.predicted AS projection", f"{predicted}.value AS residual"

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores."""
        del classes
        return score

    def missing(self, outputs: FloatArray) -> BoolArray:
        """Return which rows have no residual."""
        return ~np.isfinite(outputs[:, 0])

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the coordinates as ``predicted``, the residual as ``value``."""
        coordinates = outputs[:, projections.BEFORE :]
        lengths = (~np.isnan(coordinates)).sum(axis=1)
        return {
            "value": pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing),
            "predicted": list_array(coordinates, lengths, missing),
        }

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        """Add the coordinates, and the distance of a row from its projection."""
        components = model.tensors["components"]
        centred = graph.add("Sub", model.features, graph.constant(model.tensors["mean"][None]))
        coordinates = graph.add("MatMul", centred, graph.constant(np.ascontiguousarray(components.T)))
        back = components / (components**2).sum(axis=1, keepdims=True)
        left = graph.add("Sub", centred, graph.add("MatMul", coordinates, graph.constant(back)))
        square = graph.add("ReduceSum", graph.add("Mul", left, left), graph.constant(np.array([1])))
        graph.output(model.known(graph, coordinates), "projection", "DOUBLE", len(components))
        graph.output(model.known(graph, graph.add("Sqrt", square)), "residual", "DOUBLE", 1)

    def value(self) -> int | None:
        """Return the place of the residual."""
        return 0
