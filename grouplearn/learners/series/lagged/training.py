"""Trains a learner of rows on the series of a panel: what it sees, its models, and how far past forecasts were off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol, cast

import numpy as np

from grouplearn.amounts import counted
from grouplearn.data.shard import FloatArray, Shard
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.contract.control import Diverged, Interrupted, Stop
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.learners.series import methods
from grouplearn.learners.series.batch import BoolArray, FittedSeries, IntArray
from grouplearn.learners.series.lagged.features import DIFFERENCES, Differenced, LagFeatures, Origins
from grouplearn.learners.series.lagged.recursion import Kept, Model, Recursion, scoring
from grouplearn.learners.series.lagged.scaling import Scaling, deviations
from grouplearn.learners.series.panel import OWN, Panel
from grouplearn.learners.series.series_learner import SEASON_LENGTH, frequency_of
from grouplearn.models.label import NUMBER
from grouplearn.models.state import Artifact

STRATEGY = Hyperparameter(
    "strategy",
    "str",
    "recursive",
    "recursive: one model, which takes its own forecasts for later lags; direct: a model for each step of the horizon",
    "Ben Taieb & Hyndman 2012",
    choices=("recursive", "direct"),
)
#: Models that measure errors have seen these parts of each series, and forecast from the steps up to the next part.
_SEEN = (0.5, 0.75)
#: Steps from which such a model forecasts, of all series together, and values before them.
_MOST_ORIGINS, _MOST_VALUES = 20_000, 4_000_000


class TrainsRows(Protocol):
    """A learner of series by the rows of a ``base`` learner."""

    base: Learner

    def trained(self, problem: Problem, config: Config, rows: Shard, stop: Stop) -> Artifact:
        """Return the base learner's model of rows."""
        ...

    def scale(self, config: Config, n_series: int) -> str:
        """Return how so many series are scaled; see ``scaling.SCALE``."""
        ...


def look(stop: Stop) -> None:
    """Raise Interrupted if the user cancelled the statement."""
    if stop.cancelled():
        raise Interrupted


class _Rows(NamedTuple):
    """The features ``x`` (n, d) and what is learned ``y`` (n,) of all values; which are ``usable`` (n,), as they have ``reach``
    values before them, which their features need, and features that the base learner takes."""

    x: FloatArray
    y: FloatArray
    usable: BoolArray
    reach: int


