"""What the solvers of linear models share: the objective, its losses, and the finished models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from grouplearn.data.shard import FloatArray, Matrix, Stack
from grouplearn.learners.contract.config import Config, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.learner import Declaration, Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.solved import SolvedLinear, measure
from grouplearn.models.label import Label
from grouplearn.models.losses.loss import Loss
from grouplearn.models.metrics.metrics import family_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearObjective:
    """What a linear learner minimises by any solver: Σ wᵢ·loss(yᵢ, xᵢ'w + b) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b).

    ``losses``: one for each kind of label, or several, of which the hyperparameter ``choice`` names one. ``summaries``: by
    solver, if not ``summary`` and the solver's.
    """

    name: str
    summary: str
    losses: tuple[Loss, ...]
    l2: Hyperparameter = linear_model.GLM_L2
    choice: Hyperparameter | None = None
    summaries: Mapping[str, str] = field(default_factory=dict, hash=False)


class LinearLearner(Learner):
    """An objective and a solver that minimises it; its models are ``weights`` (k, d) and ``intercept`` (k,).

    A solver lists what it needs of a loss. It trains each objective of which a loss for every label has that.
    """

    solver: ClassVar[str]
    source: ClassVar[str] = ""
    #: How it ends the summary of an objective.
    summary: ClassVar[str]
    options: ClassVar[tuple[Hyperparameter, ...]]
    default_epochs: ClassVar[int | None] = None
    #: The fields of a loss that must be true or present, and why a loss without them is refused.
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, objective: LinearObjective, further_ways: tuple[Learner, ...] | None = None) -> None:
        """Take the first way of a learner if ``further_ways`` are given; raises ValueError for a label without a loss."""
        self.objective = objective
        self.usable_losses = tuple(loss for loss in objective.losses if not self.refusal(loss))
        labels = _tasks(objective.losses)
        if labels != _tasks(self.usable_losses):
            reasons = filter(None, map(self.refusal, objective.losses))
            raise ValueError(f"{objective.name} cannot be trained by {self.solver}: {next(reasons)}")
        self.declaration = Declaration(
            name=objective.name,
            summary=objective.summaries.get(self.solver, objective.summary + self.summary),
            labels=labels,
            hyperparameters=tuple(self._hyperparameters(is_first=further_ways is not None)),
            default_epochs=self.default_epochs,
            form="linear",
            log_link=any(loss.log_link for loss in self.usable_losses),
            handles_sparse=True,
            refused=_ELSEWHERE,
            metric_of_classes=None if all(loss.is_calibrated for loss in self.usable_losses) else "accuracy",
            cost=self._cost(),
            solver=self.solver,
            further_ways=further_ways or (),
        )

    @classmethod
    def refusal(cls, loss: Loss) -> str | None:
        """Return why this solver does not train with a loss; None if it does."""
        return next((reason for name, reason in cls.needs.items() if not getattr(loss, name)), None)

    def _hyperparameters(self, *, is_first: bool) -> Iterator[Hyperparameter]:
        if not is_first:
            yield solver_named(self.solver, self.source)
        choice = self.objective.choice
        if choice is not None:
            yield replace(
                choice,
                doc=f"{choice.doc}: {', or '.join(loss.doc for loss in self.usable_losses)}",
                choices=tuple(loss.name for loss in self.usable_losses),
                refused=tuple((loss.name, why) for loss in self.objective.losses if (why := self.refusal(loss))),
            )
        yield from (self.objective.l2 if each.name == self.objective.l2.name else each for each in self.options)

    def _cost(self) -> Cost | None:
        return None

    def loss(self, label: Label, config: Config) -> Loss:
        """Return the loss of a config for such a label; the configs of a pack share it."""
        chosen = self.chosen_loss(config)
        return next(loss for loss in self.usable_losses if label in loss.labels and chosen in ((), (loss.name,)))

    def chosen_loss(self, config: Config) -> tuple[Value, ...]:
        """Return the name of the loss that a config chooses, if it can choose."""
        choice = self.objective.choice
        return () if choice is None else (config.get(choice.name, choice.default),)

    def check_labels(self, loss: Loss, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError, with a reason a user understands, for labels (...,) that have no loss."""
        loss.check_labels(y, weight, self.declaration.name)

    def loss_metric(self, config: Config, label: Label) -> str | None:
        """Return the metric of the loss; None if its predictions are not calibrated."""
        return family_of(label).default if self.loss(label, config).is_calibrated else None

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predicted values, means or probabilities of a finished model, shape (n, n_outputs)."""
        return linear_model.score_artifact(label, artifact, x, self.declaration.log_link)

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a binary model with weights and an intercept for each class, 0 for the first."""
        return linear_model.as_multiclass(artifact)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of a model for this problem; None if they do not."""
        return linear_model.validation_error(problem, artifact)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return Σ over outputs of |w| per feature."""
        del n_features
        return linear_model.absolute_weights(artifact)


def _tasks(losses: Sequence[Loss]) -> frozenset[Label]:
    return frozenset(label for loss in losses for label in loss.labels)


class LinearStackLearner(LinearLearner, StackLearner):
    """A linear learner whose small groups are solved together."""

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedLinear, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del configs
        return measure(self, problem, stack, solved, wanted)
