"""What every way of every linear learner makes of a finished model."""

from __future__ import annotations

from typing import ClassVar

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.learners.contract.learner import Form, Learner
from grouplearn.learners.contract.problem import Problem, Task
from grouplearn.learners.contract.state import Artifact
from grouplearn.learners.linear import linear_model


class LinearLearner(Learner):
    """Its models are ``weights`` (k, d) and ``intercept`` (k,), whichever way made them."""

    form: ClassVar[Form] = "linear"

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predicted values, means or probabilities of a finished model, shape (n, n_outputs)."""
        return linear_model.score_artifact(task, artifact, x, self.log_link)

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a model of two classes with weights and an intercept for each: 0 for the first one."""
        return linear_model.as_multiclass(artifact)

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from what such a group has."""
        return linear_model.flaw(problem, artifact)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)
