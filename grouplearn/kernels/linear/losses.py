"""The losses of linear models (``source/losses``): their names, and what learners ask of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from grouplearn.kernels.algebra import logarithm

Loss = Literal["squares", "logistic", "softmax", "poisson", "hinge", "squared_hinge"]
#: Shares of labels whose score training starts from are no nearer to 0 or 1 than this, means no smaller.
_LEAST = 1e-6


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


def _logarithm(number: float) -> float:
    return float(logarithm(np.array(number)))


def _odds(share: float) -> float:
    share = min(max(share, _LEAST), 1 - _LEAST)
    return _logarithm(share / (1 - share))


#: In the order of ``source/losses/losses.hpp``.
LOSSES: Mapping[Loss, LossFacts] = MappingProxyType(
    {
        "squares": LossFacts(1.0, lambda mean: mean),
        "logistic": LossFacts(0.25, _odds),
        "softmax": LossFacts(0.5),
        "poisson": LossFacts(None, lambda mean: _logarithm(max(mean, _LEAST))),
        "hinge": LossFacts(1.0, by_coordinates=False),
        "squared_hinge": LossFacts(2.0),
    }
)
_NUMBERS: Mapping[Loss, int] = {loss: number for number, loss in enumerate(LOSSES)}


def number_of(loss: Loss) -> int:
    """Return the number of a loss in the kernels."""
    return _NUMBERS[loss]
