"""Linear support vector machines: the squared hinge loss with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels.generalised_linear import Loss
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem, Task
from grouplearn.learners.contract.state import State, Tensors, has_tensors_of
from grouplearn.learners.contract.ways import Solved
from grouplearn.learners.linear import glm, one_against_rest
from grouplearn.learners.linear.cost import ONE_BY_ONE
from grouplearn.learners.linear.glm_learner import GlmLearner


class _SquaredHinge:
    """max(0, 1 − m)² of the margin m = (2y − 1)·score.

    Where all scores are one b in [−1, 1] its slope there is 2·(1 + b) − 4·y: a mean of targets 4·y is predicted by b = ȳ/2 − 1.
    """

    def loss(self, problem: Problem) -> Loss:
        """Return the loss of rows."""
        del problem
        return "squared_hinge"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return 4·y (..., n, 1)."""
        del problem
        return 4.0 * y[..., None]

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the mean target, or that of the score 0 without an intercept."""
        del problem
        return np.clip(observed, 0.0, 4.0) if with_intercept else np.full_like(observed, 2.0)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return mean/2 − 1."""
        scores: FloatArray = mean / 2 - 1
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return 2, or 0 where no row is inside the margin: all are of one class."""
        return np.where((mean > 0) & (mean < 4), 2.0, 0.0)[..., None]

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return ȳ·(1 − b)² + (1 − ȳ)·(1 + b)² for the share ȳ of the second class."""
        share, score = observed[..., 0] / 4, self.scores(mean)[..., 0]
        loss: FloatArray = share * (1 - score) ** 2 + (1 - share) * (1 + score) ** 2
        return loss


class LinearSvm(GlmLearner):
    """Minimises Σ wᵢ·max(0, 1 − mᵢ)² + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b) with the margins mᵢ = (2yᵢ − 1)·(xᵢ'w + b).

    Of more than two classes each has such a model, against the rest. scikit-learn: LinearSVC(C=1/l2), or penalty l1 with C=1/l1
    and l2 = 0, which penalises its intercept, too, unless intercept_scaling is huge. The probability is the logistic function of
    the score, of more classes the softmax of their scores: it orders rows, and 1/2 is where the class changes, but it is not
    calibrated.
    """

    name: ClassVar[str] = "linear_svm"
    summary: ClassVar[str] = (
        "linear support vector machine for classes, one against the rest, with L1 and L2 penalties, by Newton's method"
    )
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.BINARY, Task.MULTICLASS})
    cost: ClassVar[Cost] = ONE_BY_ONE
    family: ClassVar[glm.Family] = _SquaredHinge()

    def judged_by(self, config: Config, task: Task) -> str | None:
        """Return None: a squared hinge is no metric."""
        del config, task
        return None

    def uncalibrated_metric(self) -> str:
        """Return accuracy: a log loss would judge the probabilities, which are those of no distribution."""
        return "accuracy"

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are those of such weights, and of the solver that makes them for each class."""
        return has_tensors_of(state, self.init(problem, configs)) and one_against_rest.has_solvers(
            problem, configs, state
        )

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Small groups train together while the solver keeps a full Hessian per config and class."""
        return super().gathers(one_against_rest.of_two(problem), configs)

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block in the first pass, the sums of each class's model later."""
        return one_against_rest.accumulate(self.family, problem, configs, state, block)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass; raises Diverged in the first one when the sums overflow."""
        return one_against_rest.step(self.family, problem, configs, state, sums)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of every config on every group of a stack; see ``ways.StackLearner``."""
        return one_against_rest.solve(self.family, problem, configs, stack, report, cancelled)
