"""Artifacts as catalog columns and back: plain numbers and bytes, each with a digest that is checked before parsing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.encoding.columns import IntArray
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.data.tensors import NotTensors, named_tensors
from grouplearn.errors import DataError, data_error
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import ChecksManyModels
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.state import Artifact

FloatArray = npt.NDArray[np.float64]
#: Models checked together, if the learner can.
_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class StoredArtifact:
    """One row of ``artifacts``: flat weights and intercept for ``linear``, bytes for ``tensors`` and ``lightgbm``.

    If a linear model has wide items, each has its ``places`` and ``nonzeros``, empty for other items.
    """

    format: str
    weights: FloatArray | None
    intercept: FloatArray | None
    content: bytes | None
    sha256: str
    places: Sequence[IntArray] | None = None
    nonzeros: Sequence[FloatArray] | None = None

    @property
    def numbers(self) -> bytes:
        """The bytes that a linear model's digest covers."""
        flat = [self.weights, self.intercept, *(self.places or ()), *(self.nonzeros or ())]
        return b"".join(each.tobytes() for each in flat if each is not None)


def store_weights(artifact: Artifact, fitted: Sequence[FittedItem]) -> StoredArtifact:
    """Return the columns of a finished model that is weights and an intercept.

    ``fitted`` are its group's items; zero weights of wide ones are not stored.
    """
    weights = np.ascontiguousarray(artifact.tensors["weights"], dtype="<f8")
    intercept = np.ascontiguousarray(artifact.tensors["intercept"], dtype="<f8").ravel()
    places = nonzeros = None
    encoders = [encoder_of(item.item) for item in fitted]
    if any(each.wide for each in encoders):
        listed, places, nonzeros = [weights[:, :0]], [], []
        cuts = np.cumsum(widths_of(fitted))[:-1]
        for item, encoder, own in zip(fitted, encoders, np.split(weights, cuts, axis=1), strict=True):
            kept = (own != 0).any(axis=0) if encoder.wide else np.zeros(own.shape[1], np.bool_)
            listed += [] if encoder.wide else [own]
            places.append(encoder.numbers(item)[kept].astype("<i8"))
            nonzeros.append(np.ascontiguousarray(own[:, kept]).ravel())
        weights = np.concatenate(listed, axis=1)
    stored = StoredArtifact("linear", weights.ravel(), intercept, None, "", places, nonzeros)
    return replace(stored, sha256=_digest(stored.numbers))


def restore(stored: StoredArtifact, where: str) -> Artifact:
    """Return the model of a row; ``where`` names the model in errors.

    Raises DataError if the bytes are not those that were written.
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
    """Raise DataError if a model is not valid for its learner and group: a digest does not say who wrote it.

    ``where`` returns the model's description by its place.
    """
    for start in range(0, len(models), _TOGETHER):
        some = models[start : start + _TOGETHER]
        if isinstance(learner, ChecksManyModels) and learner.are_valid(some):
            continue
        for place, (problem, artifact) in enumerate(some, start):
            flaw = learner.validation_error(problem, artifact)
            if flaw is not None:
                raise _damaged(where(place), flaw)


def _restore_linear(stored: StoredArtifact, where: str) -> Artifact:
    """Return a linear model with the columns of wide items last."""
    stored = replace(stored, weights=_numbers(stored.weights), intercept=_numbers(stored.intercept))
    _check(stored.numbers, stored.sha256, where)
    weights, intercept = _numbers(stored.weights), _numbers(stored.intercept)
    for size in (weights.size, *(each.size for each in stored.nonzeros or ())):
        if not intercept.size or size % intercept.size:
            raise _damaged(where, f"{size} weights do not fit {intercept.size} outputs")
    listed = [each.reshape(intercept.size, -1) for each in (weights, *(stored.nonzeros or ()))]
    return Artifact("tensors", {"weights": np.concatenate(listed, axis=1), "intercept": intercept})


def with_columns(
    stored: StoredArtifact, artifact: Artifact, fitted: Sequence[FittedItem], where: str
) -> tuple[Artifact, tuple[FittedItem, ...]]:
    """Return a restored model with its columns in the order of its items, wide ones with the columns that they have.

    Raises DataError if an item cannot have these columns.
    """
    encoders = [encoder_of(item.item) for item in fitted]
    if not any(each.wide for each in encoders):
        return artifact, tuple(fitted)
    places, weights = list(stored.places or ()), artifact.tensors["weights"]
    if len(places) != len(fitted):
        raise _damaged(where, f"it has columns of {len(places)} items, and the model has {len(fitted)}")
    found = []
    for item, encoder, own in zip(fitted, encoders, places, strict=True):
        most = 0 if not encoder.wide else encoder.fitted_width(item) if encoder.per_category else item.item.buckets
        if own.size and (own[0] < 0 or own[-1] >= most or (np.diff(own) <= 0).any()):
            raise _damaged(
                where, f'its columns of "{item.item.name}" are not numbers below {most:,} in ascending order'
            )
        found.append(encoder.only(item, own) if encoder.wide else item)
    order = _order(widths_of(found), [each.wide for each in encoders])
    if order.size != weights.shape[1]:
        raise _damaged(where, f"it has {weights.shape[1]} weights per output, and {order.size} columns")
    return Artifact("tensors", {**artifact.tensors, "weights": np.ascontiguousarray(weights[:, order])}), tuple(found)


def _order(widths: Sequence[int], wide: Sequence[bool]) -> IntArray:
    """Return the places of the items' columns, item after item, in a model that has those of wide ones last."""
    widths_of, last = np.array(widths, np.int64), np.array(wide, np.bool_)
    stored = np.argsort(last, kind="stable")
    starts = np.empty(widths_of.size, np.int64)
    starts[stored] = np.cumsum(widths_of[stored]) - widths_of[stored]
    before = np.cumsum(widths_of) - widths_of
    order: IntArray = np.repeat(starts - before, widths_of) + np.arange(int(widths_of.sum()))
    return order


def _numbers(values: Any) -> FloatArray:
    return np.asarray([] if values is None else values, dtype="<f8")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _check(content: bytes, expected: str, where: str) -> None:
    if _digest(content) != expected:
        raise _damaged(where, "its bytes do not match their SHA-256")


def _damaged(where: str, why: str) -> DataError:
    return data_error(f"the stored model of {where} is damaged: {why}.\n\nHint: train the model again")
