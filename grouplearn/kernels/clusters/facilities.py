"""Online facility location (``source/clusters/facilities.cpp``): few weighted points in place of many rows."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from grouplearn.kernels.clusters.coresets import FloatArray, Ranges
from grouplearn.kernels.library import address, features, function, single_or_double

_POINTER, _COUNT, _KEY = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64


class Points(NamedTuple):
    """Points ``values`` (n, d), their ``weights`` (n,) and how many ``rows`` (n,) each stands for."""

    values: FloatArray
    weights: FloatArray
    rows: FloatArray


def opened(
    given: Points, ranges: Ranges, sizes: tuple[int, int], key: tuple[int, int, int], cost: float
) -> tuple[Points, float]:
    """Return the points of facilities for rows or for such points, and the cost at which one was opened in the end.

    A point of weight w at the squared distance δ from the nearest facility opens one with the chance min(1, w·δ/cost), or
    else joins that. A facility has two points, on either side of its mean, with the inertia of those that joined it; one if
    these are all the same. ``sizes`` are the number of clusters by which a cost is guessed if it is 0, and the most points
    that are returned: where facilities have more, the cost rises. Random numbers are a function of ``key``.
    """
    rows = features(given.values)
    count, d = rows.shape
    weight, stands_for = (np.ascontiguousarray(each, np.float64) for each in given[1:])
    centres, most = sizes
    paid = np.array([cost])
    found = Points(np.empty((most, d)), np.empty(most), np.empty(most))
    kinds = (*[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, *[_POINTER] * 2, *[_COUNT] * 2, *[_KEY] * 3)
    number = function("open_facilities", *kinds, *[_POINTER] * 4, returns=_COUNT)(
        *(*single_or_double(rows), d, address(weight), address(stands_for), count),
        *(*map(address, ranges), centres, most, *key, address(paid), *map(address, found)),
    )
    return Points(*(each[:number].copy() for each in found)), float(paid[0])
