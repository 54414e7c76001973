"""What a learner may supply besides; callers ask whether it does, with ``isinstance`` or the functions below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from grouplearn.kernels.library import RowRuns
from grouplearn.learners.contract.config import Config, Conflict
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner, MomentsLearner
from grouplearn.learners.contract.ways import (
    AveragingLearner,
    BatchesLearner,
    DataParallelLearner,
    EpochsLearner,
    SamplingLearner,
)
from grouplearn.models.label import Label
from grouplearn.models.outputs.link import Link
from grouplearn.models.state import Artifact, FloatArray, State


@runtime_checkable
class RefusesConfigs(Protocol):
    """Some values of its hyperparameters contradict each other."""

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the values of a config contradict each other, or None; the binder refuses such configs."""
        ...


@runtime_checkable
class HasObjectives(Protocol):
    """A hyperparameter, ``objective_name``, names one of several losses, each for classes or for numbers."""

    objective_name: ClassVar[str]

    def classifies(self, config: Config) -> bool | None:
        """Return whether a config's loss is for classes, not numbers; None if it depends on the label."""
        ...

    def label_conflict(self, config: Config, classes: bool) -> Conflict | None:
        """Return which hyperparameter of a config does not apply to a label that has ``classes``, or is a number."""
        ...

    def default_metric(self, config: Config, classes: bool) -> str | None:
        """Return the metric that goes with a config's loss of a label that has ``classes``, None for the label's default."""
        ...


@runtime_checkable
class PredictsByConfig(Protocol):
    """What its models predict for a score depends on their config."""

    def predicts_as(self, config: Config) -> Learner:
        """Return the learner whose ``score`` predicts by models of a config."""
        ...


@runtime_checkable
class HasLossMetric(Protocol):
    """The default metric of its labels is not always its loss."""

    def loss_metric(self, config: Config, label: Label) -> str | None:
        """Return the metric that a config's loss is, None if there is none."""
        ...


@runtime_checkable
class NeedsWholeGroups(Protocol):
    """Some values of its hyperparameters need all rows of a group in one place."""

    def undivided(self, config: Config) -> str | None:
        """Return which hyperparameter of a config does, None if none does."""
        ...


@runtime_checkable
class ExplainsTraining(Protocol):
    """EXPLAIN has lines of its own on how it trains."""

    def explained(self, configs: Sequence[Config]) -> list[str]:
        """Return lines on how configs train."""
        ...


@runtime_checkable
class ProvesConvergence(Protocol):
    """It may guess that training has converged; others end when that is proven."""

    def proves_convergence(self, state: State, index: int) -> bool:
        """Return whether convergence of config ``index``, whose training ended by itself, is proven."""
        ...


@runtime_checkable
class NotesConstantModels(Protocol):
    """It knows why a model has no important feature."""

    def constant_model_notes(self, config: Config, n_rows: str) -> Sequence[tuple[str, str]]:
        """Return notes on such a model: that of the first condition that holds, SQL over ``n_rows``, the number of rows that
        it learned from."""
        ...


@runtime_checkable
class HasImportance(Protocol):
    """It knows which features matter to a model."""

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return one non-negative number per feature column (linear: sum over outputs of |w|), or None."""
        ...


@runtime_checkable
class JoinsClasses(Protocol):
    """A model of two classes has another form among more classes; other models are of any number as they are."""

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a finished model of two classes as ``score`` needs it among more classes: softmax of 0 and its score."""
        ...


@runtime_checkable
class ScoresRuns(Protocol):
    """It scores rows of many groups in one call; other models are called one by one, which is slow for few rows each."""

    def score_runs(
        self, label: Label, artifacts: Sequence[Artifact]
    ) -> Callable[[FloatArray, RowRuns], FloatArray] | None:
        """Return a function that scores runs of rows (n, d), each with one of these models, in one call: (n, n_outputs).

        Rows are finite doubles in C order. None: these models are called one by one.
        """
        ...


@runtime_checkable
class ChecksManyModels(Protocol):
    """It checks models of many groups at once."""

    def are_valid(self, models: Sequence[tuple[Problem, Artifact]]) -> bool:
        """Return whether ``validation_error`` would find nothing in any of these models."""
        ...


@runtime_checkable
class LimitsOffset(Protocol):
    """Some of its configs take no offset, though ``Declaration.has_offset``."""

    def offset_conflict(self, config: Config) -> Conflict | None:
        """Return why a config takes no offset, None if it does."""
        ...


@runtime_checkable
class GrowsTrees(Protocol):
    """Its models are trees, whose leaves and links depend on the config."""

    def has_linear_leaves(self, config: Config) -> bool:
        """Return whether leaves are linear models."""
        ...

    def link(self, config: Config, label: Label) -> Link:
        """Return the link of a config's scores."""
        ...


@runtime_checkable
class IsMadeOfFunctions(Protocol):
    """It consists of the user's functions, which are sent to other processes; other classes are imported there by name."""

    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Return the functions."""
        ...


def conflict(learner: object, config: Config) -> Conflict | None:
    """Return why the values of a config contradict each other; None if they do not."""
    return learner.conflict(config) if isinstance(learner, RefusesConfigs) else None


def predicting(learner: Learner, config: Config) -> Learner:
    """Return the learner whose ``score`` predicts by models of a config."""
    return learner.predicts_as(config) if isinstance(learner, PredictsByConfig) else learner


def trains_stacks(learner: object) -> bool:
    """Return whether small groups may train together in one call."""
    return _inherits(learner, GatheringLearner)


def has_moments(learner: object) -> bool:
    """Return whether all folds of a group may train together, from their moments."""
    return _inherits(learner, MomentsLearner)


def runs_epochs(learner: object) -> bool:
    """Return whether several epochs over a small group may be one call."""
    return _inherits(learner, EpochsLearner)


def trains_in_gangs(learner: Learner) -> bool:
    """Return whether several workers with different rows can train one model together; learners of sums need not."""
    return learner.access.gang_waits is not None and _inherits(learner, DataParallelLearner, SamplingLearner)


def can_be_averaged(learner: object) -> bool:
    """Return whether models trained on different rows can be averaged."""
    return _inherits(learner, AveragingLearner)


def stops_between_batches(learner: object) -> bool:
    """Return whether it can stop after any batch, or return gradients."""
    return _inherits(learner, BatchesLearner)


def _inherits(learner: object, *patterns: type) -> bool:
    """Return whether a learner inherits from one of these; ``isinstance`` would look for each of their functions."""
    return any(pattern in type(learner).__mro__ for pattern in patterns)
