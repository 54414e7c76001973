"""Format ``onnx``: a graph per group from the FEATURES items to the prediction, encoders included."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import duckdb
import numpy as np

from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.encoding.encoder import NoForm
from grouplearn.exchange.best import BestOfGroup, best_of, index
from grouplearn.exchange.directory import CannotExchange, NoSuchForm
from grouplearn.exchange.onnx.graph import ML_OPSET, OPSET, Graph, encoded, onnx
from grouplearn.exchange.onnx.trees import tree_scores
from grouplearn.learners import registry
from grouplearn.learners.neural.mlp_model import Networks
from grouplearn.learners.trees.lightgbm import objectives as gbdt_objectives
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.onnx import OnnxModel
from grouplearn.models.state import FloatArray

#: Instructions for clients that run the graphs.
_HOW = (
    "An input (rows, 1) per entry of inputs, the value of its sql: numeric DOUBLE, NaN for NULL; category STRING, a text"
    " that is no category for NULL; hash INT64, the bucket, -1 for NULL; array DOUBLE (rows, length). Where nothing can be"
    " predicted, numbers are NaN, a class is the empty text and a cluster 0. Outputs are prediction and, of classes,"
    " probability or probabilities; cluster and distance; projection and residual; or what the learner's own output"
    " has; one whose name an input has is written with _ after it."
)


def lacking(model: StoredModel) -> str | None:
    """Return why a model has no graph, None if it has."""
    definition = model.definition
    if not definition.linear and registry.form(definition.learner) == "own":
        return "only its module, which is Python, knows what its tensors mean"
    if registry.has_linear_leaves(definition.learner, definition.configs):
        return "the leaves of its trees are linear models"
    return "it predicts arrays" if definition.label_length else None


def files(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[tuple[str, bytes]]:
    """Yield a graph per group, and the index."""
    onnx()  # raises before anything is written if it is not installed
    every = best_of(con, model)
    for each in every:
        yield each.file("onnx"), _content(model.definition, each)
    yield from index(model, every, "onnx", opset=OPSET, ml_opset=ML_OPSET, how=_HOW)


def _content(definition: ModelDefinition, best: BestOfGroup) -> bytes:
    graph = Graph([fitted.item.name for fitted in best.group.fitted])
    if not best.features:
        raise CannotExchange(f"group {list(best.group.keys)} has no feature, and ONNX needs an input")
    handles_missing = registry.form(definition.learner) == "trees"
    try:
        x = encoded(graph, best.group.fitted, finite=not handles_missing)
    except NoForm as error:
        raise NoSuchForm(str(error)) from None
    # A row with a missing feature has no prediction, whatever operators make of NaN.
    bad = None if handles_missing else graph.add("IsNaN", graph.add("ReduceSum", x, graph.constant(np.array([1]))))
    group = best.group
    link, scores = partial(_link, definition, best), partial(_scores, graph, definition, best, x)
    try:
        definition.output.onnx(graph, OnnxModel(x, bad, group.artifact.tensors, group.classes, link, scores))
    except NoForm as error:
        raise NoSuchForm(f'model "{definition.name}" cannot be exported: {error}') from None
    return graph.content(definition.name, f"{definition.learner}, group {list(best.group.keys)}")


def _scores(graph: Graph, definition: ModelDefinition, best: BestOfGroup, x: str) -> str:
    artifact = best.group.artifact
    if definition.linear:
        return _affine(graph, x, artifact.tensors["weights"], artifact.tensors["intercept"])
    if registry.form(definition.learner) == "trees":
        outputs = len(best.group.classes) if definition.label.scores_classes else 1
        return tree_scores(graph, artifact.text, x, outputs)
    network = Networks.of(artifact)
    for place, (weights, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        x = _affine(graph, x if not place else _activated(graph, network.activation, x), weights[0], bias[0, 0])
    return x


def _affine(graph: Graph, x: str, weights: FloatArray, bias: FloatArray) -> str:
    product = graph.add("MatMul", x, graph.constant(np.ascontiguousarray(weights.T, dtype=np.float64)))
    return graph.add("Add", product, graph.constant(np.asarray(bias, dtype=np.float64)[None]))


def _activated(graph: Graph, name: str, z: str) -> str:
    if name != "gelu":
        return graph.add({"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}[name], z)
    # z·Φ(z) = z·(1 + erf(z/√2))/2; onnxruntime's erf is in single precision only.
    single = graph.add("Cast", graph.add("Mul", z, graph.number(np.sqrt(0.5))), to=1)
    erf = graph.doubles(graph.add("Erf", single))
    return graph.add("Mul", z, graph.add("Mul", graph.add("Add", erf, graph.number(1.0)), graph.number(0.5)))


def _link(definition: ModelDefinition, best: BestOfGroup) -> Link:
    """Return the link of a group's model; that of trees may differ between groups."""
    if registry.form(definition.learner) == "trees":
        return gbdt_objectives.in_text(best.group.artifact.text).link
    return min(registry.links(definition.learner, definition.configs, definition.label))
