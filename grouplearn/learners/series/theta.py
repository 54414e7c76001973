"""The learner ``theta``: a straight line and a smoothed level in equal parts, with seasons taken out before."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.series import theta as kernel
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.series.batch import FittedSeries, Parts, SeriesBatch
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import DecomposedForecast
from grouplearn.models.state import Tensors

VARIANT = Hyperparameter(
    "variant",
    "str",
    "optimised",
    "standard: the second line doubles the curvature of the series; optimised: by as much as makes one-step errors least",
    "Assimakopoulos & Nikolopoulos 2000; Fiorucci et al. 2016",
    choices=kernel.VARIANTS,
)

#: From this θ on the second line is the series itself, and the method simple exponential smoothing beside the drift of the line.
_WHOLE = 1e6
_SEASONS = ("", ", additive season", ", multiplicative season")


class Theta(SeriesLearner):
    """The mean of the series' straight line and of a line whose curvature is multiplied by θ, forecast by its smoothed level.

    Seasons are taken out first by classical decomposition, if the autocorrelation at their length says that there are any. A
    multiplicative season multiplies the interval, too: it is wider where values are larger.
    Source: Assimakopoulos & Nikolopoulos 2000; Fiorucci et al. 2016; R: thetaf().
    """

    declaration = Declaration(
        name="theta",
        summary="the theta method: half trend, half smoothed level",
        labels=frozenset({NUMBER}),
        output=DecomposedForecast,
        hyperparameters=(VARIANT, SEASON_LENGTH, HORIZON),
        form="vectors",
        handles_missing=True,
        takes_series=True,
        one_pass=True,
        chooses_method=True,
        cost=SeriesCost(Coefficients(0.0, 5e-6, 0.0, 0.0, 1e-8, 1e-4, 1e-5)),
    )

    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of all series."""
        del cancelled
        season, horizon = (cast(int, config[each.name]) for each in (SEASON_LENGTH, HORIZON))
        found = kernel.fit(batch.y, batch.start, season, horizon, str(config[VARIANT.name]))
        loss = np.nan_to_num(found.sigma2)
        deviation = np.where((found.note == kernel.TOO_FEW)[:, None], np.nan, found.deviation)
        has_seasons, are_factors = np.isfinite(found.seasons).any(axis=1), found.is_multiplicative
        kinds = np.where(has_seasons, np.where(are_factors, 2, 1), 0).tolist()
        method = [
            (f"theta({theta:.3g})" if theta < _WHOLE else "simple exponential smoothing with drift") + _SEASONS[kind]
            if note == kernel.FITTED
            else "mean"
            for theta, kind, note in zip(found.parameters[:, 1].tolist(), kinds, found.note.tolist(), strict=True)
        ]
        sigma2 = np.where(found.note == kernel.TOO_FEW, np.nan, found.sigma2)
        parts = Parts(
            {
                "level": np.where(np.isnan(found.trend), np.nan, found.level),
                "trend": found.trend,
                "season": found.season,
            },
            np.column_stack([_weights(found, str(config[VARIANT.name])), sigma2, found.is_multiplicative]),
            np.column_stack([found.final, found.seasons]),
        )
        return FittedSeries(found.fitted, found.mean, deviation, loss, found.converged, method, found.note, parts=parts)

    def continued(self, tensors: Tensors, horizon: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the forecasts by the recursion of ``kernels/source/series/theta.cpp``."""
        alpha, bend, drift, intercept, slope, sigma2, is_multiplicative = tensors["parameters"]
        level, *seasons = tensors["state"]
        mean, deviation = np.full(horizon, level), np.full(horizon, np.sqrt(sigma2) if sigma2 >= 0 else np.nan)
        if alpha < 0:  # the series has a mean alone
            return mean, deviation
        steps = tensors["fitted"].size + np.arange(horizon)
        power = (1 - alpha) ** np.append(steps, steps[-1] + 1)
        line = bend * (intercept * power[:-1] + slope * (1 - power[1:]) / alpha)
        for step in range(horizon):
            mean[step] = level + line[step]
            level += alpha * line[step]
        mean += drift * (np.arange(horizon) + (1 - power[0]) / alpha)
        deviation *= np.sqrt(1 + np.arange(horizon) * alpha**2)
        if not seasons:
            return mean, deviation
        season = np.resize(seasons, horizon)
        return (mean * season, deviation * season) if is_multiplicative else (mean + season, deviation)


def _weights(found: kernel.Theta, variant: str) -> FloatArray:
    """Return alpha, the weight of the line in the recursion and the drift beside it, intercept and slope: (G, 5)."""
    alpha, theta, intercept, slope = found.parameters.T
    bend, drift = (0 * theta, slope / 2) if variant == "standard" else (1 - 1 / theta, 0 * slope)
    return np.column_stack([alpha, bend, drift, intercept, slope])
