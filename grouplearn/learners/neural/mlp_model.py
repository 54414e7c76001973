"""Finished multilayer perceptrons: their weights, and predictions of several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from grouplearn.data.shard import FeatureArray, Matrix
from grouplearn.kernels import networks
from grouplearn.kernels.library import RowRuns, features
from grouplearn.kernels.networks import ACTIVATIONS
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import Label
from grouplearn.models.state import Artifact, FloatArray, shape_flaw

#: Rows that are made dense and predicted together.
_DENSE_ROWS = 4096
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

    def predict(self, label: Label, x: Matrix) -> FloatArray:
        """Return the predictions (n, m, outputs)."""
        shape, parameters = self.shape(label), self.parameters()
        found = [networks.predict(shape, parameters, rows) for rows in _runs(x)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def shape(self, label: Label) -> networks.NetworkShape:
        """Return the shape for the kernels."""
        widths = (self.weights[0].shape[2], *(weight.shape[1] for weight in self.weights))
        return networks.NetworkShape(widths, self.activation, label.name)

    def parameters(self) -> FloatArray:
        """Return the parameters (m, n_parameters) for the kernels."""
        both = (each for pair in zip(self.weights, self.biases, strict=True) for each in pair)
        return np.concatenate([each.reshape(len(each), -1) for each in both], axis=1)


def predicting_runs(label: Label, artifacts: Sequence[Artifact]) -> Callable[[FloatArray, RowRuns], FloatArray] | None:
    """Return a function that predicts runs of rows, each by one network; None if their shapes differ."""
    models = [Networks.of(artifact) for artifact in artifacts]
    shapes = {model.shape(label) for model in models}
    if len(shapes) != 1:
        return None
    parameters = np.concatenate([model.parameters() for model in models])
    return partial(networks.predict_runs, shapes.pop(), parameters)


def as_multiclass(artifact: Artifact) -> Artifact:
    """Return a network of two classes with an output per class, weights and bias 0 for the first."""
    last = len(Networks.of(artifact).weights) - 1
    units = {name: artifact.tensors[name] for name in (f"weight_{last}", f"bias_{last}")}
    both = {name: np.concatenate([np.zeros_like(value), value]) for name, value in units.items()}
    return Artifact("tensors", {**artifact.tensors, **both})


def validation_error(problem: Problem, artifact: Artifact) -> str | None:
    """Return why the tensors are not a network from the feature columns to the outputs; None if they are."""
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


def _runs(x: Matrix) -> Iterator[FeatureArray]:
    """Yield rows for the kernels: all, or in runs if they must be made dense first."""
    if isinstance(x, np.ndarray):
        yield features(x)
        return
    for start in range(0, max(1, x.shape[0]), _DENSE_ROWS):
        yield x[start : start + _DENSE_ROWS].toarray()