@dataclass(frozen=True, slots=True)
class Fit:
    """One config on the series of a panel."""

    learner: TrainsRows
    problem: Problem
    config: Config
    panel: Panel
    stop: Stop
    recursion: Recursion

    @classmethod
    def of(cls, learner: TrainsRows, problem: Problem, config: Config, panel: Panel, stop: Stop) -> Fit:
        """Return how a config trains."""
        features = LagFeatures.of(config, cast(int, config[SEASON_LENGTH.name]))
        differences = cast("tuple[int, ...]", config[DIFFERENCES.name])
        recursion = Recursion(features, differences, direct=config[STRATEGY.name] == "direct")
        return cls(learner, problem, config, panel, stop, recursion)

    @property
    def features(self) -> LagFeatures:
        """What is made of earlier values."""
        return self.recursion.features

    @property
    def horizon(self) -> int:
        """The steps to come."""
        return int(self.panel.ahead.shape[1])

    @property
    def differences(self) -> tuple[int, ...]:
        """The steps between values whose difference is learned."""
        return self.recursion.differences

    @property
    def takes_missing(self) -> bool:
        """Whether the base learner takes missing features."""
        return self.learner.base.declaration.handles_missing

    def result(self) -> FittedSeries:
        """Return the forecasts, and their deviations."""
        series = self.panel.series
        trained = _Trained.of(self, np.ones(series.y.size, np.bool_))
        self._refuse_missing()
        mean = trained.forecasts(Origins.ends(series), self.panel.ahead)
        fitted = trained.one_step()
        squares = np.where(np.isfinite(fitted) & np.isfinite(series.y), (series.y - fitted) ** 2, 0.0)
        loss = np.sqrt(np.bincount(series.of, squares, series.n_series) / np.maximum(series.sizes, 1))
        return FittedSeries(
            series.filled(fitted),  # models have finite numbers
            mean,
            self._deviation(),
            loss,
            np.ones(series.n_series, np.bool_),
            note=np.full(1, methods.NO_SPLIT, np.int8) if trained.is_constant else None,
            kept=trained.kept.tensors(),
        )

    def _refuse_missing(self) -> None:
        """Raise if a feature of a step to come is missing that the base learner needs."""
        missing = np.argwhere(~np.isfinite(self.panel.ahead))
        if self.takes_missing or not missing.size:
            return
        of, step, column = missing[0].tolist()
        names = [item.name for item in self.problem.items for _ in range(item.width)]
        series = self.panel.series
        time = frequency_of(self.problem).text(int(series.first[of] + series.sizes[of]) + step)
        feature, ahead = names[column + OWN], counted(step + 1, "step")
        raise Diverged(
            f"the feature {feature} is NULL at {time}, {ahead} ahead: give the row of that step a value, or write impute(...)"
        )

    def _deviation(self) -> FloatArray:
        """Return the deviations of forecasts, (G, H), NaN where unknown."""
        series = self.panel.series
        place = np.arange(series.y.size) - series.start[:-1][series.of]
        first = self.features.reach + sum(self.differences)
        usable = np.maximum(series.sizes - first, 0)
        bounds = [first + (part * usable).astype(np.int64) for part in (*_SEEN, 1.0)]
        error, of = [np.empty((0, self.horizon))], [np.empty(0, np.int64)]
        most = min(_MOST_ORIGINS, _MOST_VALUES // first)
        for begin, end in pairwise(bounds):
            last = np.flatnonzero((place >= begin[series.of] - 1) & (place < end[series.of] - 1))
            last = last[:: 1 + last.size // most]
            if last.size:
                error.append(self._errors(place < begin[series.of], last))
                of.append(series.of[last])
        return deviations(np.concatenate(error), np.concatenate(of), self.scale(series.y).factor)

    def _errors(self, seen: BoolArray, last: IntArray) -> FloatArray:
        """Return the errors of forecasts of the values after ``last`` (m,), by a model of the values ``seen`` (n,), (m, H)."""
        series = self.panel.series
        try:
            trained = _Trained.of(self, seen)
        except Diverged:  # the whole series may still train a model
            return np.full((last.size, self.horizon), np.nan)
        origins = Origins(series, last + 1, series.of[last])
        places = origins.end[:, None] + np.arange(self.horizon)
        inside = places < series.start[1:][origins.of][:, None]
        places = np.where(inside, places, 0)
        ahead = np.where(inside[:, :, None], self.panel.past[places], np.nan)
        return np.where(inside, series.y[places], np.nan) - trained.forecasts(origins, ahead)

    def scale(self, y: FloatArray) -> Scaling:
        """Return how the series are scaled by values ``y`` (n,) of them."""
        return Scaling.of(self.panel.series, y, self.learner.scale(self.config, self.panel.series.n_series))


@dataclass(frozen=True, slots=True)
class _Trained:
    """The ``models`` of one step ahead, or of each of the horizon, of scaled values. In ``filled`` missing ones have the value
    before."""

    fit: Fit
    scaling: Scaling
    filled: Differenced
    models: Sequence[Artifact]

    @classmethod
    def of(cls, fit: Fit, seen: BoolArray) -> _Trained:
        """Return what is learned of the values ``seen`` (n,)."""
        series = fit.panel.series
        scaling = fit.scale(np.where(seen, series.y, np.nan))
        y = scaling.scaled(series)
        values = Differenced.of(series, y, fit.differences)
        steps = range(1, fit.horizon + 1 if fit.recursion.direct else 2)
        models = [_model(fit, _rows(fit, values, step), seen) for step in steps]
        return cls(fit, scaling, Differenced.of(series, series.filled(y), fit.differences), models)

    @property
    def kept(self) -> Kept:
        """What other forecasts from the ends of the series need."""
        origins = Origins.ends(self.fit.panel.series)
        return Kept(self.fit.recursion, self.scaling, self._last(origins), self.models)

    @property
    def is_constant(self) -> bool:
        """Whether trees have no split, though the values that they learn are not all the same."""
        rows = _rows(self.fit, self.filled, 1)
        y, x = rows.y[rows.usable], rows.x[rows.usable]
        return self.fit.takes_missing and bool(np.ptp(y) > 0) and bool(np.ptp(self._scoring[0](x)) == 0)

    def one_step(self) -> FloatArray:
        """Return the forecast of each value from those before it, (n,), NaN where there are too few."""
        rows = _rows(self.fit, self.filled, 1)
        found = np.full(rows.y.size, np.nan)
        if rows.usable.any():
            found[rows.usable] = self._scoring[0](rows.x[rows.usable])
        return self.scaling.undone(self.filled.undone(found), self.fit.panel.series.of)

    def forecasts(self, origins: Origins, ahead: FloatArray) -> FloatArray:
        """Return the next values from each of m origins, (m, H), with the features ``ahead`` (m, H, p)."""
        learned = self.fit.recursion.values(self._scoring, self._last(origins), ahead)
        return self.scaling.undone(learned, origins.of[:, None])

    def _last(self, origins: Origins) -> list[FloatArray]:
        return self.filled.histories(self.fit.recursion.steps, origins)

    @property
    def _scoring(self) -> list[Model]:
        return [scoring(self.fit.learner.base, each, lambda: look(self.fit.stop)) for each in self.models]


def _rows(fit: Fit, values: Differenced, step: int) -> _Rows:
    """Return what is known ``step`` steps before each value."""
    series, learned = fit.panel.series, values.levels[-1]
    made = fit.features.made(lambda lag: series.lagged(learned, lag + step - 1))
    x = np.column_stack([*made, fit.panel.past])
    reach = fit.features.reach + step - 1 + sum(values.differences)
    usable = np.isfinite(series.lagged(np.zeros(learned.size), reach))
    if not fit.takes_missing:
        usable &= np.isfinite(x).all(axis=1)
    return _Rows(x, learned, usable, reach)


def _model(fit: Fit, rows: _Rows, seen: BoolArray) -> Artifact:
    """Return a model of such rows, learned from those ``seen`` (n,) that can train."""
    used = seen & rows.usable & np.isfinite(rows.y)
    if not used.any():
        raise Diverged(_untrainable(fit))
    x, y = np.ascontiguousarray(rows.x[used]), rows.y[used]
    return fit.learner.trained(_problem(fit, x.shape[1]), fit.config, Shard(x, y, np.ones(y.size)), fit.stop)


def _untrainable(fit: Fit) -> str:
    """Return why no value trains."""
    longest = int(fit.panel.series.sizes.max(initial=0))
    others = sum(fit.differences) + (fit.horizon - 1 if fit.recursion.direct else 0)
    needed, largest = fit.features.reach + others, longest - 1 - others
    if needed < longest:
        return "no value has all its lags and features, as some are missing: gbdt and random_forest learn from missing ones, too"
    advice = f"the largest lag is {largest}" if largest > 0 else "give fewer differences, or a shorter horizon"
    have = f"the longest series has {counted(longest, 'step')} to train"
    return f"a value needs {counted(needed, 'step')} before it for its features, and {have}: {advice}"


def _problem(fit: Fit, width: int) -> Problem:
    """Return the problem of the base learner."""
    own, count = fit.problem, fit.features.count
    names = [f"lag{number}" for number in range(count)] + [f"x{number}" for number in range(width - count)]
    return Problem(
        NUMBER,
        width,
        seed=own.seed,
        epochs=own.epochs,
        categorical=tuple(each - 2 + count for each in own.categorical if each >= 2),
        items=tuple(FeatureBlock(name, 1) for name in names),
    )
