"""What a learner is: its declaration, its state, and the pure functions that an operator may call."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from socket import socket
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from grouplearn.data.shard import Matrix, Shard, Stack, StoredShard
from grouplearn.data.tensors import NotTensors, named_tensors
from grouplearn.learners.contract.requirement import Requirement

FloatArray = npt.NDArray[np.float64]
Tensors = Mapping[str, npt.NDArray[Any]]
Value = float | int | bool | str | tuple[int, ...] | None
Config = Mapping[str, Value]
Kind = Literal["float", "int", "bool", "str", "ints", "ints_by_feature", "floats_by_feature", "feature_sets"]
#: What becomes of a score s, a sum of leaves or a linear predictor: s, exp(s), 1 / (1 + exp(-s)), or s·abs(s); and of one per
#: class: their softmax, or the logistic function of each divided by the sum of all.
Link = Literal["identity", "exp", "logistic", "signed_square", "softmax", "one_vs_all"]


class Access(enum.Enum):
    """How a learner reads data (kingpin 2.2)."""

    ALGEBRAIC = "algebraic"
    SEQUENTIAL = "sequential"
    SAMPLING = "sampling"

    @property
    def words(self) -> str:
        """What such a learner trains on, for a person."""
        return {"algebraic": "sums over rows", "sequential": "batches of rows", "sampling": "all rows at once"}[
            self.value
        ]


class Task(enum.Enum):
    """What is predicted. The label of a shard is the value itself, or the class number 0..n_classes-1."""

    REGRESSION = "regression"
    BINARY = "binary"
    MULTICLASS = "multiclass"


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A typed hyperparameter, its default, its allowed range or choices, and where it comes from.

    ``kind`` is the Python type of a value; ``ints`` is a list of integers, such as layer widths. ``ints_by_feature`` and
    ``floats_by_feature`` are numbers by the name of a FEATURES item, ``feature_sets`` lists of such names: their values are
    JSON text. Bounds are inclusive unless ``open_low``. ``refused`` are values that have a reason not to be among ``choices``.
    """

    name: str
    kind: Kind
    default: Value
    doc: str
    source: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    choices: tuple[str, ...] = ()
    nullable: bool = False
    refused: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why values of a config contradict each other, or the label; and the hyperparameters that do, the one to blame first."""

    message: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """What a pack is to learn on one group.

    ``n_outputs`` is the width of a score: 1 for regression and binary, ``n_classes`` for multiclass, times
    ``label_length`` where a label is an array of so many values.
    ``seed`` depends on the statement's seed and the group alone. ``categorical`` holds the column indexes of ordinal
    codes (for learners that treat those natively). ``epochs`` is the most epochs that will be run. ``among_more``: the
    group has two classes of a label that has more in other groups. It is learned as any two classes are; the finished model
    then goes through ``as_multiclass``. ``n_unseen``: classes of held-out rows that no training row has, numbered after those
    that are learned. ``items`` are the names of the FEATURES items and how many feature columns each has, in their order.
    """

    task: Task
    n_features: int
    n_classes: int = 0
    seed: int = 0
    epochs: int = 1
    categorical: tuple[int, ...] = ()
    label_length: int = 1
    among_more: bool = False
    n_unseen: int = 0
    items: tuple[tuple[str, int], ...] = ()

    @property
    def n_outputs(self) -> int:
        """Width of a score."""
        return (self.n_classes if self.task is Task.MULTICLASS else 1) * self.label_length


@dataclass(frozen=True, slots=True)
class State:
    """The training state of a pack: named tensors whose first axis is the config where they belong to a config.

    ``done`` (bool, one per config) marks configs that need no further epoch: converged, diverged or stopped.
    A learner may keep a live object beside the tensors in ``live`` (a booster, a module); it is a cache:
    ``to_bytes`` drops it and the learner must be able to go on without it.
    """

    tensors: dict[str, npt.NDArray[Any]]
    done: npt.NDArray[np.bool_]
    live: Any = field(default=None, compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """Return the state in safetensors format: no code, equal states give equal bytes."""
        tensors = {name: np.ascontiguousarray(value) for name, value in sorted(self.tensors.items())}
        return bytes(safetensors.numpy.save({**tensors, "done": self.done.astype(np.uint8)}))

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Inverse of ``to_bytes``; raises NotTensors."""
        tensors = named_tensors(data)
        if "done" not in tensors or tensors["done"].ndim != 1:
            raise NotTensors("it does not say which configs are done")
        done = tensors.pop("done").astype(bool)
        return cls(tensors, done)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A finished model of one trial: either named float64 tensors or LightGBM's text (as UTF-8 bytes).

    Linear models have ``weights`` of shape (n_outputs, n_features) and ``intercept`` of shape (n_outputs,).
    """

    format: Literal["tensors", "lightgbm"]
    tensors: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    text: bytes = b""


class Diverged(ArithmeticError):
    """Raised by a learner when no config of the pack can go on; the message tells the user why.

    ``column`` is the index of the feature column that a message is about: it says ``feature column <index + 1>``.
    """

    def __init__(self, message: str, column: int | None = None) -> None:
        super().__init__(message)
        self.column = column

    def about(self, features: Sequence[str]) -> str:
        """Return the message with the name of the feature column in place of its number, if ``features`` has it."""
        if self.column is None or self.column >= len(features):
            return str(self)
        return str(self).replace(f"feature column {self.column + 1}", f'feature "{features[self.column]}"')


class Interrupted(Exception):
    """Raised inside a unit when the user cancelled the statement."""


def shape_flaw(artifact: Artifact, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Return how the tensors of a model differ from ``shapes``, of floating numbers all; None where they do not."""
    if artifact.format != "tensors":
        return f"it is {artifact.format}, not tensors"
    if artifact.tensors.keys() != shapes.keys():
        name = sorted(artifact.tensors.keys() ^ shapes.keys())[0]
        return f"it has no tensor {name}" if name in shapes else f"it has a tensor {name[:60]!r}"
    for name, shape in shapes.items():
        tensor = artifact.tensors[name]
        if tensor.dtype != np.float64 or tensor.shape != shape:
            return f"its tensor {name} is {tensor.dtype}{list(tensor.shape)}, not float64{list(shape)}"
    return None


