"""A group's model in an ONNX graph, from which its output makes the outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grouplearn.data.encoding.encoder import OnnxGraph
from grouplearn.models.outputs.link import Link
from grouplearn.models.state import Tensors


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A group's model in a graph under construction.

    - ``features``: the encoded features (rows, d), NaN where missing. ``missing``: whether one is (rows, 1); None for learners
      that handle it.
    - ``tensors``: those of the model. ``classes``: the numbers of the group's classes. ``link``: that of its scores.
    - ``scores``: adds the nodes of the scores (rows, k), for models that are linear, trees or layers, and returns their name.
    - ``threshold``: the probability above which a row is of the second class.
    """

    features: str
    missing: str | None
    tensors: Tensors
    classes: Sequence[int]
    link: Callable[[], Link]
    scores: Callable[[], str]
    threshold: float = 0.5

    def known(self, graph: OnnxGraph, value: str) -> str:
        """Return doubles with NaN where a feature is missing."""
        return value if self.missing is None else graph.add("Where", self.missing, graph.number(np.nan), value)
