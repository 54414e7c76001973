"""A number: ``prediction DOUBLE``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.models.metrics.judging import CALIBRATION
from grouplearn.models.metrics.values import VALUES
from grouplearn.models.outputs.link import LINKS
from grouplearn.models.outputs.onnx_model import OnnxModel
from grouplearn.models.outputs.output import EXPLAIN, PERMUTATION, PREDICT, BoolArray, Endpoint, Output, Scored
from grouplearn.models.state import FloatArray


class Number(Output):
    """The inverse link of the score."""

    width = 1
    metrics = VALUES
    endpoints: tuple[Endpoint, ...] = (PREDICT, EXPLAIN, PERMUTATION, CALIBRATION)

    def select(self, scored: Scored) -> str:
        """Return the number as ``prediction``."""
        value = LINKS[scored.link].format("__grouplearn_s0")
        return f"SELECT {scored.head}, {value} AS prediction, {scored.level} AS model_level FROM {scored.relation}"

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``value`` as ``prediction``."""
        del threshold, judged
        return (f"{predicted}.value AS prediction",)

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores, which are the numbers."""
        del classes
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the number, and as text."""
        value = pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)
        return {"value": value, "prediction": value.cast(pa.string())}

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        """Add the number."""
        link, scores = model.link(), model.scores()
        if link == "signed_square":
            scores = graph.add("Mul", scores, graph.add("Abs", scores))
        elif link != "identity":
            scores = graph.add({"exp": "Exp", "logistic": "Sigmoid"}[link], scores)
        graph.output(model.known(graph, scores), "prediction", "DOUBLE", 1)

    def value(self) -> int | None:
        """Return the place of the number."""
        return 0
