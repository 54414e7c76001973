"""Intermittent demand of many series in one call (``source/series/intermittent.cpp``).

The methods of Croston (1972), Syntetos & Boylan (2005) and Teunter, Syntetos & Babai (2011).
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from grouplearn.kernels.library import function, threads
from grouplearn.kernels.series.calls import COUNT, POINTER, Counts, Flags, FloatArray, Notes, Series, places, room_for

#: The methods of Croston, of Syntetos & Boylan, and of Teunter, Syntetos & Babai.
VARIANTS = ("by_interval", "without_bias", "by_probability")
#: What ``note`` says: weights were fitted or given, there is no demand, there are too few demands to fit weights, which are 0.1.
FITTED, NO_DEMAND, TOO_FEW = range(3)


class Intermittent(NamedTuple):
    """Models of G series with n steps, and their forecasts of H steps.

    ``parameters`` (G, 2) are the weights alpha of sizes and beta of intervals or probabilities; ``final`` (G, 3) the size, the
    interval or probability, and the steps since the last demand. ``sigma2`` (G,) is the mean squared one-step error, of which
    ``deviation`` (G, H) is the root. ``fitted`` (n,) is NaN up to the first demand. The others are as in ``Smoothed``.
    """

    parameters: FloatArray
    final: FloatArray
    sigma2: FloatArray
    n_values: Counts
    n_demands: Counts
    converged: Flags
    note: Notes
    fitted: FloatArray
    mean: FloatArray
    deviation: FloatArray


def fit(
    y: FloatArray,
    start: Counts,
    horizon: int,
    variant: str = "by_interval",
    alpha: float | None = None,
    beta: float | None = None,
) -> Intermittent:
    """Fit intermittent demand to each series; see ``exponential_smoothing.fit`` for the series.

    Weights that are not given are those from 0.01 to 0.5 with the least mean squared one-step error.
    """
    series = Series.of(y, start)
    results = Intermittent(*room_for(Intermittent._fields, series, horizon, parameters=2, final=3))
    given, room = series.given(), places(results)
    weights = (np.nan if each is None else each for each in (alpha, beta))
    function("fit_intermittent", POINTER, *[COUNT] * 2, *[ctypes.c_double] * 2, COUNT, POINTER)(
        *(ctypes.addressof(given), VARIANTS.index(variant), horizon, *weights, threads(), ctypes.addressof(room))
    )
    return results
