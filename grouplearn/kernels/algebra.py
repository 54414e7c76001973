"""Products, eigenvectors and functions of arrays, in double precision: ``source/algebra/algebra.cpp``, ``eigen.cpp``,
``functions.cpp``."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, applied, features, function, single_or_double

FloatArray = npt.NDArray[np.float64]
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64


def _doubles(values: npt.ArrayLike) -> FloatArray:
    # np.ascontiguousarray would turn a scalar into an array of one.
    return np.asarray(values, dtype=np.float64, order="C")


def product(a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """Return a·b for a (..., m, k) and b (..., k, n) with equal leading axes; sums run over k in order.

    ``a`` may be in single precision: it is widened before multiplying.
    """
    left, right = features(np.asarray(a)), _doubles(b)
    *leading, m, k = left.shape
    n = right.shape[-1]
    if right.shape != (*leading, k, n):
        raise ValueError(f"the shapes {left.shape} and {right.shape} do not fit")
    result = np.empty((*leading, m, n))
    count = int(np.prod(leading, dtype=np.int64))
    if function("products", *[_POINTER] * 3, *[_NUMBER] * 4, _POINTER, returns=ctypes.c_int)(
        *single_or_double(left), address(right), count, m, k, n, address(result)
    ):
        raise MemoryError
    return result


class Eigen(NamedTuple):
    """Per matrix (..., d, d) the eigenvalues ``values`` (..., d), largest first, their ``directions`` as rows (..., d, d),
    and how many values exceed rounding, ``rank`` (...); the others, and their directions, are 0."""

    values: FloatArray
    directions: FloatArray
    rank: npt.NDArray[np.int64]


def eigen(matrices: npt.ArrayLike) -> Eigen:
    """Return eigenvalues and directions of symmetric matrices (..., d, d) that are positive semidefinite up to rounding.

    Directions are orthonormal. The entry of a direction that is largest in size is
    positive, the first of equal ones (to 1e-9). If a matrix's diagonal is not finite all are NaN, and the rank is 0. Values
    below max(d, 64)·2⁻⁵² of the largest are rounding. Pivoted Cholesky and one-sided Jacobi (Veselić & Hari 1989).
    """
    given = _doubles(matrices)
    *leading, d = given.shape[:-1]
    if given.shape[-1:] != (d,):
        raise ValueError(f"matrices of shape {given.shape} are not square")
    found = Eigen(np.empty((*leading, d)), np.empty(given.shape), np.empty(leading, np.int64))
    call = function("eigen_directions", _POINTER, *[_NUMBER] * 2, *[_POINTER] * 3)
    call(address(given), found.rank.size, d, *map(address, found))
    return found


def exponential(x: npt.ArrayLike) -> FloatArray:
    """Return eˣ."""
    return applied("exponential", _doubles(x))


def logarithm(x: npt.ArrayLike) -> FloatArray:
    """Return log x: -infinity for 0 and subnormal numbers, NaN for negative ones."""
    return applied("logarithm", _doubles(x))


def sigmoid(z: npt.ArrayLike) -> FloatArray:
    """Return 1/(1 + e⁻ᶻ)."""
    result = np.array(z, dtype=np.float64, order="C")
    function("sigmoid", _POINTER, _NUMBER)(address(result), result.size)
    return result


def softmax(z: npt.ArrayLike) -> FloatArray:
    """Return e^zₖ / Σ e^zⱼ along the last axis."""
    result = np.array(z, dtype=np.float64, order="C")
    outputs = result.shape[-1]
    if outputs and function("softmax", _POINTER, *[_NUMBER] * 2, returns=ctypes.c_int)(
        address(result), result.size // outputs, outputs
    ):
        raise MemoryError
    return result


def finite_rows(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which rows of x (n, d) are finite, (n,)."""
    given, found = features(x), np.empty(len(x), np.bool_)
    call = function("finite_rows", *[_POINTER] * 2, *[_NUMBER] * 2, _POINTER)
    call(*single_or_double(given), *given.shape, address(found))
    return found
