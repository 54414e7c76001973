"""What every learner declares and supplies, with defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from grouplearn.data.shard import Matrix
from grouplearn.learners.contract.access import AccessPattern
from grouplearn.learners.contract.config import SOLVER, Config, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.outputs.link import Link
from grouplearn.models.state import Artifact, FloatArray, State, has_tensors_of, shape_flaw

#: What a search gives its trials bit by bit: passes over the rows, rounds of boosting, or parts of the training rows.
Resource = Literal["epochs", "iterations", "rows"]
#: How stored names of learners over earlier values begin.
OVER_LAGS = "lagged_"


class NamedForm(Protocol):
    """A form as an object: a ``models.forms.form.Form``."""

    name: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a learner says of itself.

    - ``name`` in USING; ``summary`` in the reference; ``labels``: the labels that it learns.
    - ``output``: the class of its predictions, an ``Output`` with metrics, if it has no label, or predicts otherwise than usual.
    - ``default_epochs``: the most epochs by default; None if the option ``epochs`` does not apply (it is rejected).
    - ``form`` of a finished model, by its name in ``models.forms.forms`` or as an object: "own" is one that only the learner
      knows; others have SQL and exports. ``log_link``: a linear learner of numbers predicts exp(score).
    - ``has_standard_errors``: it is a ``standard_errors.HasStandardErrors``. ``has_offset``: it knows ``Problem.offset``.
    - ``handles_missing``: NaN in X means missing; else training skips rows with missing features. ``handles_sparse``: X may
      be scipy CSR.
    - ``needs_scaling``: it learns better, or only, from numbers of one scale: AUTO standardises them.
    - ``predicts_arrays``: labels may be arrays: a shard's ``y`` is then (n, L), and a score (n, n_configs, K·L), classes
      outermost.
    - ``takes_series``: a group's rows are a series in the order of a time; its only feature is the step of a row.
      ``takes_panel``: they may be many series, learned by one model, and have features that are known ahead: after the step
      comes the number of a row's series, then FEATURES. ``needs_many_series``: one teaches it little, and a note says so.
    - ``over_lags``: it forecasts by a learner of rows with its ``name``, and is stored under another.
    - ``chooses_method``: models say by which method a series is forecast.
    - ``draws``: training draws random numbers; stacks have a seed for each group.
    - ``one_pass``: it learns from sums that depend neither on its state nor on *late* hyperparameters, so that one epoch is the
      whole training. The merged sums of a group's rows can be kept as its state: further rows are merged into them, and other
      values of late hyperparameters are applied to them without reading rows.
    - ``online``: it visits rows, and needs nothing of a group but the rows before (no ``shard.totals``), so that in one epoch it
      can learn from rows as they come.
    - ``rounds``: the hyperparameter that counts rounds, if a model of few rounds is the beginning of one of more.
    - ``refused``: names that hyperparameters have elsewhere, and what to say of them. ``metric_of_classes``: the default metric
      if its probabilities order rows but are not calibrated.
    - ``requires``: a package that must be loaded before training. ``cost``: None for the usual one.
    - ``solver``: ``WITH (solver = ...)`` of this way, if a learner has several. The ways share name, labels, outputs and
      artifacts. The first has the others as ``further_ways``, and these have a hyperparameter ``solver``, see
      ``solver_named``.
    """

    name: str
    summary: str
    labels: frozenset[Label]
    hyperparameters: tuple[Hyperparameter, ...] = ()
    default_epochs: int | None = None
    form: str | NamedForm = "own"
    log_link: bool = False
    has_standard_errors: bool = False
    has_offset: bool = False
    handles_missing: bool = False
    handles_sparse: bool = False
    needs_scaling: bool = False
    predicts_arrays: bool = False
    takes_series: bool = False
    takes_panel: bool = False
    over_lags: bool = False
    chooses_method: bool = False
    needs_many_series: bool = False
    draws: bool = False
    one_pass: bool = False
    online: bool = False
    rounds: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    metric_of_classes: str | None = None
    requires: Requirement | None = None
    cost: Cost | None = None
    solver: str = ""
    further_ways: tuple[Learner, ...] = ()
    output: type[Any] | None = None

    @property
    def stored_name(self) -> str:
        """Its name in the catalog and in the registry."""
        return f"{OVER_LAGS}{self.name}" if self.over_lags else self.name

    @property
    def has_label(self) -> bool:
        """Whether it learns a label."""
        return any(label.is_given for label in self.labels)

    @property
    def regresses(self) -> bool:
        """Whether labels may be numbers."""
        return any(label.is_number for label in self.labels)

    @property
    def classifies(self) -> bool:
        """Whether labels may have classes."""
        return any(label.has_classes for label in self.labels)

    @property
    def is_first_way(self) -> bool:
        """Whether a learner trains in this way unless the statement says otherwise."""
        return all(parameter.name != SOLVER for parameter in self.hyperparameters)


