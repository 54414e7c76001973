"""Which rows are held out: a random share of each finest group, or folds, by row hashes."""

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

#: Rows processed at a time, as intermediate values are wider than the result.
_ROWS = 1 << 22


def hold_out(
    split: npt.NDArray[np.int16],
    holdout: Holdout,
    leaves: Leaves,
    hashes: tuple[HashArray, HashArray],
    y: FloatArray,
    threads: int = 1,
) -> None:
    """Write held-out marks or fold numbers into ``split`` (n,), for the rows of each finest group.

    ``hashes`` are ``SplitHash``'s rounded and exact ones; both are overwritten. A sample is the first rows of each group in
    random order, at least one of five or more; fold numbers rotate in that order. Rows without a label (``y``) are left
    out. VALIDATE WHERE has set its marks already.
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
            # Groups start at different folds, which keeps folds equal where groups are tiny.
            starts = (zlib.crc32(repr(keys).encode()) % holdout.folds for keys in leaves.keys[first:last])
            value = np.fromiter(starts, dtype=np.int64)
        draw = Draw(hashes[0][rows], hashes[1][rows], labelled)
        draw.mark(split[rows], start, value, holdout.folds, together=_ROWS)

    side_by_side(mark, list(together(leaves.offsets)), threads)


def _held(sizes: IntArray, share: float) -> IntArray:
    """Return how many rows are held out: none in groups of fewer than five."""
    held = np.maximum(np.floor(sizes * share + 0.5), np.where(sizes >= 5, 1, 0))
    return np.asarray(np.minimum(held, sizes - 1), dtype=np.int64)
