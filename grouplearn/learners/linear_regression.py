"""Least squares, ridge, lasso and elastic net for every config of a pack from one X'X."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners import categorical, factored, linear_model, moments, ridge, sparse_moments
from grouplearn.learners.base import (
    Access,
    Artifact,
    Config,
    Hyperparameter,
    Interrupted,
    Problem,
    Solved,
    State,
    Task,
    Tensors,
    Value,
)
from grouplearn.learners.padded import padded
from grouplearn.learners.quadratic import BoolArray
from grouplearn.learners.requirement import Requirement

L2 = Hyperparameter(
    "l2",
    "float",
    0.0,
    "weight of the penalty ½·l2·‖w‖² (ridge): the more, the smaller the weights",
    "Hoerl & Kennard 1970",
    low=0.0,
)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-11,
    "with l1 > 0: how exactly the best weights are found, as a share of l1; smaller is more exact",
    "Friedman, Hastie & Tibshirani 2010",
    low=0.0,
    open_low=True,
)


class LinearRegression:
    """Minimises Σ wᵢ·½(yᵢ − xᵢ'w − b)² + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b), exactly, in one pass.

    The pass gathers Σw, the means and the centred second moments of (x, y). Then, on columns scaled to unit length:
    without penalties the pseudo-inverse (of all least squares solutions the one with the smallest ‖w‖ on the features
    as written, as LAPACK's least squares on centred features; ``factored`` says which directions count);
    with l2 alone a Cholesky solve; with l1 the exact
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
    log_link: ClassVar[bool] = False
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = True
    requires: ClassVar[Requirement | None] = None

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
        """Return True: one pass over a small group costs less than the Python around it."""
        del problem, configs
        return True

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block; see ``moments.block_moments``."""
        del problem, configs, state
        if not isinstance(block.x, np.ndarray):
            return sparse_moments.of_block(block.x, block.y, block.weight)
        sums = moments.block_moments(block.x, block.y[:, None], block.weight, gram=True)
        return factored.of_block(sums, block.x, block.y, block.weight)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the moments of both."""
        if sparse_moments.is_sparse(left):
            return sparse_moments.merged(left, right)
        return factored.merged(moments.merge_moments(left, right), left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the solved models of all configs, done where nothing is left to gain; Diverged if the sums overflow."""
        del problem
        moments.require_finite(sums)
        if sparse_moments.is_sparse(sums):
            weights, intercept, loss, converged = _sparse_models(configs, sums)
        else:
            whole = {name: np.asarray(value)[None] for name, value in sums.items()}
            weights, intercept, loss, converged = _models(configs, whole)
        tensors = {"weights": weights[0][:, None], "intercept": intercept[0][:, None], "loss": loss[0]}
        return State({**state.tensors, **tensors}, converged[0])

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of every config on every group of a stack; see ``base.StackLearner``."""
        if cancelled():
            raise Interrupted
        rows = padded(stack)
        sums = moments.stack_moments(rows.x, rows.y[:, :, None], rows.weight)
        solved = self.solve_moments(problem, configs, sums)
        solved.loss[self.unclear(configs, sums, stack)] = np.nan
        report(stack.n_groups * len(configs))
        return solved

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups have directions that only a pass over their rows can tell from none."""
        del configs  # a group's models must not depend on what else is in the pack
        rows = padded(stack)
        return factored.unclear(sums, rows.x, rows.weight)

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> Solved:
        """Return the models from moments with any leading axes; see ``base.MomentsLearner``."""
        del problem
        leading = sums["total"].shape
        flat = {name: value.reshape(-1, *value.shape[len(leading) :]) for name, value in sums.items()}
        shape = (len(flat["mean"]), len(configs))
        weights, intercept = np.full((*shape, flat["mean"].shape[1]), np.nan), np.full(shape, np.nan)
        loss, converged = np.full(shape, np.nan), np.ones(shape, np.bool_)
        usable = np.flatnonzero(moments.finite(flat) & (flat["total"] > 0))
        if usable.size:
            whole = usable.size == len(flat["mean"])
            part = flat if whole else {name: value[usable] for name, value in flat.items()}
            weights[usable], intercept[usable], loss[usable], converged[usable] = _models(configs, part)
        return Solved(
            weights.reshape(*leading, len(configs), 1, -1),
            intercept.reshape(*leading, len(configs), 1),
            loss.reshape(*leading, len(configs)),
            np.ones((*leading, len(configs)), np.int64),
            loss.reshape(1, *leading, len(configs)),
            converged.reshape(*leading, len(configs)),
        )

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

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a model of two classes with weights and an intercept for each: 0 for the first one."""
        return linear_model.as_multiclass(artifact)

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from what such a group has."""
        return linear_model.flaw(problem, artifact)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)


def _solve(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return weights (G, C, d), objectives and whether nothing is left to gain (G, C).

    ``sums`` (G, ...) are centred, or about zero without intercept.
    """
    l1, l2 = linear_model.column(configs, linear_model.L1), linear_model.column(configs, L2)
    tolerance = linear_model.column(configs, TOLERANCE)
    inverse = moments.inverse_spread(sums["square"], sums["mean"], sums["total"])
    gram = sums["gram"] * (inverse[:, :, None] * inverse[:, None, :])
    # A constant column keeps a unit diagonal: its weight comes out as zero whatever the penalty.
    np.einsum("gii->gi", gram)[:] = 1.0
    linear = sums["cross"][:, :, 0] * inverse
    scaled = np.zeros((len(linear), len(configs), linear.shape[1]))
    converged = np.ones(scaled.shape[:2], np.bool_)
    plain, smooth, sparse = ((l1 == 0) & (l2 == 0), (l1 == 0) & (l2 > 0), l1 > 0)
    if plain.any():
        scaled[:, plain] = ridge.least_squares(gram, linear, inverse)[:, None]
    if smooth.any():
        scaled[:, smooth] = ridge.ridge(gram, linear, inverse, l2[smooth])
    if sparse.any():
        found = ridge.elastic_net(gram, linear, inverse, l1[sparse], l2[sparse], tolerance[sparse])
        scaled[:, sparse], converged[:, sparse] = found
    weights = scaled * inverse[:, None, :]
    residual = linear[:, None, :] - scaled @ gram
    explained = (scaled @ linear[:, :, None])[:, :, 0] + np.einsum("gcd,gcd->gc", scaled, residual)
    penalty = l1 * np.abs(weights).sum(axis=2) + 0.5 * l2 * (weights**2).sum(axis=2)
    loss = 0.5 * np.maximum(sums["target_gram"][:, 0] - explained, 0.0) + penalty
    if "factor" in sums:  # of one group, whose Gram matrix has lost digits
        group = {name: value[0] for name, value in sums.items()}
        for config in np.flatnonzero((l1 == 0) & factored.matters(l2, group)):
            weights[0, config], loss[0, config] = factored.solve(group, float(l2[config]))
    return weights, loss, converged


def _solve_about_zero(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray, BoolArray]:
    """As ``_solve`` without intercept, from centred moments; groups whose columns are alike so far from zero one by one."""
    raw = moments.about_zero(sums)
    lost = factored.lost(raw) if "factor" not in sums else np.ones(1, np.bool_)
    if not lost.any():
        return _solve(configs, raw)
    shape = (len(lost), len(configs))
    weights, loss, converged = np.empty((*shape, sums["mean"].shape[1])), np.empty(shape), np.empty(shape, np.bool_)
    for chosen in [np.flatnonzero(~lost), *np.flatnonzero(lost)[:, None]]:
        if chosen.size:
            centred, about = ({name: value[chosen] for name, value in each.items()} for each in (sums, raw))
            alone = bool(lost[chosen[0]])
            found = _solve(configs, factored.about_zero(centred, about) if alone else about)
            weights[chosen], loss[chosen], converged[chosen] = found
            if alone and not factored.lost(centred)[0]:
                # With l1 there is the Gram matrix alone, from which what the offset has cost cannot be gained.
                converged[chosen] &= linear_model.column(configs, linear_model.L1) == 0
    return weights, loss, converged


def _sparse_models(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """As ``_models``, from moments of sparse rows."""
    weights, loss = np.zeros((1, len(configs), sums["mean"].size)), np.zeros((1, len(configs)))
    converged = np.ones(loss.shape, np.bool_)
    with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0
    for chosen, centred in ((with_intercept, True), (~with_intercept, False)):
        if chosen.any():
            index = np.flatnonzero(chosen)
            about = sums if centred else sparse_moments.about_zero(sums)
            found = _solve_sparse([configs[int(i)] for i in index], about)
            weights[:, index], loss[:, index], converged[:, index] = found
    # One product at a time: of several, the last bits depend on how many there are.
    offset = sums["target_mean"] - np.array([[each @ sums["mean"] for each in weights[0]]])
    return weights, np.where(with_intercept, offset, 0.0), loss, converged


def _solve_sparse(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray, BoolArray]:
    """As ``_solve``: without l1 most columns are eliminated where they are those of a category."""
    l1, l2 = linear_model.column(configs, linear_model.L1), linear_model.column(configs, L2)
    parted = categorical.parted(sums) if (l1 == 0).any() else None
    weights, loss = np.zeros((1, len(configs), sums["mean"].size)), np.zeros((1, len(configs)))
    converged = np.ones(loss.shape, np.bool_)
    left = np.arange(len(configs)) if parted is None else np.flatnonzero(l1 > 0)
    if parted is not None:
        products, beyond, linear = sparse_moments.products(sums), sparse_moments.beyond(sums), sums["cross"][:, 0]
        for config in np.flatnonzero(l1 == 0):
            found = parted.solve(float(l2[config]))
            quadratic = found @ (products @ found) - sums["total"] * (beyond @ found) ** 2
            unexplained = max(float(sums["target_gram"][0, 0] - 2.0 * (found @ linear) + quadratic), 0.0)
            weights[0, config], loss[0, config] = found, 0.5 * unexplained + 0.5 * l2[config] * (found @ found)
    if left.size:
        whole = {name: np.asarray(value)[None] for name, value in sparse_moments.dense(sums).items()}
        weights[:, left], loss[:, left], converged[:, left] = _solve([configs[int(each)] for each in left], whole)
    return weights, loss, converged


def _models(configs: Sequence[Config], sums: Tensors) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """Return weights (G, C, d), intercepts, objectives and whether nothing is left to gain (G, C).

    The moments (G, ...) are finite.
    """
    shape = (len(sums["mean"]), len(configs))
    weights, loss = np.zeros((*shape, sums["mean"].shape[1])), np.zeros(shape)
    converged = np.ones(shape, np.bool_)
    with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0
    for chosen, solve in ((with_intercept, _solve), (~with_intercept, _solve_about_zero)):
        if chosen.any():
            index = np.flatnonzero(chosen)
            weights[:, index], loss[:, index], converged[:, index] = solve([configs[int(i)] for i in index], sums)
    # ȳ − x̄'w, and 0 without intercept.
    offset = sums["target_mean"] - (weights @ sums["mean"][:, :, None])[:, :, 0]
    return weights, np.where(with_intercept, offset, 0.0), loss, converged
