"""Least squares, ridge, lasso and elastic net for every config of a pack from one X'X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard
from grouplearn.learners import linear_model, moments, quadratic
from grouplearn.learners.base import (
    Access,
    Artifact,
    Config,
    Hyperparameter,
    Problem,
    State,
    Task,
    Tensors,
    Value,
)

L2 = Hyperparameter("l2", "float", 0.0, "weight of the penalty ½·l2·‖w‖² (ridge)", "Hoerl & Kennard 1970", low=0.0)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-11,
    "largest violation of the optimality conditions with l1 > 0, relative to the largest correlation with the label",
    "Friedman, Hastie & Tibshirani 2010",
    low=0.0,
    open_low=True,
)
#: Directions whose share of the largest eigenvalue of the correlation matrix is below this carry no information.
_RANK_TOLERANCE = 1e-12


class LinearRegression:
    """Minimises Σ wᵢ·½(yᵢ − xᵢ'w − b)² + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b), exactly, in one pass.

    The pass gathers Σw, the means and the centred second moments of (x, y). Then, on columns scaled to unit length:
    without penalties the pseudo-inverse (of all least squares solutions the one with the smallest ‖w‖ on the features
    as written, as LAPACK's least squares on centred features); with l2 alone a Cholesky solve; with l1 the exact
    active-set method of ``quadratic.minimise``. scikit-learn: Ridge(alpha=l2); Lasso(alpha=l1/n).
    """

    name: ClassVar[str] = "linear_regression"
    summary: ClassVar[str] = "least squares, ridge, lasso and elastic net from one pass"
    access: ClassVar[Access] = Access.ALGEBRAIC
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.REGRESSION})
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.L1,
        L2,
        TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = None
    linear: ClassVar[bool] = True
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = True
    requires: ClassVar[tuple[str, str] | None] = None

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the key of every config: all of them share the one pass."""
        del config
        return ()

    def conflict(self, config: Config) -> str | None:
        """Return None: no values contradict each other."""
        del config
        return None

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        n = len(configs)
        tensors = {
            "weights": np.zeros((n, 1, problem.n_features)),
            "intercept": np.zeros((n, 1)),
            "loss": np.full(n, np.nan),
        }
        return State(tensors, np.zeros(n, dtype=bool))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return False: one pass over a group costs little more than its rows."""
        del problem, configs
        return False

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block; see ``moments.block_moments``."""
        del problem, configs, state
        return moments.block_moments(block.x, block.y[:, None], block.weight, gram=True)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the moments of both."""
        return moments.merge_moments(left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the solved models of all configs, all of them done; Diverged if the sums overflow."""
        del problem
        moments.require_finite(sums)
        tensors = {name: value.copy() for name, value in state.tensors.items()}
        with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0
        for chosen, about in ((with_intercept, sums), (~with_intercept, moments.about_zero(sums))):
            index = np.flatnonzero(chosen)
            if index.size:
                weights, loss = _solve([configs[int(i)] for i in index], about)
                tensors["weights"][index, 0], tensors["loss"][index] = weights, loss
        # ȳ − x̄'w, and 0 without intercept.
        offset = sums["target_mean"] - tensors["weights"] @ sums["mean"]
        tensors["intercept"] = np.where(with_intercept[:, None], offset, 0.0)
        return State(tensors, np.ones(len(configs), dtype=bool))

    def losses(self, state: State) -> FloatArray:
        """Return the training objective per config."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted values, shape (n, n_configs, 1)."""
        del problem, configs
        return linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (1, d) and ``intercept`` (1,) of config ``index``."""
        del problem, configs
        return linear_model.artifact_of(state, index)

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predicted values of a finished model, shape (n, 1)."""
        return linear_model.score_artifact(task, artifact, x)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)


def _solve(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray]:
    """Return weights (c, d) and objectives (c,); ``sums`` are centred, or about zero without an intercept."""
    l1, l2 = linear_model.column(configs, linear_model.L1), linear_model.column(configs, L2)
    inverse = moments.inverse_spread(sums["square"], sums["mean"], sums["total"])
    gram = sums["gram"] * np.outer(inverse, inverse)
    # A constant column keeps a unit diagonal: its weight comes out as zero whatever the penalty.
    np.fill_diagonal(gram, 1.0)
    linear = sums["cross"][:, 0] * inverse
    scaled = np.zeros((len(configs), len(linear)))
    for i in np.flatnonzero(l1 == 0):
        scaled[i] = _ridge(gram, linear, inverse, float(l2[i]))
    lasso = np.flatnonzero(l1 > 0)
    if lasso.size:
        tolerance = linear_model.column([configs[int(i)] for i in lasso], TOLERANCE)
        scaled[lasso] = _elastic_net(gram, linear, inverse, l1[lasso], l2[lasso], tolerance)
    weights = scaled * inverse
    residual = linear - scaled @ gram
    squares = sums["target_gram"][0, 0] - scaled @ linear - np.einsum("ij,ij->i", scaled, residual)
    penalty = l1 * np.abs(weights).sum(axis=1) + 0.5 * l2 * (weights**2).sum(axis=1)
    return weights, 0.5 * np.maximum(squares, 0.0) + penalty


def _ridge(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: float) -> FloatArray:
    """Return the scaled weights of (G + l2·diag(inverse²)) v = r; without l2, of the smallest unscaled weights."""
    if l2 > 0:
        try:
            factor = np.linalg.cholesky(gram + np.diag(l2 * inverse**2))
        except np.linalg.LinAlgError:
            return _least_squares(gram, linear, inverse)
        solution: FloatArray = np.linalg.solve(factor.T, np.linalg.solve(factor, linear))
        return solution
    return _least_squares(gram, linear, inverse)


def _least_squares(gram: FloatArray, linear: FloatArray, inverse: FloatArray) -> FloatArray:
    if not linear.size:
        return linear
    values, vectors = np.linalg.eigh(gram)
    kept = values > _RANK_TOLERANCE * values[-1]
    particular: FloatArray = vectors[:, kept] @ ((vectors[:, kept].T @ linear) / values[kept])
    if kept.all():
        return particular
    # Solutions are D(v + Nz) with D = diag(inverse) and N the null space: z minimises the length of the weights.
    null = vectors[:, ~kept]
    shift = np.linalg.lstsq(null * inverse[:, None], particular * inverse, rcond=None)[0]
    shortest: FloatArray = particular - null @ shift
    return shortest


def _elastic_net(
    gram: FloatArray, linear: FloatArray, inverse: FloatArray, l1: FloatArray, l2: FloatArray, tolerance: FloatArray
) -> FloatArray:
    diagonal = np.arange(len(linear))
    matrix = np.repeat(gram[None], len(l1), axis=0)
    matrix[:, diagonal, diagonal] += l2[:, None] * inverse**2
    right = np.repeat(linear[None], len(l1), axis=0)
    scale = np.abs(linear).max(initial=0.0)
    solution, _ = quadratic.minimise(
        quadratic.Dense(matrix), right, np.outer(l1, inverse), np.zeros_like(right), tolerance * scale
    )
    return solution
