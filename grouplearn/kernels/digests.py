"""SHA-256 of the numbers of many models in one call: ``source/rows/digests.cpp``."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function
from grouplearn.layout.ragged import Ragged

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
#: Hexadecimal digits of a SHA-256.
DIGITS = 64


def of_rows(weights: Ragged, intercept: Ragged) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each row's weights followed by intercepts, as little-endian doubles: (n, 64) hexadecimal
    ASCII."""
    n = weights.start.size - 1
    if intercept.start.size - 1 != n:
        raise ValueError("as many rows of weights as of intercepts")
    parts = [
        array
        for rows in (weights, intercept)
        for array in (np.ascontiguousarray(rows.values, np.float64), np.ascontiguousarray(rows.start, np.int64))
    ]
    found = np.empty((n, DIGITS), np.uint8)
    call = function("number_digests", *[_POINTER] * 4, _NUMBER, _POINTER)
    call(*(address(array) for array in parts), n, address(found))
    return found
