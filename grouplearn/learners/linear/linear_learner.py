"""The finished models of the linear learners, which are the same for all ways."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from grouplearn.data.shard import FloatArray, Matrix, Stack
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Form, Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.solved import SolvedLinear, measure
from grouplearn.models.label import Label
from grouplearn.models.state import Artifact

#: Names of hyperparameters in scikit-learn and elsewhere, and what they are here.
_ELSEWHERE = {
    "c": "l2 is 1 / C, so that C = 10 is l2 = 0.1",
    "alpha": "Ridge's alpha is l2 here",
    "lambda": "it is l2 here, and l1 for lasso",
    "reg_lambda": "it is l2 here",
    "reg_alpha": "it is l1 here",
    "l1_ratio": "l1 and l2 are given apart here: WITH (l1 = 0.1, l2 = 1)",
    "penalty": "l1 and l2 are given as numbers here: WITH (l1 = 0.1, l2 = 1)",
    "max_iter": "it is epochs here",
    "tol": "it is tolerance here",
}


class LinearLearner(Learner):
    """Its models are ``weights`` (k, d) and ``intercept`` (k,)."""

    form: ClassVar[Form] = "linear"

    def why_refused(self, name: str) -> str | None:
        """Return what a hyperparameter of other libraries is called here; None for an unknown name."""
        return _ELSEWHERE.get(name)

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predicted values, means or probabilities of a finished model, shape (n, n_outputs)."""
        return linear_model.score_artifact(label, artifact, x, self.log_link)

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a binary model with weights and an intercept for each class, 0 for the first."""
        return linear_model.as_multiclass(artifact)

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of a model for this problem; None if they do not."""
        return linear_model.flaw(problem, artifact)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)


class LinearStackLearner(LinearLearner, StackLearner):
    """A linear learner whose small groups are solved together."""

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedLinear, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del configs
        return measure(self, problem, stack, solved, wanted)