def of_both_classes(positive: FloatArray) -> FloatArray:
    """Return the probabilities of two classes (n, 2·L), those of the first class first, from those of the second (n, L)."""
    both: FloatArray = np.concatenate([1.0 - positive, positive], axis=1)
    return both


def has_tensors_of(state: State, begun: State) -> bool:
    """Return whether a state has all tensors of another, of the same shapes and types."""
    found = state.tensors
    return all(
        name in found and found[name].shape == tensor.shape and found[name].dtype == tensor.dtype
        for name, tensor in begun.tensors.items()
    )


@runtime_checkable
class Learner(Protocol):
    """What every learner declares and supplies. Functions are pure in state: they return a new State."""

    name: ClassVar[str]
    summary: ClassVar[str]
    access: ClassVar[Access]
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


@runtime_checkable
class AlgebraicLearner(Learner, Protocol):
    """Learns from sums over rows: an epoch is ``step(state, merge(accumulate(block) for each block))``."""

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Whether small groups may train together, as a ``StackLearner`` does."""
        ...

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the sums of one block that the next step needs."""
        ...

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        ...

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one epoch; ``losses(state)`` then holds the objective per config."""
        ...

    def losses(self, state: State) -> FloatArray:
        """Return the training objective per config at the current accepted parameters (NaN before the first step)."""
        ...


@dataclass(frozen=True, slots=True)
class Solved:
    """The finished models of a stack: G groups, each with the same C configs.

    ``weights`` (G, C, k, d) and ``intercept`` (G, C, k); ``loss`` (G, C) is the objective there, NaN where a model
    diverged; ``epochs`` (G, C) counts the passes over the rows that each took; ``curve`` (passes, G, C) is the objective
    after each of them, NaN once a model was finished. ``converged`` (G, C): it ended because nothing was left to gain.
    """

    weights: FloatArray
    intercept: FloatArray
    loss: FloatArray
    epochs: npt.NDArray[np.int64]
    curve: FloatArray
    converged: npt.NDArray[np.bool_]

    def take(self, groups: npt.NDArray[Any]) -> Solved:
        """Return the results of some groups, chosen or in that order."""
        return Solved(
            self.weights[groups],
            self.intercept[groups],
            self.loss[groups],
            self.epochs[groups],
            self.curve[:, groups],
            self.converged[groups],
        )

    @classmethod
    def joined(cls, parts: Sequence[Solved]) -> Solved:
        """Return the results of several stacks as those of one."""
        if len(parts) == 1:
            return parts[0]
        passes = max(len(part.curve) for part in parts)
        curves = [
            np.concatenate([part.curve, np.full((passes - len(part.curve), *part.loss.shape), np.nan)])
            for part in parts
        ]
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.intercept for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate([part.epochs for part in parts]),
            np.concatenate(curves, axis=1),
            np.concatenate([part.converged for part in parts]),
        )


@runtime_checkable
class StackLearner(AlgebraicLearner, Protocol):
    """Trains every config on every group of a stack in one call, instead of epoch by epoch."""

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of ``configs`` for each group of ``stack``.

        ``problem`` is that of one group; all have equal (n_features, n_classes). A model does not
        depend on the other groups beyond rounding. ``report(n)`` is told of n further epochs, a model's epoch
        counting one. Raises Interrupted soon after ``cancelled()`` became true, and ValueError for labels that the
        learner cannot take.
        """
        ...


