"""Stochastic gradient descent of linear models: all configs of a pack over the rows of blocks, dense or CSR.

Every output of every config is a lane of its own (``source/linear/stochastic_gradient.hpp``), so that its bits depend on no
other config; weights are stored by column, so that a nonzero touches one run of numbers. Arrays (c, k, d) of configs,
outputs and columns are views of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double
from grouplearn.kernels.linear.loss_numbers import number_of

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SCHEDULES = ("constant", "inverse_sqrt", "bottou")

_POINTER, _COUNT, _REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_LANES = 8
#: Numbers per lane, in the order of the fields of ``Models``; the first of them change.
_CHANGING = ("scale", "due", "total", "counted", "intercept", "intercept_sum", "step", "objective")
#: Numbers per column and lane.
_WIDE = ("unscaled", "paid", "beyond")
_GIVEN = ("rate", "decay", "rooted", "ridge", "lasso", "with_intercept", "loss", "parameter")
#: In place of a loss's number: the lanes have several.
_SEVERAL = -1


class _Models(ctypes.Structure):
    _fields_ = [
        ("lanes", _COUNT), ("stride", _COUNT), ("outputs", _COUNT), ("one_loss", _COUNT),
        ("unscaled", _POINTER), ("paid", _POINTER), ("beyond", _POINTER),
        *((name, _POINTER) for name in (*_CHANGING, *_GIVEN)),
    ]  # fmt: skip


class _Rows(ctypes.Structure):
    _fields_ = [
        *((name, _POINTER) for name in ("x_single", "x_double", "values", "column", "start", "y", "weight", "order")),
        ("rows", _COUNT), ("columns", _COUNT), ("batch_size", _COUNT), ("weighed", _REAL),
    ]  # fmt: skip


class _Course(ctypes.Structure):
    _fields_ = [
        ("first", _COUNT), ("count", _COUNT), ("made", _COUNT), ("seed", ctypes.c_uint64), ("block", ctypes.c_uint64),
        ("order", _POINTER), ("seen", _REAL), ("weight", _REAL), ("tolerance", _POINTER), ("patience", _COUNT),
        *((name, _POINTER) for name in ("best", "stalled", "curve", "done", "kept")),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SgdModels:
    """Linear models of c configs with k outputs of d columns, during their descent.

    The weights are ``scale`` (c,) times ``unscaled`` (c, k, d), less outstanding l1: so far each weight should have moved
    by ``due`` (c,), in unscaled units, and has moved by ``paid`` (c, k, d). The sum of the weights over the steps, each
    times its number, is ``total`` (c,) times unscaled less ``beyond`` (c, k, d); that of the ``intercept`` (c, k) is
    ``intercept_sum`` (c, k), and that of the step numbers ``counted`` (c,). ``step`` (c,) counts steps, ``objective`` (c,
    k) sums weight·loss. ``paid`` is None without l1, ``beyond`` without averaging.
    """

    unscaled: FloatArray
    paid: FloatArray | None
    beyond: FloatArray | None
    scale: FloatArray
    due: FloatArray
    total: FloatArray
    counted: FloatArray
    intercept: FloatArray
    intercept_sum: FloatArray
    step: FloatArray
    objective: FloatArray

    def weights(self) -> FloatArray:
        """Return the weights (c, k, d) after outstanding l1."""
        return settled(self.unscaled, self.paid, self.due) * self.scale[:, None, None]


@dataclass(frozen=True, slots=True)
class SgdSettings:
    """How configs learn, arrays (c,): η = rate/(1 + decay·t) after t steps, or rate/√(1 + decay·t) where ``rooted`` is 1.

    ``ridge`` and ``lasso`` are penalties per row; ``with_intercept`` is 1 or 0. ``loss`` names the loss of each config,
    ``parameter`` is the number that it takes: α of a quantile, δ of Huber's loss.
    """

    loss: npt.NDArray[np.str_]
    rate: FloatArray
    decay: FloatArray
    rooted: FloatArray
    ridge: FloatArray
    lasso: FloatArray
    with_intercept: FloatArray
    parameter: FloatArray


@dataclass(frozen=True, slots=True)
class BlockRows:
    """The rows of a block: ``x`` (n, d) of float32, float64 or CSR, ``y``, ``weight`` (n,), which is multiplied by
    ``weighed``.

    ``order`` are the visited rows in order, in batches of ``batch_size``. Labels of classes are their numbers.
    """

    x: Any
    y: FloatArray
    weight: FloatArray
    order: IntArray
    batch_size: int = 1
    weighed: float = 1.0


def settled(unscaled: FloatArray, paid: FloatArray | None, due: FloatArray) -> FloatArray:
    """Return unscaled weights (c, k, d) moved towards 0 by outstanding l1, but not across it."""
    if paid is None:
        return unscaled
    so_far = due[:, None, None]
    down, up = np.maximum(0.0, unscaled - (so_far + paid)), np.minimum(0.0, unscaled + (so_far - paid))
    moved: FloatArray = np.where(unscaled > 0, down, np.where(unscaled < 0, up, unscaled))
    return moved


def descend(models: SgdModels, descent: SgdSettings, blocks: Sequence[BlockRows]) -> SgdModels:
    """Return the models after a step for each batch of each block.

    A batch of b rows moves w by −η·(1/b Σ weight·weighed·∇loss + ∇penalty); w·(1 − η·ridge) is never taken below 0, l1 is
    the cumulative penalty of Tsuruoka, Tsujii & Ananiadou (2009). Lanes that overflow become infinite or NaN without
    affecting others. For ``poisson``, whose slope grows as exp(score), a row weighs at most 1/(η·max(exp(score), y)·(‖x‖² +
    intercept)), which moves its score no farther than to log(y), after Asi & Duchi (2019), whose steps end where a loss is
    least. Raises MemoryError.
    """
    laid = _Laid.of(models, descent)
    for rows in blocks:
        given, held = _rows(rows, models.unscaled.shape[2])
        call = function("stochastic_gradient_train", _POINTER, _POINTER, returns=ctypes.c_int)
        if call(ctypes.addressof(laid.models), ctypes.addressof(given)):
            raise MemoryError
        del held
    return laid.found(models)


@dataclass(frozen=True, slots=True)
class SgdEpochs:
    """Several epochs over one block, arrays (c,) by config.

    Given: the numbers of the ``first`` epoch and of the ``block``, the ``seed`` by which its rows are ordered anew in each
    epoch, Σ weight·weighed as ``seen``, Σ weight as ``weight``, and when to stop: after ``patience`` epochs that did not
    lower the least objective ``best`` by ``tolerance``; ``stalled`` are those so far. Found: the objective after each
    epoch, ``curve`` (epochs, c), and who is ``done``.
    """

    first: int
    block: int
    seed: int
    seen: float
    weight: float
    tolerance: FloatArray
    patience: int
    best: FloatArray
    stalled: FloatArray
    curve: FloatArray
    done: npt.NDArray[np.bool_]


def descend_epochs(
    models: SgdModels, descent: SgdSettings, rows: BlockRows, course: SgdEpochs, most: int, *, keeps: bool
) -> tuple[SgdModels, SgdEpochs, SgdModels | None]:
    """Return the models after up to ``most`` epochs, as by ``descend`` of each, until a config is done; and their course.

    With ``keeps`` the last result has the models after each epoch, (epochs·c, ...), else it is None. Raises MemoryError.
    """
    n, _, columns = models.unscaled.shape
    laid = _Laid.of(models, descent)
    given, held = _rows(rows, columns)
    changing, weights = laid.numbers[: len(_CHANGING)], columns * int(laid.models.stride)
    best, stalled, done = course.best.copy(), course.stalled.copy(), np.zeros(n)
    curve = np.empty((most, n))
    kept = np.zeros((most, 3 * weights + changing.size)) if keeps else None
    asked = _Course(
        *(course.first, most, 0, course.seed, course.block, given.order, course.seen, course.weight),
        *(address(course.tolerance), course.patience, *map(address, (best, stalled, curve, done))),
        None if kept is None else address(kept),
    )
    call = function("stochastic_gradient_epochs", _POINTER, _POINTER, _POINTER, returns=ctypes.c_int)
    if call(ctypes.addressof(laid.models), ctypes.addressof(given), ctypes.addressof(asked)):
        raise MemoryError
    del held
    found = replace(course, best=best, stalled=stalled, curve=curve[: asked.made], done=done != 0)
    each = None if kept is None else laid.kept(models, kept[: asked.made])
    return laid.found(models), found, each


def gradients(
    models: SgdModels, descent: SgdSettings, blocks: Sequence[BlockRows]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σ weight·weighed·∇loss over the rows by weights (c, k, d) and by intercepts (c, k), and the sum of losses (c, k).

    They are at the current models, without penalties. Rows of ``poisson`` weigh no more than in ``descend`` if there is a
    rate. Raises MemoryError.
    """
    n, outputs, _ = models.unscaled.shape
    laid = _Laid.of(replace(models, objective=np.zeros_like(models.objective)), descent)
    found = _by_column(np.zeros_like(models.unscaled))
    by_intercept = np.zeros(laid.numbers.shape[1])
    for rows in blocks:
        given, held = _rows(replace(rows, batch_size=1), models.unscaled.shape[2])
        call = function("stochastic_gradient_differentiate", *[_POINTER] * 4, returns=ctypes.c_int)
        if call(ctypes.addressof(laid.models), ctypes.addressof(given), address(found), address(by_intercept)):
            raise MemoryError
        del held
    losses = laid.found(models).objective
    return _by_config(found, n, outputs), by_intercept[: n * outputs].reshape(outputs, n).T.copy(), losses


