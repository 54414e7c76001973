"""The learner ``exponential_smoothing``: level, trend and season that follow the series, each chosen or given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.series import exponential_smoothing as kernel
from grouplearn.learners.contract.access import AccessPattern
from grouplearn.learners.contract.config import Config, Conflict, Hyperparameter
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.series.batch import FittedSeries, Parts, SeriesBatch, known
from grouplearn.learners.series.methods import LONG_SEASON
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import DecomposedForecast
from grouplearn.models.state import Tensors

_SOURCE = "Hyndman, Koehler, Ord & Snyder 2008"
_ERRORS = {"additive": "A", "multiplicative": "M"}
_TRENDS = {"none": "N", "additive": "A", "damped": "Ad"}
_SEASONS = {"none": "N", "additive": "A", "multiplicative": "M"}


def _part(name: str, of: str, choices: Mapping[str, str]) -> Hyperparameter:
    doc = f"{of}: auto tries all of them, and the criterion decides"
    return Hyperparameter(name, "str", "auto", doc, _SOURCE, choices=("auto", *choices))


ERRORS = _part("errors", "whether errors are added or proportional", _ERRORS)
TREND = _part("trend", "the trend", _TRENDS)
SEASONALITY = _part("seasonality", "how the season enters", _SEASONS)
CRITERION = Hyperparameter(
    "criterion", "str", "aicc", "the information criterion that chooses", _SOURCE, choices=kernel.CRITERIA
)


class ExponentialSmoothing(SeriesLearner):
    """Level, trend and season, each renewed by a part of the last error, with starting values of greatest likelihood.

    With additive parts ŷ = l + b + s, l ← l + b + α e, b ← b + β e, s ← s + γ e; ``kernels.series.exponential_smoothing`` has
    the others. A missing value counts as forecast. A constant series, or one of fewer than four values, is its mean.
    Source: Hyndman, Koehler, Ord & Snyder 2008; R: ets().
    """

    #: A series of 120 steps takes 2 ms, all of them in the kernel.
    access: ClassVar[AccessPattern] = replace(SeriesLearner.access, threaded_from=1_000.0)
    declaration = Declaration(
        name="exponential_smoothing",
        summary="level, trend and season (ETS), chosen per series by AICc",
        labels=frozenset({NUMBER}),
        output=DecomposedForecast,
        hyperparameters=(ERRORS, TREND, SEASONALITY, CRITERION, SEASON_LENGTH, HORIZON),
        form="vectors",
        handles_missing=True,
        takes_series=True,
        one_pass=True,
        chooses_method=True,
        cost=SeriesCost(Coefficients(0.0, 2e-4, 0.0, 0.0, 1e-8, 1e-3, 1e-5)),
    )

    def conflict(self, config: Config) -> Conflict | None:
        """Return that multiplicative seasons have no additive errors."""
        if config[ERRORS.name] == "additive" and config[SEASONALITY.name] == "multiplicative":
            message = (
                "with additive errors the variance of multiplicative seasons is infinite: errors = 'multiplicative'"
            )
            return Conflict(message, (ERRORS.name, SEASONALITY.name))
        return None

    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of all series."""
        del cancelled
        season, horizon = (cast(int, config[each.name]) for each in (SEASON_LENGTH, HORIZON))
        wanted = [
            _wanted(config, each, codes)
            for each, codes in ((ERRORS, _ERRORS), (TREND, _TRENDS), (SEASONALITY, _SEASONS))
        ]
        specs = [
            model for model in kernel.MODELS if all(part in some for part, some in zip(model, wanted, strict=True))
        ]
        found = kernel.fit(batch.y, batch.start, season, specs, horizon, str(config[CRITERION.name]))
        likely = np.where(np.isnan(found.loglik), 0.0, -found.loglik)
        # A mean without a model has no deviation, unless it is all that there is.
        unknown = (found.note == kernel.TOO_FEW) | (found.note == kernel.NO_CANDIDATE)
        deviation = np.where(unknown[:, None], np.nan, found.deviation)
        fitted = found.note == kernel.FITTED
        names = ["mean", *(f"ETS({','.join(model)})" for model in kernel.MODELS)]
        method = [names[place] for place in np.where(fitted, found.model + 1, 0).tolist()]
        sigma2 = np.where(unknown, np.nan, found.sigma2)
        parts = Parts(
            # A level without the others is the forecast.
            {"level": np.where(np.isnan(found.trend) & np.isnan(found.season), np.nan, found.level)}
            | {"trend": found.trend, "season": found.season},
            np.column_stack([found.model, found.parameters, sigma2]),
            found.final,
        )
        lacks_season = season > kernel.LONGEST_SEASON and config[SEASONALITY.name] != "none"
        note = np.where(fitted & lacks_season & (batch.sizes >= 2 * season), LONG_SEASON, found.note).astype(np.int8)
        return FittedSeries(
            found.fitted,
            found.mean,
            deviation,
            likely,
            found.converged,
            method,
            note,
            parts=parts,
            relative=fitted & np.array([error == "M" for error, *_ in kernel.MODELS])[found.model],
        )

    def continued(self, tensors: Tensors, horizon: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the forecasts of the model."""
        number, *parameters, sigma2 = known(tensors["parameters"])
        state, model = tensors["state"], kernel.MODELS[int(number)]
        has_trend = model.trend != "N"
        level, slope, seasons = state[:1], state[1 : 1 + has_trend], state[1 + has_trend :]
        is_whole = level.size and slope.size == has_trend and seasons.size <= kernel.LONGEST_SEASON
        if not is_whole or (seasons.size > 0) != (model.season != "N") or len(parameters) != 4:
            raise ValueError("other states than the model has")
        final = [*level, *(slope if has_trend else [np.nan]), *(seasons if seasons.size else [np.nan])]
        numbers = np.array([kernel.MODELS.index(model)])
        mean, deviation = kernel.forecast(
            len(final) - 2, numbers, np.array([parameters]), np.array([final]), np.array([sigma2]), horizon
        )
        return mean[0], deviation[0]


def _wanted(config: Config, parameter: Hyperparameter, codes: Mapping[str, str]) -> set[str]:
    """Return the codes of the parts that a config allows."""
    value = config[parameter.name]
    return set(codes.values()) if value == "auto" else {codes[str(value)]}
