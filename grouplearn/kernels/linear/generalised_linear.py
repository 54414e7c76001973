"""Generalised linear models: of many groups in one call, and epoch by epoch.

``source/linear/generalised_linear/generalised_linear.cpp`` and ``epochs.cpp``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import (
    WATCH,
    Stopped,
    address,
    calling_back,
    features,
    function,
    progress_callback,
    single_or_double,
)
from grouplearn.kernels.linear.loss_numbers import number_of

FloatArray = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Sums = Mapping[str, npt.NDArray[Any]]
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
#: Numbers of a model's sums before its gradient.
_BEFORE_GRADIENT = 4
#: The places of a model's number of passes, of what its sums are multiplied by, and of its number of rows.
_PASSES, _SCALE, _ROWS = 2, 15, 17
#: Most passes of a model: Newton's method needs tens.
_MOST_PASSES = 4096


@dataclass(frozen=True, slots=True)
class GlmPenalties:
    """Per config (C,): the penalties l1·‖w‖₁ and ½·l2·‖w‖², and the relative tolerance on the objective."""

    l1: FloatArray
    l2: FloatArray
    tolerance: FloatArray


@dataclass(frozen=True, slots=True)
class FittedModels:
    """``weights`` (G, C, K, d), ``intercept`` (G, C, K), and per (G, C): objective, passes, whether it converged.

    ``curve`` (passes, G, C) is the objective after each pass, NaN after a model's last. The objective is NaN if sums over a
    group are not finite.
    """

    weights: FloatArray
    intercept: FloatArray
    value: FloatArray
    passes: npt.NDArray[np.int64]
    converged: npt.NDArray[np.bool_]
    curve: FloatArray


def solve(
    x: npt.NDArray[Any],
    label: FloatArray,
    weight: FloatArray,
    start: npt.NDArray[np.int64],
    *,
    loss: str,
    outputs: int,
    fit_intercept: bool,
    penalties: GlmPenalties,
    epochs: int,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
    begin: tuple[FloatArray, FloatArray] | None = None,
    held: int = -1,
) -> FittedModels:
    """Return the models of every config for the groups whose rows are ``start[g]`` to ``start[g + 1]`` of ``x`` (n, d).

    ``x`` is float32 or float64, ``label`` and ``weight`` (n,); a label is 0/1, a class number below ``outputs``, or a count.
    Models ``begin`` at the weights (G, K, d) and intercepts (G, K) of their group, by default without any; that of the column
    ``held`` stays as it begins, -1 for none.
    Raises Stopped soon after ``cancelled()`` became true, and MemoryError.
    """
    groups, configs, columns = len(start) - 1, len(penalties.l1), x.shape[1]
    limit = min(epochs, _MOST_PASSES)
    shape = (groups, configs)
    models = FittedModels(
        np.empty((*shape, outputs, columns)),
        np.empty((*shape, outputs)),
        np.empty(shape),
        np.empty(shape, np.int64),
        np.empty(shape, np.bool_),
        np.empty((limit, *shape)),
    )
    kinds = [
        *[_POINTER] * 2,
        _COUNT,
        *[_POINTER] * 3,
        *[_COUNT] * 4,
        *[_POINTER] * 3,
        *[_COUNT] * 2,
        *[_POINTER] * 2,
        _COUNT,
        *[_POINTER] * 6,
        WATCH,
    ]
    call = function("solve_generalised_linear", *kinds, returns=ctypes.c_int)

    def look() -> None:
        if cancelled():
            raise Stopped

    with progress_callback(report, cancelled) as watch, calling_back(look):
        outcome = call(
            *single_or_double(x),
            columns,
            *(address(each) for each in (label, weight, start)),
            groups,
            number_of(loss),
            outputs,
            int(fit_intercept),
            *(address(each) for each in (penalties.l1, penalties.l2, penalties.tolerance)),
            configs,
            limit,
            *((None, None) if begin is None else map(address, begin)),
            held,
            *(address(each) for each in (models.weights, models.intercept, models.value)),
            *(address(each) for each in (models.passes, models.converged, models.curve)),
            watch,
        )
    if outcome == 1:
        raise Stopped
    if outcome == 2:
        raise MemoryError
    curve = models.curve[: int(models.passes.max(initial=1))]
    curve[np.arange(len(curve))[:, None, None] >= models.passes] = np.nan
    return FittedModels(models.weights, models.intercept, models.value, models.passes, models.converged, curve)


class NewtonStep(NamedTuple):
    """All models' numbers (C, m) after a step of M of them, the ``weights`` (M, K, d) and ``intercept`` (M, K) of these in
    original units, their objectives ``value`` (M,), NaN if not finite, and which are ``finished`` (M,)."""

    models: FloatArray
    weights: FloatArray
    intercept: FloatArray
    value: FloatArray
    finished: npt.NDArray[np.bool_]


def _places(models: FloatArray, active: Places | None) -> Places:
    return np.arange(len(models)) if active is None else active


def _row_addresses(models: FloatArray, active: Places) -> npt.NDArray[np.int64]:
    """Return the addresses of active models' rows, so that models of a million weights need not be copied together."""
    return np.asarray(models.ctypes.data + active * models.strides[0], np.int64)


