"""Generalised linear models of few rows, solved on a matrix of rows (``source/linear/generalised_linear/few_rows.cpp``)."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function
from grouplearn.kernels.linear.generalised_linear import FloatArray, GlmPenalties
from grouplearn.kernels.linear.loss_numbers import number_of

_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class FewRowsModels(NamedTuple):
    """``weights`` (C, d) and ``intercept`` (C,) of every config, the objective ``value`` (C,) and whether it is the least
    one (C,), within the tolerance."""

    weights: FloatArray
    intercept: FloatArray
    value: FloatArray
    converged: npt.NDArray[np.bool_]


def epochs_until(loss: str, outputs: int, rows: int, columns: int, *, dense: bool) -> int:
    """Return after how many epochs a model that has a penalty is to be solved on its rows, 0 if never: they are too many,
    or the loss has several scores or a kink.

    ``dense``: whether its epochs have a matrix of columns, which takes longer.
    """
    call = function("generalised_linear_epochs_of_few", *[_COUNT] * 5, returns=_COUNT)
    return int(call(number_of(loss), outputs, rows, columns, int(dense)))


def solve(
    x: npt.NDArray[Any], label: FloatArray, weight: FloatArray, loss: str, fit_intercept: bool, penalties: GlmPenalties
) -> FewRowsModels:
    """Return the models of every config on rows ``x`` (n, d) with their ``label`` and ``weight`` (n,).

    An interior point method, whose steps ask for O(n²·(n + d)) operations and n·(n + d) numbers of memory. The ``loss`` has
    one score and no kink: logistic, poisson or squared_hinge.
    """
    rows, configs = np.ascontiguousarray(x, np.float64), len(penalties.l1)
    models = FewRowsModels(
        np.empty((configs, x.shape[1])), np.empty(configs), np.empty(configs), np.empty(configs, np.bool_)
    )
    given = [np.ascontiguousarray(each, np.float64) for each in (label, weight)]
    columns = [np.ascontiguousarray(each, np.float64) for each in (penalties.l1, penalties.l2, penalties.tolerance)]
    kinds = (*[_POINTER] * 3, *[_COUNT] * 4, *[_POINTER] * 3, _COUNT, *[_POINTER] * 4)
    function("solve_generalised_linear_of_few_rows", *kinds)(
        *(address(rows), *map(address, given), *rows.shape, number_of(loss), int(fit_intercept)),
        *(*map(address, columns), configs, *map(address, models)),
    )
    return models
