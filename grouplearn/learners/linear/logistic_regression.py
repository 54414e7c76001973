"""Binary and multinomial logistic regression with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm
from grouplearn.kernels.linear.losses import Loss, within_shares
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm
from grouplearn.learners.linear.glm_learner import GlmLearner
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label


class _LogLoss:
    """The log-loss: sigmoid for one output, softmax for more."""

    def loss(self, problem: Problem) -> Loss:
        return "logistic" if problem.label == TWO_CLASSES else "softmax"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return y (..., n) as one column (binary), or one 0/1 column per class: (..., n, k)."""
        if problem.label == TWO_CLASSES:
            return y[..., None]
        indicators: FloatArray = (y[..., None] == np.arange(problem.n_classes)).astype(np.float64)
        return indicators

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the class shares; equal ones without an intercept."""
        if not with_intercept:
            return np.full(observed.shape, 1.0 / max(2, problem.n_outputs))
        share = within_shares(observed)
        return share if problem.label == TWO_CLASSES else share / share.sum(axis=-1, keepdims=True)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return the logit of one share, or the logarithms of several."""
        scores: FloatArray = logarithm(mean / (1.0 - mean) if mean.shape[-1] == 1 else mean)
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return diag(p̄) − p̄p̄', for binary labels p̄(1 − p̄)."""
        coupling: FloatArray = -mean[..., :, None] * mean[..., None, :]
        place = np.arange(mean.shape[-1])
        coupling[..., place, place] = mean * (1.0 - mean)
        return coupling

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return −Σ ȳ·log p̄ over the classes, for binary labels over both."""
        loss: FloatArray = -(observed * logarithm(mean)).sum(axis=-1)
        if mean.shape[-1] == 1:
            loss = loss - ((1.0 - observed) * logarithm(1.0 - mean)).sum(axis=-1)
        return loss


class LogisticRegression(GlmLearner):
    """Minimises Σ wᵢ·log-loss(yᵢ, p(xᵢ'w + b)) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b): sigmoid, or softmax with K outputs.

    scikit-learn: LogisticRegression(C=1/l2), or penalty l1 with C=1/l1.
    """

    name: ClassVar[str] = "logistic_regression"
    summary: ClassVar[str] = "binary and multinomial logistic regression, with L1 and L2 penalties, by Newton's method"
    labels: ClassVar[frozenset[Label]] = frozenset({TWO_CLASSES, SEVERAL_CLASSES})
    log_link: ClassVar[bool] = False
    family: ClassVar[glm.Family] = _LogLoss()
