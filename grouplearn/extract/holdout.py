"""Which rows are held out: a random share of each finest group, or folds, by row hashes."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from grouplearn.bind.bound import Holdout
from grouplearn.data.dataset import FloatArray, has_label
from grouplearn.data.split import Split
from grouplearn.extract.finest_groups import FinestGroups
from grouplearn.extract.row_order import HashArray, IntArray, together
from grouplearn.interrupting import run_in_parallel
from grouplearn.kernels.row_order import Draw

#: Rows processed at a time, as intermediate values are wider than the result.
_ROWS = 1 << 22


#: Fewest labelled rows of a group of which one is held out without VALIDATE.
_FEWEST_JUDGED = 10


def hold_out(
    split: npt.NDArray[np.int16],
    holdout: Holdout,
    leaves: FinestGroups,
    hashes: tuple[HashArray, HashArray],
    y: FloatArray,
    threads: int = 1,
    *,
    of_classes: bool = False,
    has_coarser: bool = False,
) -> None:
    """Write held-out marks or fold numbers into ``split`` (n,), for the rows of each finest group.

    ``hashes`` are ``SplitHash``'s rounded and exact ones; both are overwritten. A sample is the first rows of each group in
    random order, at least one of five or more; fold numbers rotate in that order. Rows without a label (``y``) are left
    out. VALIDATE WHERE and ROLLING have set their numbers already. If the holdout spares rows, no row is held out of a group
    of fewer than ten (of five if there are coarser groups, which the same rows judge), nor of one whose other rows would lose
    a label or all be of one.
    """
    if holdout.kind == "rolling" and holdout.split.spares:
        _spare(split, holdout.split, leaves, y)
    if holdout.kind in ("none", "where", "rolling"):
        return

    def mark(part: tuple[int, int]) -> None:
        first, last = part
        start = leaves.offsets[first : last + 1]
        rows = slice(start[0], start[-1])
        start = start - start[0]
        labelled = has_label(y[rows])
        if holdout.kind == "sample":
            sizes = np.add.reduceat(labelled, start[:-1], dtype=np.int64)
            value = _held(sizes, holdout.share)
            if holdout.split.spares and not has_coarser:
                value[sizes < _FEWEST_JUDGED] = 0
        else:
            # Groups start at different folds, which keeps folds equal where groups are tiny.
            starts = (zlib.crc32(repr(keys).encode()) % holdout.split.folds for keys in leaves.keys[first:last])
            value = np.fromiter(starts, dtype=np.int64)
        draw = Draw(hashes[0][rows], hashes[1][rows], labelled)
        draw.mark(split[rows], start, value, holdout.split.folds if holdout.kind == "folds" else 0, together=_ROWS)
        if holdout.split.spares:
            split[rows][_missed(split[rows].astype(np.bool_), start, labelled, y[rows], of_classes)] = 0
        split[rows] = holdout.split.numbers(split[rows])

    run_in_parallel(mark, list(together(leaves.offsets)), threads)


def _spare(split: npt.NDArray[np.int16], rolling: Split, leaves: FinestGroups, y: FloatArray) -> None:
    """Let all rows train of groups that would train on fewer rows than judge them."""
    start, labelled = leaves.offsets, has_label(y)
    if not split.size:
        return
    trains, judges = (
        np.add.reduceat(labelled & asked(split, 0), start[:-1], dtype=np.int64)
        for asked in (rolling.trains, rolling.judges)
    )
    split[np.repeat(trains < judges, np.diff(start))] = rolling.farthest


def _held(sizes: IntArray, share: float) -> IntArray:
    """Return how many rows are held out: the rounded share, at least one of five rows or more, and never all."""
    held = np.maximum(np.floor(sizes * share + 0.5), np.where(sizes >= 5, 1, 0))
    return np.asarray(np.minimum(held, sizes - 1), dtype=np.int64)


def _missed(
    marked: npt.NDArray[np.bool_],
    start: IntArray,
    labelled: npt.NDArray[np.bool_],
    y: FloatArray,
    of_classes: bool,
) -> npt.NDArray[np.bool_]:
    """Return which rows (n,) are of a group whose unmarked rows lack a class of the others, or are all of one label."""
    if y.ndim > 1:
        return np.zeros(len(y), np.bool_)
    of, known = np.repeat(np.arange(start.size - 1), np.diff(start)), labelled & np.isfinite(y)
    held, trains = known & marked, known & ~marked
    lost = np.zeros(start.size - 1, np.bool_)
    if of_classes:
        label = np.where(known, y, 0).astype(np.int64)
        named = of * (1 + label.max(initial=0)) + label
        lost[of[held][~np.isin(named[held], named[trains])]] = True
    else:
        low, high = (np.full(start.size - 1, end) for end in (np.inf, -np.inf))
        np.minimum.at(low, of[trains], y[trains])
        np.maximum.at(high, of[trains], y[trains])
        lost[of[held][(low == high)[of[held]] & (y[held] != low[of[held]])]] = True
    return lost[of]
