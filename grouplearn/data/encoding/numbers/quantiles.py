"""Quantiles of runs of numbers, by linear interpolation as DuckDB's ``quantile_cont`` and numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import FloatArray
from grouplearn.data.encoding.columns import IntArray


def quantiles(known: FloatArray, start: IntArray, shares: npt.ArrayLike) -> FloatArray:
    """Return the quantiles (R, S) at ``shares`` (S,) of runs of finite numbers, which begin at ``start`` (R + 1,).

    The quantile at share p of n sorted numbers lies at place p·(n - 1), between its two neighbours; NaN of an empty run.
    """
    sizes = np.diff(start)
    run = np.repeat(np.arange(sizes.size), sizes)
    ascending = np.sort(known) if sizes.size == 1 else known[np.lexsort((known, run))]
    place = np.asarray(shares, np.float64) * np.maximum(sizes - 1, 0)[:, None]
    below = np.floor(place).astype(np.int64)
    found = np.full(place.shape, np.nan)
    some = sizes > 0
    first, last = start[:-1][some, None], start[1:][some, None] - 1
    low, high = (ascending[np.minimum(first + below[some] + further, last)] for further in (0, 1))
    part = (place - below)[some]
    # From the nearer neighbour, so that equal neighbours are met exactly.
    found[some] = np.where(part < 0.5, low + (high - low) * part, high - (high - low) * (1 - part))
    return found
