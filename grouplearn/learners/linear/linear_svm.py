"""Linear support vector machines: squared hinge or hinge loss with L1 and L2 penalties, all configs of a pack in every pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels.algebra import logarithm
from grouplearn.kernels.linear.losses import Loss
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm, one_against_rest
from grouplearn.learners.linear.cost import ONE_BY_ONE
from grouplearn.learners.linear.glm_learner import GlmLearner
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import State, Tensors, has_tensors_of


class _SquaredHinge:
    """max(0, 1 − m)² of the margin m = (2y − 1)·score.

    If all rows have one score b in [−1, 1], the slope is 2·(1 + b) − 4·y: for targets 4·y with mean t, b = t/2 − 1.
    """

    def loss(self, problem: Problem) -> Loss:
        del problem
        return "squared_hinge"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return 4·y (..., n, 1)."""
        del problem
        return 4.0 * y[..., None]

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the mean target; without an intercept, the mean target of the score 0."""
        del problem
        return np.clip(observed, 0.0, 4.0) if with_intercept else np.full_like(observed, 2.0)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return mean/2 − 1."""
        scores: FloatArray = mean / 2 - 1
        return scores

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return 2, or 0 where all rows are of one class: then none is inside the margin."""
        return np.where((mean > 0) & (mean < 4), 2.0, 0.0)[..., None]

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return ȳ·(1 − b)² + (1 − ȳ)·(1 + b)² for the share ȳ of the second class."""
        share, score = observed[..., 0] / 4, self.scores(mean)[..., 0]
        loss: FloatArray = share * (1 - score) ** 2 + (1 - share) * (1 + score) ** 2
        return loss


class _Hinge:
    """max(0, 1 − m). At the start, where all scores are 0, its first smoothed form (μ = 1) takes its place.

    The slope there is −s for the second class and s for the first: with targets 2·s·y, the prediction is s.
    """

    #: At the score 0, with r = √5: c = (1 + r)/2 is the golden ratio, and c + 1 its square.
    _FAR = (1 + math.sqrt(5)) / 2
    _SLOPE = _FAR / (_FAR + 1)
    _BEND = 1 / ((_FAR + 1) ** 2 + (1 + 1 / _FAR) ** 2)

    def loss(self, problem: Problem) -> Loss:
        del problem
        return "hinge"

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return 2·s·y (..., n, 1)."""
        del problem
        return 2 * self._SLOPE * y[..., None]

    def start(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return s, the prediction at the score 0."""
        del problem, with_intercept
        return np.full_like(observed, self._SLOPE)

    def scores(self, mean: FloatArray) -> FloatArray:
        """Return 0."""
        return np.zeros_like(mean)

    def coupling(self, mean: FloatArray) -> FloatArray:
        """Return the second derivative of the smoothed loss at the score 0."""
        return np.full((*mean.shape, 1), self._BEND)

    def mean_loss(self, observed: FloatArray, mean: FloatArray) -> FloatArray:
        """Return the smoothed loss at the score 0: c + 1 − log((c + 1)²/c)."""
        del observed
        more = np.full(mean.shape[:-1], self._FAR + 1)
        loss: FloatArray = more - logarithm(more * (more / self._FAR))
        return loss


LOSS = Hyperparameter(
    "loss",
    "str",
    "squared_hinge",
    "what a row costs whose margin m is below 1: the square of what it lacks, or with hinge that itself, by which rows far on "
    "the wrong side count less; it takes several times as many epochs",
    "scikit-learn: LinearSVC(loss='hinge'), SVC(kernel='linear')",
    choices=("squared_hinge", "hinge"),
)
SQUARED_HINGE: glm.Family = _SquaredHinge()
_FAMILIES: Mapping[Value, glm.Family] = MappingProxyType({"squared_hinge": SQUARED_HINGE, "hinge": _Hinge()})


def _family(configs: Sequence[Config]) -> glm.Family:
    """Return the loss of a pack, whose configs share it."""
    return _FAMILIES[_loss_of(configs[0])]


def _loss_of(config: Config) -> Value:
    return config.get(LOSS.name, LOSS.default)


class LinearSvm(GlmLearner):
    """Minimises Σ wᵢ·lossᵢ + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b) for the loss max(0, 1 − mᵢ)² or max(0, 1 − mᵢ) of the margins
    mᵢ = (2yᵢ − 1)·(xᵢ'w + b).

    With more than two classes, each has such a model against the rest. scikit-learn: LinearSVC(C=1/l2), or penalty l1 with
    C=1/l1 and l2 = 0, which also penalises its intercept unless intercept_scaling is huge; for the hinge
    SVC(kernel='linear', C=1/l2). The probability is the logistic function of the score, with more classes the softmax of
    the scores. It orders rows, and the class changes at 1/2, but it is not calibrated.
    """

    name: ClassVar[str] = "linear_svm"
    summary: ClassVar[str] = (
        "linear support vector machine for classes, one against the rest, with L1 and L2 penalties, by Newton's method"
    )
    labels: ClassVar[frozenset[Label]] = frozenset({TWO_CLASSES, SEVERAL_CLASSES})
    cost: ClassVar[Cost] = ONE_BY_ONE
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (LOSS, *GlmLearner.hyperparameters)

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return the loss and what sets the shape of the state; each loss has its own solver."""
        return (*super().pack_key(config), _loss_of(config))

    def judged_by(self, config: Config, label: Label) -> str | None:
        """Return None: neither hinge is a metric."""
        del config, label
        return None

    def uncalibrated_metric(self) -> str:
        """Return accuracy: a log loss would judge the probabilities, which are not calibrated."""
        return "accuracy"

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid weights, and a valid state of each class's solver."""
        return has_tensors_of(state, self.init(problem, configs)) and one_against_rest.has_solvers(
            problem, configs, state
        )

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether the solver keeps a full Hessian per config and class: then small groups train together."""
        return super().gathers(one_against_rest.of_two(problem), configs)

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block in the first pass, later the sums for each class's model."""
        return one_against_rest.accumulate(_family(configs), problem, configs, state, block)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass; raises Diverged in the first one when the sums overflow."""
        return one_against_rest.step(_family(configs), problem, configs, state, sums)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedLinear:
        """Return the models of every config on every group of a stack; see ``stacks.StackLearner``."""
        losses = [_loss_of(config) for config in configs]
        parts: dict[tuple[int, ...], SolvedLinear] = {}
        for loss in dict.fromkeys(losses):
            places = tuple(place for place, each in enumerate(losses) if each == loss)
            chosen = [configs[place] for place in places]
            parts[places] = one_against_rest.solve(_FAMILIES[loss], problem, chosen, stack, report, cancelled)
        return SolvedLinear.of_configs(parts)
