"""Many series of a group in arrays, with what is known of the steps to come; and learners of them all in one model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.learners.contract.access import BOOSTING, AccessPattern
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Boosted, Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import SamplingLearner
from grouplearn.learners.gang_sockets import joined, rows_of_all
from grouplearn.learners.series.batch import FittedSeries, IntArray, SeriesBatch
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, Forecaster, frequency_of, state_of
from grouplearn.models.state import State

SCALE = Hyperparameter(
    "scale",
    "str",
    "auto",
    "what is learned of each series: standard: (y - mean) / sd; mean: y / mean abs(y), so that effects of features are parts of"
    " y; none: y, so that effects are in units of y. auto: standard where a group has several series or the learner is mlp,"
    " mean where several have forecasts that are exp of a score (poisson_regression), else none",
    "Montero-Manso & Hyndman 2021",
    choices=("auto", "standard", "mean", "none"),
)
#: The least size of a series that it is divided by, as a part of the size of all.
_LEAST_PART = 1e-3
#: Feature columns before those of FEATURES: the step, and the number of the series.
OWN = 2


@dataclass(frozen=True, slots=True)
class Panel:
    """G series, with p features ``past`` (n, p) of their n values, and ``ahead`` (G, H, p) of the H steps after each.

    A feature is NaN where no row has it. Rows that do not train have features, and no value.
    """

    series: SeriesBatch
    past: FloatArray
    ahead: FloatArray

    @classmethod
    def of(cls, problem: Problem, x: Matrix, y: FloatArray, horizon: int) -> Panel:
        """Return the series of the rows that train, ``x`` (n, d) and ``y``; raises Diverged if there is a row twice."""
        others = np.empty((0, problem.n_features)) if problem.ahead is None else np.asarray(problem.ahead, np.float64)
        x = np.asarray(x, np.float64)
        count = int(x[:, 1].max(initial=-1)) + 1
        order = np.argsort(x[:, 1], kind="stable")
        x, y = x[order], y[order]
        start = np.searchsorted(x[:, 1], np.arange(count + 1))
        series, flaws = SeriesBatch.of_rows(x[:, 0], y, start, frequency_of(problem))
        if flaws:
            number, why = next(iter(flaws.items()))
            raise Diverged(why if count == 1 else f"series {problem.series[number]}: {why}")
        panel = cls(
            series,
            np.full((series.y.size, x.shape[1] - OWN), np.nan),
            np.full((count, horizon, x.shape[1] - OWN), np.nan),
        )
        for rows in (others, x):
            panel._put(rows)
        return panel

    def _put(self, rows: FloatArray) -> None:
        """Write the features of rows at their steps; steps before the first value and beyond the horizon have no place."""
        series = self.series
        known = (rows[:, 1] >= 0) & (rows[:, 1] < series.n_series)
        of = np.where(known, rows[:, 1], 0).astype(np.int64)
        place = rows[:, 0] - series.first[of]
        known &= (place >= 0) & (place == np.floor(place))
        past = known & (place < series.sizes[of])
        self.past[series.start[of[past]] + place[past].astype(np.int64)] = rows[past, OWN:]
        after = place - series.sizes[of]
        ahead = known & ~past & (after < self.ahead.shape[1])
        self.ahead[of[ahead], after[ahead].astype(np.int64)] = rows[ahead, OWN:]


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaled values of series: (y - ``shift``) / ``factor``, (G,) each.

    ``mean``: shift 0, factor mean |y|. ``standard``: shift mean y, factor the standard deviation. ``none``: 0 and 1. A factor
    is at least a thousandth of the mean factor of all series, so that a series of zeros among others stays small.
    """

    shift: FloatArray
    factor: FloatArray

    @classmethod
    def of(cls, series: SeriesBatch, y: FloatArray, how: str) -> Scaling:
        """Return how series are scaled by their values ``y`` (n,)."""
        known, count = np.isfinite(y), series.n_series
        of, y = series.of[known], y[known]
        sizes = np.maximum(np.bincount(of, minlength=count), 1)
        shift, factor = np.zeros(count), np.ones(count)
        if how == "mean":
            factor = np.bincount(of, np.abs(y), count) / sizes
        elif how == "standard":
            shift = np.bincount(of, y, count) / sizes
            factor = np.sqrt(np.bincount(of, (y - shift[of]) ** 2, count) / sizes)
        least = _LEAST_PART * factor.mean()
        return cls(shift, np.maximum(factor, least if least > 0 else 1.0))

    def scaled(self, series: SeriesBatch) -> FloatArray:
        """Return the values of series, (n,), scaled."""
        return (series.y - self.shift[series.of]) / self.factor[series.of]

    def undone(self, values: FloatArray, of: IntArray) -> FloatArray:
        """Return ``values``, which are scaled, of the series ``of``, as they were."""
        return values * self.factor[of] + self.shift[of]


