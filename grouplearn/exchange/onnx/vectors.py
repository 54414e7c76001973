"""Vectors over the encoded features as ONNX: distances to centroids, coordinates along components."""

from __future__ import annotations

import numpy as np

from grouplearn.exchange.best import BestOfGroup
from grouplearn.exchange.onnx.graph import Graph


def clusters(graph: Graph, best: BestOfGroup, x: str, bad: str) -> None:
    """Add outputs for the number of the nearest centroid, 0 if there is none, and its distance, for rows x that may be
    ``bad``."""
    centroids = best.group.artifact.tensors["centroids"]
    apart = graph.add("Sub", graph.add("Unsqueeze", x, graph.constant(np.array([1]))), graph.constant(centroids[None]))
    squares = graph.add("ReduceSum", graph.add("Mul", apart, apart), graph.constant(np.array([2])), keepdims=0)
    nearest = graph.add("ArgMin", squares, axis=1, keepdims=1)
    square = graph.add("GatherElements", squares, nearest, axis=1)
    nowhere = graph.add("Or", bad, graph.add("IsInf", square))
    number = graph.add("Add", nearest, graph.constant(np.array(1, dtype=np.int64)))
    none = graph.constant(np.array(0, dtype=np.int64))
    graph.output(graph.add("Where", nowhere, none, number), "cluster", "INT64", 1)
    distance = graph.add("Where", nowhere, graph.number(np.nan), graph.add("Sqrt", square))
    graph.output(distance, "distance", "DOUBLE", 1)


def projection(graph: Graph, best: BestOfGroup, x: str, bad: str) -> None:
    """Add outputs for the coordinates of rows x, and the distance of x from its projection."""
    tensors = best.group.artifact.tensors
    components = tensors["components"]
    centred = graph.add("Sub", x, graph.constant(tensors["mean"][None]))
    coordinates = graph.add("MatMul", centred, graph.constant(np.ascontiguousarray(components.T)))
    left = graph.add("Sub", centred, graph.add("MatMul", coordinates, graph.constant(components)))
    square = graph.add("ReduceSum", graph.add("Mul", left, left), graph.constant(np.array([1])))
    nan = graph.number(np.nan)
    graph.output(graph.add("Where", bad, nan, coordinates), "projection", "DOUBLE", len(components))
    graph.output(graph.add("Where", bad, nan, graph.add("Sqrt", square)), "residual", "DOUBLE", 1)