@dataclass(frozen=True, slots=True)
class EpochModels:
    """The shape of models that train epoch by epoch: the ``history`` of steps that they keep, and whether second
    derivatives are ``dense`` or approximated by a diagonal."""

    columns: int
    outputs: int
    fit_intercept: bool
    history: int
    dense: bool

    @property
    def _numbers(self) -> tuple[int, int, int, int, int]:
        return self.columns, self.outputs, int(self.fit_intercept), self.history, int(self.dense)

    @property
    def parameters(self) -> int:
        """Number of weights per model, intercepts included."""
        return self.outputs * (self.columns + int(self.fit_intercept))

    @property
    def length(self) -> int:
        """Number of state values per model."""
        return int(function("generalised_linear_numbers", *[_COUNT] * 5, returns=_COUNT)(*self._numbers))

    def are_sound(self, models: npt.NDArray[Any]) -> bool:
        """Return whether ``models`` (M, m), read from a file, are valid states of this shape."""
        if models.dtype != np.float64 or models.shape[1:] != (self.length,):
            return False
        given = np.ascontiguousarray(models)
        kinds = (*[_COUNT] * 6, _POINTER)
        found = function("generalised_linear_are_sound", *kinds, returns=ctypes.c_int)
        return bool(found(*self._numbers, len(given), address(given)))

    def progress(self, models: FloatArray, active: Places) -> tuple[int, int]:
        """Return after how many passes the ``active`` ones (M,) of ``models`` (C, m) are, and of how many rows."""
        return int(models[active, _PASSES].max(initial=0)), int(models[active, _ROWS].max(initial=0))

    @property
    def _triangle(self) -> int:
        return self.parameters * (self.parameters + 1) // 2

    def begin(
        self,
        kind: str,
        moments: Mapping[str, npt.NDArray[Any]],
        rows: tuple[float, float],
        score: FloatArray,
        residual: FloatArray,
        loss: float,
        coupling: FloatArray,
    ) -> tuple[FloatArray, Sums]:
        """Return a model (1, m) with zero weights, and the sums over its rows there, from their moments
        (``kernels.moments``).

        ``rows`` are their number and that of their stored values. ``score`` (K,) is what the model predicts, with the mean
        ``residual`` (K,), ``loss``, and ``coupling`` (K, K), the second derivatives by the scores. For a hinge the score is
        0.
        """
        model = np.empty((1, self.length))
        sums, sampled = np.empty((1, _BEFORE_GRADIENT + self.parameters)), np.zeros(())
        curvature = np.empty((int(self.dense), self._triangle))
        names = ("mean", "square", "cross", "gram")
        mean, square, cross, *gram = (np.ascontiguousarray(moments[each]) for each in names if each in moments)
        given = [np.ascontiguousarray(each) for each in (score, residual, coupling)]
        real = ctypes.c_double
        kinds = (*[_COUNT] * 6, *[real] * 3, *[_POINTER] * 3, _COUNT, *[_POINTER] * 3, real, *[_POINTER] * 5)
        function("begin_generalised_linear", *kinds)(
            *(number_of(kind), *self._numbers),
            *(*rows, float(moments["total"]), *map(address, (mean, square, cross)), cross.shape[1]),
            *(address(gram[0]) if gram else None, *map(address, given[:2]), loss),
            *map(address, (given[2], model, sums, curvature, sampled)),
        )
        return model, {"sums": sums, "curvature": curvature, "sampled": sampled}

    def place(self, model: FloatArray, weights: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return a ``model`` (m,) of ``begin`` that is first evaluated at weights (K, d) and intercepts (K,)."""
        placed, given = model.copy(), [np.ascontiguousarray(each, np.float64) for each in (weights, intercept)]
        kinds = (*[_COUNT] * 5, *[_POINTER] * 3)
        function("place_generalised_linear", *kinds)(*self._numbers, *map(address, given), address(placed))
        return placed

    def has_made_no_step(self, models: FloatArray) -> bool:
        """Return whether all of some models (..., m) are as ``place`` left them."""
        return not models[..., _PASSES].any()

    def objective_without_weights(self, models: FloatArray, sums: Sums) -> FloatArray:
        """Return the objectives (C,) of models of ``begin``, by their sums."""
        return np.asarray(models[:, _SCALE] * sums["sums"][:, 0], np.float64)

    def sums(
        self,
        x: Any,
        label: FloatArray,
        weight: FloatArray,
        loss: str,
        models: FloatArray,
        active: Places | None = None,
    ) -> Sums:
        """Return what ``step`` needs of the rows of a block, dense or CSR, at the points of one group's ``models`` (C, m)
        that are ``active`` (M,), by default all.

        ``sums`` (M, 4 + p): loss, trace of its second derivatives by the scores, the unsmoothed hinge (0 for other losses),
        how many rows give the gradient by original columns (all or none; else it is in the solver's coordinates), and the
        gradient; ``curvature`` (asking, p·(p + 1)/2): second derivatives by parameters on a sample of rows, for models that
        ask for them, and ``sampled``, the weight of these rows.
        """
        models, active = np.ascontiguousarray(models), _places(models, active)
        asking = int((models[active, 0] > 0).sum())
        found, sampled = np.empty((len(active), _BEFORE_GRADIENT + self.parameters)), np.zeros(())
        curvature = np.empty((asking, self._triangle))
        if not len(active):
            return {"sums": found, "curvature": curvature, "sampled": sampled}
        if isinstance(x, np.ndarray):
            rows = [features(x)]
            parts = [*single_or_double(rows[0]), *[None] * 3]
        else:
            rows = [
                np.ascontiguousarray(x.data, np.float64),
                np.ascontiguousarray(x.indices, np.int32),  # not copied for fewer than 2³¹ columns
                np.ascontiguousarray(x.indptr, np.int64),  # one number per row
            ]
            parts = [None, None, *map(address, rows)]
        given, places = [np.ascontiguousarray(each) for each in (label, weight)], _row_addresses(models, active)
        kinds = (*[_POINTER] * 5, _COUNT, *[_POINTER] * 2, *[_COUNT] * 7, *[_POINTER] * 4)
        outcome = function("sum_generalised_linear", *kinds, returns=ctypes.c_int)(
            *parts,
            *(len(label), *map(address, given), number_of(loss), *self._numbers, len(active)),
            *map(address, (places, found, curvature, sampled)),
        )
        if outcome:
            raise MemoryError
        return {"sums": found, "curvature": curvature, "sampled": sampled}

    def step(
        self,
        loss: str,
        models: FloatArray,
        penalties: GlmPenalties,
        first_length: FloatArray,
        sums: Sums,
        active: Places | None = None,
        held: int = -1,
    ) -> NewtonStep:
        """Return all models (C, m) after a step of the ``active`` (M,) ones, by default all, from their sums over all
        blocks of a group; ``first_length`` (M,) is the length of the first step. The weight of column ``held`` stays."""
        after, active = models.copy(), _places(models, active)
        count, places = len(active), _row_addresses(after, active)
        stepped = NewtonStep(
            after,
            np.empty((count, self.outputs, self.columns)),
            np.empty((count, self.outputs)),
            np.empty(count),
            np.empty(count, np.bool_),
        )
        columns = [penalties.l1, penalties.l2, penalties.tolerance, first_length, sums["sums"], sums["curvature"]]
        kinds = (*[_COUNT] * 7, *[_POINTER] * 6, ctypes.c_double, _COUNT, *[_POINTER] * 5)
        outcome = function("step_generalised_linear", *kinds, returns=ctypes.c_int)(
            *(number_of(loss), *self._numbers, count, *map(address, columns)),
            float(sums["sampled"]),
            held,
            *map(address, (places, *stepped[1:])),
        )
        if outcome:
            raise MemoryError
        return stepped
