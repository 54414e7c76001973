"""What the solvers of linear models share: the objective, its losses, and the finished models."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners.contract.config import Config, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.learner import Declaration, Learner
from grouplearn.learners.contract.pooling import pools
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import StackLearner
from grouplearn.learners.contract.standard_errors import ErrorOptions, Estimated
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.errors.of_models import ErrorsOf
from grouplearn.learners.linear.errors.sums import LinearErrorSums
from grouplearn.learners.linear.solved import SolvedLinear, measure
from grouplearn.models.label import Label
from grouplearn.models.losses.loss import Loss
from grouplearn.models.metrics.metrics import family_of
from grouplearn.models.state import Artifact, State

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
    #: Whether it solves every configuration from the same sums over the rows.
    one_pass: ClassVar[bool] = False
    #: Its options that are not applied to finished sums, see ``Hyperparameter.late``.
    early: ClassVar[frozenset[str]] = frozenset()
    #: Whether it finds the best weights of calibrated losses so exactly that these have standard errors.
    estimates: ClassVar[bool] = False
    #: The fields of a loss that must be true or present, and why a loss without them is refused.
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Names of hyperparameters elsewhere, and what they are here.
    refused: ClassVar[Mapping[str, str]] = MappingProxyType(_ELSEWHERE)

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
            log_link={loss.log_link for loss in self.usable_losses} == {True},
            has_standard_errors=self.estimates and all(loss.is_calibrated for loss in self.usable_losses),
            has_offset=self.estimates and all(loss.is_calibrated for loss in self.usable_losses),
            handles_sparse=True,
            needs_scaling=bool(objective.l2.default) or self.default_epochs is not None,
            one_pass=self.one_pass,
            refused=self.refused,
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
                doc=self._documented(choice),
                choices=tuple(dict.fromkeys(loss.chosen_as for loss in self.usable_losses)),
                refused=tuple((loss.name, why) for loss in self.objective.losses if (why := self.refusal(loss))),
            )
        own_l2 = self.objective.l2
        for option in self.options:
            late = self.one_pass and option.name not in self.early
            yield replace(own_l2 if option.name == own_l2.name else option, late=late)

    def _documented(self, choice: Hyperparameter) -> str:
        """Return the text on a hyperparameter that chooses a loss."""
        return f"{choice.doc}: {', or '.join(loss.doc for loss in self.usable_losses)}"

    def _cost(self) -> Cost | None:
        return None

    def loss(self, label: Label, config: Config) -> Loss:
        """Return the loss of a config for such a label, the first one if the config chooses none."""
        chosen = self.chosen_loss(config)
        either = ((), (None,))
        return next(
            loss
            for loss in self.usable_losses
            if label in loss.labels and (chosen in either or chosen == (loss.chosen_as,))
        )

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

    estimates: ClassVar[bool] = True

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedLinear, wanted: Collection[str]
    ) -> dict[str, FloatArray]:
        """Return the metrics of solved models on rows of the same groups; see ``stacks.GatheringLearner``."""
        del configs
        return measure(self, problem, stack, solved, wanted)

    def is_estimate(self, config: Config) -> bool:
        """Return whether the weights of a config are not penalised."""
        return not pools(self, config) and not any(
            config.get(each.name, each.default) for each in (linear_model.L1, self.objective.l2)
        )

    def error_sums(
        self, problem: Problem, configs: Sequence[Config], state: State, rows: Shard, options: ErrorOptions
    ) -> LinearErrorSums | None:
        """Return the sums over rows for standard errors; see ``contract.standard_errors``."""
        return self._errors_of(problem, configs, options).sums(configs, state, rows)

    def errors(
        self, problem: Problem, models: Estimated, sums: LinearErrorSums | None, options: ErrorOptions
    ) -> list[FloatArray]:
        """Return what is kept of the standard errors of each config."""
        return self._errors_of(problem, models.configs, options).of_pack(models, sums)

    def stack_errors(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: SolvedLinear, options: ErrorOptions
    ) -> list[FloatArray]:
        """Return what is kept of the standard errors of each config in the groups of a stack."""
        before = stack.before if self.one_pass else None
        return self._errors_of(problem, configs, options).of_stack(configs, stack, solved, before)

    def _errors_of(self, problem: Problem, configs: Sequence[Config], options: ErrorOptions) -> ErrorsOf:
        return ErrorsOf(self.loss(problem.label, configs[0]), problem, options, self.is_estimate)
