"""Scores of forests: each tree's splits in 16 bytes, evaluated for eight rows of a group at a time."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function

FloatArray = npt.NDArray[np.float64]
#: A node as in trees.cpp. ``bound`` holds two single-precision numbers, low and high, if IN_RANGE.
NODE = np.dtype([("bound", np.float64), ("slot", np.uint32), ("yes", np.int16), ("no", np.int16)])
IN_RANGE, MISSING_IS_YES = np.uint32(1 << 31), np.uint32(1 << 30)
#: Properties of a tree: it has IN_RANGE nodes; its leaves, at most ``BITS``, are in order, those of "yes" first.
ASKS_RANGES, IN_ORDER = np.uint8(1), np.uint8(2)
BITS, _ROWS = 64, 8
#: Most nodes and most leaves of a tree.
MOST = 1 << 15
_POINTER, _LONG = ctypes.c_void_p, ctypes.c_int64
#: Added and subtracted, it makes a number a multiple of 2^-40 up to 2^11: 1.5 * 2^12 has its last bit there.
TO_GRID = 6144.0


def on_grid(scores: FloatArray) -> FloatArray:
    """Return classes' scores as multiples of 2^-40.

    Leaves that should add up to the same may differ in their last bits, which the exponential functions of DuckDB and of the
    kernels rank differently: so they are equal. A probability changes by at most 2^-43.
    """
    return (scores + TO_GRID) - TO_GRID


@dataclass(frozen=True, slots=True)
class Forests:
    """The trees of G groups, concatenated; those of a group begin at ``first_trees`` (G + 1).

    A tree adds one of its ``leaves`` to ``outputs`` (trees,). Its leaves begin at ``first_leaves`` (trees + 1), its
    ``nodes`` at ``first_nodes`` (trees + 1); children are numbered within the tree, and child c < 0 is leaf -c - 1.
    ``base`` (G, K) are initial scores; with ``of_classes`` scores are ``on_grid``. ``kinds`` has ASKS_RANGES and IN_ORDER
    per tree; for the latter, ``others`` has for each node a bit per leaf of the tree that is not behind "yes".
    """

    nodes: npt.NDArray[Any]
    others: npt.NDArray[np.uint64]
    leaves: FloatArray
    first_nodes: npt.NDArray[np.int64]
    first_leaves: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.int32]
    kinds: npt.NDArray[np.uint8]
    first_trees: npt.NDArray[np.int64]
    base: FloatArray
    of_classes: bool = False

    def scores(self, x: FloatArray, group: npt.NDArray[np.int32]) -> FloatArray:
        """Return the scores (n, K) of rows ``x`` (n, slots) by group; NaN where the group is -1.

        Leaves are added so that the order of trees does not matter (``Sum`` in ``trees/sums.hpp``).
        """
        n_rows, n_groups, n_outputs = len(x), *self.base.shape
        out, turned = np.empty((n_rows, n_outputs)), np.empty((x.shape[1], _ROWS))
        room = (np.empty(n_rows, np.int64), np.empty(n_rows, np.int64), turned, np.empty((n_outputs, 2, _ROWS)))
        trees = (self.nodes, self.others, self.leaves, self.first_nodes, self.first_leaves, self.outputs, self.kinds)
        lengths = (_POINTER, _LONG, _LONG, _POINTER, _LONG, _LONG)
        pointers = (*trees, self.first_trees, self.base, *room, out)
        symbol = function("score_trees", *lengths, *[_POINTER] * len(pointers))
        symbol(address(x), *x.shape, address(group), n_groups, n_outputs, *map(address, pointers))
        return on_grid(out) if self.of_classes else out
