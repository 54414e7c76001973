"""Format ``onnx``: a graph per group from the FEATURES items to the prediction, encoders included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.encoding.encoder import NoForm
from grouplearn.exchange.best import BestOfGroup, best_of, index
from grouplearn.exchange.directory import CannotExchange
from grouplearn.exchange.onnx import vectors as onnx_vectors
from grouplearn.exchange.onnx.graph import ML_OPSET, OPSET, Graph, encoded, onnx
from grouplearn.exchange.onnx.trees import tree_scores
from grouplearn.learners import registry
from grouplearn.learners.answers.answer import Answer
from grouplearn.learners.answers.classes import SeveralClasses, TwoClasses
from grouplearn.learners.answers.clusters import Clusters
from grouplearn.learners.answers.number import Number
from grouplearn.learners.answers.projection import Projection
from grouplearn.learners.contract.problem import Link
from grouplearn.learners.contract.state import FloatArray
from grouplearn.learners.neural.mlp_model import Networks
from grouplearn.learners.trees.lightgbm import objectives as gbdt_objectives

#: Instructions for clients that run the graphs.
_HOW = (
    "An input (rows, 1) per entry of inputs, the value of its sql: numeric DOUBLE, NaN for NULL; category STRING, a text"
    " that is no category for NULL; hash INT64, the bucket, -1 for NULL; array DOUBLE (rows, length). Where nothing can be"
    " predicted, numbers are NaN, a class is the empty text and a cluster 0. Outputs are prediction and, of classes,"
    " probability or probabilities; cluster and distance; or projection and residual; one whose"
    " name an input has is written with _ after it."
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
        raise CannotExchange(str(error)) from None
    # A row with a missing feature has no prediction, whatever operators make of NaN.
    bad = None if handles_missing else graph.add("IsNaN", graph.add("ReduceSum", x, graph.constant(np.array([1]))))
    vectors = _VECTORS.get(type(definition.answer))
    if vectors is not None and bad is not None:
        vectors(graph, best, x, bad)
    else:
        _HEADS[type(definition.answer)](graph, definition, best, _scores(graph, definition, best, x), bad)
    return graph.content(definition.name, f"{definition.learner}, group {list(best.group.keys)}")


def _scores(graph: Graph, definition: ModelDefinition, best: BestOfGroup, x: str) -> str:
    artifact = best.group.artifact
    if definition.linear:
        return _affine(graph, x, artifact.tensors["weights"], artifact.tensors["intercept"])
    if registry.form(definition.learner) == "trees":
        outputs = len(best.group.classes) if definition.task.scores_classes else 1
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


def _masked(graph: Graph, bad: str | None, value: str) -> str:
    return value if bad is None else graph.add("Where", bad, graph.number(np.nan), value)


def _link(definition: ModelDefinition, best: BestOfGroup) -> Link:
    """Return the link of a group's model; that of trees may differ between groups."""
    if registry.form(definition.learner) == "trees":
        return gbdt_objectives.in_text(best.group.artifact.text).link
    return min(registry.links(definition.learner, definition.configs, definition.task))


def _linked(graph: Graph, link: Link, scores: str) -> str:
    if link == "signed_square":
        return graph.add("Mul", scores, graph.add("Abs", scores))
    return graph.add({"exp": "Exp", "logistic": "Sigmoid"}[link], scores) if link != "identity" else scores


def _value(graph: Graph, definition: ModelDefinition, best: BestOfGroup, scores: str, bad: str | None) -> None:
    graph.output(_masked(graph, bad, _linked(graph, _link(definition, best), scores)), "prediction", "DOUBLE", 1)


def _binary(graph: Graph, definition: ModelDefinition, best: BestOfGroup, scores: str, bad: str | None) -> None:  # noqa: ARG001
    p = _masked(graph, bad, graph.add("Sigmoid", scores))
    positive = graph.add("Cast", graph.add("Greater", p, graph.number(0.5)), to=7)
    graph.output(_class(graph, definition.classes[:2], positive, graph.add("IsNaN", p)), "prediction", "STRING", 1)
    graph.output(p, "probability", "DOUBLE", 1)


def _multiclass(graph: Graph, definition: ModelDefinition, best: BestOfGroup, scores: str, bad: str | None) -> None:
    p = _masked(graph, bad, _shares(graph, _link(definition, best), scores))
    chosen = graph.add("ArgMax", p, axis=1, keepdims=1)
    nothing = graph.add("IsNaN", graph.add("ReduceSum", p, graph.constant(np.array([1]))))
    names = [definition.classes[number] for number in best.group.classes]
    graph.output(_class(graph, names, chosen, nothing), "prediction", "STRING", 1)
    graph.output(_every_class(graph, p, definition, best), "probabilities", "DOUBLE", len(definition.classes))


def _shares(graph: Graph, link: Link, scores: str) -> str:
    """Return the probabilities of classes; a group with two has trees of one class against the other."""
    if link != "one_vs_all":
        return graph.add("Softmax", scores, axis=1)
    shares = graph.add("Sigmoid", scores)
    total = graph.add("ReduceSum", shares, graph.constant(np.array([1])), keepdims=1)
    return graph.add("Div", shares, total)


def _class(graph: Graph, names: Any, chosen: str, nothing: str) -> str:
    number = graph.add("Where", nothing, graph.constant(np.array(len(names), dtype=np.int64)), chosen)
    texts: npt.NDArray[Any] = np.array([*names, ""], dtype=object)
    return graph.add("Gather", graph.constant(texts), number, axis=0)


def _every_class(graph: Graph, p: str, definition: ModelDefinition, best: BestOfGroup) -> str:
    """Return the probabilities of all classes of the label, 0 for those that the group does not have."""
    place: Mapping[int, int] = {number: column for column, number in enumerate(best.group.classes)}
    if len(place) == len(definition.classes):
        return p
    spread = np.zeros((len(place), len(definition.classes)))
    for number, column in place.items():
        spread[column, number] = 1.0
    return graph.add("MatMul", p, graph.constant(spread))


_HEADS = {Number: _value, TwoClasses: _binary, SeveralClasses: _multiclass}
_VECTORS: Mapping[type[Answer], Callable[[Graph, BestOfGroup, str, str], None]] = {
    Clusters: onnx_vectors.clusters,
    Projection: onnx_vectors.projection,
}