def mean_square(rows: BlockRows) -> float:
    """Return Σ weight·weighed·‖x‖²/n of the n visited rows of a block, summed in their order."""
    given, _held = _rows(rows, rows.x.shape[1])
    call = function("stochastic_gradient_squares", _POINTER, returns=_REAL)
    return float(call(ctypes.addressof(given))) / max(1, len(rows.order))


def norms(models: SgdModels) -> tuple[FloatArray, FloatArray]:
    """Return ‖w‖₁ and ‖w‖² of each config (c,)."""
    n, outputs, columns = models.unscaled.shape
    laid = _Laid.of(models, None)
    found = np.empty((2, laid.numbers.shape[1]))
    call = function("stochastic_gradient_norms", _POINTER, _COUNT, _POINTER)
    call(ctypes.addressof(laid.models), columns, address(found))
    by_output = found[:, : n * outputs].reshape(2, outputs, n)
    total = by_output[:, 0].copy()
    for each in range(1, outputs):
        total += by_output[:, each]
    return total[0], total[1]


@dataclass(frozen=True, slots=True)
class _Laid:
    """Models in the kernels' layout: weights by column, numbers by lane."""

    models: _Models
    values: dict[str, FloatArray]
    numbers: FloatArray

    @classmethod
    def of(cls, models: SgdModels, descent: SgdSettings | None) -> _Laid:
        n, outputs, _ = models.unscaled.shape
        lanes = n * outputs
        wide = {name: getattr(models, name) for name in _WIDE}
        values = {name: _by_column(each) for name, each in wide.items() if each is not None}
        numbers = np.zeros((len(_CHANGING) + len(_GIVEN), _filled(lanes)))
        numbers[0] = 1.0  # of unused lanes, too
        sources = [
            *((models, name) for name in _CHANGING),
            *((descent, name) for name in _GIVEN if descent is not None),
        ]
        for place, (source, name) in enumerate(sources):
            own = getattr(source, name)
            own = own if own.dtype.kind == "f" else np.array([*map(number_of, own)], np.float64)
            numbers[place, :lanes].reshape(outputs, n)[:] = own.T if own.ndim > 1 else own
        loss = 0 if descent is None else _one_of(descent.loss)
        pointers = [address(values[name]) if name in values else None for name in wide]
        stride = values["unscaled"].shape[1]
        given = _Models(lanes, stride, outputs, loss, *pointers, *map(address, numbers))
        return cls(given, values, numbers)

    def found(self, before: SgdModels) -> SgdModels:
        n, outputs, _ = before.unscaled.shape
        views = {name: _by_config(each, n, outputs) for name, each in self.values.items()}
        return replace(before, **views, **_numbers(self.numbers[None, : len(_CHANGING)], before))

    def kept(self, before: SgdModels, rows: FloatArray) -> SgdModels:
        """Return the models (e·c, ...) of e epochs, of which each row has the weights and then the numbers by lane."""
        n, outputs, columns = before.unscaled.shape
        size = columns * int(self.models.stride)
        views: dict[str, FloatArray] = {}
        for place, name in enumerate(_WIDE):
            if name in self.values:
                laid = rows[:, place * size : (place + 1) * size].reshape(len(rows), columns, -1)[:, :, : n * outputs]
                by_config = laid.reshape(len(rows), columns, outputs, n).transpose(0, 3, 2, 1)
                views[name] = by_config.reshape(-1, outputs, columns)
        numbers = rows[:, len(_WIDE) * size :].reshape(len(rows), len(_CHANGING), -1)
        return replace(before, **views, **_numbers(numbers, before))


