"""The range, mean and standard deviation of runs of numbers: ``source/rows/spreads.cpp``."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

FloatArray = npt.NDArray[np.float64]
_POINTER = ctypes.c_void_p


class Spreads(NamedTuple):
    """For each run the least number ``low`` and the largest ``high``, ``mean`` and standard ``deviation`` (of the whole,
    not of a sample), all (R,); zeros of an empty run.
    """

    low: FloatArray
    high: FloatArray
    mean: FloatArray
    deviation: FloatArray


def of_runs(values: npt.ArrayLike, start: npt.ArrayLike) -> Spreads:
    """Return the spreads of runs of finite numbers (n,), which begin at ``start`` (R + 1,) and end where the next begins.

    Sums are of differences from the least: small spreads keep digits, and means of few whole numbers are exact.
    """
    given, begin = np.ascontiguousarray(values, np.float64), np.ascontiguousarray(start, np.int64)
    found = Spreads(*np.empty((4, begin.size - 1)))
    call = function("spreads_of_runs", *[_POINTER] * 2, ctypes.c_int64, *[_POINTER] * 4)
    call(address(given), address(begin), begin.size - 1, *map(address, found))
    return found
