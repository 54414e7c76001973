"""Least squares, ridge, lasso and elastic net for every config of a pack from one X'X."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.kernels.linear import least_squares, sparse
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.pooling import POOLING, Prior
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import MomentsLearner, states_of
from grouplearn.learners.linear import linear_model, offset
from grouplearn.learners.linear.cost import MOMENTS
from grouplearn.learners.linear.least_squares import categorical, factored, moments, sparse_moments
from grouplearn.learners.linear.linear_learner import LinearStackLearner
from grouplearn.learners.linear.pooling.priors import priors
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.state import Artifact, State, Tensors

TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    1e-11,
    "with l1 > 0: how exactly the best weights are found, as a share of l1; smaller is more exact",
    "Friedman, Hastie & Tibshirani 2010",
    low=0.0,
    open_low=True,
)
#: Most rounds with l1: the second number divided by the columns, as rounds of few columns are quick; at least the first.
_LEAST_ROUNDS, _ROUNDS_OF_COLUMNS = 1_000, 1_000_000


class LeastSquaresSolver(LinearStackLearner, MomentsLearner):
    """Least squares, ridge, lasso and elastic net, exactly, in one pass.

    The pass gathers Σw, the means and the centred second moments of (x, y). Then, on columns scaled to unit length:
    without penalties the pseudo-inverse (of all least squares solutions the one with the smallest ‖w‖ on the features
    as written, as LAPACK's least squares on centred features; ``factored`` says which directions count);
    with l2 alone Cholesky's factor; with l1 coordinate descent, then exact solves on the faces that it reaches
    (``kernels.least_squares``), and where that comes to no end an active set on a factor of the rows.
    """

    solver: ClassVar[str] = "moments"
    summary: ClassVar[str] = " from one pass"
    one_pass: ClassVar[bool] = True
    early: ClassVar[frozenset[str]] = frozenset({POOLING.name})
    options: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.L1,
        linear_model.RIDGE_L2,
        TOLERANCE,
        linear_model.FIT_INTERCEPT,
        POOLING,
    )
    usual_cost: ClassVar[Cost] = MOMENTS
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({"is_quadratic": "least squares need a quadratic loss"})

    def pools(self, config: Config) -> bool:
        """Return whether the models of a config shrink."""
        return config.get(POOLING.name) == "shrink"

    def priors(
        self, config: Config, states: Sequence[bytes], rows: FloatArray, parents: npt.NDArray[np.intp]
    ) -> list[Prior]:
        """Return what each group begins with; see ``contract.pooling``."""
        return priors(states, rows, parents, bool(config[linear_model.FIT_INTERCEPT.name]))

    def conflict(self, config: Config) -> Conflict | None:
        """Return that weights shrink to 0 or to those of other groups, not to both."""
        penalty = next((each.name for each in (linear_model.L1, linear_model.RIDGE_L2) if config[each.name]), None)
        if penalty is None or not self.pools(config):
            return None
        message = f"pooling = 'shrink' is a penalty of its own, and {penalty} is above 0"
        return Conflict(message, (penalty, POOLING.name))

    def explained(self, configs: Sequence[Config]) -> list[str]:
        """Return the line of EXPLAIN on configs that shrink."""
        number = sum(map(self.pools, configs))
        if not number:
            return []
        which = "" if number == len(configs) else f"{number} of {len(configs)} configurations: "
        return [f"{which}groups shrink to what those of their parent have in common, after a pass that finds it"]

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
        del state
        block = offset.taken_off(problem, block)
        if not isinstance(block.x, np.ndarray):
            return sparse_moments.of_block(block.x, block.y, block.weight)
        sums = moments.block_moments(block.x, block.y[:, None], block.weight, gram=True)
        descends = bool((linear_model.column(configs, linear_model.L1) > 0).any())
        return factored.of_block(sums, block.x, block.y, block.weight, descends)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the moments of both."""
        if sparse_moments.is_sparse(left) != sparse_moments.is_sparse(right):  # a prior is dense
            left, right = (
                sparse_moments.dense(each) if sparse_moments.is_sparse(each) else each for each in (left, right)
            )
        if sparse_moments.is_sparse(left):
            return sparse_moments.merged(left, right)
        return factored.merged(moments.merge_moments(left, right), left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the solved models of all configs, done if they converged; raises Diverged if the sums overflow."""
        moments.require_finite(sums)
        if sparse_moments.is_sparse(sums):
            weights, intercept, loss, converged = _sparse_models(configs, sums)
        else:
            weights, intercept, loss, converged = _dense_models(configs, sums)
        tensors = {"weights": offset.fixed(problem, weights)[:, None], "intercept": intercept[:, None], "loss": loss}
        return State({**state.tensors, **tensors}, converged)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedLinear:
        """Return the models of every config on every group of a stack; see ``stacks.StackLearner``."""
        parts, stack = [], offset.stack_taken_off(problem, stack)
        for part in moments.runs_of(stack, problem.n_features, cancelled):
            sums = moments.group_moments(part, part.y[:, None])
            solved = self.solve_moments(problem, configs, sums)
            solved = replace(solved, states=states_of(sums)) if part.keeps_sums else solved
            left = ~solved.converged.all(axis=1) & factored.keeps_rows(part)
            solved.loss[self.unclear(configs, sums, part) | left] = np.nan
            parts.append(solved)
            report(part.n_groups * len(configs))
        return SolvedLinear.joined(parts)

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups have directions so weak that only a pass over the rows can tell whether they exist."""
        del configs  # a group's models must not depend on what else is in the pack
        return factored.unclear(sums, stack)

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> SolvedLinear:
        """Return the models from moments with any leading axes; see ``stacks.MomentsLearner``."""
        shape = (*sums["total"].shape, len(configs))
        flat = {name: value.reshape(-1, *value.shape[len(shape) - 1 :]) for name, value in sums.items()}
        found = least_squares.solve(flat, _penalties(configs, flat))
        loss = found.loss.reshape(shape)
        return SolvedLinear(
            offset.fixed(problem, found.weights.reshape(*shape, 1, -1)),
            found.intercept.reshape(*shape, 1),
            loss,
            np.ones(shape, np.int64),
            loss[None].copy(),
            found.converged.reshape(shape),
        )

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted values, shape (n, n_configs, 1)."""
        del problem, configs
        return linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (1, d) and ``intercept`` (1,) of config ``index``."""
        del problem, configs
        return linear_model.artifact_of(state, index)


def _penalties(configs: Sequence[Config], sums: Tensors) -> least_squares.LeastSquaresPenalties:
    """Return the configs as the kernel takes them, for ``sums`` (G, ...)."""
    return least_squares.LeastSquaresPenalties(
        l1=linear_model.column(configs, linear_model.L1),
        l2=linear_model.column(configs, linear_model.RIDGE_L2),
        tolerance=linear_model.column(configs, TOLERANCE),
        fit_intercept=linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0,
        rounds=max(_LEAST_ROUNDS, _ROUNDS_OF_COLUMNS // max(1, sums["mean"].shape[-1])),
    )


def _dense_models(
    configs: Sequence[Config], sums: Tensors
) -> tuple[FloatArray, FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return weights (C, d), intercepts, objectives and whether they converged (C,), from moments of dense rows.

    What descent over the moments does not end is solved on rows, if they are kept.
    """
    whole = {name: np.asarray(value)[None] for name, value in sums.items() if name not in ("factor", "rows")}
    found = least_squares.solve(whole, _penalties(configs, whole), sums.get("factor"))
    weights, intercept, loss, converged = (each[0] for each in found)
    left = np.flatnonzero(~converged)
    if left.size and "rows" in sums:
        some = _penalties([configs[place] for place in left.tolist()], whole)
        exact = least_squares.solve(whole, some, least_squares.triangle(sums["rows"]))
        ended = exact.converged[0]
        for all_of, those in zip((weights, intercept, loss, converged), exact, strict=True):
            all_of[left[ended]] = those[0, ended]
    return weights, intercept, loss, converged


def _sparse_models(
    configs: Sequence[Config], sums: Tensors
) -> tuple[FloatArray, FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Return weights (C, d), intercepts, objectives and whether they converged (C,), from moments of sparse rows.

    Without l1, categories that are most of the columns are eliminated; otherwise the Gram matrix is made dense.
    """
    n_configs = len(configs)
    weights, intercept, loss = np.zeros((n_configs, sums["mean"].size)), *np.zeros((2, n_configs))
    converged, left = np.ones(n_configs, np.bool_), np.ones(n_configs, np.bool_)
    with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT) > 0
    plain, l2 = linear_model.column(configs, linear_model.L1) == 0, linear_model.column(configs, linear_model.RIDGE_L2)
    for chosen, centred in ((with_intercept & plain, True), (~with_intercept & plain, False)):
        about = sums if centred else sparse_moments.about_zero(sums)
        parted = categorical.parted(about) if chosen.any() else None
        if parted is None:
            continue
        for config in np.flatnonzero(chosen):
            weights[config], loss[config] = _without_categories(parted, about, float(l2[config]))
            intercept[config] = sums["target_mean"][0] - (weights[config] * sums["mean"]).sum() if centred else 0.0
            left[config] = False
    if left.any():
        whole = {name: np.asarray(value)[None] for name, value in sparse_moments.dense(sums).items()}
        rest = [config for config, is_left in zip(configs, left.tolist(), strict=True) if is_left]
        found = least_squares.solve(whole, _penalties(rest, whole))
        weights[left], intercept[left], loss[left], converged[left] = (each[0] for each in found)
    return weights, intercept, loss, converged


def _without_categories(parted: categorical.CategoricalMoments, sums: Tensors, l2: float) -> tuple[FloatArray, float]:
    """Return the weights (d,) and their objective, with the columns of the category eliminated."""
    products, beyond, linear = sparse_moments.products(sums), sums["beyond"], sums["cross"][:, 0]
    found = parted.solve(l2)
    # BLAS would sum in another order on another processor.
    quadratic = (found * sparse.product(products, found)).sum() - sums["total"] * (beyond * found).sum() ** 2
    unexplained = max(float(sums["target_gram"][0, 0] - 2.0 * (found * linear).sum() + quadratic), 0.0)
    return found, 0.5 * unexplained + 0.5 * l2 * float((found * found).sum())
