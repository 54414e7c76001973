"""Multilayer perceptrons: the networks of a pack train stacked, one batched product per layer for all configs.

Predictions need numpy alone; only training needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import BLOCK_ROWS, Matrix, Shard
from grouplearn.learners import mlp_model, mlp_parallel
from grouplearn.learners.base import (
    Access,
    Artifact,
    Config,
    Diverged,
    FloatArray,
    Gang,
    Hyperparameter,
    Problem,
    State,
    Task,
    Value,
)
from grouplearn.learners.mlp_model import ACTIVATIONS, Networks, as_multiclass
from grouplearn.learners.mlp_network import layers_of, torch_on_one_thread
from grouplearn.learners.mlp_stack import Lane, padded_rows, run_lanes
from grouplearn.learners.requirement import Requirement

_OPTIMIZERS = ("adam", "sgd")
_PRECISIONS = ("single", "double")
#: Tensors of the state that the batches of a block change.
_STEPPED = ("parameters", "first_moment", "second_moment", "step", "objective")

#: What a step of several groups may keep at hand, the tensors of a model's parameters' size in it, and most groups.
_STEP_BYTES, _STEP_TENSORS, _MOST_ABREAST = 4 << 20, 6, 64

_SKLEARN = "scikit-learn MLPClassifier"
_TORCH = "torch.optim, torch.nn"


class Mlp:
    """Multilayer perceptron trained by minibatch Adam or SGD, for classification and regression.

    An epoch visits every row once, block by block, each in a shuffled order of its own that depends on (seed, epoch,
    number of the block). A batch B of b rows, all of one block, descends
    ``1/b Σ_{i∈B} w̃ᵢ·lossᵢ + (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ`` with ``w̃ᵢ = wᵢ·n/Σwᵢ``, whose mean over the batches of an epoch
    is the objective ``Σ wᵢ·lossᵢ + l1·‖w‖₁ + ½·l2·‖w‖²`` divided by ``Σwᵢ``; so with unit weights l2 is n times torch's
    ``weight_decay``. The l1 term uses a subgradient: small weights come near zero but seldom reach it. Losses are
    ½(y-ŷ)², and cross entropy on one logit or K.

    Parameters are drawn as ``torch.nn.Linear`` does. In single precision, rounding alone moves two equal runs on two kinds
    of processor apart as the steps go on; in double precision they agree to many digits, at about twice the time. For
    regression the network is trained on (y-mean)/sd of the training labels, with the objective above rewritten exactly
    for it (divided by sd², last layer w/sd); the finished model predicts y itself. State: ``parameters``,
    ``first_moment``, ``second_moment`` (c, p) hold weight and bias of each layer in turn, each padded to 64 numbers;
    ``step``, ``loss`` (c,); ``objective``, ``visited``, ``epoch`` (c,) are what the epoch has summed so far, over how
    many rows, and which epoch it is; ``label_mean``, ``label_scale`` (1,).
    """

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "Multilayer perceptron (small neural network) by minibatch Adam or SGD"
    access: ClassVar[Access] = Access.SEQUENTIAL
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        Hyperparameter(
            "hidden_layers", "ints", (32,), "units of each hidden layer; [] for none", _SKLEARN, low=1, nullable=True
        ),
        Hyperparameter("activation", "str", "relu", "activation of the hidden units", _SKLEARN, choices=ACTIVATIONS),
        Hyperparameter(
            "dropout", "float", 0.0, "share of hidden units dropped in each batch", "Srivastava et al. 2014",
            low=0.0, high=0.95,
        ),
        Hyperparameter("optimizer", "str", "adam", "how a batch moves the weights", _TORCH, choices=_OPTIMIZERS),
        Hyperparameter("learning_rate", "float", 1e-3, "step size", _TORCH, low=0.0, open_low=True),
        Hyperparameter("momentum", "float", 0.0, "momentum of sgd; adam has its own", _TORCH, low=0.0, high=1.0),
        Hyperparameter("l1", "float", 0.0, "weight of the penalty l1·‖w‖₁", "Tibshirani 1996", low=0.0),
        Hyperparameter("l2", "float", 0.0, "weight of the penalty ½·l2·‖w‖²", "Hoerl & Kennard 1970", low=0.0),
        Hyperparameter("batch_size", "int", 32, "rows per step", _TORCH, low=1),
        Hyperparameter("precision", "str", "single", "of the numbers in training; double is slower", _TORCH, choices=_PRECISIONS),
    )  # fmt: skip
    default_epochs: ClassVar[int | None] = 10
    linear: ClassVar[bool] = False
    log_link: ClassVar[bool] = False
    handles_missing: ClassVar[bool] = False
    handles_sparse: ClassVar[bool] = False
    requires: ClassVar[Requirement | None] = Requirement("torch", "grouplearn[mlp]")

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Networks of one shape that take the same steps over the same batches train together."""
        config = self._complete(config)
        alike = ("activation", "optimizer", "batch_size", "precision")
        return (config["hidden_layers"] or (), *(config[name] for name in alike))

    def conflict(self, config: Config) -> str | None:
        """Return None: no values contradict each other."""
        del config
        return None

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the networks with torch.nn.Linear's initial weights, the same ones for every config."""
        torch = torch_on_one_thread()
        config = self._complete(configs[0])
        layers, size = layers_of(problem, config)
        dtype = torch.float64 if config["precision"] == "double" else torch.float32
        # Not _generator: torch.manual_seed(seed) before building nn.Linear layers gives these very weights.
        generator = torch.Generator().manual_seed(problem.seed)
        start = torch.zeros(1, size, dtype=dtype)
        for layer in layers:
            if layer.inputs:
                weight = torch.empty(layer.outputs, layer.inputs, dtype=dtype)
                bound = 1 / math.sqrt(layer.inputs)
                torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
                layer.weight_of(start)[0] = weight
                drawn = torch.empty(layer.outputs, dtype=dtype).uniform_(-bound, bound, generator=generator)
                layer.bias_of(start)[0, 0] = drawn
        n = len(configs)
        moments = np.zeros((n, size), dtype=start.numpy().dtype)
        tensors = {
            "parameters": np.repeat(start.numpy(), n, axis=0),
            "first_moment": moments,
            "second_moment": moments.copy(),
            "step": np.zeros(n, dtype=np.int64),
            "loss": np.full(n, np.nan),
            "objective": np.zeros(n),
            "visited": np.zeros(n, dtype=np.int64),
            "epoch": np.full(n, -1),
            "label_mean": np.zeros(1),
            "label_scale": np.ones(1),
        }
        return State(tensors, np.zeros(n, dtype=bool))

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass; a config whose loss is not finite is done with loss NaN.

        A group's blocks may be passed in several calls. Raises Diverged when the group has no rows.
        """
        return self.train_stack((problem,), configs, (state,), (shard,), epoch)[0]

    def train_stack(
        self,
        problems: Sequence[Problem],
        configs: Sequence[Config],
        states: Sequence[State],
        shards: Sequence[Shard],
        epoch: int,
    ) -> tuple[State, ...]:
        """Return the states after one pass of several groups, each as ``train`` gives it, in steps common to all.

        The problems differ in their seeds at most. In single precision a group's state has the bits of ``train`` when the
        groups fill up their batches alike (to 32 rows, or batch_size), and is within rounding of it otherwise.
        """
        complete = [self._complete(config) for config in configs]
        passes = [
            _Pass.of(problem, complete, state, shard, epoch)
            for problem, state, shard in zip(problems, states, shards, strict=True)
        ]
        lanes = [each.lane for each in passes if each.lane is not None]
        if lanes:
            run_lanes(lanes, epoch)
        return tuple(each.state(epoch) for each in passes)

    def abreast(self, problem: Problem, configs: Sequence[Config]) -> int:
        """Return how many groups to train side by side: as many as keep a step's tensors in a core's cache."""
        complete = self._complete(configs[0])
        layers, size = layers_of(problem, complete)
        rows = padded_rows(int(complete["batch_size"]), BLOCK_ROWS)  # type: ignore[arg-type]
        values = _STEP_TENSORS * size + rows * (problem.n_features + sum(3 * layer.outputs for layer in layers))
        width = 8 if complete["precision"] == "double" else 4
        return max(1, min(_MOST_ABREAST, _STEP_BYTES // (width * values * len(configs))))

    def joined(self, gang: Gang) -> AbstractContextManager[None]:
        """Return the connection to the other members of a gang, within which it descends."""
        return mlp_parallel.joined(gang)

    def descend(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int, gang: Gang
    ) -> State:
        """Return the state after one pass of the gang over all its rows; as in ``train``, but batches span the members."""
        active = np.flatnonzero(~state.done).tolist()
        chosen = [self._complete(configs[index]) for index in active]
        whole, tensors = shard.totals, {name: value.copy() for name, value in state.tensors.items()}
        if problem.task is Task.REGRESSION:
            tensors["label_mean"], tensors["label_scale"] = np.array([whole.label_mean]), np.array([whole.label_scale])
        part = {name: tensors[name][active] for name in _STEPPED}
        loss = mlp_parallel.run_epoch(problem, chosen, part, shard, epoch, gang, whole)
        return _advanced(state, tensors, active, part, loss)

    def losses(self, state: State) -> FloatArray:
        """Return the objective divided by Σwᵢ, averaged over the batches of the last epoch."""
        loss: FloatArray = state.tensors["loss"]
        return loss

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, c, n_outputs)."""
        return self._networks(problem, configs, state).predict(problem.task, x)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weight_i`` (outputs, inputs) and ``bias_i`` (outputs,) of each layer, and ``activation``."""
        own = {**state.tensors, "parameters": state.tensors["parameters"][index : index + 1]}
        return self._networks(problem, configs[index : index + 1], State(own, state.done)).artifact(0)

    def score(self, task: Task, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions (n, n_outputs) in double precision, with numpy alone."""
        return Networks.of(artifact).predict(task, x)[:, 0]

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a network of two classes with a last unit for each: the weights and the bias of the first one are 0."""
        return as_multiclass(artifact)

    def flaw(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from what such a group has."""
        return mlp_model.flaw(problem, artifact)

    def importance(self, artifact: Artifact, n_features: int) -> FloatArray | None:  # noqa: ARG002
        """Return None: the weights of a network do not rank its features."""
        return None

    def _networks(self, problem: Problem, configs: Sequence[Config], state: State) -> Networks:
        """Return the networks of a state as they predict: of labels as they are."""
        config = self._complete(configs[0])
        layers, _ = layers_of(problem, config)
        values = state.tensors["parameters"].astype(np.float64)
        weights = [layer.weight_of(values) for layer in layers]
        biases = [layer.bias_of(values) for layer in layers]
        scale, mean = state.tensors["label_scale"][0], state.tensors["label_mean"][0]
        weights[-1], biases[-1] = weights[-1] * scale, biases[-1] * scale + mean
        return Networks(str(config["activation"]), tuple(weights), tuple(biases))

    def _complete(self, config: Config) -> Config:
        return {parameter.name: parameter.default for parameter in self.hyperparameters} | dict(config)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One group's pass: the state before it, its tensors so far, and the lane of its active configs, if it has any."""

    before: State
    tensors: dict[str, npt.NDArray[Any]]
    active: list[int]
    lane: Lane | None

    @classmethod
    def of(cls, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> _Pass:
        whole = shard.totals
        if not whole.n_rows:
            raise Diverged("there are no training rows")
        active = np.flatnonzero(~state.done).tolist()
        if not active or not shard.n_rows:
            return cls(state, state.tensors, active, None)
        tensors = {name: value.copy() for name, value in state.tensors.items()}
        if problem.task is Task.REGRESSION:
            tensors["label_mean"], tensors["label_scale"] = np.array([whole.label_mean]), np.array([whole.label_scale])
        starting = tensors["epoch"] != epoch
        for name in ("objective", "visited"):
            tensors[name][starting] = 0
        part = {name: tensors[name][active] for name in _STEPPED}
        return cls(state, tensors, active, Lane(problem, [configs[index] for index in active], part, shard, whole))

    def state(self, epoch: int) -> State:
        """Return the state after the pass."""
        if self.lane is None:
            return self.before
        tensors, active = self.tensors, self.active
        tensors["epoch"][active] = epoch
        tensors["visited"][active] += self.lane.rows.n_rows
        scale = float(tensors["label_scale"][0])
        loss = self.lane.part["objective"] / tensors["visited"][active] * scale**2
        return _advanced(self.before, tensors, active, self.lane.part, loss)


def _advanced(
    state: State,
    tensors: dict[str, npt.NDArray[Any]],
    active: list[int],
    part: dict[str, npt.NDArray[Any]],
    loss: FloatArray,
) -> State:
    """Return ``tensors`` with the results of the configs ``active``, of which those that are not finite are done."""
    for name, value in part.items():
        tensors[name][active] = value
    finite = np.isfinite(loss) & np.isfinite(part["parameters"]).all(axis=1)
    tensors["loss"][active] = np.where(finite, loss, np.nan)
    done = state.done.copy()
    done[active] = ~finite
    return State(tensors, done)
