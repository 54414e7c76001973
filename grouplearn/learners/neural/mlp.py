"""Multilayer perceptrons, trained and scored by kernels: the networks of a pack share only their rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix, Shard, Totals
from grouplearn.kernels import networks
from grouplearn.kernels.library import RowRuns
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.access import PASSES, AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.control import Diverged, Gang
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import BatchesLearner, DataParallelLearner, Piece, Visit
from grouplearn.learners.gang_sockets import joined
from grouplearn.learners.neural import mlp_model, mlp_parallel
from grouplearn.learners.neural.cost import MLP
from grouplearn.learners.neural.mlp_model import Networks, as_multiclass
from grouplearn.learners.neural.mlp_rows import descent_of, rows_of, scaling_of, shape_of
from grouplearn.models.label import LABELLED, Label
from grouplearn.models.state import Artifact, FloatArray, State, Tensors, has_tensors_of

_PRECISIONS = ("single", "double")
#: Tensors of the state that change with every batch.
_STEPPED = ("parameters", "first_moment", "second_moment", "step", "objective")

_SKLEARN = "scikit-learn MLPClassifier"
_STEP_SIZE = "step size; where a number is predicted, on labels scaled to mean 0 and standard deviation 1"
_BATCH = "rows per step; a batch ends where a block of 16,384 rows does"
_TORCH = "torch.optim, torch.nn"
_HYPERPARAMETERS = (
    Hyperparameter(
        "hidden_layers", "ints", (32,), "units of each hidden layer; [] for none", _SKLEARN, low=1, nullable=True
    ),
    Hyperparameter("activation", "str", "relu", "activation of the hidden units", _SKLEARN, choices=networks.ACTIVATIONS),
    Hyperparameter(
        "dropout", "float", 0.0, "share of hidden units dropped in each batch", "Srivastava et al. 2014",
        low=0.0, high=0.95,
    ),
    Hyperparameter("optimizer", "str", "adam", "how a batch moves the weights", _TORCH, choices=networks.OPTIMIZERS),
    Hyperparameter("learning_rate", "float", 1e-3, _STEP_SIZE, _TORCH, low=0.0, open_low=True, remedy="lower"),
    Hyperparameter(
        "momentum", "float", 0.0, "momentum of sgd; adam has its own", _TORCH, low=0.0, high=1.0,
        only_with=("optimizer", ("sgd",)),
    ),
    Hyperparameter("l1", "float", 0.0, "weight of the penalty l1·‖w‖₁", "Tibshirani 1996", low=0.0),
    Hyperparameter("l2", "float", 0.0, "weight of the penalty ½·l2·‖w‖²", "Hoerl & Kennard 1970", low=0.0),
    Hyperparameter("batch_size", "int", 32, _BATCH, _TORCH, low=1, high=1 << 31),
    Hyperparameter("precision", "str", "single", "of the numbers in training; double is slower", _TORCH, choices=_PRECISIONS),
)  # fmt: skip


class Mlp(BatchesLearner, DataParallelLearner):
    """Multilayer perceptron trained by minibatch Adam or SGD, for classification and regression.

    An epoch visits every row once, block by block, each in its own shuffled order that depends on (seed, epoch, number of the
    block). A batch B of b rows, all of one block, descends ``1/b Σ_{i∈B} w̃ᵢ·lossᵢ + (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ`` with ``w̃ᵢ =
    wᵢ·n/Σwᵢ``, whose mean over the batches of an epoch is the objective ``Σ wᵢ·lossᵢ + l1·‖w‖₁ + ½·l2·‖w‖²`` divided by
    ``Σwᵢ``; so with unit weights l2 is n times torch's ``weight_decay``. The l1 term uses a subgradient: small weights come
    near zero but seldom reach it. Losses are ½(y-ŷ)², and cross entropy on one logit or K.

    Weights and biases of a layer begin uniform in ±1/√inputs, as in ``torch.nn.Linear``, the same for every config. Dropout
    draws a number per (seed, epoch, row, unit); units whose number is below the rate are dropped. A model's bits do not depend
    on other models or the processor. Regression trains on (y-mean)/sd of the training labels, with the objective rewritten
    exactly (divided by sd², last layer w/sd); the finished model predicts y itself.

    State: ``parameters``, ``first_moment``, ``second_moment`` (c, p) hold weights and biases layer by layer; ``step``, ``loss``
    (c,); ``objective``, ``visited``, ``epoch`` (c,) are the sums of the current epoch, their rows, and its number;
    ``label_mean``, ``label_scale`` (1,).
    """

    declaration = Declaration(
        name="mlp",
        summary="Multilayer perceptron (small neural network) by minibatch Adam or SGD",
        labels=LABELLED,
        hyperparameters=_HYPERPARAMETERS,
        default_epochs=10,
        form="layers",
        needs_scaling=True,
        cost=MLP,
    )
    #: A kernel runs all batches of a block without the interpreter lock. With 1,000 rows of 32 numbers and 12
    #: configurations that takes as long as the Python around it; with ten times as many values two threads no longer wait
    #: for each other.
    access: ClassVar[AccessPattern] = replace(PASSES, threaded_from=400_000.0)
    averaged: ClassVar[tuple[str, ...]] = ("parameters", "first_moment", "second_moment")
    parameters: ClassVar[tuple[str, ...]] = ("parameters",)

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Networks of one shape whose steps use the same batches train together."""
        config = self._complete(config)
        alike = ("activation", "optimizer", "batch_size", "precision")
        return (config["hidden_layers"] or (), *(config[name] for name in alike))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the networks with initial weights; raises Diverged if there are no rows or columns."""
        if not problem.n_features:
            raise Diverged("there are no features")
        config, n = self._complete(configs[0]), len(configs)
        shape = shape_of(problem, config)
        start = np.zeros((1, shape.n_parameters))
        for number, (weight, bias) in enumerate(shape.layers(start)):
            bound = 1 / math.sqrt(max(1, weight.shape[2]))
            for each, tensor in ((weight, 2 * number), (bias, 2 * number + 1)):
                drawn = networks.starting_numbers(problem.seed, tensor, each.size)
                each[...] = ((2 * drawn - 1) * bound).reshape(each.shape)
        start = start.astype(np.float64 if config["precision"] == "double" else np.float32)
        moments = np.zeros((n, shape.n_parameters), dtype=start.dtype)
        tensors = {
            "parameters": np.repeat(start, n, axis=0),
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

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the tensors are valid for such networks, with plausible counts of steps and rows."""
        begun = self.init(problem, configs)
        # Trials combined into one state bring a mean and a scale of labels each, which are equal in a group.
        for name in ("label_mean", "label_scale"):
            expected, found = begun.tensors.pop(name), state.tensors.get(name)
            if found is None or found.ndim != 1 or not found.size or found.dtype != expected.dtype:
                return False
        counts = ("step", "visited")
        return has_tensors_of(state, begun) and all((state.tensors[name] >= 0).all() for name in counts)

    def batch_rows(self, config: Config) -> int:
        """Return ``batch_size``."""
        return int(self._complete(config)["batch_size"])  # type: ignore[arg-type]

    def train_batches(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> State:
        """Return the state after some batches of a block, or all batches of several blocks.

        A config whose loss is not finite is done with loss NaN. Raises Diverged when the group has no rows.
        """
        shard, whole = block, block.totals
        if not whole.n_rows:
            raise Diverged("there are no training rows")
        active = np.flatnonzero(~state.done).tolist()
        if not active or not shard.n_rows:
            return state
        chosen = [self._complete(configs[index]) for index in active]
        tensors = _scaled(problem, state, whole)
        starting = (tensors["epoch"] != visit.epoch) | visit.begins
        for name in ("objective", "visited"):
            tensors[name][starting] = 0
        part = _of(tensors, active)
        shape, descent = shape_of(problem, chosen[0]), descent_of(problem, chosen, whole)
        for number, (start, stop) in enumerate(itertools.pairwise(shard.bounds), start=shard.first):
            if stop > start:
                own = Shard(
                    shard.x[start:stop], shard.y[start:stop], shard.weight[start:stop], first=number, whole=whole
                )
                rows = rows_of(problem, chosen[0], own, visit)
                networks.train(shape, descent, part, rows)
                tensors["visited"][active] += len(rows.order)
        tensors["epoch"][active] = visit.epoch
        scale = float(tensors["label_scale"][0])
        return _advanced(state, tensors, active, part, part["objective"] / tensors["visited"][active] * scale**2)

    def average(self, parts: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        """Return the mean of the networks and of Adam's moments, weighted by rows.

        The moments are running means of gradients and their squares, so that their mean is one over all rows and Adam
        continues; from zeros it would restart each epoch. ``step`` corrects for the start of running means: it is the most
        of any network. A model's loss is a mean over its visited rows, and is weighted by their number.
        """
        if "step" not in parts[0]:
            return averaging.mean_of(parts, self.averaged, weights)
        epoch, visited = parts[0]["epoch"], np.stack([part["visited"] for part in parts])
        moved = epoch == epoch.max()
        rows = np.where(moved, visited, 1).astype(np.float64)
        losses = np.stack([part["loss"] for part in parts])
        loss = losses[0] + (rows / rows.sum(axis=0) * (losses - losses[0])).sum(axis=0)
        counts = {
            "step": np.stack([part["step"] for part in parts]).max(axis=0),
            "visited": np.where(moved, visited.sum(axis=0), visited[0]),
        }
        return {**averaging.mean_of(parts, self.averaged, weights), **counts, "loss": loss}

    def gradient(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> dict[str, npt.NDArray[Any]]:
        """Return ``gradient`` (c, p), ``losses`` (c,) with penalties, in scaled labels, and ``rows`` (1,)."""
        chosen = [self._complete(config) for config in configs]
        tensors = _scaled(problem, state, block.totals)
        shape, descent = shape_of(problem, chosen[0]), descent_of(problem, chosen, block.totals)
        rows = rows_of(problem, chosen[0], block, visit)
        count = len(rows.order)
        found, losses = networks.gradients(shape, descent, tensors, rows, slice(0, count), count)
        # A step on a copy tells the penalties before it.
        penalties = networks.descend(shape, descent, _of_copies(tensors), np.zeros_like(found))
        return {
            "gradient": found.astype(np.float64) * count,
            "losses": (losses + penalties) * count,
            "rows": np.array([float(count)]),
        }

    def stepped(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        sums: Tensors,
        whole: Totals,
        piece: Piece,
    ) -> State:
        """Return a piece of the state after one step of the optimizer; the other pieces are zeros meanwhile."""
        active = np.flatnonzero(~state.done).tolist()
        if not active:
            return state
        chosen, count = [self._complete(configs[index]) for index in active], float(sums["rows"][0])
        shape, descent = shape_of(problem, chosen[0]), descent_of(problem, chosen, whole)
        tensors, size = _scaled(problem, state, whole), shape.n_parameters
        own = slice(size * piece.number // piece.of, size * (piece.number + 1) // piece.of)
        kind = tensors["parameters"].dtype
        wide = {name: np.zeros((len(active), size), dtype=kind) for name in (*self.averaged, "gradient")}
        for name in self.averaged:
            wide[name][:, own] = tensors[name][active]
        wide["gradient"][:, own] = sums["gradient"][active] / count
        part = {**_of(tensors, active), **wide}
        networks.descend(shape, descent, part, part.pop("gradient"))
        part |= {name: part[name][:, own].copy() for name in self.averaged}
        return _advanced(
            state, tensors, active, part, sums["losses"][active] / count * float(tensors["label_scale"][0]) ** 2
        )

    def joined(self, gang: Gang) -> AbstractContextManager[Gang]:
        """Return the context that connects the members of a gang."""
        return joined(gang)

    def descend(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int, gang: Gang
    ) -> State:
        """Return the state after one pass of the gang over all its rows; as ``train``, but batches span the members."""
        active = np.flatnonzero(~state.done).tolist()
        chosen = [self._complete(configs[index]) for index in active]
        tensors = _scaled(problem, state, shard.totals)
        part = _of(tensors, active)
        loss = mlp_parallel.run_epoch(problem, chosen, part, shard, epoch, gang)
        return _advanced(state, tensors, active, part, loss)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, c, n_outputs)."""
        return self._networks(problem, configs, state).predict(problem.label, x)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weight_i`` (outputs, inputs) and ``bias_i`` (outputs,) of each layer, and ``activation``."""
        own = {**state.tensors, "parameters": state.tensors["parameters"][index : index + 1]}
        return self._networks(problem, configs[index : index + 1], State(own, state.done)).artifact(0)

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions (n, n_outputs) in double precision, with numpy only."""
        return Networks.of(artifact).predict(label, x)[:, 0]

    def score_runs(
        self, label: Label, artifacts: Sequence[Artifact]
    ) -> Callable[[FloatArray, RowRuns], FloatArray] | None:
        """Return a function that scores runs of rows in one kernel call, if all networks have one shape."""
        return mlp_model.predicting_runs(label, artifacts)

    def as_multiclass(self, artifact: Artifact) -> Artifact:
        """Return a network of two classes with an output per class, weights and bias 0 for the first."""
        return as_multiclass(artifact)

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of such a group."""
        return mlp_model.validation_error(problem, artifact)

    def _networks(self, problem: Problem, configs: Sequence[Config], state: State) -> Networks:
        """Return the networks as they predict: labels unscaled, class 1 positive."""
        shape = shape_of(problem, self._complete(configs[0]))
        layers = shape.layers(state.tensors["parameters"].astype(np.float64))
        weights, biases = [weight for weight, _ in layers], [bias[:, None] for _, bias in layers]
        scale, mean = state.tensors["label_scale"][0], state.tensors["label_mean"][0]
        scale = -scale if problem.mirrored else scale  # σ(−z) = 1 − σ(z)
        weights[-1], biases[-1] = weights[-1] * scale, biases[-1] * scale + mean
        return Networks(shape.activation, tuple(weights), tuple(biases))

    def _complete(self, config: Config) -> Config:
        return {parameter.name: parameter.default for parameter in self.declaration.hyperparameters} | dict(config)


def _scaled(problem: Problem, state: State, whole: Totals) -> dict[str, npt.NDArray[Any]]:
    """Return copies of a state's tensors, with the scaling of the group's labels."""
    tensors = {name: value.copy() for name, value in state.tensors.items()}
    mean, scale = scaling_of(problem, whole)
    return {**tensors, "label_mean": np.array([mean]), "label_scale": np.array([scale])}


def _of(tensors: dict[str, npt.NDArray[Any]], active: list[int]) -> dict[str, npt.NDArray[Any]]:
    """Return what batches change, for the configs ``active``: the tensors themselves if these are all."""
    if len(active) == len(tensors["step"]):
        return {name: tensors[name] for name in _STEPPED}
    return {name: tensors[name][active] for name in _STEPPED}


def _of_copies(tensors: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of what batches change."""
    return {name: tensors[name].copy() for name in _STEPPED}


def _advanced(
    state: State,
    tensors: dict[str, npt.NDArray[Any]],
    active: list[int],
    part: dict[str, npt.NDArray[Any]],
    loss: FloatArray,
) -> State:
    """Return ``tensors`` with the results of the configs ``active``; non-finite ones are done."""
    for name, value in part.items():
        if value is not tensors[name]:
            tensors[name][active] = value
    finite = np.isfinite(loss) & np.isfinite(part["parameters"]).all(axis=1)
    tensors["loss"][active] = np.where(finite, loss, np.nan)
    done = state.done.copy()
    done[active] = ~finite
    return State(tensors, done)
