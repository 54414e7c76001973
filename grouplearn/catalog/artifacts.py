"""Artifacts as catalog columns and back: plain numbers and bytes, each with a digest that is checked before parsing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.tensors import NotTensors, named_tensors, tensor_bytes
from grouplearn.errors import DataError, data_error
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.state import Artifact

FloatArray = npt.NDArray[np.float64]
#: Models that are looked at together, where a learner does.
_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """One row of ``artifacts``: flat weights and intercept for ``linear``, bytes for ``tensors`` and ``lightgbm``."""

    format: str
    weights: FloatArray | None
    intercept: FloatArray | None
    content: bytes | None
    sha256: str


def store(artifact: Artifact, linear: bool) -> StoredArtifact:
    """Return the columns of a finished model; ``linear`` asks for weights and intercept as numbers."""
    if linear:
        weights = np.ascontiguousarray(artifact.tensors["weights"], dtype="<f8").ravel()
        intercept = np.ascontiguousarray(artifact.tensors["intercept"], dtype="<f8").ravel()
        return StoredArtifact("linear", weights, intercept, None, _digest(weights.tobytes() + intercept.tobytes()))
    if artifact.format == "lightgbm":
        return StoredArtifact("lightgbm", None, None, artifact.text, _digest(artifact.text))
    content = tensor_bytes(artifact.tensors)
    return StoredArtifact("tensors", None, None, content, _digest(content))


def restore(stored: StoredArtifact, where: str) -> Artifact:
    """Inverse of ``store``; ``where`` names the model in errors.

    Raises DataError when the bytes are not those that were written.
    """
    if stored.format == "linear":
        return _restore_linear(stored, where)
    if stored.format is None:
        raise _damaged(where, "its best trial has no artifact")
    _check(stored.content or b"", stored.sha256, where)
    if stored.format == "lightgbm":
        return Artifact("lightgbm", text=stored.content or b"")
    if stored.format != "tensors":
        raise _damaged(where, f'its format "{stored.format}" is unknown')
    try:
        return Artifact("tensors", named_tensors(stored.content or b""))
    except NotTensors as error:
        raise _damaged(where, str(error)) from None


def refuse_misfits(learner: Learner, models: Sequence[tuple[Problem, Artifact]], where: Callable[[int], str]) -> None:
    """Raise DataError where a model is not one of its learner for its group: a digest says nothing of who wrote it.

    ``where`` names the model of a place.
    """
    for start in range(0, len(models), _TOGETHER):
        some = models[start : start + _TOGETHER]
        if learner.no_flaw(some):
            continue
        for place, (problem, artifact) in enumerate(some, start):
            flaw = learner.flaw(problem, artifact)
            if flaw is not None:
                raise _damaged(where(place), flaw)


def _restore_linear(stored: StoredArtifact, where: str) -> Artifact:
    weights, intercept = _numbers(stored.weights), _numbers(stored.intercept)
    _check(weights.tobytes() + intercept.tobytes(), stored.sha256, where)
    if not intercept.size or weights.size % intercept.size:
        raise _damaged(where, f"{weights.size} weights do not fit {intercept.size} outputs")
    return Artifact("tensors", {"weights": weights.reshape(intercept.size, -1), "intercept": intercept})


def _numbers(values: Any) -> FloatArray:
    return np.asarray([] if values is None else values, dtype="<f8")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check(content: bytes, expected: str, where: str) -> None:
    if _digest(content) != expected:
        raise _damaged(where, "its bytes do not match their SHA-256")


def _damaged(where: str, why: str) -> DataError:
    return data_error(f"the stored model of {where} is damaged: {why}.\n\nHint: train the model again")
