"""Which rows are held out: a random share of each finest group, or folds, drawn by the hashes of rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray, has_label
from grouplearn.plan.bound import Holdout
from grouplearn.plan.row_order import IntArray, grouped

HashArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

#: Rows drawn at a time: what is needed on the way is wider than the marks.
_ROWS = 1 << 22
#: Steps of the SplitMix64 generator (Steele, Lea and Flood, 2014).
_STEP, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
#: What comes after every draw.
_LAST = np.uint64(2**64 - 1)


def hold_out(
    split: npt.NDArray[np.int16],
    holdout: Holdout,
    offsets: npt.NDArray[np.int64],
    leaves: Sequence[tuple[str | None, ...]],
    hashes: tuple[HashArray, HashArray],
    y: FloatArray,
) -> None:
    """Write held-out marks or fold numbers into ``split`` (n,); the finest groups begin at ``offsets``.

    ``hashes`` are the rounded and the exact ones of ``SplitHash``; both are spent here. A sample is the rows of each group
    that come first in the order of a draw, at least one of five or more; fold numbers follow one another in that order.
    Rows without a label (``y``) are none of these. Marks of VALIDATE WHERE are there already.
    """
    if holdout.kind in ("none", "where"):
        return
    sizes = np.diff(offsets)
    for first, last in _together(sizes):
        rows = slice(offsets[first], offsets[last])
        labelled = has_label(y[rows])
        if holdout.kind == "sample":
            per_leaf = _held(np.add.reduceat(labelled, offsets[first:last] - offsets[first]), holdout.share)
        else:
            # Starting each group at a fold of its own keeps folds equal where groups are tiny.
            starts = (zlib.crc32(repr(keys).encode()) % holdout.folds for keys in leaves[first:last])
            per_leaf = np.fromiter(starts, dtype=np.int64)
        for numbers, leaf, ranks in _ranked(sizes[first:last], hashes[0][rows], hashes[1][rows], labelled):
            value = per_leaf[leaf]
            marks = ranks < value if holdout.kind == "sample" else (ranks + value) % holdout.folds
            split[rows][numbers] = marks


def _held(sizes: IntArray, share: float) -> IntArray:
    """Return how many rows are held out: groups of fewer than five have none to spare."""
    held = np.maximum(np.floor(sizes * share + 0.5), np.where(sizes >= 5, 1, 0))
    return np.asarray(np.minimum(held, sizes - 1), dtype=np.int64)


def _together(sizes: IntArray) -> Iterator[tuple[int, int]]:
    """Yield runs of groups of about ``_ROWS`` rows, longer groups alone."""
    first, held = 0, 0
    for number, size in enumerate(sizes.tolist()):
        if held and held + size > _ROWS:
            yield first, number
            first, held = number, 0
        held += size
    if held:
        yield first, len(sizes)


def _ranked(
    sizes: IntArray, rounded: HashArray, exact: HashArray, labelled: BoolArray
) -> Iterator[tuple[IntArray | slice, IntArray, IntArray]]:
    """Yield row numbers, the group of each and its place in the draw of its group; a long group comes in parts."""
    if rounded.size <= _ROWS:
        leaf = np.repeat(np.arange(sizes.size), sizes)
        yield slice(None), leaf, _ranks(_keys(rounded, exact, leaf, labelled), leaf)
        return
    for rows in _by_size(rounded):
        # From here on the draw stands where the exact hash stood, of which no other row has need.
        exact[rows] = _keys(rounded[rows], exact[rows], np.zeros(rows.size, dtype=np.int64), labelled[rows])
    before = 0
    for rows in _by_size(exact):
        leaf = np.zeros(rows.size, dtype=np.int64)
        yield rows, leaf, before + _ranks(exact[rows], leaf)
        before += rows.size


def _by_size(values: HashArray) -> Iterator[IntArray]:
    """Yield the places of the smallest values, then of the next ones, about ``_ROWS`` at a time; equal ones stay together."""
    bits = int(2 * values.size // _ROWS).bit_length()
    shift = np.uint64(64 - bits)
    for part in range(1 << bits):
        found = [
            start + np.flatnonzero(values[start : start + _ROWS] >> shift == part)
            for start in range(0, values.size, _ROWS)
        ]
        yield np.concatenate(found)


def _keys(rounded: HashArray, exact: HashArray, leaf: IntArray, labelled: BoolArray) -> HashArray:
    """Return what rows are drawn by, those without a label last.

    Rows of one hash count 0, 1, 2, ... by their exact hash, and each takes that step of a generator that the hash seeds:
    so equal rows are drawn like any others, and not all or none of them.
    """
    order = np.argsort(rounded)
    equal = rounded[order[1:]] == rounded[order[:-1]]
    number = np.zeros(rounded.size, dtype=np.uint64)
    if equal.any():
        tied = np.concatenate([equal, [False]]) | np.concatenate([[False], equal])
        rows = np.sort(order[tied])
        rows = rows[np.lexsort((exact[rows], leaf[rows], rounded[rows]))]
        new = np.ones(rows.size, dtype=np.bool_)
        new[1:] = (rounded[rows[1:]] != rounded[rows[:-1]]) | (leaf[rows[1:]] != leaf[rows[:-1]])
        places = np.arange(rows.size)
        number[rows] = places - np.maximum.accumulate(np.where(new, places, 0))
    return np.where(labelled, _mixed(rounded + (number + np.uint64(1)) * _STEP), _LAST)


def _mixed(values: HashArray) -> HashArray:
    """Return the outputs of SplitMix64 at these states."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


def _ranks(keys: HashArray, leaf: IntArray) -> IntArray:
    """Return the place of each row in the order of keys of its group, counted from 0."""
    order = grouped(leaf, np.argsort(keys))
    ordered = leaf[order]
    ranks = np.empty(keys.size, dtype=np.int64)
    ranks[order] = np.arange(keys.size) - np.searchsorted(ordered, ordered)
    return ranks
