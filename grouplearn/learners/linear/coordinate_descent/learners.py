"""The linear learners by coordinate descent; each makes the same artifact as the learner of its name."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear.losses import LOSSES, Loss
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm, linear_model, linear_regression, linear_svm
from grouplearn.learners.linear.coordinate_descent import options
from grouplearn.learners.linear.coordinate_descent.learner import SOLVER, CoordinateDescentLearner
from grouplearn.learners.linear.linear_regression import LinearRegression
from grouplearn.learners.linear.linear_svm import LinearSvm
from grouplearn.learners.linear.logistic_regression import LogisticRegression
from grouplearn.learners.linear.one_against_rest import labels_of, of_two
from grouplearn.learners.linear.poisson_regression import PoissonRegression
from grouplearn.models.label import Label


class LinearRegressionByCoordinates(CoordinateDescentLearner):
    """Least squares, ridge, lasso and elastic net; a round on a pure block is its exact minimum (scd equation 3)."""

    name: ClassVar[str] = LinearRegression.name
    summary: ClassVar[str] = "least squares, ridge, lasso and elastic net, by coordinate descent on blocks of columns"
    labels: ClassVar[frozenset[Label]] = LinearRegression.labels
    l2: ClassVar[Hyperparameter] = linear_regression.L2
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        SOLVER,
        linear_model.L1,
        linear_regression.L2,
        options.TOLERANCE,
        options.BLOCKS,
        options.SELECTION,
        options.ACCELERATION,
        linear_model.FIT_INTERCEPT,
    )

    def loss_of(self, problem: Problem) -> Loss:
        """Return half the squared error."""
        del problem
        return "squares"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return y (n, 1)."""
        del problem
        return y[:, None]

    def level(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the mean label, or 0 without an intercept."""
        del problem
        return observed if with_intercept else np.zeros(1)


class _GlmByCoordinates(CoordinateDescentLearner):
    """A learner that takes its loss, targets and starting point from a ``family``."""

    family: ClassVar[glm.Family]

    def loss_of(self, problem: Problem) -> Loss:
        """Return the family's loss."""
        loss = self.family.loss(problem)
        if not LOSSES[loss].by_coordinates:
            raise ValueError(
                f"the loss {loss} has kinks, at which coordinate descent stops; train it with another solver"
            )
        return loss

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return the family's targets."""
        return np.ascontiguousarray(self.family.targets(problem, y))

    def level(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the scores of the family's starting point, 0 without an intercept: of a softmax they may all be anything."""
        scores = self.family.scores(self.family.start(problem, observed, with_intercept))
        return scores if with_intercept else np.zeros_like(scores)


class LogisticRegressionByCoordinates(_GlmByCoordinates):
    """Sigmoid, or softmax with K outputs: a column's weights change together, each at most half as far as it could alone."""

    name: ClassVar[str] = LogisticRegression.name
    summary: ClassVar[str] = "binary and multinomial logistic regression, by coordinate descent on blocks of columns"
    labels: ClassVar[frozenset[Label]] = LogisticRegression.labels
    family: ClassVar[glm.Family] = LogisticRegression.family


class PoissonRegressionByCoordinates(_GlmByCoordinates):
    """Counts and rates with a log link."""

    name: ClassVar[str] = PoissonRegression.name
    summary: ClassVar[str] = "regression of counts and rates (log link), by coordinate descent on blocks of columns"
    labels: ClassVar[frozenset[Label]] = PoissonRegression.labels
    log_link: ClassVar[bool] = True
    family: ClassVar[glm.Family] = PoissonRegression.family

    def check_labels(self, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError when a label is negative, or too small or large; see ``PoissonRegression``."""
        PoissonRegression().check_labels(y, weight)


class LinearSvmByCoordinates(_GlmByCoordinates):
    """The squared hinge, one model per class against the rest if there are more than two.

    The plain hinge has kinks, at which coordinate descent stops before the minimum.
    """

    name: ClassVar[str] = LinearSvm.name
    summary: ClassVar[str] = "linear support vector machine for classes, by coordinate descent on blocks of columns"
    labels: ClassVar[frozenset[Label]] = LinearSvm.labels
    family: ClassVar[glm.Family] = linear_svm.SQUARED_HINGE
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        SOLVER,
        replace(
            linear_svm.LOSS,
            doc="what a row costs whose margin m is below 1: the square of what it lacks",
            choices=("squared_hinge",),
            refused=(("hinge", "its kinks stop coordinate descent before the minimum; train it with another solver"),),
        ),
        *CoordinateDescentLearner.hyperparameters[1:],
    )

    def judged_by(self, config: Config, label: Label) -> str | None:
        """Return None: the hinge is not a metric."""
        del config, label
        return None

    def uncalibrated_metric(self) -> str:
        """Return accuracy, as ``LinearSvm`` does."""
        return LinearSvm().uncalibrated_metric()

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return the targets of each class, (n, K)."""
        parts = [self.family.targets(of_two(problem), labels) for labels in labels_of(problem, y)]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))
