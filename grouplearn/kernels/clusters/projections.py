"""Rows projected on principal components (``source/clusters/projections.cpp``): coordinates, residuals, their sums.

Components are orthogonal, of any length: a row less the mean has the coordinate v'(x − m) on a component v, and the projection
Σ v'(x − m)·v/‖v‖². Its scores are its distance from the projection, the squared length of that, and its coordinates.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels import algebra
from grouplearn.kernels.library import RowRuns, address, features, function, single_or_double
from grouplearn.kernels.linear import sparse

FloatArray = npt.NDArray[np.float64]
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
#: The scores of a row before its coordinates.
BEFORE = 2
#: A difference of squares that is less than this share of them has lost digits.
_CANCELLED = 1e-6
#: Values of sparse rows that are made dense at a time.
_DENSE_VALUES = 1 << 20


class ProjectionSums(NamedTuple):
    """Per group Σw, and per group and model Σw·r² of residuals and Σw·‖p‖² of projections."""

    projected: FloatArray
    residual: FloatArray
    explained: FloatArray


def scores(x: npt.NDArray[Any], mean: FloatArray, components: FloatArray) -> FloatArray:
    """Return the scores (n, 2 + k) of rows x (n, d) on ``components`` (k, d), after subtracting ``mean`` (d,)."""
    rows, found = features(x), np.empty((len(x), BEFORE + len(components)))
    given = tuple(np.ascontiguousarray(each, np.float64) for each in (mean, components))
    function("project_rows", *[_POINTER] * 2, *[_COUNT] * 2, *[_POINTER] * 2, _COUNT, _POINTER)(
        *(*single_or_double(rows), *rows.shape, *map(address, given), len(components), address(found))
    )
    return found


def sparse_scores(x: Any, mean: FloatArray, components: FloatArray) -> FloatArray:
    """Return ``scores`` (n, 2 + k) of rows x (n, d) in compressed rows, up to rounding.

    r² is ‖x − m‖² − ‖p‖², which needs only a row's entries. Rows of which too few digits are left are made dense.
    """
    found = np.empty((x.shape[0], BEFORE + len(components)))
    across = np.ascontiguousarray(components.T)
    found[:, BEFORE:] = sparse.product(x, across) - algebra.product(mean[None], across)
    found[:, 1] = (found[:, BEFORE:] ** 2 / (components**2).sum(axis=1)).sum(axis=1)
    own, ones = x.copy(), np.ones(x.shape[1])
    own.data = x.data**2
    squares = sparse.product(own, ones) + (mean**2).sum()
    own.data = x.data * mean[x.indices]
    left = squares - 2.0 * sparse.product(own, ones) - found[:, 1]
    found[:, 0] = np.sqrt(np.maximum(left, 0.0))
    unclear = np.flatnonzero(~(left >= _CANCELLED * squares))
    step = max(1, _DENSE_VALUES // x.shape[1])
    for rows in (unclear[start : start + step] for start in range(0, len(unclear), step)):
        found[rows] = scores(x[rows].toarray(), mean, components)
    return found


def score_runs(x: FloatArray, mean: FloatArray, components: FloatArray, runs: RowRuns) -> FloatArray:
    """Return ``scores`` (n, 2 + k) for runs of rows x (n, d), each by one of the models, ``mean`` (G, d) and ``components``
    (G, k, d)."""
    k, d = components.shape[1:]
    if x.shape[1] != d:
        raise ValueError(f"rows have {x.shape[1]} features where components have {d}")
    found = np.empty((len(x), BEFORE + k))
    kinds = (_POINTER, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, _POINTER)
    function("project_rows_runs", *kinds)(
        *(address(x), d, *map(address, runs), len(runs.model), address(mean), address(components), k, address(found))
    )
    return found


def sums(scores: FloatArray, weight: FloatArray) -> ProjectionSums:
    """Return the sums of rows with ``scores`` (n, C, 2 + k): (), (C,) and (C,)."""
    count, models, width = scores.shape
    given = tuple(np.ascontiguousarray(each, np.float64) for each in (scores, weight))
    found = ProjectionSums(np.empty(()), np.empty(models), np.empty(models))
    function("sum_projections", *[_POINTER] * 2, *[_COUNT] * 3, *[_POINTER] * 3)(
        *map(address, given), count, models, width, *map(address, found)
    )
    return found


def of_groups(
    x: npt.NDArray[Any],
    weight: FloatArray,
    start: npt.NDArray[np.int64],
    mean: FloatArray,
    models: tuple[FloatArray, npt.NDArray[np.int64]],
) -> ProjectionSums:
    """Return the sums of groups of rows, ``start`` (G + 1,): (G,), (G, C) and (G, C), with the bits of ``scores`` and ``sums``.

    ``mean`` is (G, d); ``models`` are components (N, d), and where each of the G·C models begins in them.
    """
    groups = len(start) - 1
    components, first = np.ascontiguousarray(models[0], np.float64), np.ascontiguousarray(models[1], np.int64)
    configs = (len(first) - 1) // groups if groups else 0
    rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
    start, mean = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(mean, np.float64)
    found = ProjectionSums(np.empty(groups), np.empty((groups, configs)), np.empty((groups, configs)))
    kinds = (*[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 3, _COUNT, *[_POINTER] * 3)
    function("measure_projections", *kinds)(
        *(*single_or_double(rows), rows.shape[1], address(weight), address(start), groups),
        *(address(mean), address(components), address(first), configs, *map(address, found)),
    )
    return found