def _numbers(by_lane: FloatArray, before: SgdModels) -> dict[str, FloatArray]:
    """Return the changing numbers (e, 8, lanes) of e times the configs of ``before``: (e·c,), or (e·c, k) by output."""
    n, outputs, _ = before.unscaled.shape
    found = {}
    for place, name in enumerate(_CHANGING):
        by_output = by_lane[:, place, : n * outputs].reshape(-1, outputs, n)
        wide = getattr(before, name).ndim > 1
        found[name] = by_output.transpose(0, 2, 1).reshape(-1, outputs) if wide else by_output[:, 0].reshape(-1).copy()
    return found


def _one_of(losses: npt.NDArray[np.str_]) -> int:
    """Return the number of the loss of all configs, ``_SEVERAL`` if they differ."""
    numbers = {*map(number_of, losses)}
    return numbers.pop() if len(numbers) == 1 else _SEVERAL


def _filled(lanes: int) -> int:
    """Return the number of lanes rounded up to a multiple of eight."""
    return -(-lanes // _LANES) * _LANES


def _by_column(values: FloatArray) -> FloatArray:
    """Return values (c, k, d) as (d, lanes), an output's configs side by side: 1, 2, 4 or a multiple of 8 lanes."""
    n, outputs, columns = values.shape
    lanes = n * outputs
    stride = next((few for few in (1, 2, 4) if lanes <= few), _filled(lanes))
    laid = np.zeros((columns, stride)) if stride > lanes else np.empty((columns, stride))
    _by_config(laid, n, outputs)[:] = values
    return laid


def _by_config(laid: FloatArray, n: int, outputs: int) -> FloatArray:
    """Return by-column values as a view (c, k, d)."""
    return laid[:, : n * outputs].reshape(len(laid), outputs, n).transpose(2, 1, 0)


def _rows(rows: BlockRows, columns: int) -> tuple[_Rows, Sequence[Any]]:
    """Return rows for the kernels and the arrays that they point to; raises ValueError for unsupported input."""
    n = len(rows.y)
    if rows.x.shape != (n, columns) or rows.weight.shape != (n,) or rows.order.ndim != 1:
        raise ValueError(f"{n} labels, features {rows.x.shape} of {columns} columns, weights {rows.weight.shape}")
    if rows.order.size and not 0 <= rows.order.min() <= rows.order.max() < n:
        raise ValueError(f"rows {rows.order.min()} to {rows.order.max()} of {n}")
    if isinstance(rows.x, np.ndarray):
        arrays = [features(rows.x)]
        parts = [*single_or_double(arrays[0]), *[None] * 3]
    else:
        arrays = [
            np.ascontiguousarray(rows.x.data, np.float64),
            np.ascontiguousarray(rows.x.indices, np.int32),  # not copied for fewer than 2³¹ columns
            np.ascontiguousarray(rows.x.indptr, np.int64),  # one number per row
        ]
        parts = [None, None, *map(address, arrays)]
    labels = [np.ascontiguousarray(each, np.float64) for each in (rows.y, rows.weight)]
    order = np.ascontiguousarray(rows.order, np.int64)
    held = [*arrays, *labels, order]
    given = _Rows(*parts, *map(address, (*labels, order)), len(order), columns, rows.batch_size, rows.weighed)
    return given, held
