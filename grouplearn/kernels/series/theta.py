"""The theta method for many series in one call (``source/series/theta.cpp``).

The standard method is Assimakopoulos & Nikolopoulos (2000) as the function ``thetaf`` of R's package forecast has it, the
optimised one Fiorucci, Pellegrini, Louzada, Petropoulos & Koehler (2016).
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from grouplearn.kernels.library import function, threads
from grouplearn.kernels.series.calls import COUNT, POINTER, Counts, Flags, FloatArray, Notes, Series, places, room_for

#: The variants: theta fitted with the others, or 2.
VARIANTS = ("standard", "optimised")
#: What ``note`` says: fitted, the values are all the same, there are fewer than four. Unless it was fitted, forecasts are the
#: mean of the values, without deviation.
FITTED, CONSTANT, TOO_FEW = range(3)


class Theta(NamedTuple):
    """Models of G series with n steps, of seasons of m steps, and their forecasts of H steps.

    ``parameters`` (G, 4) are alpha, theta, and the intercept (one step before the first) and slope of the line through the
    series without seasons; ``initial`` and ``final`` (G,) are levels; ``seasons`` (G, m) are those of the next steps, NaN where
    a series has none, to be added or, if ``is_multiplicative`` (G,), multiplied by. ``sigma2`` (G,) is the variance of one-step
    errors without seasons. ``trend`` (n,) is what the lines add to the level. The others are as in ``Smoothed``.
    """

    parameters: FloatArray
    initial: FloatArray
    final: FloatArray
    seasons: FloatArray
    is_multiplicative: Flags
    sigma2: FloatArray
    n_values: Counts
    converged: Flags
    note: Notes
    fitted: FloatArray
    level: FloatArray
    trend: FloatArray
    season: FloatArray
    mean: FloatArray
    deviation: FloatArray


def fit(y: FloatArray, start: Counts, season: int, horizon: int, variant: str = "optimised") -> Theta:
    """Fit the theta method to each series; see ``exponential_smoothing.fit`` for the series.

    A series has seasons if there are more than two of them and its autocorrelation at their length is more than chance at 90 %:
    multiplicative ones if its values are positive. They are taken out by classical decomposition.
    """
    series = Series.of(y, start, season)
    results = Theta(*room_for(Theta._fields, series, horizon, parameters=4, seasons=season))
    given, room = series.given(), places(results)
    function("fit_theta", POINTER, *[COUNT] * 3, POINTER)(
        ctypes.addressof(given), VARIANTS.index(variant), horizon, threads(), ctypes.addressof(room)
    )
    return results
