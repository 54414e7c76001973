"""The linear learners: an objective each, and the solvers that minimise it, the default first."""

from __future__ import annotations

from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.coordinate_descent.solver import CoordinateDescentSolver
from grouplearn.learners.linear.least_squares.solver import LeastSquaresSolver
from grouplearn.learners.linear.linear_learner import LinearLearner, LinearObjective
from grouplearn.learners.linear.newton import NewtonSolver
from grouplearn.learners.linear.stochastic_gradient.many_losses import ManyLossesSolver
from grouplearn.learners.linear.stochastic_gradient.solver import StochasticGradientSolver
from grouplearn.models.losses.hinge import HINGE
from grouplearn.models.losses.logistic import LOGISTIC
from grouplearn.models.losses.losses import LOSSES
from grouplearn.models.losses.poisson import POISSON
from grouplearn.models.losses.residuals import ABSOLUTE, HUBER, QUANTILE
from grouplearn.models.losses.softmax import SOFTMAX
from grouplearn.models.losses.squared_hinge import SQUARED_HINGE
from grouplearn.models.losses.squares import SQUARES

#: scikit-learn: LinearRegression, Ridge(alpha=l2), Lasso(alpha=l1/n); SGDRegressor(alpha=l2/Σw).
LINEAR_REGRESSION = LinearObjective(
    name="linear_regression",
    summary="least squares, ridge, lasso and elastic net",
    losses=(SQUARES,),
    l2=linear_model.RIDGE_L2,
    summaries={"sgd": "least squares, ridge, lasso and elastic net by stochastic gradient descent"},
)
#: scikit-learn: LogisticRegression(C=1/l2), or penalty l1 with C=1/l1; SGDClassifier(loss="log_loss", alpha=l2/Σw).
LOGISTIC_REGRESSION = LinearObjective(
    name="logistic_regression",
    summary="binary and multinomial logistic regression",
    losses=(LOGISTIC, SOFTMAX),
)
#: scikit-learn: LinearSVC(C=1/l2), or penalty l1 with C=1/l1 and l2 = 0, which also penalises its intercept unless
#: intercept_scaling is huge; for the hinge SVC(kernel="linear", C=1/l2). The probability is the logistic function of the
#: score, with more classes the softmax of the scores. It orders rows, and the class changes at 1/2, but it is not calibrated.
LINEAR_SVM = LinearObjective(
    name="linear_svm",
    summary="linear support vector machine for classes, one against the rest",
    losses=(SQUARED_HINGE, HINGE),
    summaries={
        "coordinate_descent": "linear support vector machine for classes, by coordinate descent on blocks of columns"
    },
    choice=Hyperparameter(
        "loss",
        "str",
        SQUARED_HINGE.name,
        "the loss of a row whose margin m is below 1",
        "scikit-learn: LinearSVC(loss='hinge'), SVC(kernel='linear')",
    ),
)
#: scikit-learn: PoissonRegressor(alpha=l2/Σw).
OF_ONE_LOSS = tuple(
    LinearObjective(name=loss.learner, summary=loss.summary, losses=(loss,)) for loss in LOSSES if loss.learner
)
#: scikit-learn: SGDRegressor and SGDClassifier by loss, with alpha=l2/Σw; QuantileRegressor(quantile=alpha, alpha=l1/n).
LINEAR_LEARNER = LinearObjective(
    name="linear_learner",
    summary="linear models with losses of their own, for numbers and classes, all trained in the same passes over the rows",
    losses=(SQUARES, LOGISTIC, SOFTMAX, ABSOLUTE, QUANTILE, HUBER, POISSON, HINGE, SQUARED_HINGE),
    choice=Hyperparameter(
        "loss",
        "str",
        None,
        "what is minimised: of numbers squared (the default, ½(y - s)²), absolute (whose minimum is the median), quantile (of "
        "level alpha), huber (squared up to delta, then absolute) or poisson (counts and rates, predicted as exp(s)); of classes "
        "logistic (the default) or, one class against the rest, hinge or squared_hinge",
        "Liberty et al. 2020, section 3",
        nullable=True,
    ),
)


def _learner(objective: LinearObjective, first: type[LinearLearner]) -> Learner:
    return first(objective, (CoordinateDescentSolver(objective), StochasticGradientSolver(objective)))


LEARNERS = (
    _learner(LINEAR_REGRESSION, LeastSquaresSolver),
    _learner(LOGISTIC_REGRESSION, NewtonSolver),
    *(_learner(objective, NewtonSolver) for objective in OF_ONE_LOSS),
    _learner(LINEAR_SVM, NewtonSolver),
    ManyLossesSolver(LINEAR_LEARNER),
)
