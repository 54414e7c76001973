"""Exponential smoothing of many series in one call (``source/series/exponential_smoothing.cpp``).

Models as in Hyndman, Koehler, Ord & Snyder, Forecasting with Exponential Smoothing (2008); starting states, ranges of the
parameters and choice as the function ``ets`` of R's package forecast has them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grouplearn.kernels.library import address, function, threads
from grouplearn.kernels.series.calls import COUNT, POINTER, Counts, Flags, FloatArray, Notes, Series, places, room_for


class Model(NamedTuple):
    """How a model's parts enter: ``error`` A or M, ``trend`` N, A or Ad, ``season`` N, A or M (none, additive, damped,
    multiplicative)."""

    error: str
    trend: str
    season: str


_ERRORS, _TRENDS, _SEASONS = ("A", "M"), ("N", "A", "Ad"), ("N", "A", "M")
#: The models. An additive error beside multiplicative seasons has an infinite variance.
MODELS = tuple(
    Model(error, trend, season)
    for error in _ERRORS
    for season in _SEASONS
    for trend in _TRENDS
    if (error, season) != ("A", "M")
)
#: The longest season in steps; longer ones are left out.
LONGEST_SEASON = 24
#: How models are compared.
CRITERIA = ("aicc", "aic", "bic")
#: What ``note`` says: a model was fitted, the values are all the same, there are fewer than four of them, no candidate suits
#: the series. Unless it was fitted, the model is a level without error: the mean.
FITTED, CONSTANT, TOO_FEW, NO_CANDIDATE = range(4)


class Smoothed(NamedTuple):
    """Models of G series with n steps, of seasons of m steps, and their forecasts of H steps.

    ``model`` (G,) is the place in ``MODELS``; ``parameters`` (G, 4) are alpha, beta, gamma and phi; ``initial`` and ``final``
    (G, 2 + m) are level, trend and seasons, that of the next step first: all NaN where a model has none. ``sigma2`` (G,) is the
    variance of one-step errors, which are relative to the forecast where the error is multiplicative. ``loglik``, ``aic``,
    ``aicc`` and ``bic`` (G,) leave out what is the same for all models, and are NaN unless ``note`` (G,) is FITTED.
    ``n_values`` (G,) counts steps that are not missing; ``converged`` (G,) is whether the likelihood's maximum was found.
    ``fitted`` (n,) are one-step forecasts, made of ``level``, ``trend`` and ``season`` (n,), which are NaN where the model
    has none: their sum, or (level + trend) · season; the trend is φ times the slope. ``mean`` and ``deviation`` (G, H) those
    of the forecasts' distribution.
    """

    model: Counts
    parameters: FloatArray
    initial: FloatArray
    final: FloatArray
    sigma2: FloatArray
    loglik: FloatArray
    aic: FloatArray
    aicc: FloatArray
    bic: FloatArray
    n_values: Counts
    converged: Flags
    note: Notes
    fitted: FloatArray
    level: FloatArray
    trend: FloatArray
    season: FloatArray
    mean: FloatArray
    deviation: FloatArray


def fit(
    y: FloatArray,
    start: Counts,
    season: int,
    specs: Sequence[Model],
    horizon: int,
    criterion: str = "aicc",
) -> Smoothed:
    """Fit to each series the best of the candidates ``specs`` that suit it.

    The series ``y`` (n,) follow one another; series g has the steps from ``start`` [g] to ``start`` [g + 1], (G + 1,), NaN where
    they are missing, but not at its ends. Models with multiplicative parts suit positive series, seasonal ones those with two
    seasons, and each those with more values than its numbers and 1. Series are shared between ``threads()``, whose number
    changes no bit.
    """
    series, models = Series.of(y, start, season), _codes(specs)
    results = _room(series, horizon)
    given, room = series.given(), places(results)
    function("fit_exponential_smoothing", *[POINTER] * 2, *[COUNT] * 4, POINTER)(
        *(ctypes.addressof(given), address(models), len(specs), CRITERIA.index(criterion), horizon, threads()),
        ctypes.addressof(room),
    )
    numbers = np.array([*map(MODELS.index, specs), 0], np.int64)  # the last one belongs to -1: a level
    return results._replace(model=numbers[results.model])


def filter(  # noqa: A001
    y: FloatArray,
    start: Counts,
    season: int,
    model: Counts,
    parameters: FloatArray,
    initial: FloatArray,
    horizon: int,
) -> Smoothed:
    """Return the results of models that are given, as ``fit`` has them, with the series' ``initial`` states.

    To continue a series, give its ``final`` states and its new steps; ``sigma2`` is then of these, NaN where they are no more
    than the model's numbers.
    """
    series, models = Series.of(y, start, season), _codes(MODELS)
    if season > LONGEST_SEASON and any(MODELS[number].season != "N" for number in np.unique(model)):
        raise ValueError(f"a season has at most {LONGEST_SEASON} steps, not {season}")
    results = _room(series, horizon)
    results.model[:], results.parameters[:], results.initial[:] = model, parameters, initial
    given, room = series.given(), places(results)
    function("filter_exponential_smoothing", *[POINTER] * 2, COUNT, POINTER)(
        ctypes.addressof(given), address(models), horizon, ctypes.addressof(room)
    )
    return results


def forecast(
    season: int, model: Counts, parameters: FloatArray, final: FloatArray, sigma2: FloatArray, horizon: int
) -> tuple[FloatArray, FloatArray]:
    """Return ``mean`` and ``deviation`` (G, H) of the steps after those whose ``final`` states these are."""
    kind, models = np.ascontiguousarray(model, np.int64), _codes(MODELS)
    states = [np.ascontiguousarray(each, np.float64) for each in (parameters, final, sigma2)]
    mean, deviation = np.empty((2, kind.size, horizon))
    function("forecast_exponential_smoothing", *[POINTER] * 2, *[COUNT] * 2, *[POINTER] * 3, COUNT, *[POINTER] * 2)(
        *(address(models), address(kind), kind.size, season, *map(address, states), horizon),
        *(address(mean), address(deviation)),
    )
    return mean, deviation


def _room(series: Series, horizon: int) -> Smoothed:
    states = 2 + series.season
    return Smoothed(*room_for(Smoothed._fields, series, horizon, parameters=4, initial=states, final=states))


def _codes(models: Sequence[Model]) -> Counts:
    """Return models for the kernel: (n, 3)."""
    codes = [(_ERRORS.index(each.error), _TRENDS.index(each.trend), _SEASONS.index(each.season)) for each in models]
    return np.array(codes, np.int64).reshape(-1, 3)