@runtime_checkable
class MomentsLearner(StackLearner, Protocol):
    """Needs nothing but moments of rows: folds cost no further pass."""

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups of a stack (G,) are to train alone: their ``sums`` do not say what their rows do."""
        ...

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> Solved:
        """Return the models from moments whose leading axes, any number, are in the result's place of G.

        For G groups with F folds: one ``moments.stack_moments`` of the folds' rows, reshaped to (G, F, ...), gives
        ``moments.leave_one_out`` (G, F + 1, ...), and ``weights`` are then (G, F + 1, C, k, d): of every fold's training
        rows, and last of all rows. Moments that are not finite or have no rows give NaN.
        """
        ...


@runtime_checkable
class SequentialLearner(Learner, Protocol):
    """Learns row by row (SGD)."""

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass over the shard; the visiting order depends on (seed, epoch) alone."""
        ...

    def losses(self, state: State) -> FloatArray:
        """Return the mean training objective of the last epoch per config."""
        ...


@runtime_checkable
class ArrayLabelLearner(SequentialLearner, Protocol):
    """Predicts arrays, too: ``y`` of a shard is then (n, L), and a score is (n, n_configs, K·L), classes outermost."""

    def predicts_arrays(self) -> bool:
        """Return whether labels may be arrays."""
        ...


@runtime_checkable
class DataParallelLearner(SequentialLearner, Protocol):
    """Learns row by row, and in a gang whose members have different rows: each batch is spread over all of them."""

    def joined(self, gang: Gang) -> AbstractContextManager[Gang]:
        """Return the connection to the other members, and the gang that descends within it."""
        ...

    def descend(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int, gang: Gang
    ) -> State:
        """Return the state after one pass of the gang over all its rows, the same for every member."""
        ...


@runtime_checkable
class SamplingLearner(Learner, Protocol):
    """Learns by boosting on (sampled) statistics."""

    def boost(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        shard: Shard | StoredShard,
        valid: Shard | StoredShard | None,
        stop: Stop,
        gang: Gang | None = None,
    ) -> tuple[State, Boosted]:
        """Run all rounds of every config; one round is one epoch of the curve. ``state`` is new, or one that was kept.

        In a gang ``shard`` is this member's rows, ``valid`` all held-out rows; every member returns the same models.
        """
        ...


@dataclass
class Sent:
    """Counts the bytes that a member of a gang gives to the others, each of them once however many others there are."""

    n_bytes: int = 0

    def add(self, n_bytes: int) -> None:
        """Count more."""
        self.n_bytes += n_bytes


@dataclass(frozen=True, slots=True)
class Gang:
    """Processes of this machine that train one model together: this one is ``rank`` of ``size``.

    ``directory`` is one that all of them can write and nobody else can enter. Nobody waits longer than ``seconds`` for another
    to come. ``sent`` counts this member's gradients, ``links`` are the sockets to the others while they are joined.
    """

    rank: int
    size: int
    directory: str
    seconds: float
    sent: Sent = field(default_factory=Sent, compare=False)
    links: Mapping[int, socket] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Stop:
    """How a run ends early: after ``patience`` epochs without a better validation ``metric`` (None: never).

    ``cancelled`` is polled between rounds; when it returns True the learner raises ``Interrupted``. When ``expired`` does,
    no further round begins, and configs that have had fewer than theirs are not ``done``. ``keep`` is told between rounds
    how to make a state that ``boost`` can go on from; it does so when it is time.
    """

    metric: str
    patience: int | None = None
    cancelled: Callable[[], bool] = lambda: False
    expired: Callable[[], bool] = lambda: False
    keep: Callable[[Callable[[], State]], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Boosted:
    """Per config: rounds kept, and the validation metric after each round (empty without a validation shard)."""

    rounds: tuple[int, ...]
    curves: tuple[tuple[float, ...], ...]
