"""Which rows are held out: a share of each finest group, or folds; they follow from the order of rows alone."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.plan.bound import Holdout

#: Rows marked at a time: the numbers needed on the way are wider than the marks.
_ROWS = 1 << 20


def hold_out(
    split: npt.NDArray[np.int16],
    holdout: Holdout,
    offsets: npt.NDArray[np.int64],
    leaves: Sequence[tuple[str | None, ...]],
) -> None:
    """Write held-out marks or fold numbers into ``split`` (n,); the finest groups begin at ``offsets``.

    A sample is the first rows of each group, at least one of five or more; fold numbers follow one another.
    Marks of VALIDATE WHERE are there already.
    """
    if holdout.kind in ("none", "where"):
        return
    sizes = np.diff(offsets)
    if holdout.kind == "sample":
        # Groups of fewer than five rows have none to spare.
        held = np.maximum(np.floor(sizes * holdout.share + 0.5), np.where(sizes >= 5, 1, 0))
        per_leaf = np.minimum(held, sizes - 1).astype(np.int64)
    else:
        # Starting each group at a fold of its own keeps folds equal where groups are tiny.
        per_leaf = np.array([zlib.crc32(repr(keys).encode()) % holdout.folds for keys in leaves], dtype=np.int64)
    for start in range(0, split.size, _ROWS):
        rows = np.arange(start, min(start + _ROWS, split.size))
        leaf = np.searchsorted(offsets, rows, side="right") - 1
        position, value = rows - offsets[leaf], per_leaf[leaf]
        marks = position < value if holdout.kind == "sample" else (position + value) % holdout.folds
        split[start : start + rows.size] = marks
