"""Poisson regression (log link) with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import scipy.special

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners import glm, linear_model, packed
from grouplearn.learners.base import (
    Access,
    Artifact,
    Config,
    Hyperparameter,
    Problem,
    Solved,
    State,
    Task,
    Tensors,
    Value,
)
from grouplearn.learners.lanes import Watch
from grouplearn.learners.row_loss import Poisson

#: The mean label is kept above this where it sets the starting point.
_SMALLEST_MEAN = 1e-6


class _HalfDeviance:
    """Half the deviance of a Poisson label; the second target carries the part that no prediction changes."""

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return y and y·log y − y, (..., n, 2)."""
        del problem
        return np.stack([y, scipy.special.xlogy(y, y) - y], axis=-1)

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the mean label, or 1 without an intercept."""
        del problem
        mean = observed[..., :1]
        return np.maximum(mean, _SMALLEST_MEAN) if with_intercept else np.ones_like(mean)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return log μ̄."""
        scores: FloatArray = np.log(mean)
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return μ̄."""
        return mean[..., None]

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return μ̄ − ȳ·log μ̄ + the average of y·log y − y."""
        loss: FloatArray = mean[..., 0] - observed[..., 0] * np.log(mean[..., 0]) + observed[..., 1]
        return loss

    def by_row(self, predictor: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return half the deviance (n, c) and μ − y (n, c, 1)."""
        score, label = predictor[:, :, 0], y[:, None]
        loss = scipy.special.xlogy(label, label) - label - label * score
        np.exp(predictor, out=predictor)
        loss += score
        score -= label
        return loss, predictor

    def packed(self, problem: Problem, stack: Stack, fit_intercept: bool) -> packed.Family:
        """Return the same for the solver of stacks; double precision, for large counts."""
        observed = ((stack.y * stack.weight).sum(axis=1) / stack.weight.sum(axis=1))[:, None]
        mean = self.start(problem, observed, fit_intercept)
        return packed.Family(Poisson(), self.scores(mean), self.coupling(mean), stack.y[:, None], single=False)


FAMILY = _HalfDeviance()


def _refuse_negative(y: FloatArray, weight: FloatArray) -> None:
    negative = int(((y < 0) & (weight > 0)).sum())
    if negative:
        rows = f"{negative} row" + ("" if negative == 1 else "s")
        raise ValueError(
            f"the label is negative in {rows}; poisson_regression predicts counts and rates, which are >= 0"
        )


def _mean(predictor: FloatArray) -> FloatArray:
    """Return exp(score), at most infinity."""
    with np.errstate(over="ignore"):
        return np.exp(predictor)


class PoissonRegression:
    """Minimises Σ wᵢ·(μᵢ − yᵢ·log μᵢ + yᵢ·log yᵢ − yᵢ) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b) with μ = exp(x'w + b), y ≥ 0.

    The loss of a row is half its deviance. One epoch is one pass over the data, see ``glm``; the groups of a stack are
    solved together, see ``packed``. scikit-learn: PoissonRegressor(alpha=l2/Σw).
    """

    name: ClassVar[str] = "poisson_regression"
    summary: ClassVar[str] = "regression of counts and rates (log link) by L-BFGS, proximal for L1"
    access: ClassVar[Access] = Access.ALGEBRAIC
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.REGRESSION})
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.LEARNING_RATE,
        linear_model.L1,
        linear_model.GLM_L2,
        linear_model.HISTORY,
        linear_model.TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 100
    linear: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = True
    requires: ClassVar[tuple[str, str] | None] = None

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (history, fit_intercept): these set the shape of the state."""
        return tuple(config.get(each.name, each.default) for each in (linear_model.HISTORY, linear_model.FIT_INTERCEPT))

    def conflict(self, config: Config) -> str | None:
        """Return None: no values contradict each other."""
        del config
        return None

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        return glm.init(problem, configs)

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Small groups train together while the solver keeps a full Hessian per config."""
        return glm.n_parameters(problem, configs) <= glm.DENSE_PARAMETERS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard | Stack) -> Tensors:
        """Return the moments of one block in the first pass, the sums of losses and gradients later; see ``glm``.

        Raises ValueError in the first pass when a label is negative.
        """
        if "point" not in state.tensors:
            _refuse_negative(block.y, block.weight)
        return glm.accumulate(FAMILY, problem, configs, state, block)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        return glm.merge(left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass; raises Diverged in the first one when the sums overflow."""
        return glm.step(FAMILY, problem, configs, state, sums)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of every config on every group of a stack; see ``base.StackLearner``."""
        _refuse_negative(stack.y, stack.weight)
        return glm.solve(self, FAMILY, problem, configs, stack, Watch(report, cancelled))

    def losses(self, state: State) -> FloatArray:
        """Return the objective per config at the accepted parameters."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means at the accepted parameters, shape (n, n_configs, 1)."""
        del problem, configs
        return _mean(linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"]))

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` at its last accepted point."""
        del problem, configs
        return linear_model.artifact_of(state, index)

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predicted means of a finished model, shape (n, 1)."""
        return _mean(linear_model.score_artifact(task, artifact, x))

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)
