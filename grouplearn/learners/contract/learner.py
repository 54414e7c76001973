"""What every learner declares and supplies, and what some supply besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from grouplearn.data.shard import Matrix
from grouplearn.learners.contract.access import AccessPattern
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.problem import Link, Problem, Task
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.state import Artifact, FloatArray, State


@runtime_checkable
class Learner(Protocol):
    """What every learner declares and supplies. Functions are pure in state: they return a new State."""

    name: ClassVar[str]
    summary: ClassVar[str]
    access: ClassVar[AccessPattern]
    tasks: ClassVar[frozenset[Task]]
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]]
    #: Most epochs unless the user says ``WITH (epochs = n)``; None when it does not apply (the option is rejected).
    default_epochs: ClassVar[int | None]
    #: The score is ``link(X @ weights.T + intercept)``: weights are a table and prediction is plain SQL.
    linear: ClassVar[bool]
    #: A linear learner of numbers predicts exp(score): its link is the logarithm.
    log_link: ClassVar[bool]
    #: NaN in X means missing and is handled; otherwise rows with missing features are skipped in training.
    handles_missing: ClassVar[bool]
    #: Sparse X (scipy CSR) is accepted.
    handles_sparse: ClassVar[bool]
    #: Several workers that have different rows can train one model of it; sums need no such thing.
    in_gangs: ClassVar[bool]
    #: The package to load before training; None for learners that need nothing but what grouplearn needs.
    requires: ClassVar[Requirement | None]

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs with equal keys may train in one pack (state with a config axis)."""
        ...

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the values of a config contradict each other, or None; the binder refuses such a config."""
        ...

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the state before the first epoch."""
        ...

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether a state that was read from a file is one of these configs in training, from which they can go on.

        It is asked before anything else is done with the state, and takes nothing in it on trust.
        """
        ...

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, n_configs, n_outputs): values or probabilities (binary: class 1)."""
        ...

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the finished model of config ``index``; raises Diverged where it cannot predict a number."""
        ...

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions of a finished model, shape (n, n_outputs), as in ``scores``."""
        ...

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a finished model of two classes as ``score`` takes it for one of more: softmax of 0 and its score."""
        ...

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return why a finished model that was read from a file is none of this learner for such a group; else None.

        It is asked before anything else is done with the model, and takes nothing in it on trust. Of ``problem`` the task,
        ``n_features``, ``n_classes`` and ``label_length`` count; two classes of a label that has more went through
        ``as_multiclass``.
        """
        ...

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return one non-negative number per feature column (linear: sum over outputs of |w|), or None."""
        ...


@runtime_checkable
class ObjectiveLearner(Learner, Protocol):
    """Minimises one of several losses, which a hyperparameter names."""

    def classifies(self, config: Config) -> bool | None:
        """Return whether the loss of a config is of classes, not of numbers; None where it is whichever the label is of."""
        ...

    def misplaced(self, config: Config, classes: bool) -> Conflict | None:
        """Return which hyperparameter of a config means nothing for a label that has ``classes``, or is a number."""
        ...

    def default_metric(self, config: Config) -> str | None:
        """Return the metric that goes with the loss of a config, None for that of the task."""
        ...

    def judged_by(self, config: Config, task: Task) -> str | None:
        """Return the metric of the loss of a config, None where there is none."""
        ...

    def only_undivided(self, config: Config) -> str | None:
        """Return which hyperparameter of a config needs all rows of a group in one place, None where none does."""
        ...

    def link(self, config: Config, task: Task) -> Link:
        """Return what a score of a config goes through to be a prediction."""
        ...


@runtime_checkable
class UncalibratedLearner(Learner, Protocol):
    """Gives classes probabilities that order rows, and are those of no distribution."""

    def uncalibrated_metric(self) -> str:
        """Return the metric that is optimised unless the user says so: one that takes nothing from the probabilities' size."""
        ...


class Vector(NamedTuple):
    """A vector over the encoded features: what it is a part of, its place there, and a number that belongs to it."""

    part: str
    place: int
    values: FloatArray
    value: float


@runtime_checkable
class VectorLearner(Learner, Protocol):
    """Its models are vectors over the encoded features, which SQL compares rows with."""

    def vectors(self, artifact: Artifact) -> Sequence[Vector]:
        """Return the vectors of a model."""
        ...


@runtime_checkable
class RefusesParameters(Learner, Protocol):
    """Knows of parameters that it does not take, and why."""

    def why_refused(self, name: str) -> str | None:
        """Return why there is no hyperparameter of that name, or what it is called here; None for a name it never heard of."""
        ...


@runtime_checkable
class ChecksTogether(Learner, Protocol):
    """Looks at finished models of many groups in little more time than at one."""

    def no_flaw(self, models: Sequence[tuple[Problem, Artifact]]) -> bool:
        """Return whether ``flaw`` would find none in any of these."""
        ...
