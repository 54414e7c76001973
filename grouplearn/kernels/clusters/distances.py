"""Distances of rows to centroids (``source/clusters/clustering_scores.cpp``): the nearest, the second nearest, their sums."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import RowRuns, address, features, function, single_or_double

FloatArray: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class DistanceSums(NamedTuple):
    """Per group Σw, and per group and model Σw·a² and Σw·(1 − a/b) for the distances a to the nearest centroid, b to the
    second; rows without a second centroid, or that lie on it, add 0 to the latter."""

    clustered: FloatArray
    square: FloatArray
    width: FloatArray


def scores(x: npt.NDArray[Any], centroids: FloatArray, first: Counts) -> FloatArray:
    """Return the distances of rows x (n, d) to the centroids (N, d) of several models, cut by ``first`` (C + 1,).

    (n, C, 3): the number of the nearest centroid, from 1, the first of equally distant ones; its distance; and that of the
    second nearest, infinite if there is none. NaN for a row that is not finite, or whose squared distance overflows. A NaN
    centroid is nearest to no row.
    """
    rows, points = features(x), np.ascontiguousarray(centroids, np.float64)
    first, found = np.ascontiguousarray(first, np.int64), np.empty((len(rows), len(first) - 1, 3))
    if rows.shape[1] != points.shape[1]:
        raise ValueError(f"rows have {rows.shape[1]} features where centroids have {points.shape[1]}")
    kinds = (*[_POINTER] * 2, *[_COUNT] * 2, *[_POINTER] * 2, _COUNT, _POINTER)
    function("score_clusters", *kinds)(
        *(*single_or_double(rows), *rows.shape, address(points), address(first), len(first) - 1, address(found))
    )
    return found


def score_runs(x: FloatArray, centroids: FloatArray, first: Counts, runs: RowRuns) -> FloatArray:
    """Return ``scores`` (n, 3) of runs of rows x (n, d), each by one of the models: doubles, in C order."""
    if x.shape[1] != centroids.shape[1]:
        raise ValueError(f"rows have {x.shape[1]} features where centroids have {centroids.shape[1]}")
    found = np.empty((len(x), 3))
    function("score_clusters_runs", _POINTER, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 3)(
        *(
            address(x),
            x.shape[1],
            *map(address, runs),
            len(runs.model),
            address(centroids),
            address(first),
            address(found),
        )
    )
    return found


def sums(scores: FloatArray, weight: FloatArray) -> DistanceSums:
    """Return the sums of rows with ``scores`` (n, C, 3): (), (C,) and (C,)."""
    count, models, _ = scores.shape
    given = tuple(np.ascontiguousarray(each, np.float64) for each in (scores, weight))
    found = DistanceSums(np.empty(()), np.empty(models), np.empty(models))
    function("sum_scores", *[_POINTER] * 2, *[_COUNT] * 2, *[_POINTER] * 3)(
        *map(address, given), count, models, *map(address, found)
    )
    return found


def of_groups(
    x: npt.NDArray[Any],
    weight: FloatArray,
    start: Counts,
    models: tuple[FloatArray, Counts],
) -> DistanceSums:
    """Return the sums of groups of rows, ``start`` (G + 1,): (G,), (G, C) and (G, C), with the bits of ``sums``.

    ``models`` are centroids (N, d), and where each of the G·C models begins in them.
    """
    groups = len(start) - 1
    points, first = np.ascontiguousarray(models[0], np.float64), np.ascontiguousarray(models[1], np.int64)
    configs = (len(first) - 1) // groups if groups else 0
    rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
    start, found = (
        np.ascontiguousarray(start, np.int64),
        DistanceSums(np.empty(groups), np.empty((groups, configs)), np.empty((groups, configs))),
    )
    kinds = (*[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 3)
    function("measure_clusters", *kinds)(
        *(*single_or_double(rows), rows.shape[1], address(weight), address(start), groups),
        *(address(points), address(first), configs, *map(address, found)),
    )
    return found
