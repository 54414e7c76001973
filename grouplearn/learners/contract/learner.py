"""What every learner declares and supplies, with what it is unless it says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from grouplearn.data.shard import Matrix
from grouplearn.kernels.library import Runs
from grouplearn.learners.contract.access import AccessPattern
from grouplearn.learners.contract.config import SOLVER, Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Link, Problem, Task
from grouplearn.learners.contract.requirement import Requirement
from grouplearn.learners.contract.state import Artifact, FloatArray, State, has_tensors_of, shape_flaw
from grouplearn.learners.metrics.sums import default_metric

#: What a finished model is, for those who write it as SQL, tables or a graph: ``weights`` (k, d) and ``intercept`` (k,) of
#: ``link(x @ weights.T + intercept)``; LightGBM's text; ``weight_i`` and ``bias_i`` of layers; vectors over
#: the encoded features (``VectorLearner``); or what only its learner knows.
Form = Literal["linear", "trees", "layers", "vectors", "own"]


@runtime_checkable
class Learner(Protocol):
    """What every learner declares and supplies. Functions are pure in state: they return a new State.

    A learner inherits from the protocol of its access pattern in ``ways``, and says what differs from the defaults here.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: How it trains, as ``WITH (solver = ...)`` says it, where a learner has several ways. All ways of a learner have its name,
    #: tasks and answers, and make the same artifacts. Each but the first has a hyperparameter ``solver``, see ``solver_named``.
    solver: ClassVar[str] = ""
    #: The other ways of a learner that is not built in.
    further_ways: ClassVar[tuple[Learner, ...]] = ()
    access: ClassVar[AccessPattern]
    tasks: ClassVar[frozenset[Task]]
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = ()
    #: Most epochs unless the user says ``WITH (epochs = n)``; None when it does not apply (the option is rejected).
    default_epochs: ClassVar[int | None] = None
    #: The form of a finished model: with one, prediction is plain SQL, and there is something to export.
    form: ClassVar[Form] = "own"
    #: A linear learner of numbers predicts exp(score): its link is the logarithm.
    log_link: ClassVar[bool] = False
    #: NaN in X means missing and is handled; otherwise rows with missing features are skipped in training.
    handles_missing: ClassVar[bool] = False
    #: Sparse X (scipy CSR) is accepted.
    handles_sparse: ClassVar[bool] = False
    #: Labels may be arrays: ``y`` of a shard is then (n, L), and a score is (n, n_configs, K·L), classes outermost.
    predicts_arrays: ClassVar[bool] = False
    #: Small groups may train together in one call, as a ``StackLearner`` or a ``BoostedStackLearner`` does; all folds of a group,
    #: too, from their moments.
    stacks: ClassVar[bool] = False
    has_moments: ClassVar[bool] = False
    #: Groups that train together draw random numbers: their stack has a seed for each.
    draws: ClassVar[bool] = False
    #: Several workers that have different rows can train one model of it; sums need no such thing.
    in_gangs: ClassVar[bool] = False
    #: The mean of models that saw different rows is one that learned from all of them, as an ``AveragingLearner`` says.
    averages: ClassVar[bool] = False
    #: Some of its batches can be visited, or their gradients taken, as a ``BatchesLearner`` says.
    in_batches: ClassVar[bool] = False
    #: What is said of a model in which no feature has any importance; None: nothing.
    told_of_constants: ClassVar[str | None] = None
    #: The package to load before training; None for learners that need nothing but what grouplearn needs.
    requires: ClassVar[Requirement | None] = None
    #: What training takes.
    cost: ClassVar[Cost] = Cost()

    @property
    def way(self) -> str:
        """Its name, with that of its solver where this is not the usual one: ``logistic_regression by sgd``."""
        usual = all(parameter.name != SOLVER for parameter in self.hyperparameters)
        return self.name if usual else f"{self.name} by {self.solver}"

    @property
    def sooner_sparse(self) -> bool:
        """Whether it sooner learns from CSR where most values are zeros; boosting bins rows of either form."""
        return self.handles_sparse and self.stacks and not self.access.in_one_go

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the state before the first epoch."""
        ...

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the finished model of config ``index``; raises Diverged where it cannot predict a number."""
        ...

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions of a finished model, shape (n, n_outputs): values or probabilities (binary: class 1)."""
        ...

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, n_configs, n_outputs), as ``score`` does of finished models."""
        models = (self.finalize(problem, configs, state, index) for index in range(len(configs)))
        return np.stack([self.score(problem.task, model, x) for model in models], axis=1)

    def score_runs(self, task: Task, artifacts: Sequence[Artifact]) -> Callable[[FloatArray, Runs], FloatArray] | None:
        """Return what does ``score`` for runs of rows (n, d), each by one of these models, in one call: (n, n_outputs).

        Rows are finite doubles in C order. Here None: models are asked one by one, which takes long where each has few rows.
        """
        del task, artifacts
        return None

    def losses(self, state: State) -> FloatArray:
        """Return the objective per config after the last epoch (NaN before the first): the tensor ``loss``."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether a state that was read from a file is one of these configs in training, from which they can go on.

        It is asked before anything else is done with the state, and takes nothing in it on trust.
        """
        return has_tensors_of(state, self.init(problem, configs))

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Configs with equal keys may train in one pack (state with a config axis): all of them."""
        del config
        return ()

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the values of a config contradict each other, or None; the binder refuses such a config."""
        del config
        return None

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a finished model of two classes as ``score`` takes it for one of more: softmax of 0 and its score.

        Here it is left as it is: it says itself how many classes it has.
        """
        return artifact

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return why a finished model that was read from a file is none of this learner for such a group; else None.

        It is asked before anything else is done with the model, and takes nothing in it on trust. Of ``problem`` the task,
        ``n_features``, ``n_classes`` and ``label_length`` count; two classes of a label that has more went through
        ``as_multiclass``. Here: its tensors are not of the shapes that a new model has.
        """
        config = {parameter.name: parameter.default for parameter in self.hyperparameters}
        begun = self.finalize(problem, [config], self.init(problem, [config]), 0)
        return shape_flaw(artifact, {name: tensor.shape for name, tensor in begun.tensors.items()})

    def no_flaw(self, models: Sequence[tuple[Problem, Artifact]]) -> bool:
        """Return whether ``flaw`` would find none in any of these, models of many groups."""
        return all(self.flaw(problem, artifact) is None for problem, artifact in models)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:
        """Return one non-negative number per feature column (linear: sum over outputs of |w|), or None."""
        del artifact, n_features
        return None

    # --- learners of several losses, which a hyperparameter names ------------------------------------------------------

    def classifies(self, config: Config) -> bool | None:
        """Return whether the loss of a config is of classes, not of numbers; None where it is whichever the label is of."""
        del config
        return None

    def misplaced(self, config: Config, classes: bool) -> Conflict | None:
        """Return which hyperparameter of a config means nothing for a label that has ``classes``, or is a number."""
        del config, classes
        return None

    def default_metric(self, config: Config) -> str | None:
        """Return the metric that goes with the loss of a config, None for that of the task."""
        del config
        return None

    def explained(self, configs: Sequence[Config]) -> list[str]:
        """Return what EXPLAIN is to say of how configs train, a line each."""
        del configs
        return []

    def knows_its_end(self, state: State, index: int) -> bool:
        """Return whether config ``index``, whose training ended by itself, has nothing left to gain, and that is no guess."""
        del state, index
        return True

    def judged_by(self, config: Config, task: Task) -> str | None:
        """Return the metric of the loss of a config, None where there is none."""
        del config
        return None if self.log_link else default_metric(task)

    def uncalibrated_metric(self) -> str | None:
        """Return the metric by which classes are optimised unless the user says so, where probabilities order rows and are
        those of no distribution; else None.
        """
        return None

    def only_undivided(self, config: Config) -> str | None:
        """Return which hyperparameter of a config needs all rows of a group in one place, None where none does."""
        del config
        return None

    def link(self, config: Config, task: Task) -> Link:
        """Return what a score of a config goes through to be a prediction."""
        del config
        of_numbers: Link = "exp" if self.log_link else "identity"
        of_classes: dict[Task, Link] = {Task.BINARY: "logistic", Task.MULTICLASS: "softmax"}
        return of_classes.get(task, of_numbers)

    def linear_leaves(self, config: Config) -> bool:
        """Return whether the leaves of its trees are linear models."""
        del config
        return False

    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Return functions of the user's own that it is made of, which go to other processes as they are.

        Without any its class is imported there, by the module and the name that it has here.
        """
        return ()

    def why_refused(self, name: str) -> str | None:
        """Return why there is no hyperparameter of that name, or what it is called here; None for a name it never heard of."""
        del name
        return None


class Vector(NamedTuple):
    """A vector over the encoded features: what it is a part of, its place there, and a number that belongs to it."""

    part: str
    place: int
    values: FloatArray
    value: float


@runtime_checkable
class VectorLearner(Learner, Protocol):
    """Its models are vectors over the encoded features, which SQL compares rows with."""

    form: ClassVar[Form] = "vectors"

    def vectors(self, artifact: Artifact) -> Sequence[Vector]:
        """Return the vectors of a model."""
        ...
