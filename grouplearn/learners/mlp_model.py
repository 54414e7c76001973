"""Finished multilayer perceptrons: what their weights are, and predictions of several at once with numpy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.special

from grouplearn.data.shard import Matrix
from grouplearn.learners.base import Artifact, FloatArray, Problem, Task, shape_flaw

#: An artifact stores the position of its activation in this tuple, so names are only ever appended.
ACTIVATIONS = ("relu", "tanh", "gelu", "sigmoid")
#: Rows that are predicted together: few enough for the hidden units of a dozen networks to stay in the cache.
_CACHED_ROWS = 256
_NO_UNITS = np.empty(0)


@dataclass(frozen=True, slots=True)
class Networks:
    """Networks of one shape: per layer ``weights`` (m, outputs, inputs) and ``biases`` (m, 1, outputs), as doubles."""

    activation: str
    weights: tuple[FloatArray, ...]
    biases: tuple[FloatArray, ...]

    @classmethod
    def of(cls, artifact: Artifact) -> Networks:
        """Inverse of ``artifact``, of one network."""
        tensors, layers = artifact.tensors, range(sum(name.startswith("weight_") for name in artifact.tensors))
        return cls(
            ACTIVATIONS[int(tensors["activation"][0])],
            tuple(tensors[f"weight_{layer}"][None] for layer in layers),
            tuple(tensors[f"bias_{layer}"][None, None] for layer in layers),
        )

    def artifact(self, index: int) -> Artifact:
        """Return ``weight_i`` (outputs, inputs) and ``bias_i`` (outputs,) of each layer, and ``activation``."""
        tensors = {"activation": np.array([float(ACTIVATIONS.index(self.activation))])}
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            tensors[f"weight_{depth}"], tensors[f"bias_{depth}"] = weight[index], bias[index, 0]
        return Artifact("tensors", tensors)

    def predict(self, task: Task, x: Matrix) -> FloatArray:
        """Return the predictions (n, m, outputs)."""
        found = np.empty((x.shape[0], len(self.weights[0]), self.weights[-1].shape[1]))
        with np.errstate(all="ignore"):  # a diverged network predicts NaN without noise
            for start, rows in _runs(x):
                found[start : start + len(rows)] = self._scores(rows).transpose(1, 0, 2)
            return _linked(task, found)

    def _scores(self, x: FloatArray) -> FloatArray:
        last, turned = len(self.weights) - 1, [weight.transpose(0, 2, 1) for weight in self.weights]
        for depth, bias in enumerate(self.biases):
            x = x @ turned[depth]
            x += bias
            x = x if depth == last else _activated(self.activation, x)
        return x


def as_multiclass(artifact: Artifact) -> Artifact:
    """Return a network of two classes with a last unit for each: the weights and the bias of the first one are 0."""
    last = len(Networks.of(artifact).weights) - 1
    units = {name: artifact.tensors[name] for name in (f"weight_{last}", f"bias_{last}")}
    both = {name: np.concatenate([np.zeros_like(value), value]) for name, value in units.items()}
    return Artifact("tensors", {**artifact.tensors, **both})


def flaw(problem: Problem, artifact: Artifact) -> str | None:
    """Return how the tensors are no network from the feature columns, layer by layer, to the outputs; None if they are."""
    tensors = artifact.tensors
    layers = [name for name in tensors if name.startswith("weight_")]
    shapes: dict[str, tuple[int, ...]] = {"activation": (1,)}
    inputs = problem.n_features
    for layer in range(len(layers)):
        last = layer == len(layers) - 1
        bias = tensors.get(f"bias_{layer}", _NO_UNITS)
        outputs = problem.n_outputs if last else int(bias.size)
        shapes |= {f"weight_{layer}": (outputs, inputs), f"bias_{layer}": (outputs,)}
        inputs = outputs
    wrong = "it has no layer" if not layers else shape_flaw(artifact, shapes)
    if wrong is None and tensors["activation"][0] not in range(len(ACTIVATIONS)):
        return f"its activation is number {tensors['activation'][0]} of {len(ACTIVATIONS)}"
    return wrong


def _runs(x: Matrix) -> Iterator[tuple[int, FloatArray]]:
    """Yield where each run of rows begins, and its rows, dense."""
    for start in range(0, x.shape[0], _CACHED_ROWS):
        rows = x[start : start + _CACHED_ROWS]
        yield start, rows if isinstance(rows, np.ndarray) else rows.toarray()


def _linked(task: Task, scores: FloatArray) -> FloatArray:
    if task is Task.REGRESSION:
        return scores
    probabilities: FloatArray = (
        scipy.special.expit(scores) if task is Task.BINARY else scipy.special.softmax(scores, axis=2)
    )
    return probabilities


def _activated(name: str, z: FloatArray) -> FloatArray:
    """Return the activation of z, which it may overwrite."""
    if name == "relu":
        return np.maximum(z, 0.0, out=z)
    if name == "tanh":
        return np.tanh(z, out=z)
    phi: FloatArray = z * scipy.special.ndtr(z) if name == "gelu" else scipy.special.expit(z, out=z)
    return phi
