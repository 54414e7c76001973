"""Dense networks: minibatch training of a pack of configs on the rows of a block, its gradients, and predictions.

Networks of a pack are computed separately, so the bits of each depend on no other, and are the same on every processor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import RowRuns, address, function, single_or_double

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Activations, tasks and optimizers in the order of ``source/networks/activations.hpp``, ``network.hpp`` and ``descent.hpp``.
ACTIVATIONS = ("relu", "tanh", "gelu", "sigmoid")
TASKS = ("regression", "binary", "multiclass")
OPTIMIZERS = ("adam", "sgd")

_POINTER, _INT, _WORD, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_double
_SINGLE: np.dtype[Any] = np.dtype(np.float32)
_DOUBLE: np.dtype[Any] = np.dtype(np.float64)
_WHOLE: np.dtype[Any] = np.dtype(np.int64)
_KINDS = {"float32": "single", "float64": "double"}
#: Alignment of buffers in bytes.
_ALIGNED = 64


class _Networks(ctypes.Structure):
    _fields_ = [
        ("layers", _INT), ("widths", _POINTER), ("activation", _INT), ("task", _INT), ("optimizer", _INT), ("configs", _INT),
        ("learning_rate", _POINTER), ("momentum", _POINTER), ("dropout", _POINTER), ("lasso", _POINTER), ("ridge", _POINTER),
        ("scale", _REAL), ("parameters", _POINTER), ("first", _POINTER), ("second", _POINTER), ("step", _POINTER),
    ]  # fmt: skip


class _BlockRows(ctypes.Structure):
    _fields_ = [
        ("x_single", _POINTER), ("x_double", _POINTER), ("y", _POINTER), ("weight", _POINTER), ("order", _POINTER),
        ("rows", _INT), ("batch_size", _INT), ("mean", _REAL), ("scale", _REAL), ("weighed", _REAL), ("key", _WORD),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """A dense network: features, units per hidden layer, outputs; the activation, and the task.

    Its parameters are one row of numbers: layer by layer the weights (outputs, inputs), then the biases (outputs,).
    """

    widths: tuple[int, ...]
    activation: str
    task: str

    @property
    def n_parameters(self) -> int:
        """Number of parameters."""
        return sum(outputs * (inputs + 1) for inputs, outputs in zip(self.widths[:-1], self.widths[1:], strict=True))

    def layers(self, parameters: npt.NDArray[Any]) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """Return views of parameters (c, n): per layer weights (c, outputs, inputs) and biases (c, outputs)."""
        found, at = [], 0
        for inputs, outputs in zip(self.widths[:-1], self.widths[1:], strict=True):
            between = at + inputs * outputs
            weight = parameters[:, at:between].reshape(-1, outputs, inputs)
            at = between + outputs
            found.append((weight, parameters[:, between:at]))
        return found


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """How a pack's configs learn: arrays (c,) of doubles, penalties already divided by the weight of all rows.

    If labels are divided by ``scale`` the last layer holds w/scale, to which the penalties apply.
    """

    optimizer: str
    learning_rate: FloatArray
    momentum: FloatArray
    dropout: FloatArray
    lasso: FloatArray
    ridge: FloatArray
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class NetworkRows:
    """The rows of a block: ``x`` (n, d), float32 or float64, ``y``, ``weight`` (n,), and the ``order`` of visited rows.

    The network learns (y - mean)/scale, weights are multiplied by ``weighed``; ``key`` is from ``dropout_key``.
    """

    x: npt.NDArray[Any]
    y: FloatArray
    weight: FloatArray
    order: IntArray
    batch_size: int
    mean: float = 0.0
    scale: float = 1.0
    weighed: float = 1.0
    key: int = 0


def train(
    shape: NetworkShape, descent: OptimizerSettings, state: Mapping[str, npt.NDArray[Any]], rows: NetworkRows
) -> None:
    """Visit the rows once, in batches: a step of every config per batch.

    ``state`` is changed: ``parameters``, ``first_moment``, ``second_moment`` (c, n_parameters), single or double, ``step``
    (c,) integers, and ``objective`` (c,), to which each batch adds its objective times its rows.
    """
    call = _Call.of(shape, descent, state, rows)
    call("networks_train", (_POINTER,), address(_checked(state["objective"], call.configs)))


def gradients(
    shape: NetworkShape,
    descent: OptimizerSettings,
    state: Mapping[str, npt.NDArray[Any]],
    rows: NetworkRows,
    part: slice,
    together: int,
) -> tuple[npt.NDArray[Any], FloatArray]:
    """Return the gradients (c, n_parameters) over a part of the order, and Σ w·loss/together (c,)."""
    call = _Call.of(shape, descent, state, rows)
    found, losses = np.empty_like(state["parameters"]), np.empty(call.configs)
    kinds = (_INT, _INT, _INT, _POINTER, _POINTER)
    call("networks_gradients", kinds, part.start, part.stop, together, address(found), address(losses))
    return found, losses


def descend(
    shape: NetworkShape, descent: OptimizerSettings, state: Mapping[str, npt.NDArray[Any]], gradient: npt.NDArray[Any]
) -> FloatArray:
    """Take one step of every config by its gradient (c, n_parameters) without penalties; return the penalties before it."""
    nothing = np.empty((0, shape.widths[0]))
    call = _Call.of(shape, descent, state, NetworkRows(nothing, nothing[:, 0], nothing[:, 0], np.empty(0, np.int64), 1))
    if gradient.shape != state["parameters"].shape or gradient.dtype != state["parameters"].dtype:
        raise ValueError("gradients are as parameters are")
    penalties = np.empty(call.configs)
    call("networks_descend", (_POINTER, _POINTER), address(gradient), address(penalties))
    return penalties


def predict(shape: NetworkShape, parameters: FloatArray, x: npt.NDArray[Any]) -> FloatArray:
    """Return the predictions (n, c, outputs) of networks (c, n_parameters) for rows (n, d): values or probabilities."""
    _checked_rows(x, shape)
    widths = np.array(shape.widths, np.int64)
    networks, room = _predicting(shape, widths, parameters, len(parameters))
    found = np.empty((len(x), len(parameters), shape.widths[-1]))
    run = function("networks_predict", *[_POINTER] * 3, _INT, _POINTER, _POINTER)
    run(ctypes.addressof(networks), *single_or_double(x), len(x), address(room), address(found))
    return found


def predict_runs(shape: NetworkShape, parameters: FloatArray, x: FloatArray, runs: RowRuns) -> FloatArray:
    """Return predictions (n, outputs) for runs of rows (n, d), each by one of the networks (G, n_parameters)."""
    _checked(x, len(x), shape.widths[0])
    widths = np.array(shape.widths, np.int64)
    networks, room = _predicting(shape, widths, parameters, 1)
    found = np.empty((len(x), shape.widths[-1]))
    call = function("networks_predict_runs", *[_POINTER] * 4, _INT, _POINTER, _POINTER)
    call(ctypes.addressof(networks), address(x), *map(address, runs), len(runs.model), address(room), address(found))
    return found


def _predicting(
    shape: NetworkShape, widths: IntArray, parameters: FloatArray, configs: int
) -> tuple[_Networks, npt.NDArray[Any]]:
    """Return networks for prediction, and the buffer for so many configs at once."""
    _checked(parameters, len(parameters), shape.n_parameters)
    activation, task = ACTIVATIONS.index(shape.activation), TASKS.index(shape.task)
    networks = _Networks(len(widths) - 1, address(widths), activation, task, 0, configs)
    networks.parameters = address(parameters)
    size = function("networks_predict_room", _POINTER, returns=_INT)(ctypes.addressof(networks))
    return networks, _room(size, _DOUBLE)


def visiting_order(seed: int, epoch: int, n_rows: int, block: int = 0) -> IntArray:
    """Return the order (n_rows,) in which an epoch visits a block's rows: a shuffle seeded by these numbers."""
    order = np.empty(n_rows, np.int64)
    function("visiting_order", _WORD, _WORD, _WORD, _INT, _POINTER)(seed, epoch, block, n_rows, address(order))
    return order


