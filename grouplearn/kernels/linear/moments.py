"""Weighted means and centred second moments of groups of rows, and how they are merged.

They are taken by ``source/linear/least_squares/moments.cpp``.

Moments are a dict of arrays with the same leading axes: ``total`` Σw, ``mean`` (d,), ``target_mean`` (t,), ``square``
Σw(x−x̄)² (d,), ``cross`` Σw(x−x̄)(t−t̄)' (d, t), ``target_gram`` (t, t) and perhaps ``gram`` Σw(x−x̄)(x−x̄)' (d, d).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double

FloatArray: TypeAlias = npt.NDArray[np.float64]
Moments: TypeAlias = dict[str, FloatArray]

_NAMES = ("total", "mean", "target_mean", "square", "cross", "target_gram", "gram")
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


def of_rows(
    x: npt.NDArray[Any],
    targets: FloatArray,
    weight: FloatArray,
    start: npt.NDArray[np.int64],
    part: tuple[npt.NDArray[np.int16], int] | None = None,
    gram: bool = True,
) -> Moments:
    """Return the moments of groups of rows, ``start`` (G + 1,), of x (n, d), targets (n, t) and weights (n,).

    ``x`` is float32 or float64; equal numbers give equal moments.

    ``part``: each row's (n,) part, of so many parts; the arrays then are (G, parts, ...). Without rows all are 0.
    """
    d, t = x.shape[1], targets.shape[1]
    leading = (start.size - 1,) if part is None else (start.size - 1, part[1])
    found = _empty(leading, d, t, gram)
    which = None if part is None else np.ascontiguousarray(part[0], np.int16)
    kinds = (*(_POINTER, _POINTER, _COUNT, _POINTER, _COUNT, _POINTER), *(_POINTER, _COUNT) * 2, *[_POINTER] * 7)
    rows = [features(x), *(np.ascontiguousarray(each, np.float64) for each in (targets, weight))]
    start = np.ascontiguousarray(start, np.int64)
    function("row_moments", *kinds)(
        *(*single_or_double(rows[0]), d, address(rows[1]), t, address(rows[2]), address(start), leading[0]),
        *(None if which is None else address(which), leading[-1]),
        *_addresses(found),
    )
    return found


def merged(left: Mapping[str, npt.NDArray[Any]], right: Mapping[str, npt.NDArray[Any]]) -> Moments:
    """Return the moments of both parts' rows, pairwise along leading axes; a part without rows changes nothing."""
    leading, d, t = left["total"].shape, left["mean"].shape[-1], left["target_mean"].shape[-1]
    found = _empty(leading, d, t, "gram" in left)
    one, other = _contiguous(left), _contiguous(right)
    function("merged_moments", _COUNT, _COUNT, _COUNT, _POINTER, _POINTER, _POINTER)(
        left["total"].size, d, t, _pointers(one), _pointers(other), _pointers(found)
    )
    return found


def without_each(folds: Mapping[str, npt.NDArray[Any]]) -> Moments:
    """Return moments (G, F + 1, ...) from those of the F folds (G, F, ...): all but fold f for each f, then all rows."""
    (groups, n_folds), d, t = folds["total"].shape, folds["mean"].shape[-1], folds["target_mean"].shape[-1]
    given, found = _contiguous(folds), _empty((groups, n_folds + 1), d, t, True)
    if n_folds == 1:
        found = {name: np.zeros_like(each) for name, each in found.items()}
    function("moments_without_each", _COUNT, _COUNT, _COUNT, _COUNT, _POINTER, _POINTER)(
        groups, n_folds, d, t, _pointers(given), _pointers(found)
    )
    return found


def _empty(leading: tuple[int, ...], d: int, t: int, gram: bool) -> Moments:
    shapes = zip(_NAMES, ((), (d,), (t,), (d,), (d, t), (t, t), (d, d)), strict=True)
    return {name: np.empty((*leading, *shape)) for name, shape in shapes if gram or name != "gram"}


def _contiguous(moments: Mapping[str, npt.NDArray[Any]]) -> Moments:
    return {name: np.ascontiguousarray(moments[name], np.float64) for name in _NAMES if name in moments}


def pointers(moments: Mapping[str, npt.NDArray[Any]]) -> tuple[Any, Moments]:
    """Return the moments' addresses for kernels, and the arrays, to be kept alive meanwhile."""
    kept = _contiguous(moments)
    return _pointers(kept), kept


def _addresses(moments: Moments) -> list[int | None]:
    return [address(moments[name]) if name in moments else None for name in _NAMES]


def _pointers(moments: Moments) -> Any:
    return (ctypes.c_void_p * len(_NAMES))(*_addresses(moments))
