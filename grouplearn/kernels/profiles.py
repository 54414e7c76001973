"""What the rows of groups are like, column by column: ``source/rows/profiles.cpp``."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.library import address, function, single_or_double

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
#: Quantiles are at multiples of one over this, in groups where each part has at least so many rows.
PARTS, LEAST = 20, 10


class GroupRuns(NamedTuple):
    """The rows of G groups: group g has the half-open runs ``first[g]`` to ``first[g + 1]`` of ``runs`` (R, 2)."""

    runs: IntArray
    first: IntArray

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.first) - 1


class NumberProfiles(NamedTuple):
    """The finite numbers of G groups in C columns: how many are ``present``, ``low``, ``high``, ``mean`` and the standard
    ``deviation`` of a sample (NaN of a single one), all (G, C), and their first ``edges`` distinct ``quantiles``, at
    most (G, C, parts - 1), with the number of rows ``upto`` each."""

    present: IntArray
    low: FloatArray
    high: FloatArray
    mean: FloatArray
    deviation: FloatArray
    quantiles: FloatArray
    edges: IntArray
    upto: IntArray


def of_numbers(x: npt.NDArray[Any], groups: GroupRuns, columns: npt.ArrayLike, parts: int = PARTS) -> NumberProfiles:
    """Return the profiles of some columns of x (n, d). Quantiles are those of 256 rows of a group that lie evenly, and counts
    are of all; with one part there are no quantiles."""
    chosen = np.ascontiguousarray(columns, np.int64)
    shape = (groups.n_groups, chosen.size)
    low, high, mean, deviation = np.empty((4, *shape))
    present, edges = np.empty((2, *shape), np.int64)
    quantiles, upto = np.zeros((*shape, parts - 1)), np.zeros((*shape, parts - 1), np.int64)
    found = NumberProfiles(present, low, high, mean, deviation, quantiles, edges, upto)
    kinds = (*[_POINTER] * 2, _COUNT, *[_POINTER] * 2, _COUNT, _POINTER, *[_COUNT] * 3, *[_POINTER] * 8)
    function("profile_numbers", *kinds)(
        *(*single_or_double(x), x.shape[1], *map(address, groups), groups.n_groups, address(chosen), chosen.size),
        *(parts, LEAST, *map(address, found)),
    )
    return found


class CodeProfiles(NamedTuple):
    """The codes of G groups: how many are ``present`` (G,), and the ``listed`` (G,) most frequent ``codes`` (L,), one
    group's after the other's, with their ``counts`` (L,)."""

    present: IntArray
    listed: IntArray
    codes: npt.NDArray[np.int32]
    counts: IntArray


def of_codes(codes: npt.NDArray[np.int32], groups: GroupRuns, column: int, size: int, most: int) -> CodeProfiles:
    """Return the profiles of a column of codes (n, c) from 0 to ``size``, -1 for a missing one, with ``most`` for a group."""
    n_rows = np.diff(groups.runs, axis=1)[:, 0]
    before = np.concatenate([[0], np.cumsum(n_rows)])
    room = int(np.minimum(np.diff(before[groups.first]), min(size, most)).sum())
    present, listed = np.empty((2, groups.n_groups), np.int64)
    found = CodeProfiles(present, listed, np.empty(room, np.int32), np.empty(room, np.int64))
    kinds = (_POINTER, _COUNT, _COUNT, *[_POINTER] * 2, *[_COUNT] * 3, *[_POINTER] * 4)
    function("profile_codes", *kinds)(
        *(address(codes), codes.shape[1], column, *map(address, groups), groups.n_groups, size, most),
        *(address(present), address(listed), address(found.codes), address(found.counts)),
    )
    total = int(listed.sum())
    return found._replace(codes=found.codes[:total], counts=found.counts[:total])
