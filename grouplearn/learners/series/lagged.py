"""Learners of rows as learners of series: they learn a value from earlier ones, and forecast step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from grouplearn.data.shard import FloatArray, Shard
from grouplearn.learners.contract.config import SOLVER, Config, Conflict, Hyperparameter, Value
from grouplearn.learners.contract.control import Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.learner import Declaration, Learner
from grouplearn.learners.contract.optional import HasObjectives, RefusesConfigs
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SamplingLearner, SequentialLearner
from grouplearn.learners.series.batch import BoolArray, FittedSeries
from grouplearn.learners.series.lags import CALLS, DIFFERENCES, Differenced, LagFeatures
from grouplearn.learners.series.panel import SCALE, Panel, PanelLearner, Scaling
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import Forecast
from grouplearn.models.state import Artifact

STRATEGY = Hyperparameter(
    "strategy",
    "str",
    "recursive",
    "recursive: one model, which takes its own forecasts for later lags; direct: a model for each step of the horizon",
    "Ben Taieb & Hyndman 2012",
    choices=("recursive", "direct"),
)
#: Simulated paths of a series, and of all series of a group, from which deviations come.
_MOST_PATHS, _ALL_PATHS = 200, 200_000
#: Steps at the end of a series that measure its errors: at most this part of its values.
_JUDGED_PART = 4
#: Passes of networks by default: a series has few rows.
_EPOCHS = 100
#: The forecast of rows (n, d), by a model.
Model = Callable[[FloatArray], FloatArray]
#: How the names of such learners begin.
PREFIX = "lagged_"


class Lagged(PanelLearner):
    """A learner of rows that forecasts series: ŷ(t) = f(y(t - k) for each lag k, rolling statistics, features of step t).

    f learns the values as ``scale`` makes them, see ``panel.Scaling``: by default each series is standardized where a group has
    several. A value whose lags are missing does not train a learner
    that takes no missing features; a forecast takes the last value before for a missing lag.
    Deviations come from simulated paths
    with normal errors, which are as large as those of one-step forecasts of the last steps by a model that has not seen
    them; with ``strategy = 'direct'`` from the errors of each step's own model.
    Source: Ben Taieb & Hyndman 2012; Montero-Manso & Hyndman 2021.
    """

    def __init__(self, base: Learner) -> None:
        own = base.declaration
        self.base = base
        self._of_base = [each for each in own.hyperparameters if each.name != SOLVER]
        self.declaration = Declaration(
            name=f"{PREFIX}{own.name}",
            summary=f"{own.name} over earlier values and features known ahead",
            labels=frozenset({NUMBER}),
            output=Forecast,
            hyperparameters=(*CALLS.values(), DIFFERENCES, SCALE, STRATEGY, *self._of_base, SEASON_LENGTH, HORIZON),
            default_epochs=_EPOCHS if isinstance(base, SequentialLearner) else own.default_epochs,
            form="vectors",
            handles_missing=True,
            takes_series=True,
            takes_panel=True,
            requires=own.requires,
            refused=own.refused,
            cost=SeriesCost(base.cost.coefficients),
        )

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the values of a config contradict each other."""
        own = self._own(config)
        if isinstance(self.base, HasObjectives) and self.base.classifies(own):
            return Conflict("a forecast is a number, and this objective is for classes", ("objective",))
        if config[SCALE.name] == "standard" and self.base.link(own, NUMBER) == "exp":
            return Conflict("standardized values are negative, too, and forecasts are exp of a score", (SCALE.name,))
        return self.base.conflict(own) if isinstance(self.base, RefusesConfigs) else None

    def fit(self, problem: Problem, config: Config, panel: Panel, stop: Stop, gang: Gang | None = None) -> FittedSeries:
        """Return the forecasts of all series."""
        del gang
        return _Fit.of(self, problem, config, panel, stop).result()

    def trained(self, problem: Problem, config: Config, rows: Shard, stop: Stop) -> Artifact:
        """Return the base learner's model of rows."""
        own = [self._own(config)]
        state = self.base.init(problem, own)
        if isinstance(self.base, SamplingLearner):
            state, _ = self.base.boost(problem, own, state, rows, None, replace(stop, patience=None))
        elif isinstance(self.base, SequentialLearner):
            for epoch in range(problem.epochs):
                _look(stop)
                state = self.base.train(problem, own, state, rows, epoch)
        else:
            summing = cast(AlgebraicLearner, self.base)
            while not state.done.all():
                _look(stop)
                state = summing.step(problem, own, state, summing.accumulate(problem, own, state, rows))
        return self.base.finalize(problem, own, state, 0)

    def scale(self, config: Config, n_series: int) -> str:
        """Return how so many series are scaled; see ``panel.SCALE``."""
        if config[SCALE.name] != SCALE.default:
            return str(config[SCALE.name])
        if self.base.link(self._own(config), NUMBER) == "exp":
            return "mean" if n_series > 1 else "none"
        return "standard" if n_series > 1 or isinstance(self.base, SequentialLearner) else "none"

    def _own(self, config: Config) -> dict[str, Value]:
        return {each.name: config[each.name] for each in self._of_base}


