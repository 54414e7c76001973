"""Generalised linear models of many groups in one call: ``source/generalised_linear.cpp``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import WATCH, address, function, watching

FloatArray = npt.NDArray[np.float64]
Loss = Literal["logistic", "softmax", "poisson"]
_LOSSES: tuple[Loss, ...] = ("logistic", "softmax", "poisson")
#: The most passes of one model: Newton's method needs tens.
_MOST_PASSES = 4096


class Stopped(Exception):
    """The caller asked a kernel to stop."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """Per config the penalties l1·‖w‖₁ and ½·l2·‖w‖², and the share of the objective that ends training, each (C,)."""

    l1: FloatArray
    l2: FloatArray
    tolerance: FloatArray


@dataclass(frozen=True, slots=True)
class Models:
    """``weights`` (G, C, K, d), ``intercept`` (G, C, K), and per (G, C): objective, passes, whether nothing was left to gain.

    ``curve`` (passes, G, C) is the objective after each pass, NaN after a model's last. The objective is NaN where sums
    over a group are not finite.
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
    loss: Loss,
    outputs: int,
    fit_intercept: bool,
    penalties: Penalties,
    epochs: int,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> Models:
    """Return the models of every config for the groups whose rows are ``start[g]`` to ``start[g + 1]`` of ``x`` (n, d).

    ``x`` is float32 or float64, ``label`` and ``weight`` (n,); a label is 0/1, a class number below ``outputs``, or a count.
    Raises Stopped soon after ``cancelled()`` became true, and MemoryError.
    """
    groups, configs, columns = len(start) - 1, len(penalties.l1), x.shape[1]
    limit = min(epochs, _MOST_PASSES)
    shape = (groups, configs)
    models = Models(
        np.empty((*shape, outputs, columns)),
        np.empty((*shape, outputs)),
        np.empty(shape),
        np.empty(shape, np.int64),
        np.empty(shape, np.bool_),
        np.empty((limit, *shape)),
    )
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kinds = [
        *[pointer] * 2,
        number,
        *[pointer] * 3,
        *[number] * 4,
        *[pointer] * 3,
        *[number] * 2,
        *[pointer] * 6,
        WATCH,
    ]
    call = function("solve_generalised_linear", *kinds, returns=ctypes.c_int)
    single = x.dtype == np.float32
    with watching(report, cancelled) as watch:
        outcome = call(
            address(x) if single else None,
            None if single else address(x),
            columns,
            *(address(each) for each in (label, weight, start)),
            groups,
            _LOSSES.index(loss),
            outputs,
            int(fit_intercept),
            *(address(each) for each in (penalties.l1, penalties.l2, penalties.tolerance)),
            configs,
            limit,
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
    return Models(models.weights, models.intercept, models.value, models.passes, models.converged, curve)


def sums(
    x: npt.NDArray[Any], label: FloatArray, weight: FloatArray, loss: Loss, weights: FloatArray, intercept: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σ weight·loss (M,), Σ weight·slope (M, K) and Σ weight·slope·x' (M, K, d) over the rows of ``x`` (n, d).

    The models are ``weights`` (M, K, d) and ``intercept`` (M, K); the slope is the derivative of the loss by the score.
    """
    models, outputs, columns = weights.shape
    losses, residual, product = np.empty(models), np.empty((models, outputs)), np.empty(weights.shape)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kinds = [*[pointer] * 2, *[number] * 2, *[pointer] * 2, *[number] * 3, *[pointer] * 5]
    single = x.dtype == np.float32
    outcome = function("sum_generalised_linear", *kinds, returns=ctypes.c_int)(
        address(x) if single else None,
        None if single else address(x),
        len(x),
        columns,
        *(address(each) for each in (label, weight)),
        _LOSSES.index(loss),
        outputs,
        models,
        *(address(each) for each in (weights, intercept, losses, residual, product)),
    )
    if outcome:
        raise MemoryError
    return losses, residual, product


def weigh_slopes(score: FloatArray, label: FloatArray, weight: FloatArray, loss: Loss) -> tuple[FloatArray, FloatArray]:
    """Return Σ weight·loss (M,) and Σ weight·slope (M, K); ``score`` (n, M, K) becomes weight·slope per row."""
    rows, models, outputs = score.shape
    losses, residual = np.empty(models), np.empty((models, outputs))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kinds = [pointer, number, *[pointer] * 2, *[number] * 3, *[pointer] * 2]
    outcome = function("weigh_slopes", *kinds, returns=ctypes.c_int)(
        address(score),
        rows,
        *(address(each) for each in (label, weight)),
        _LOSSES.index(loss),
        outputs,
        models,
        *(address(each) for each in (losses, residual)),
    )
    if outcome:
        raise MemoryError
    return losses, residual
