"""Format ``onnx``: a graph per group from the FEATURES items to the prediction, encoders included."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import duckdb
import numpy as np

from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.data.encoding.encoder import NoForm
from grouplearn.exchange.best import BestOfGroup, best_of, index
from grouplearn.exchange.directory_reader import CannotExchange, NoSuchForm
from grouplearn.exchange.onnx.graph import ML_OPSET, OPSET, Graph, encoded, onnx
from grouplearn.models.forms.forms import form_of
from grouplearn.models.outputs.onnx_model import OnnxModel

#: Instructions for clients that run the graphs.
_HOW = (
    "An input (rows, 1) per entry of inputs, the value of its sql: numeric and binned DOUBLE, NaN for NULL; category STRING,"
    " a text that is no category for NULL, and (null) where its encoder has options; hash INT64, the bucket, -1 for NULL;"
    " array DOUBLE (rows, length). Where nothing can be"
    " predicted, numbers are NaN, a class is the empty text and a cluster 0. Outputs are prediction and, of classes,"
    " probability or probabilities; cluster and distance; projection and residual; or what the learner's own output"
    " has; one whose name an input has is written with _ after it."
)


def lacking(model: StoredModel) -> str | None:
    """Return why a model has no graph, None if it has."""
    return form_of(model.definition).without_onnx(model.definition)


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
    form, group = form_of(definition), best.group
    try:
        x = encoded(graph, best.group.fitted, finite=not form.handles_missing)
    except NoForm as error:
        raise NoSuchForm(str(error)) from None
    # A row with a missing feature has no prediction, whatever operators make of NaN.
    bad = None if form.handles_missing else graph.add("IsNaN", graph.add("ReduceSum", x, graph.constant(np.array([1]))))
    link = partial(form.link, definition, group)
    scores = partial(form.onnx_scores, graph, definition, group, x)
    try:
        definition.output.onnx(
            graph, OnnxModel(x, bad, group.artifact.tensors, group.classes, link, scores, group.threshold)
        )
    except NoForm as error:
        raise NoSuchForm(f'model "{definition.name}" cannot be exported: {error}') from None
    return graph.content(definition.name, f"{definition.shown_learner}, group {list(best.group.keys)}")
