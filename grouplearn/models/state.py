"""A learner's training state and its finished models: named tensors, as bytes without code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from grouplearn.data.tensors import NotTensors, named_tensors, tensor_bytes

FloatArray = npt.NDArray[np.float64]
#: The tensor name of models that are texts, as bytes.
TEXT = "text"
Tensors = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class State:
    """The training state of a pack: named tensors, with the config as first axis where they belong to one.

    ``done`` (bool, one per config) marks configs that need no further epoch: converged, diverged or stopped. A learner may
    cache a live object (a booster, a module) in ``live``: ``to_bytes`` drops it, and the learner must be able to continue
    without it.
    """

    tensors: dict[str, npt.NDArray[Any]]
    done: npt.NDArray[np.bool_]
    live: Any = field(default=None, compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """Return the state in safetensors format: no code, equal states give equal bytes."""
        return tensor_bytes({**self.tensors, "done": self.done.astype(np.uint8)})

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Inverse of ``to_bytes``; raises NotTensors."""
        tensors = named_tensors(data)
        if "done" not in tensors or tensors["done"].ndim != 1:
            raise NotTensors("it does not say which configs are done")
        done = tensors.pop("done").astype(bool)
        return cls(tensors, done)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A finished model of one trial: either named float64 tensors or LightGBM's text (as UTF-8 bytes).

    Linear models have ``weights`` of shape (n_outputs, n_features) and ``intercept`` of shape (n_outputs,).
    """

    format: Literal["tensors", "lightgbm"]
    tensors: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    text: bytes = b""


def shape_flaw(artifact: Artifact, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return how a model's tensors differ from ``shapes``, all of floating type; None if they do not."""
    if artifact.format != "tensors":
        return f"it is {artifact.format}, not tensors"
    if artifact.tensors.keys() != shapes.keys():
        name = sorted(artifact.tensors.keys() ^ shapes.keys())[0]
        return f"it has no tensor {name}" if name in shapes else f"it has a tensor {name[:60]!r}"
    for name, shape in shapes.items():
        tensor = artifact.tensors[name]
        if tensor.dtype != np.float64 or tensor.shape != shape:
            return f"its tensor {name} is {tensor.dtype}{list(tensor.shape)}, not float64{list(shape)}"
    return None


def of_both_classes(positive: FloatArray) -> FloatArray:
    """Return the probabilities (n, 2·L) of both classes, first class first, from those of the second (n, L)."""
    both: FloatArray = np.concatenate([1.0 - positive, positive], axis=1)
    return both


def has_tensors_of(state: State, begun: State) -> bool:
    """Return whether a state has all tensors of another, with the same shapes and types."""
    found = state.tensors
    return all(
        name in found and found[name].shape == tensor.shape and found[name].dtype == tensor.dtype
        for name, tensor in begun.tensors.items()
    )
