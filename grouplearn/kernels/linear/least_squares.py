"""Least squares and elastic net of many groups from their moments (``source/linear/least_squares``)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, features, function, single_or_double
from grouplearn.kernels.linear.moments import pointers

FloatArray: TypeAlias = npt.NDArray[np.float64]
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class LeastSquaresPenalties(NamedTuple):
    """Per config ``l1``, ``l2``, ``tolerance`` and ``fit_intercept`` (C,); ``rounds``: the most of a minimisation with l1."""

    l1: FloatArray
    l2: FloatArray
    tolerance: FloatArray
    fit_intercept: npt.NDArray[np.bool_]
    rounds: int


class PathModels(NamedTuple):
    """``weights`` (G, C, d), and (G, C) each ``intercept``, ``loss`` (the objective) and ``converged``."""

    weights: FloatArray
    intercept: FloatArray
    loss: FloatArray
    converged: npt.NDArray[np.bool_]


def solve(
    moments: Mapping[str, npt.NDArray[Any]],
    penalties: LeastSquaresPenalties,
    factor: FloatArray | None = None,
) -> PathModels:
    """Return the models of every config for moments (G, ...) with a Gram matrix and one target.

    Minimises Σ wᵢ·½(yᵢ − xᵢ'w − b)² + l1·‖w‖₁ + ½·l2·‖w‖²; without penalties the solution with the smallest ‖w‖. Moments
    that are not finite or have no rows give NaN. ``factor`` (d + 1, d + 1) is a square root of the moments of [X y] if
    their Gram matrix has lost digits; then there is one set of moments, and configs that depend on the digits are solved
    from the factor.
    """
    count, d = moments["mean"].shape
    shape = count, len(penalties.l1)
    found = PathModels(np.empty((*shape, d)), np.empty(shape), np.empty(shape), np.empty(shape, np.bool_))
    columns = [np.ascontiguousarray(each, np.float64) for each in penalties[:3]]
    fit_intercept = np.ascontiguousarray(penalties.fit_intercept, np.bool_)
    given, kept = pointers(moments)
    root = None if factor is None else np.ascontiguousarray(factor, np.float64)
    kinds = (*(_COUNT, _COUNT, _POINTER, _POINTER, _COUNT), *[_POINTER] * 4, _COUNT, *[_POINTER] * 4)
    function("least_squares", *kinds)(
        *(count, d, given, None if root is None else address(root), shape[1]),
        *map(address, columns),
        *(address(fit_intercept), penalties.rounds, *map(address, found)),
    )
    del kept
    return found


#: Results of ``lost_directions``.
KEPT, NOTHING_LOST, LOST = 0, 1, 2


def lost_directions(
    moments: Mapping[str, npt.NDArray[Any]], x: npt.NDArray[Any], weight: FloatArray, start: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8]:
    """Return for each group (G,) whether its Gram matrix loses digits: ``KEPT``: no (also if it is not finite);
    ``NOTHING_LOST``: only in directions in which its rows do not vary; ``LOST``: yes. Groups of rows are as in
    ``moments.of_rows``.
    """
    found = np.zeros(start.size - 1, np.uint8)
    given, kept = pointers(moments)
    rows, weight, start = features(x), np.ascontiguousarray(weight, np.float64), np.ascontiguousarray(start, np.int64)
    function("lost_directions", _COUNT, _COUNT, *[_POINTER] * 6)(
        *(found.size, x.shape[1], given, *single_or_double(rows), address(weight), address(start), address(found))
    )
    del kept
    return found


def parted(
    square: FloatArray,
    beside: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray],
    offset: tuple[FloatArray, FloatArray, bool],
    rest: FloatArray,
    labelled: tuple[FloatArray, FloatArray],
    l2: float,
) -> tuple[FloatArray, FloatArray]:
    """Return ridge weights of columns that are never set together (K,), and of p - 1 others (p - 1,).

    ``square`` (K,) are their products with themselves, ``beside`` those with the others in compressed rows: where the rows
    begin (K + 1,), columns and values. ``offset`` are the products with the intercept (K,), by how much they and a centre
    (p - 1,) are less, and whether centring loses digits; ``rest`` (p, p) the products of the others, the intercept last;
    ``labelled`` those of both with the label, (K,) and (p,). Without penalty, of many solutions the smallest weights.
    """
    (starts, columns, values), (products, centre, loses) = beside, offset
    numbers = [np.ascontiguousarray(each, np.float64) for each in (square, values, products, centre, rest, *labelled)]
    places = [np.ascontiguousarray(each, np.int64) for each in (starts, columns)]
    found, (own, p) = np.empty(square.size + rest.shape[0]), (square.size, rest.shape[0])
    function("parted_least_squares", _COUNT, _COUNT, *[_POINTER] * 9, ctypes.c_double, _COUNT, _POINTER)(
        own, p, address(numbers[0]), *map(address, places), *map(address, numbers[1:]), l2, int(loses), address(found)
    )
    return found[:own], found[own:-1]


def triangle(rows: FloatArray) -> FloatArray:
    """Return R (p, p) of the QR decomposition of rows (n, p), filled with zeros if n < p."""
    given = np.ascontiguousarray(rows, np.float64)
    found = np.empty((rows.shape[1], rows.shape[1]))
    function("triangle_of_rows", _POINTER, _COUNT, _COUNT, _POINTER)(address(given), *rows.shape, address(found))
    return found


def root(whole: FloatArray) -> FloatArray:
    """Return F (p, p) with F'F = ``whole``, symmetric and positive semidefinite up to rounding, which is dropped."""
    given, found = np.ascontiguousarray(whole, np.float64), np.empty(whole.shape)
    function("root_of_gram", _POINTER, _COUNT, _POINTER)(address(given), len(whole), address(found))
    return found
