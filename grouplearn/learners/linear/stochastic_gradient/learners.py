"""Logistic, linear and Poisson regression and linear SVM by stochastic gradient descent."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear.losses import Loss
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.linear_regression import L2, LinearRegression
from grouplearn.learners.linear.linear_svm import LOSS, LinearSvm
from grouplearn.learners.linear.logistic_regression import LogisticRegression
from grouplearn.learners.linear.poisson_regression import PoissonRegression
from grouplearn.learners.linear.stochastic_gradient.learner import (
    AVERAGE,
    BATCH_SIZE,
    LEARNING_RATE,
    SCHEDULE,
    SOLVER,
    TOLERANCE,
    SgdLearner,
)
from grouplearn.models.label import TWO_CLASSES, Label


def _hyperparameters(l2: Hyperparameter) -> tuple[Hyperparameter, ...]:
    """Return the hyperparameters that all these ways share."""
    penalties = (linear_model.L1, l2)
    return (SOLVER, LEARNING_RATE, SCHEDULE, BATCH_SIZE, *penalties, AVERAGE, TOLERANCE, linear_model.FIT_INTERCEPT)


class LogisticRegressionSgd(SgdLearner):
    """``LogisticRegression`` by stochastic gradient descent: sigmoid, or softmax with K outputs.

    scikit-learn: SGDClassifier(loss="log_loss", alpha=l2/Σw) for two classes.
    """

    of: ClassVar[Learner] = LogisticRegression()
    name: ClassVar[str] = LogisticRegression.name
    summary: ClassVar[str] = (
        "binary and multinomial logistic regression, with L1 and L2, by stochastic gradient descent"
    )
    labels: ClassVar[frozenset[Label]] = LogisticRegression.labels
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = _hyperparameters(linear_model.GLM_L2)

    def loss(self, problem: Problem, config: Config) -> Loss:
        """Return the log-loss of two classes or of more."""
        del config
        return "logistic" if problem.label == TWO_CLASSES else "softmax"


class LinearRegressionSgd(SgdLearner):
    """``LinearRegression`` by stochastic gradient descent. scikit-learn: SGDRegressor(alpha=l2/Σw)."""

    of: ClassVar[Learner] = LinearRegression()
    name: ClassVar[str] = LinearRegression.name
    summary: ClassVar[str] = "least squares, ridge, lasso and elastic net by stochastic gradient descent"
    labels: ClassVar[frozenset[Label]] = LinearRegression.labels
    l2: ClassVar[Hyperparameter] = L2
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = _hyperparameters(L2)

    def loss(self, problem: Problem, config: Config) -> Loss:
        """Return half the square."""
        del problem, config
        return "squares"


class PoissonRegressionSgd(SgdLearner):
    """``PoissonRegression`` by stochastic gradient descent."""

    of: ClassVar[Learner] = PoissonRegression()
    name: ClassVar[str] = PoissonRegression.name
    summary: ClassVar[str] = "regression of counts and rates (log link), with L1 and L2, by stochastic gradient descent"
    labels: ClassVar[frozenset[Label]] = PoissonRegression.labels
    log_link: ClassVar[bool] = True
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = _hyperparameters(linear_model.GLM_L2)

    def loss(self, problem: Problem, config: Config) -> Loss:
        """Return half the deviance."""
        del problem, config
        return "poisson"

    def check_labels(self, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError when a label is negative, or so large that its metrics are not finite."""
        PoissonRegression().check_labels(y, weight)


class LinearSvmSgd(SgdLearner):
    """``LinearSvm`` by stochastic gradient descent; with more than two classes, one against the rest.

    scikit-learn: SGDClassifier(loss="hinge" or "squared_hinge", alpha=l2/Σw).
    """

    of: ClassVar[Learner] = LinearSvm()
    name: ClassVar[str] = LinearSvm.name
    summary: ClassVar[str] = (
        "linear support vector machine for classes, one against the rest, with L1 and L2, by stochastic gradient descent"
    )
    labels: ClassVar[frozenset[Label]] = LinearSvm.labels
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (SOLVER, LOSS, *_hyperparameters(linear_model.GLM_L2)[1:])

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the loss and what sets the batches and the shape of the state."""
        return (*super().pack_key(config), config.get(LOSS.name, LOSS.default))

    def loss(self, problem: Problem, config: Config) -> Loss:
        """Return the hinge of a config."""
        del problem
        return "hinge" if config.get(LOSS.name, LOSS.default) == "hinge" else "squared_hinge"
