"""Products of sparse rows with the same bits on every processor: ``source/algebra/sparse.cpp``.

SciPy's compiled loops, which sum in the same order, fuse products and sums where its compiler may.
"""

from __future__ import annotations

import ctypes
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

FloatArray: TypeAlias = npt.NDArray[np.float64]
#: Values, columns (int32) and where each row begins (int64).
_Entries: TypeAlias = tuple[npt.NDArray[Any], ...]
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64


def product(x: Any, b: npt.ArrayLike) -> FloatArray:
    """Return x·b (n, c) or (n,) for x (n, d) in compressed rows and b (d, c) or (d,), summed in the order of a row's entries."""
    return _product("sparse_product", x, x.shape[1], b, x.shape[0])


def transposed_product(x: Any, b: npt.ArrayLike) -> FloatArray:
    """Return x'·b (d, c) or (d,) for x (n, d) in compressed rows and b (n, c) or (n,), summed in the order of the rows."""
    return _product("sparse_transposed_product", x, x.shape[0], b, x.shape[1])


def _product(symbol: str, x: Any, size: int, b: npt.ArrayLike, rows: int) -> FloatArray:
    right = np.asarray(b, dtype=np.float64, order="C")
    if right.shape[:1] != (size,):
        raise ValueError(f"the shapes {x.shape} and {right.shape} do not fit")
    entries, found = _entries(x), np.zeros((rows, *right.shape[1:]))
    each = int(np.prod(right.shape[1:], dtype=np.int64))
    call = function(symbol, *[_POINTER] * 3, _NUMBER, _POINTER, _NUMBER, _POINTER)
    call(*map(address, entries), x.shape[0], address(right), each, address(found))
    return found


def dense_gram(x: Any) -> FloatArray:
    """Return x'x (d, d) for x (n, d) in compressed rows, summed in the order of the rows."""
    entries, (n, d) = _entries(x), x.shape
    found = np.zeros((d, d))
    function("sparse_gram", *[_POINTER] * 3, *[_NUMBER] * 2, _POINTER)(*map(address, entries), n, d, address(found))
    return found


def gram(x: Any) -> Any:
    """Return x'x (d, d) in compressed rows, with an entry for each pair of columns that share a row; as ``dense_gram``."""
    rows, columns, d = _entries(x), _entries(x.tocsc()), x.shape[1]
    starts = np.empty(d + 1, np.int64)
    count = function("sparse_gram_starts", *[_POINTER] * 4, _NUMBER, _POINTER, returns=ctypes.c_int)
    if count(*map(address, (*rows[1:], *columns[1:])), d, address(starts)):
        raise MemoryError
    found: _Entries = (starts, np.empty(starts[-1], np.int32), np.empty(starts[-1]))
    fill = function("sparse_gram_entries", *[_POINTER] * 6, _NUMBER, *[_POINTER] * 3, returns=ctypes.c_int)
    if fill(*map(address, (*rows, *columns)), d, *map(address, found)):
        raise MemoryError
    matrix = type(x)(found[::-1], shape=(d, d))
    matrix.sort_indices()
    return matrix


def _entries(x: Any) -> _Entries:
    """Return the entries of a compressed matrix; not copied for fewer than 2³¹ of them."""
    return (
        np.ascontiguousarray(x.data, np.float64),
        np.ascontiguousarray(x.indices, np.int32),
        np.ascontiguousarray(x.indptr, np.int64),
    )
