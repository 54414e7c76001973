"""Registered networks: any torch module, trained by minibatch Adam or SGD under every sequential operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Matrix, Shard
from grouplearn.learners.contract.config import Config, Value
from grouplearn.learners.contract.control import Diverged, Gang
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import DataParallelLearner
from grouplearn.learners.neural import network_artifact, network_parallel
from grouplearn.learners.neural.network_module import RegisteredNetwork, built, load_tensors, module_tensors, predicted
from grouplearn.learners.neural.network_training import ModuleTraining
from grouplearn.models.label import SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import Artifact, FloatArray, State, of_both_classes


@dataclass(frozen=True, slots=True)
class Network(DataParallelLearner):
    """A user's torch module, for classification and regression, also of array labels.

    ``make_module(problem, config)`` returns the module; its input is x (rows, n_features) and its output one value, or one
    logit per class, for each value of a label: (rows, k), or (rows, k, ...) with L values per class for labels of L values.
    Weights are drawn by torch's generator seeded with ``problem.seed``.

    An epoch visits every row once, block by block, each in the shuffled order of ``visiting_order``. A batch of b rows
    descends ``1/b Σ w̃ᵢ·lossᵢ + (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ`` with ``w̃ᵢ = wᵢ·n/Σwᵢ``, where w are the parameters of two or
    more dimensions; the loss of a row with several label values is their mean. The loss is ``loss(outputs, labels)`` per
    row, by default ½(y-ŷ)² of unscaled labels, and cross entropy. Random numbers of a module in a batch (dropout) depend
    only on (seed, epoch, block, batch).

    State: ``module/<name>`` (c, ...) are the tensors of ``state_dict``, buffers included, ``optimizer/<slot>/<name>`` (c, ...)
    those of the optimizer, zeros at first; ``loss``, ``objective``, ``visited``, ``epoch`` (c,) are as in ``mlp``. A finished
    model has ``module/<name>`` and ``made_from``, JSON text as bytes: task, sizes, seed and hyperparameters.
    """

    declaration: Declaration
    make_module: Callable[[Problem, Mapping[str, Value]], Any]
    loss: Callable[[Any, Any], Any] | None

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return a key for this config alone: modules may differ in everything."""
        return tuple(value for _, value in sorted(self._complete(config).items()))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return the modules as they are made."""
        n = len(configs)
        tensors: dict[str, npt.NDArray[Any]] = {
            "loss": np.full(n, np.nan),
            "objective": np.zeros(n),
            "visited": np.zeros(n, dtype=np.int64),
            "epoch": np.full(n, -1),
        }
        state = State(tensors, np.zeros(n, dtype=bool))
        for index, config in enumerate(configs):
            _put(state, index, module_tensors(built(self._recipe, problem, self._complete(config))))
        return state

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass; a config whose loss is not finite is done with loss NaN.

        A group's blocks may be passed in several calls. Raises Diverged when the group has no rows.
        """
        whole = shard.totals
        if not whole.n_rows:
            raise Diverged("there are no training rows")
        state = _copied(state, epoch)
        for index in np.flatnonzero(~state.done).tolist():
            trainee = self._trainee(problem, configs, state, index)
            for block in shard.blocks():
                if block.n_rows and np.isfinite(state.tensors["objective"][index]):
                    state.tensors["objective"][index] += trainee.visit(block, epoch, whole)
                    state.tensors["visited"][index] += block.n_rows
            _advance(state, index, trainee)
        return state

    def joined(self, gang: Gang) -> AbstractContextManager[Gang]:
        """Return the context that connects the members of a gang."""
        return network_parallel.joined(gang)

    def descend(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int, gang: Gang
    ) -> State:
        """Return the state after one pass of the gang over all its rows; as ``train``, but batches span the members."""
        state = _copied(state, epoch)
        for index in np.flatnonzero(~state.done).tolist():
            trainee = self._trainee(problem, configs, state, index)
            objective = network_parallel.run_epoch(trainee, shard, epoch, gang, shard.totals)
            state.tensors["objective"][index] = objective
            state.tensors["visited"][index] = 1
            _advance(state, index, trainee)
        return state

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predictions, shape (n, c, n_outputs), in the precision of the config."""
        found = [
            self._predicted(problem, self._complete(config), _part(state, index, "module"), x)
            for index, config in enumerate(configs)
        ]
        return np.stack(found, axis=1)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return the module's tensors and the arguments it was made with."""
        made_from = {
            "task": problem.label.name,
            "n_features": problem.n_features,
            "n_classes": problem.n_classes,
            "label_length": problem.label_length,
            "seed": problem.seed,
            "epochs": problem.epochs,
            "hyperparameters": self._complete(configs[index]),
        }
        text = network_artifact.written(made_from)
        tensors = {f"module/{name}": np.array(value) for name, value in _part(state, index, "module").items()}
        return Artifact("tensors", {network_artifact.MADE_FROM: text, **tensors})

    def score(self, label: Label, artifact: Artifact, x: Matrix) -> FloatArray:
        """Return the predictions (n, n_outputs); raises ValueError if the model belongs to another module."""
        problem, config = network_artifact.made_from(artifact)
        own = network_artifact.own_tensors(artifact)
        found = self._predicted(problem, config, own, x)
        return of_both_classes(found) if label == SEVERAL_CLASSES and problem.label == TWO_CLASSES else found

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return why the model cannot be of such a group, by the arguments that its module was made with."""
        return network_artifact.validation_error(self._recipe, self.declaration.hyperparameters, problem, artifact)

    def functions(self) -> tuple[Callable[..., Any], ...]:
        """Return the functions for the module and the loss."""
        return (self.make_module,) if self.loss is None else (self.make_module, self.loss)

    @property
    def _recipe(self) -> RegisteredNetwork:
        return RegisteredNetwork(self.declaration.name, self.make_module, self.loss)

    def _complete(self, config: Config) -> Config:
        return {parameter.name: parameter.default for parameter in self.declaration.hyperparameters} | dict(config)

    def _trainee(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> ModuleTraining:
        config = self._complete(configs[index])
        module = built(self._recipe, problem, config)
        load_tensors(module, _part(state, index, "module"), self.declaration.name)
        return ModuleTraining(self._recipe, problem, config, module, _part(state, index, "optimizer"))

    def _predicted(
        self, problem: Problem, config: Config, tensors: Mapping[str, npt.NDArray[Any]], x: Matrix
    ) -> FloatArray:
        module = built(self._recipe, problem, config)
        load_tensors(module, tensors, self.declaration.name)
        return predicted(self._recipe, problem, module, x)


def _part(state: State, index: int, part: Literal["module", "optimizer"]) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of one config's module or optimizer."""
    head = f"{part}/"
    return {name.removeprefix(head): value[index] for name, value in state.tensors.items() if name.startswith(head)}


def _copied(state: State, epoch: int) -> State:
    """Return a copy whose sums belong to ``epoch``: earlier ones are reset."""
    sums = {name: state.tensors[name].copy() for name in ("loss", "objective", "visited", "epoch")}
    starting = ~state.done & (sums["epoch"] != epoch)
    for name in ("objective", "visited"):
        sums[name][starting] = 0
    sums["epoch"][~state.done] = epoch
    return State({**state.tensors, **sums}, state.done.copy())


def _advance(state: State, index: int, trainee: ModuleTraining) -> None:
    """Store a config's results in a state that is not shared yet; non-finite ones are done."""
    found = trainee.tensors()
    _put(state, index, found)
    loss = state.tensors["objective"][index] / max(1, state.tensors["visited"][index])
    finite = np.isfinite(loss) and all(np.isfinite(value).all() for value in found.values())
    state.tensors["loss"][index] = loss if finite else np.nan
    state.done[index] = not finite


def _put(state: State, index: int, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Replace one config's tensors in a state that is not shared yet, although its arrays may be."""
    configs = len(state.done)
    for name, value in tensors.items():
        before = state.tensors.get(name)
        rows = np.zeros((configs, *value.shape), value.dtype) if before is None else before.copy()
        if rows.shape[1:] != value.shape:
            raise ValueError(f"configurations of one pack make modules that differ in the shape of {name}")
        rows[index] = value
        state.tensors[name] = rows
