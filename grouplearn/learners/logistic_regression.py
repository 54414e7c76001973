"""Binary and multinomial logistic regression with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import scipy.special

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners import glm, linear_model, log_loss, packed
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
from grouplearn.learners.row_loss import Binary, Multinomial

#: Class shares are kept this far from 0 and 1 where they set the starting point.
_SMALLEST_SHARE = 1e-6
#: Adding the same to the scores of all classes changes nothing: below 1, so that the first Hessian is definite there.
_COUPLING = 0.9999


class _LogLoss:
    """The log-loss: sigmoid for one output, softmax for more."""

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return y (..., n) as one column (binary), or one 0/1 column per class: (..., n, k)."""
        if problem.task is Task.BINARY:
            return y[..., None]
        indicators: FloatArray = (y[..., None] == np.arange(problem.n_classes)).astype(np.float64)
        return indicators

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the class shares, or equal ones without an intercept."""
        if not with_intercept:
            return np.full(observed.shape, 1.0 / max(2, problem.n_outputs))
        share: FloatArray = np.clip(observed, _SMALLEST_SHARE, 1.0 - _SMALLEST_SHARE)
        return share if problem.task is Task.BINARY else share / share.sum(axis=-1, keepdims=True)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return the logits, or the logarithms of several shares."""
        scores: FloatArray = scipy.special.logit(mean) if mean.shape[-1] == 1 else np.log(mean)
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return diag(p̄) − p̄p̄', for binary p̄(1 − p̄), a little more than definite."""
        return _covariance(mean, _COUPLING)

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return −Σ ȳ·log p̄, of both classes."""
        loss: FloatArray = -(observed * np.log(mean)).sum(axis=-1)
        if mean.shape[-1] == 1:
            loss = loss - ((1.0 - observed) * np.log1p(-mean)).sum(axis=-1)
        return loss

    def by_row(self, predictor: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the log-loss (n, c) and p − y (n, c, k)."""
        return log_loss.by_row(Task.BINARY if predictor.shape[2] == 1 else Task.MULTICLASS, predictor, y)

    def packed(self, problem: Problem, stack: Stack, fit_intercept: bool) -> packed.Family:
        """Return the same for the solver of stacks."""
        label = self.targets(problem, stack.y).swapaxes(1, 2)
        observed = (label @ stack.weight[:, :, None])[:, :, 0] / stack.weight.sum(axis=1)[:, None]
        mean = self.start(problem, observed, fit_intercept)
        kernel = Binary() if problem.task is Task.BINARY else Multinomial()
        return packed.Family(kernel, self.scores(mean), _covariance(mean, 1.0), label)


FAMILY = _LogLoss()


def _covariance(share: FloatArray, coupled: float) -> FloatArray:
    """Return the covariance of the class indicators, its part off the diagonal times ``coupled``."""
    covariance: FloatArray = -coupled * share[..., :, None] * share[..., None, :]
    place = np.arange(share.shape[-1])
    covariance[..., place, place] = share * (1.0 - share)
    return covariance


class LogisticRegression:
    """Minimises Σ wᵢ·log-loss(yᵢ, p(xᵢ'w + b)) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b): sigmoid, or softmax with K outputs.

    One epoch is one pass over the data, see ``glm``; the groups of a stack are solved together, see ``packed``. Penalties
    and the reported weights are on the features as written. scikit-learn: LogisticRegression(C=1/l2), or penalty l1 with
    C=1/l1.
    """

    name: ClassVar[str] = "logistic_regression"
    summary: ClassVar[str] = "binary and multinomial logistic regression by L-BFGS, proximal for L1"
    access: ClassVar[Access] = Access.ALGEBRAIC
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.BINARY, Task.MULTICLASS})
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
    log_link: ClassVar[bool] = False
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
        """Return the moments of one block in the first pass, the sums of losses and gradients later; see ``glm``."""
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
        return glm.solve(self, FAMILY, problem, configs, stack, Watch(report, cancelled))

    def losses(self, state: State) -> FloatArray:
        """Return the objective per config at the accepted parameters."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return probabilities at the accepted parameters, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])
        return linear_model.inverse_link(problem.task, predictor)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` at its last accepted point."""
        del problem, configs
        return linear_model.artifact_of(state, index)

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the probabilities of a finished model, shape (n, n_outputs)."""
        return linear_model.score_artifact(task, artifact, x)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)
