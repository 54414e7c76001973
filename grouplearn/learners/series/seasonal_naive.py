"""The learner ``seasonal_naive``: the value of a season before."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Declaration
from grouplearn.learners.series.batch import FittedSeries, IntArray, Parts, SeriesBatch, known
from grouplearn.learners.series.methods import CONSTANT, FITTED, NO_SEASON
from grouplearn.learners.series.series_learner import HORIZON, QUICK, SEASON_LENGTH, SeriesLearner
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import DecomposedForecast
from grouplearn.models.state import Tensors


class SeasonalNaive(SeriesLearner):
    """Forecasts ŷ(t + h) = y(t + h - m ⌈h / m⌉), m the season's length, with the deviation of one-step errors times √⌈h / m⌉.

    A season of 1 is the naive forecast, the last value. The value of the season before stands for a missing one.
    Source: Hyndman & Athanasopoulos 2021, 5.2 and 5.5.
    """

    declaration = Declaration(
        name="seasonal_naive",
        summary="the value of a season before: the forecast that others must beat",
        labels=frozenset({NUMBER}),
        output=DecomposedForecast,
        hyperparameters=(SEASON_LENGTH, HORIZON),
        form="vectors",
        handles_missing=True,
        takes_series=True,
        one_pass=True,
        cost=QUICK,
    )

    def fit(self, config: Config, batch: SeriesBatch, cancelled: Callable[[], bool]) -> FittedSeries:
        """Return the models of all series."""
        del cancelled
        season, horizon = (cast(int, config[each.name]) for each in (SEASON_LENGTH, HORIZON))
        # A shorter series has no value a season before: its last one is repeated.
        lag = np.where(batch.sizes > season, season, 1)
        known = batch.filled(batch.filled(batch.y, lag))
        fitted = batch.lagged(known, lag)
        error = batch.y - fitted
        judged = np.isfinite(error)
        count = np.bincount(batch.of[judged], minlength=batch.n_series)
        total = np.bincount(batch.of[judged], error[judged] ** 2, batch.n_series)
        sigma = np.sqrt(np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0))
        ahead = np.arange(1, horizon + 1)
        rounds = -(-ahead // lag[:, None])
        places = batch.start[1:, None] - lag[:, None] * rounds + ahead - 1
        mean = np.full(places.shape, np.nan) if not known.size else known[np.clip(places, 0, known.size - 1)]
        deviation = sigma[:, None] * np.sqrt(rounds)
        some = batch.sizes > 0
        loss, note = np.where(some, np.nan_to_num(sigma), np.nan), np.where(batch.sizes <= season, NO_SEASON, FITTED)
        if (sigma == 0).any():
            others = np.bincount(batch.of, known != known[batch.start[:-1][batch.of]], batch.n_series)
            note[(sigma == 0) & (others == 0)] = CONSTANT
        parts = Parts(
            {"season": np.where(lag[batch.of] > 1, fitted, np.nan)},
            np.column_stack([lag, sigma]),
            _last(known, batch, lag),
        )
        return FittedSeries(fitted, mean, deviation, loss, some, note=note.astype(np.int8), parts=parts)

    def continued(self, tensors: Tensors, horizon: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the last values again and again."""
        _, sigma = known(tensors["parameters"])
        last = tensors["state"]
        if not last.size:
            raise ValueError("no last values")
        rounds = 1 + np.arange(horizon) // last.size
        return np.resize(last, horizon), sigma * np.sqrt(rounds)


def _last(known: FloatArray, batch: SeriesBatch, lag: IntArray) -> FloatArray:
    """Return the last ``lag`` [g] of the values of each series, then NaN: (G, the greatest lag)."""
    place = np.arange(lag.max(initial=1))
    there = (place < lag[:, None]) & (batch.sizes > 0)[:, None]
    at = np.where(there, batch.start[1:, None] - lag[:, None] + place, known.size)
    return np.append(known, np.nan)[at]
