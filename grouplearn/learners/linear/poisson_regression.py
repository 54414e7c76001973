"""Poisson regression (log link) with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.kernels.linear.losses import Loss, above_zero
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm
from grouplearn.learners.linear.glm_learner import GlmLearner
from grouplearn.models.label import NUMBER, Label


class _HalfDeviance:
    """Half the deviance of a Poisson label; the second target is the constant part."""

    def loss(self, problem: Problem) -> Loss:
        del problem
        return "poisson"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return y and y·log y − y, (..., n, 2)."""
        del problem
        return np.stack([y, y * logarithm(np.where(y > 0, y, 1.0)) - y], axis=-1)

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the mean label, or 1 without an intercept."""
        del problem
        mean = observed[..., :1]
        return above_zero(mean) if with_intercept else np.ones_like(mean)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return log μ̄."""
        scores: FloatArray = logarithm(mean)
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return μ̄."""
        return mean[..., None]

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return μ̄ − ȳ·log μ̄ + the average of y·log y − y."""
        loss: FloatArray = mean[..., 0] - observed[..., 0] * logarithm(mean[..., 0]) + observed[..., 1]
        return loss


class PoissonRegression(GlmLearner):
    """Minimises Σ wᵢ·(μᵢ − yᵢ·log μᵢ + yᵢ·log yᵢ − yᵢ) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b) with μ = exp(x'w + b), y ≥ 0.

    The loss of a row is half its deviance. scikit-learn: PoissonRegressor(alpha=l2/Σw).
    """

    name: ClassVar[str] = "poisson_regression"
    summary: ClassVar[str] = "regression of counts and rates (log link), with L1 and L2 penalties, by Newton's method"
    labels: ClassVar[frozenset[Label]] = frozenset({NUMBER})
    log_link: ClassVar[bool] = True
    family: ClassVar[glm.Family] = _HalfDeviance()

    def check_labels(self, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError when a label is negative, or so large that its metrics are not finite."""
        negative = int(((y < 0) & (weight > 0)).sum())
        if negative:
            rows = f"{negative} row" + ("" if negative == 1 else "s")
            raise ValueError(
                f"the label is negative in {rows}; poisson_regression predicts counts and rates, which are >= 0"
            )
        largest = float(y.max(initial=0.0))
        if largest * largest == math.inf:
            raise ValueError("the squares of the label overflow; scale the label down")
        if ((y > 0) & (y < np.finfo(np.float64).tiny)).any():  # subnormal numbers have no logarithm here
            raise ValueError("the label has numbers between 0 and 2.3e-308; scale the label up")