#: So many errors that count as much as those of a series itself; fewer of a step do not measure it.
_OF_ALL, _FEWEST = 10, 2
#: (z² + 1) / 4 at the normal quantile of 0.95: how much a Student quantile is above it, for one degree of freedom.
_STUDENT = 0.926


def deviations(error: FloatArray, of: IntArray, factor: FloatArray) -> FloatArray:
    """Return the deviations of forecasts 1 to H steps ahead, (G, H), by the ``error`` (m, H) of past ones of series ``of`` (m,).

    That of step h is the root of the mean square of the errors, divided by ``factor`` (G,), of all series; times ``factor``, and
    for a series the root of the mean square of its own errors of one step, among ten of all series; times 1 + 0.926 / d, which
    makes of a normal quantile of 0.95 about that of Student's distribution with d = n / √h degrees of freedom, n the number of
    errors of step h, as errors of h steps overlap. A step with d < 2 has the deviation of the last other one, growing with √h.
    NaN if no error is known.
    """
    error = error / factor[of][:, None]
    square, count = np.where(np.isfinite(error), error**2, 0.0), np.isfinite(error).sum(axis=0)
    if not count[:1].any():
        return np.full((factor.size, error.shape[1]), np.nan)
    step = np.arange(1, count.size + 1)
    degrees = count / np.sqrt(step)
    mean = square.sum(axis=0) / np.maximum(count, 1)
    size = np.sqrt(mean) * (1 + _STUDENT / np.maximum(degrees, 1))
    measured = np.maximum.accumulate(np.where((degrees >= _FEWEST) | (step == 1), step, 0))
    size = size[measured - 1] * np.sqrt(step / measured)
    known = np.bincount(of, np.isfinite(error[:, 0]), factor.size)
    own = np.bincount(of, square[:, 0], factor.size) / (mean[0] or 1.0)
    own = (_OF_ALL + own) / (_OF_ALL + known)
    return np.asarray(factor[:, None] * np.sqrt(own)[:, None] * size)


class PanelLearner(Forecaster, SamplingLearner):
    """Forecasts all series of a group by one model, with features that are known ahead."""

    access: ClassVar[AccessPattern] = replace(BOOSTING, words="whole series", gang_waits=None)

    @abstractmethod
    def fit(self, problem: Problem, config: Config, panel: Panel, stop: Stop, gang: Gang | None = None) -> FittedSeries:
        """Return the forecasts of all series, equal for all members of a ``gang``.

        Raises Interrupted soon after ``stop.cancelled()`` became true.
        """

    def boost(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        shard: Shard | StoredShard,
        valid: Shard | StoredShard | None,
        stop: Stop,
        gang: Gang | None = None,
    ) -> tuple[State, Boosted]:
        """Return the models of all configs. The members of a gang begin by giving each other their rows."""
        del state, valid
        rows = shard.read()
        with nullcontext() if gang is None else joined(gang) as members:
            x, y = np.asarray(rows.x, np.float64), rows.y
            if members is not None:
                x, y = (rows_of_all(members, each) for each in (x, y))
            panel = Panel.of(problem, x, y, cast(int, configs[0][HORIZON.name]))
            scale, made, losses = panel.series.scale(cast(int, configs[0][SEASON_LENGTH.name])), [], []
            for config in configs:
                if stop.cancelled():
                    raise Interrupted
                fitted = self.fit(problem, config, panel, stop, members)
                made.append(fitted.tensors(panel.series, scale, 1))
                losses.append(float(np.mean(fitted.loss)))
        rounds = (1,) * len(configs)
        return state_of(made, losses), Boosted(rounds, ((),) * len(configs))
