"""Which rows are held out: a random share of each finest group, or folds, drawn by the hashes of rows."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from grouplearn.bind.bound import Holdout
from grouplearn.data.dataset import FloatArray, has_label
from grouplearn.extract.leaves import Leaves
from grouplearn.extract.row_order import HashArray, IntArray, together
from grouplearn.interrupting import side_by_side
from grouplearn.kernels.row_order import Draw

#: Rows drawn at a time: what is needed on the way is wider than the marks.
_ROWS = 1 << 22


def hold_out(
    split: npt.NDArray[np.int16],
    holdout: Holdout,
    leaves: Leaves,
    hashes: tuple[HashArray, HashArray],
    y: FloatArray,
    threads: int = 1,
) -> None:
    """Write held-out marks or fold numbers into ``split`` (n,), of the rows of each of the finest groups.

    ``hashes`` are the rounded and the exact ones of ``SplitHash``; both are spent here. A sample is the rows of each group
    that come first in the order of a draw, at least one of five or more; fold numbers follow one another in that order.
    Rows without a label (``y``) are none of these. Marks of VALIDATE WHERE are there already.
    """
    if holdout.kind in ("none", "where"):
        return

    def mark(part: tuple[int, int]) -> None:
        first, last = part
        start = leaves.offsets[first : last + 1]
        rows = slice(start[0], start[-1])
        start = start - start[0]
        labelled = has_label(y[rows])
        if holdout.kind == "sample":
            value = _held(np.add.reduceat(labelled, start[:-1]), holdout.share)
        else:
            # Starting each group at a fold of its own keeps folds equal where groups are tiny.
            starts = (zlib.crc32(repr(keys).encode()) % holdout.folds for keys in leaves.keys[first:last])
            value = np.fromiter(starts, dtype=np.int64)
        draw = Draw(hashes[0][rows], hashes[1][rows], labelled)
        draw.mark(split[rows], start, value, holdout.folds, together=_ROWS)

    side_by_side(mark, list(together(leaves.offsets)), threads)


def _held(sizes: IntArray, share: float) -> IntArray:
    """Return how many rows are held out: groups of fewer than five have none to spare."""
    held = np.maximum(np.floor(sizes * share + 0.5), np.where(sizes >= 5, 1, 0))
    return np.asarray(np.minimum(held, sizes - 1), dtype=np.int64)
