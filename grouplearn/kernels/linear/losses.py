"""The losses of linear models (``source/losses``): their names, and what learners ask of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.algebra import logarithm

FloatArray = npt.NDArray[np.float64]
Loss = Literal["squares", "logistic", "softmax", "poisson", "hinge", "squared_hinge"]
#: The share or mean to start from where the labels' is 0, of which there is no score, and its distance from 1 where it is 1.
_ALMOST_NONE = 1e-6


@dataclass(frozen=True, slots=True)
class LossFacts:
    """What is known of a loss.

    - ``curvature``: its largest second derivative by the score; None where it has no bound.
    - ``start``: the score that predicts a mean label, from which stochastic gradient descent starts.
    - ``by_coordinates``: coordinate descent reaches its minimum; it stops at kinks.
    """

    curvature: float | None
    start: Callable[[float], float] = lambda mean: 0.0  # noqa: ARG005 - it does not depend on the mean
    by_coordinates: bool = True


def _logarithm(number: FloatArray) -> float:
    return float(logarithm(number))


def within_shares(share: FloatArray) -> FloatArray:
    """Return shares to start from: those of labels, however near to 0 or 1, but not 0 or 1."""
    inside: FloatArray = np.where(share <= 0, _ALMOST_NONE, np.where(share >= 1, 1 - _ALMOST_NONE, share))
    return inside


def above_zero(mean: FloatArray) -> FloatArray:
    """Return means to start from: those of labels, however small, but not 0."""
    above: FloatArray = np.where(mean > 0, mean, _ALMOST_NONE)
    return above


def _odds(share: float) -> float:
    inside = within_shares(np.array(share))
    return _logarithm(inside / (1 - inside))


#: In the order of ``source/losses/losses.hpp``.
LOSSES: Mapping[Loss, LossFacts] = MappingProxyType(
    {
        "squares": LossFacts(1.0, lambda mean: mean),
        "logistic": LossFacts(0.25, _odds),
        "softmax": LossFacts(0.5),
        "poisson": LossFacts(None, lambda mean: _logarithm(above_zero(np.array(mean)))),
        "hinge": LossFacts(1.0, by_coordinates=False),
        "squared_hinge": LossFacts(2.0),
    }
)
_NUMBERS: Mapping[Loss, int] = {loss: number for number, loss in enumerate(LOSSES)}


def number_of(loss: Loss) -> int:
    """Return the number of a loss in the kernels."""
    return _NUMBERS[loss]
