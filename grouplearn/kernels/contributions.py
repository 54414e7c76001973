"""What each item adds to the score of a forest: ``source/scoring/contributions.cpp``."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64
#: Numbers of points, each at its place less 8 in the lists of all.
_SIZES = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class CountedForest:
    """The splits and leaves of T trees, concatenated, with the training rows that came to each.

    Those of a tree begin at ``first_splits`` and ``first_leaves`` (T + 1). A tree adds to one of ``outputs`` (T,); ``depth``
    (T,) is the most splits on a path. A child >= 0 is a split of the same tree, after its parent, a child c < 0 leaf -c - 1.
    ``decision`` has LightGBM's bits. The categories that go left at a split are bits of ``sets`` from its ``set_starts`` on.
    """

    first_splits: npt.NDArray[np.int64]
    first_leaves: npt.NDArray[np.int64]
    outputs: IntArray
    depth: IntArray
    feature: IntArray
    decision: IntArray
    left: IntArray
    right: IntArray
    threshold: FloatArray
    split_rows: FloatArray
    value: FloatArray
    leaf_rows: FloatArray
    set_starts: npt.NDArray[np.int64]
    sets: npt.NDArray[np.uint32]

    def contributions(self, x: FloatArray, chosen: IntArray, item: IntArray, n_items: int) -> FloatArray:
        """Return what each item adds to the ``chosen`` output (n,) of rows x (n, d): Shapley values (n, n_items).

        ``item`` (d,) says which item a column belongs to: the values of its columns are summed.
        """
        out = np.zeros((len(x), n_items))
        sizes = np.array(_SIZES, np.int32)[np.searchsorted(_SIZES[:-1], (self.depth + 1) // 2)]
        trees = (self.first_splits, self.first_leaves, self.outputs, sizes, self.feature, self.decision, self.left)
        others = (self.right, self.threshold, self.split_rows, self.value, self.leaf_rows, self.set_starts, self.sets)
        pointers: tuple[npt.NDArray[Any], ...] = (*trees, *others, *_points(), out)
        kinds = (_POINTER, _LONG, _LONG, _POINTER, _POINTER, _LONG, _LONG, *[_POINTER] * len(pointers))
        function("explain_trees", *kinds)(
            *(address(x), *x.shape, address(chosen), address(item), n_items, len(self.outputs)), *map(address, pointers)
        )
        return out


@functools.cache
def _points() -> tuple[FloatArray, FloatArray]:
    """Return the points of Gauss and Legendre between 0 and 1, and their weights."""
    found = [np.polynomial.legendre.leggauss(size) for size in _SIZES]
    return np.concatenate([(1 + x) / 2 for x, _ in found]), np.concatenate([w / 2 for _, w in found])
