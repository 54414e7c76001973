"""What linear learners share: hyperparameter columns, linear predictors, their links and their artifacts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.kernels import algebra
from grouplearn.kernels.linear import sparse
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.label import NUMBER, TWO_CLASSES, Label
from grouplearn.models.state import Artifact, State, shape_flaw

L1 = Hyperparameter(
    "l1",
    "float",
    0.0,
    "weight of the penalty l1·‖w‖₁: a larger one makes more weights 0 (never the intercept)",
    "Tibshirani 1996",
    low=0.0,
)
FIT_INTERCEPT = Hyperparameter(
    "fit_intercept", "bool", True, "whether the model has an intercept", "scikit-learn", remedy="default"
)

LEARNING_RATE = Hyperparameter(
    "learning_rate",
    "float",
    1.0,
    "length of the first step, as a share of the distance to a first estimate of the best weights. It changes how "
    "soon training converges, not the model that it converges to, and nothing in small groups: search l1 and l2 instead",
    "Nocedal & Wright 2006, section 7.2",
    low=0.0,
    open_low=True,
    remedy="lower",
)
GLM_L2 = Hyperparameter(
    "l2",
    "float",
    1.0,
    "weight of the penalty ½·l2·‖w‖²: a larger one makes the weights smaller",
    "scikit-learn: C = 1/l2, Ridge alpha = l2",
    low=0.0,
)
RIDGE_L2 = Hyperparameter(
    "l2",
    "float",
    0.0,
    "weight of the penalty ½·l2·‖w‖² (ridge): a larger one makes the weights smaller",
    "Hoerl & Kennard 1970",
    low=0.0,
)
HISTORY = Hyperparameter(
    "history",
    "int",
    10,
    "past steps that the solver keeps: until it computes second derivatives again, and instead of them for models"
    " of more than 256 weights (L-BFGS); more steps often need fewer epochs, and take more memory",
    "Nocedal & Wright 2006, section 7.2",
    low=1.0,
    high=100.0,
)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-8,
    "training ends when the next step would lower the objective by less than this share of it",
    "Nocedal & Wright 2006, section 7.2",
    low=0.0,
    open_low=True,
)


def column(configs: Sequence[Config], hyperparameter: Hyperparameter) -> FloatArray:
    """Return one hyperparameter of every config as floats, shape (c,); a config that lacks it has the default."""
    return np.array([config.get(hyperparameter.name, hyperparameter.default) for config in configs], dtype=np.float64)


def linear_predictor(x: Matrix, weights: FloatArray, intercept: FloatArray) -> FloatArray:
    """Return x wᵀ + b of shape (n, c, k) for weights (c, k, d) and intercept (c, k), in one product."""
    n_configs, n_outputs, n_features = weights.shape
    columns = np.ascontiguousarray(weights.reshape(n_configs * n_outputs, n_features).T)
    scores = algebra.product(x, columns) if isinstance(x, np.ndarray) else sparse.product(x, columns)
    predictor: FloatArray = scores.reshape(-1, n_configs, n_outputs)
    predictor += intercept
    return predictor


def inverse_link(label: Label, predictor: FloatArray, log_link: bool = False) -> FloatArray:
    """Return values (regression), the probability of class 1 (binary) or of every class (multiclass), stably.

    With a log link the value is exp(predictor), at most infinity.
    """
    if label == NUMBER:
        return algebra.exponential(predictor) if log_link else predictor
    return algebra.sigmoid(predictor) if label == TWO_CLASSES else algebra.softmax(predictor)


def artifact_of(state: State, index: int) -> Artifact:
    """Return the model of config ``index`` from the state's ``weights`` (c, k, d) and ``intercept`` (c, k)."""
    return Artifact(
        "tensors",
        {"weights": state.tensors["weights"][index].copy(), "intercept": state.tensors["intercept"][index].copy()},
    )


def as_multiclass(artifact: Artifact) -> Artifact:
    """Return a binary model with weights and an intercept for each class, 0 for the first."""
    both = {name: np.concatenate([np.zeros_like(value), value]) for name, value in artifact.tensors.items()}
    return Artifact("tensors", both)


def validation_error(problem: Problem, artifact: Artifact) -> str | None:
    """Return how weights and intercepts differ from the shapes for this problem; None if they do not."""
    outputs = problem.n_outputs
    return shape_flaw(artifact, {"weights": (outputs, problem.n_features), "intercept": (outputs,)})


def score_artifact(label: Label, artifact: Artifact, x: Matrix, log_link: bool = False) -> FloatArray:
    """Return the predictions (n, k) of a linear artifact."""
    weights, intercept = artifact.tensors["weights"], artifact.tensors["intercept"]
    return inverse_link(label, linear_predictor(x, weights[None], intercept[None]), log_link)[:, 0, :]


def absolute_weights(artifact: Artifact) -> FloatArray:
    """Return Σ over outputs of |w| per feature, shape (d,)."""
    total: FloatArray = np.abs(artifact.tensors["weights"]).sum(axis=0)
    return total
