"""Learners of rows as learners of series: they learn a value from earlier ones, and forecast step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import numpy as np

from grouplearn.amounts import counted
from grouplearn.data.shard import FloatArray, Shard
from grouplearn.learners.contract.config import SOLVER, Config, Conflict, Value
from grouplearn.learners.contract.control import Gang, Stop
from grouplearn.learners.contract.learner import Declaration, Learner
from grouplearn.learners.contract.optional import HasObjectives, RefusesConfigs, predicting
from grouplearn.learners.contract.pooling import POOLING
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SamplingLearner, SequentialLearner
from grouplearn.learners.series.batch import FittedSeries
from grouplearn.learners.series.lagged.features import CALLS, DIFFERENCES
from grouplearn.learners.series.lagged.recursion import Kept, without_models
from grouplearn.learners.series.lagged.scaling import SCALE
from grouplearn.learners.series.lagged.training import STRATEGY, Fit, look
from grouplearn.learners.series.panel import OWN, Panel, PanelLearner
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, SeriesCost
from grouplearn.models.label import NUMBER
from grouplearn.models.outputs.forecast import Forecast
from grouplearn.models.state import Artifact

#: Passes of networks by default: a series has few rows.
_EPOCHS = 100


class Lagged(PanelLearner):
    """A learner of rows that forecasts series: ŷ(t) = f(y(t - k) for each lag k, rolling statistics, features of step t).

    f learns the values as ``scale`` makes them, see ``scaling.Scaling``: by default each series is standardized where a group has
    several. A value whose lags are missing does not train a learner that takes no missing features; a forecast takes the last
    value before for a missing lag. Deviations come from the errors of forecasts from many steps of the past, by models that have
    seen the first half, or the first three quarters, of each series, see ``scaling.deviations``.
    Source: Ben Taieb & Hyndman 2012; Montero-Manso & Hyndman 2021.
    """

    takes_rows_ahead: ClassVar[bool] = True

    def __init__(self, base: Learner) -> None:
        own = base.declaration
        self.base = base
        # Its groups are not those of the base learner's rows.
        self._of_base = [each for each in own.hyperparameters if each.name not in (SOLVER, POOLING.name)]
        self.declaration = Declaration(
            name=own.name,
            summary=f"{own.name} over earlier values and features known ahead",
            labels=frozenset({NUMBER}),
            output=Forecast,
            hyperparameters=(*CALLS.values(), DIFFERENCES, SCALE, STRATEGY, *self._of_base, SEASON_LENGTH, HORIZON),
            default_epochs=_EPOCHS if isinstance(base, SequentialLearner) else own.default_epochs,
            form="vectors",
            handles_missing=True,
            needs_scaling=own.needs_scaling,
            takes_series=True,
            takes_panel=True,
            over_lags=True,
            requires=own.requires,
            refused=own.refused,
            cost=SeriesCost(base.cost.coefficients),
        )

    def conflict(self, config: Config) -> Conflict | None:
        """Return why the values of a config contradict each other."""
        own = self._own(config)
        if isinstance(self.base, HasObjectives) and self.base.classifies(own):
            return Conflict("a forecast is a number, and this objective is for classes", (self.base.objective_name,))
        if predicting(self.base, own) is not self.base:
            message = (
                f"{self.base.declaration.name} forecasts by no loss with a log link: USING poisson_regression does"
            )
            return Conflict(message, ("loss",))
        if config[SCALE.name] == "standard" and self.base.link(own, NUMBER) == "exp":
            return Conflict("standardized values are negative, too, and forecasts are exp of a score", (SCALE.name,))
        return self.base.conflict(own) if isinstance(self.base, RefusesConfigs) else None

    def validation_error(self, problem: Problem, artifact: Artifact) -> str | None:
        """Return how the tensors differ from those of series, and of the models that forecast them."""
        wrong = super().validation_error(problem, replace(artifact, tensors=without_models(artifact.tensors)))
        if wrong:
            return wrong
        horizon = artifact.tensors["mean"].size // artifact.tensors["first"].size
        try:
            kept = Kept.of(artifact.tensors)
        except ValueError as error:
            return str(error)
        return kept.validation_error(self.base, problem.n_features - OWN, horizon)

    def values_ahead(self, artifact: Artifact, series: int, ahead: FloatArray) -> FloatArray:
        """Return the values of the next steps of a series (H,), by the features ``ahead`` (H, p) of these steps."""
        missing = np.argwhere(~np.isfinite(ahead))
        if missing.size and not self.base.declaration.handles_missing:
            ahead_by = counted(int(missing[0, 0]) + 1, "step")
            raise ValueError(f"a feature is NULL, or there is no row, {ahead_by} ahead")
        return Kept.of(artifact.tensors).values(self.base, series, ahead)

    def fit(self, problem: Problem, config: Config, panel: Panel, stop: Stop, gang: Gang | None = None) -> FittedSeries:
        """Return the forecasts of all series."""
        del gang
        return Fit.of(self, problem, config, panel, stop).result()

    def trained(self, problem: Problem, config: Config, rows: Shard, stop: Stop) -> Artifact:
        """Return the base learner's model of rows."""
        own = [self._own(config)]
        state = self.base.init(problem, own)
        if isinstance(self.base, SamplingLearner):
            state, _ = self.base.boost(problem, own, state, rows, None, replace(stop, patience=None))
        elif isinstance(self.base, SequentialLearner):
            for epoch in range(problem.epochs):
                look(stop)
                state = self.base.train(problem, own, state, rows, epoch)
        else:
            summing = cast(AlgebraicLearner, self.base)
            while not state.done.all():
                look(stop)
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
