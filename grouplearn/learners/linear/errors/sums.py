"""Sums over rows from which standard errors follow, at the finished models of one config: moments with other weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear import moments as kernel
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.learners.linear.linear_model import inverse_link
from grouplearn.models.label import Label
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import Tensors


class Rows(NamedTuple):
    """Rows of G groups, concatenated: x (n, d), labels and weights (n,), where each group begins, (G + 1,), and offsets (n,)."""

    x: npt.NDArray[Any]
    y: FloatArray
    weight: FloatArray
    start: npt.NDArray[np.int64]
    offset: FloatArray | None = None

    def moments(self, weight: FloatArray) -> Tensors:
        """Return the moments of the features of each group with these weights of rows."""
        return kernel.of_rows(self.x, np.empty((len(self.y), 0)), weight, self.start)


@dataclass(frozen=True, slots=True)
class ModelSums:
    """The moments at models of G groups: ``bread`` with weights ωh, None where h is 1, and ``scores`` with weights ω²r², None
    unless they are wanted."""

    bread: Tensors | None = None
    scores: Tensors | None = None

    def merged(self, other: Self) -> ModelSums:
        """Return the sums over the rows of both."""
        return ModelSums(_either(self.bread, other.bread), _either(self.scores, other.scores))


@dataclass(frozen=True, slots=True)
class LinearErrorSums:
    """The number of ``rows`` (G,), the moments ``plain`` of the features of G groups, and the sums at models, by config."""

    rows: FloatArray
    plain: Tensors
    models: Mapping[int, ModelSums] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        of_models = (part for each in self.models.values() for part in (each.bread, each.scores) if part is not None)
        return sum(array.nbytes for part in (self.plain, *of_models) for array in part.values())

    def merged(self, other: Self) -> LinearErrorSums:
        """Return the sums over the rows of both."""
        models = {place: each.merged(other.models[place]) for place, each in self.models.items()}
        return LinearErrorSums(self.rows + other.rows, kernel.merged(self.plain, other.plain), models)


def _either(left: Tensors | None, right: Tensors | None) -> Tensors | None:
    return None if left is None or right is None else kernel.merged(left, right)


def model_sums(
    rows: Rows, weights: FloatArray, intercept: FloatArray, loss: Loss, label: Label, options: ErrorOptions
) -> ModelSums:
    """Return the sums at models ``weights`` (G, d) and ``intercept`` (G,); least squares need none for classical errors."""
    robust = options.kind != "classical"
    if loss.is_quadratic and not robust:
        return ModelSums()
    mean = _means(rows, weights, intercept, loss, label)
    bread = None if loss.is_quadratic else rows.moments(rows.weight * _curvature(loss, mean))
    return ModelSums(bread, rows.moments((rows.weight * (rows.y - mean)) ** 2) if robust else None)


def _curvature(loss: Loss, mean: FloatArray) -> FloatArray:
    """Return the second derivatives (n,) of the losses of rows by their scores."""
    if loss.coupling is None:
        raise TypeError(f"{loss.name} has no second derivative")
    return np.asarray(loss.coupling(mean[:, None])[:, 0, 0])


def _means(rows: Rows, weights: FloatArray, intercept: FloatArray, loss: Loss, label: Label) -> FloatArray:
    """Return the predicted means (n,), with the same bits whatever other groups there are."""
    of = np.repeat(np.arange(len(weights)), np.diff(rows.start))
    scores = intercept[of] if rows.offset is None else intercept[of] + rows.offset
    for column in range(rows.x.shape[1]):
        scores = scores + rows.x[:, column] * weights[of, column]
    return inverse_link(label, scores, loss.log_link)
