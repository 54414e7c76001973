"""The learner ``theta``: a straight line and a smoothed level in equal parts, with seasons taken out before."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from grouplearn.kernels.series import theta as kernel
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.series.batch import FittedSeries, Parts, SeriesBatch
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import DecomposedForecast

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
            np.column_stack([found.parameters, sigma2, found.is_multiplicative]),
            np.column_stack([found.final, found.seasons]),
        )
        return FittedSeries(found.fitted, found.mean, deviation, loss, found.converged, method, found.note, parts=parts)