def _look(stop: Stop) -> None:
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
class _Fit:
    """One config on the series of a panel: ``values`` are theirs, scaled, and what is learned of them; in ``filled`` missing
    ones have the value before."""

    learner: Lagged
    problem: Problem
    config: Config
    panel: Panel
    stop: Stop
    features: LagFeatures
    scaling: Scaling
    values: Differenced
    filled: Differenced

    @classmethod
    def of(cls, learner: Lagged, problem: Problem, config: Config, panel: Panel, stop: Stop) -> _Fit:
        series, differences = panel.series, cast("tuple[int, ...]", config[DIFFERENCES.name])
        scaling = Scaling.of(series, learner.scale(config, series.n_series))
        y = scaling.scaled(series)
        return cls(
            learner,
            problem,
            config,
            panel,
            stop,
            LagFeatures.of(config, cast(int, config[SEASON_LENGTH.name])),
            scaling,
            Differenced.of(series, y, differences),
            Differenced.of(series, series.filled(y), differences),
        )

    @property
    def direct(self) -> bool:
        return self.config[STRATEGY.name] == "direct"

    @property
    def horizon(self) -> int:
        return int(self.panel.ahead.shape[1])

    def result(self) -> FittedSeries:
        """Return the forecasts, and their deviations."""
        series, judged = self.panel.series, self._judged()
        models, errors, one_step = list[Model](), list[FloatArray](), np.empty(0)
        for step in range(1, self.horizon + 1 if self.direct else 2):
            rows = self._rows(step)
            models.append(self._model(rows, np.ones(series.y.size, np.bool_)))
            errors.append(self._error(self._model(rows, ~judged), rows, judged))
            one_step = self._one_step(models[0]) if step == 1 else one_step
        if self.direct:
            mean, _ = self._forecasts(models, None)
            deviation = np.stack(errors, axis=1)
        else:
            mean, deviation = self._forecasts(models, errors[0])
        fitted = self.scaling.undone(one_step, series.of)
        squares = np.where(np.isfinite(fitted) & np.isfinite(series.y), (series.y - fitted) ** 2, 0.0)
        loss = np.sqrt(np.bincount(series.of, squares, series.n_series) / np.maximum(series.sizes, 1))
        return FittedSeries(
            series.filled(fitted),  # models have finite numbers
            self.scaling.undone(mean, np.arange(series.n_series)[:, None]),
            deviation * self.scaling.factor[:, None],
            loss,
            np.ones(series.n_series, np.bool_),
        )

    def _judged(self) -> BoolArray:
        """Return which values (n,) measure errors: the last of each series."""
        series = self.panel.series
        held = np.minimum(self.horizon, series.sizes // _JUDGED_PART)
        place = np.arange(series.y.size) - series.start[:-1][series.of]
        return np.asarray(place >= (series.sizes - held)[series.of])

    def _rows(self, step: int, *, filled: bool = False) -> _Rows:
        """Return what is known ``step`` steps before each value, or is ``filled`` where it is missing."""
        values, series = self.filled if filled else self.values, self.panel.series
        learned = values.levels[-1]
        made = self.features.made(lambda lag: series.lagged(learned, lag + step - 1))
        x = np.column_stack([*made, self.panel.past])
        reach = self.features.reach + step - 1 + sum(self.values.differences)
        usable = np.isfinite(series.lagged(np.zeros(learned.size), reach))
        if not self.takes_missing:
            usable &= np.isfinite(x).all(axis=1)
        return _Rows(x, learned, usable, reach)

    def _model(self, rows: _Rows, used: BoolArray) -> Model:
        """Return a function that forecasts from such rows, learned from the ``used`` ones (n,)."""
        used = used & rows.usable & np.isfinite(rows.y) & np.isfinite(self.panel.series.y)
        if not used.any():
            raise Diverged(f"no step has all {rows.reach} values before it that its features need")
        x, y = np.ascontiguousarray(rows.x[used]), rows.y[used]
        problem = self._problem(x.shape[1])
        artifact = self.learner.trained(problem, self.config, Shard(x, y, np.ones(y.size)), self.stop)

        def forecast(x: FloatArray) -> FloatArray:
            _look(self.stop)
            found = self.learner.base.score(problem.label, artifact, np.ascontiguousarray(x))
            return np.asarray(found, np.float64).reshape(len(x), -1)[:, 0]

        return forecast

    @property
    def takes_missing(self) -> bool:
        """Whether the base learner takes missing features."""
        return self.learner.base.declaration.handles_missing

    def _problem(self, width: int) -> Problem:
        own, count = self.problem, self.features.count
        names = [f"lag{number}" for number in range(count)] + [f"x{number}" for number in range(width - count)]
        return Problem(
            NUMBER,
            width,
            seed=own.seed,
            epochs=own.epochs,
            categorical=tuple(each - 2 + count for each in own.categorical if each >= 2),
            items=tuple(FeatureBlock(name, 1) for name in names),
        )

    def _one_step(self, model: Model) -> FloatArray:
        """Return the forecast of each value from those before it, NaN where there are too few."""
        rows = self._rows(1, filled=True)
        found = np.full(rows.y.size, np.nan)
        if rows.usable.any():
            found[rows.usable] = model(rows.x[rows.usable])
        return self.filled.undone(found)

    def _error(self, model: Model, rows: _Rows, judged: BoolArray) -> FloatArray:
        """Return the root mean square of errors on judged values, (G,): of all series together, as they have few each."""
        judged = judged & np.isfinite(rows.y) & rows.usable
        error = rows.y[judged] - model(rows.x[judged]) if judged.any() else np.array([np.nan])
        return np.full(self.panel.series.n_series, np.sqrt(np.mean(error**2)))

    def _forecasts(self, models: Sequence[Model], error: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """Return the next values of each series (G, H), and their deviations in simulated paths with one-step errors of this size
        (G,), NaN if it is unknown."""
        count = self.panel.series.n_series
        error = np.full(count, np.nan) if error is None else error
        simulates = bool(np.isfinite(error).all())
        paths = int(np.clip(_ALL_PATHS // count, 20, _MOST_PATHS)) // 2 if simulates else 0
        random = np.random.Generator(np.random.PCG64(self.problem.seed))
        half = random.standard_normal((count, paths, self.horizon))
        noise = np.concatenate([np.zeros((count, 1, self.horizon)), half, -half], axis=1)
        found = self._paths(models, noise * (error[:, None, None] if simulates else 1.0))
        return found[:, 0], found[:, 1:].std(axis=1) if simulates else np.full((count, self.horizon), np.nan)

    def _paths(self, models: Sequence[Model], noise: FloatArray) -> FloatArray:
        """Return the next values of each series along paths, (G, paths, H), with ``noise`` of this shape added to each step."""
        count, paths, horizon = noise.shape
        histories = self.filled.histories(self.features.reach, paths)
        origin, found = histories[-1], []
        for step in range(horizon):
            now = origin if self.direct else histories[-1]
            ahead = np.repeat(self.panel.ahead[:, step], paths, axis=0)
            x = np.column_stack([*self.features.made(lambda lag, now=now: now[:, -lag]), ahead])  # type: ignore[misc]
            if not self.takes_missing and not np.isfinite(x).all():
                raise Diverged(
                    f"a feature is not known {step + 1} steps ahead: add rows of the steps to come to FROM, with a NULL label"
                )
            learned = models[step if self.direct else 0](x)
            found.append(self.filled.appended(histories, learned + noise[:, :, step].ravel()))
        return np.stack(found, axis=1).reshape(count, paths, horizon)
