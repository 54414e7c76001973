"""Coresets: a few weighted rows in place of many (``source/clusters/coresets.cpp``), for sums of the inertia over all rows."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double

FloatArray: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]
_POINTER, _COUNT, _DOUBLE, _KEY = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_uint64


class Ranges(NamedTuple):
    """The least and the largest value of each feature (d,) among rows with weight."""

    low: FloatArray
    high: FloatArray


def ranges(x: npt.NDArray[Any], weight: FloatArray) -> Ranges:
    """Return the ranges of rows x (n, d); of no rows the lows are infinite and the highs minus infinite."""
    rows, weight, d = features(x), np.ascontiguousarray(weight, np.float64), x.shape[1]
    found = Ranges(np.empty(d), np.empty(d))
    function("survey_rows", *[_POINTER] * 2, _COUNT, _POINTER, _COUNT, *[_POINTER] * 2, returns=_COUNT)(
        *single_or_double(rows), d, address(weight), len(weight), *map(address, found)
    )
    return found


def draw(
    x: npt.NDArray[Any], weight: FloatArray, within: Ranges, sizes: tuple[int, int], key: tuple[int, int, int]
) -> tuple[Counts, FloatArray]:
    """Return the rows of a coreset of x (n, d), in order, and the factors by which their weights are multiplied.

    ``sizes`` are the number of centres among which rows are drawn, and the most rows. Rows that matter more are likelier;
    none is drawn twice; weights sum to those of all rows. Random numbers are a function of ``key``.
    """
    rows, weight = features(x), np.ascontiguousarray(weight, np.float64)
    centres, most = sizes
    chosen, factor = np.empty(most, np.int64), np.empty(most)
    kinds = (*[_POINTER] * 2, _COUNT, _POINTER, _COUNT, *[_POINTER] * 2, *[_COUNT] * 2, *[_KEY] * 3, *[_POINTER] * 2)
    count = function("draw_coreset", *kinds, returns=_COUNT)(
        *(*single_or_double(rows), rows.shape[1], address(weight), len(weight), *map(address, within)),
        *(centres, most, *key, address(chosen), address(factor)),
    )
    return chosen[:count], factor[:count]