def dropout_key(seed: int, epoch: int, block: int = 0) -> int:
    """Return the key of dropout's random numbers for a block's rows in an epoch, by row and unit."""
    return int(function("dropout_key", _WORD, _WORD, _WORD, returns=_WORD)(seed, epoch, block))


def starting_numbers(seed: int, tensor: int, n: int) -> FloatArray:
    """Return n independent uniform numbers in [0, 1) for a seed and the number of a tensor."""
    numbers = np.empty(n)
    function("starting_numbers", _WORD, _WORD, _INT, _POINTER)(seed, tensor, n, address(numbers))
    return numbers


@dataclass(frozen=True, slots=True)
class _Call:
    """The checked arguments of a call, and the arrays that they point to."""

    networks: _Networks
    rows: _BlockRows
    dtype: np.dtype[Any]
    held: Sequence[Any]

    @classmethod
    def of(
        cls, shape: NetworkShape, descent: OptimizerSettings, state: Mapping[str, npt.NDArray[Any]], rows: NetworkRows
    ) -> _Call:
        parameters, widths = state["parameters"], np.array(shape.widths, np.int64)
        configs, n = len(parameters), len(rows.x)
        moments = [state[name] for name in ("parameters", "first_moment", "second_moment")]
        if {each.dtype for each in moments} != {parameters.dtype}:
            raise ValueError("parameters and moments are of one precision")
        for each in moments:
            _checked(each, configs, shape.n_parameters, dtype=parameters.dtype)
        rates = (descent.learning_rate, descent.momentum, descent.dropout, descent.lasso, descent.ridge)
        networks = _Networks(
            len(widths) - 1, address(widths), ACTIVATIONS.index(shape.activation), TASKS.index(shape.task),
            OPTIMIZERS.index(descent.optimizer), configs, *(address(_checked(each, configs)) for each in rates),
            descent.scale, *map(address, moments), address(_checked(state["step"], configs, dtype=_WHOLE)),
        )  # fmt: skip
        x = _checked_rows(rows.x, shape)
        columns = (
            _checked(rows.y, n),
            _checked(rows.weight, n),
            _checked(rows.order, len(rows.order), dtype=_WHOLE),
        )
        block = _BlockRows(
            *single_or_double(x), *map(address, columns), len(rows.order), rows.batch_size, rows.mean, rows.scale, rows.weighed,
            rows.key,
        )  # fmt: skip
        return cls(networks, block, parameters.dtype, (widths, moments, rates, x, columns))

    @property
    def configs(self) -> int:
        return int(self.networks.configs)

    def __call__(self, symbol: str, kinds: Sequence[Any], *arguments: int) -> None:
        kind, both = _KINDS[self.dtype.name], (ctypes.addressof(self.networks), ctypes.addressof(self.rows))
        room = _room(function(f"networks_room_{kind}", _POINTER, _POINTER, returns=_INT)(*both), self.dtype)
        function(f"{symbol}_{kind}", _POINTER, _POINTER, _POINTER, *kinds)(*both, address(room), *arguments)


def _checked(array: npt.NDArray[Any], *shape: int, dtype: np.dtype[Any] = _DOUBLE) -> npt.NDArray[Any]:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"an array of {array.dtype} {array.shape} where {dtype} {shape} is expected")
    return array


def _checked_rows(x: npt.NDArray[Any], shape: NetworkShape) -> npt.NDArray[Any]:
    return _checked(x, len(x), shape.widths[0], dtype=_SINGLE if x.dtype == _SINGLE else _DOUBLE)


def _room(size: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an aligned, uninitialised buffer."""
    whole = np.empty(size + _ALIGNED // dtype.itemsize, dtype)
    start = -whole.ctypes.data % _ALIGNED // dtype.itemsize
    return whole[start : start + size]