@runtime_checkable
class Learner(Protocol):
    """What every learner declares and supplies. Functions do not change a state: they return a new one.

    A learner inherits from the protocol of its access pattern in ``ways``, overrides the defaults here, and may supply more:
    ``optional``.
    """

    declaration: Declaration
    access: ClassVar[AccessPattern]
    #: The cost of a learner that declares none.
    usual_cost: ClassVar[Cost] = Cost()

    @property
    def way(self) -> str:
        """Its stored name, with its solver if it is not the first way: ``logistic_regression by sgd``."""
        own = self.declaration
        return own.stored_name if own.is_first_way else f"{own.stored_name} by {own.solver}"

    @property
    def shown_way(self) -> str:
        """Its way with its name as in USING."""
        return self.way.removeprefix(OVER_LAGS)

    @property
    def cost(self) -> Cost:
        """The cost of training."""
        return self.declaration.cost or self.usual_cost

    def resource(self, epochs: int) -> Resource | None:
        """Return what HYPERBAND and ASHA give trials of so many ``epochs``; None if a part of the training says nothing.

        What converges is the same at any number of epochs, and a single epoch has no parts: these get rows.
        """
        own = self.declaration
        if own.rounds is not None:
            return "iterations"
        if self.access.in_one_go or own.takes_series:
            return None
        if self.access.converges:
            return "rows" if own.one_pass or own.default_epochs is not None else None
        return "epochs" if epochs > 1 else "rows"

    @property
    def prefers_sparse(self) -> bool:
        """Whether it trains faster on CSR if most values are zeros."""
        return False

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the state before the first epoch."""
        ...

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the finished model of config ``index``; raises Diverged if it cannot predict."""
        ...

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions of a finished model, shape (n, n_outputs): values or probabilities (binary: class 1)."""
        ...

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, n_configs, n_outputs), equal to ``score`` of the finished models."""
        models = (self.finalize(problem, configs, state, index) for index in range(len(configs)))
        return np.stack([self.score(problem.label, model, x) for model in models], axis=1)

    def losses(self, state: State) -> FloatArray:
        """Return the objective per config after the last epoch (NaN before the first): the tensor ``loss``."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether a state read from a file is a valid state of these configs, from which training can continue.

        It is called before anything else uses the state, and must not rely on any of it.
        """
        return has_tensors_of(state, self.init(problem, configs))

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs with equal keys may train in one pack (a state with a config axis); by default all."""
        del config
        return ()

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return why a finished model read from a file is not valid for this learner and group; else None.

        It is called before anything else uses the model, and must not rely on any of it. Of ``problem`` only the label,
        ``n_features``, ``n_classes`` and ``label_length`` count; two classes of a label that has more went through
        ``as_multiclass``. By default: its tensors do not have the shapes of a new model.
        """
        config = {parameter.name: parameter.default for parameter in self.declaration.hyperparameters}
        begun = self.finalize(problem, [config], self.init(problem, [config]), 0)
        return shape_flaw(artifact, {name: tensor.shape for name, tensor in begun.tensors.items()})

    def link(self, config: Config, label: Label) -> Link:
        """Return the link of a config's scores."""
        del config
        of_numbers: Link = "exp" if self.declaration.log_link else "identity"
        of_classes: dict[Label, Link] = {TWO_CLASSES: "logistic", SEVERAL_CLASSES: "softmax"}
        return of_classes.get(label, of_numbers)


class Vector(NamedTuple):
    """A vector over the encoded features: its view, its place there, and its number."""

    part: str
    place: int
    values: FloatArray
    value: float


@runtime_checkable
class VectorLearner(Learner, Protocol):
    """Its models are vectors over the encoded features, which SQL compares with rows."""

    def vectors(self, artifact: Artifact) -> Sequence[Vector]:
        """Return the vectors of a model."""
        ...
