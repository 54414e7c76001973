"""SHA-256 of the numbers of many models in one call: ``source/rows/digests.cpp``."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
#: Hexadecimal digits of a SHA-256.
DIGITS = 64


class Ragged(NamedTuple):
    """Rows of doubles one after another: those of row i lie from ``start[i]`` to ``start[i + 1]``."""

    values: npt.NDArray[np.float64]
    start: npt.NDArray[np.int64]


def of_rows(weights: Ragged, intercept: Ragged) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each row's weights and then its intercepts, little-endian doubles: (n, 64) ASCII, as hexadecimal."""
    n = weights.start.size - 1
    if intercept.start.size - 1 != n:
        raise ValueError("as many rows of weights as of intercepts")
    parts = [
        array
        for values, start in (weights, intercept)
        for array in (np.ascontiguousarray(values, np.float64), np.ascontiguousarray(start, np.int64))
    ]
    found = np.empty((n, DIGITS), np.uint8)
    call = function("number_digests", *[_POINTER] * 4, _NUMBER, _POINTER)
    call(*(address(array) for array in parts), n, address(found))
    return found
