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
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Boosted, Diverged, Gang, Interrupted, Stop
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import SamplingLearner
from grouplearn.learners.gang_sockets import joined, rows_of_all
from grouplearn.learners.series.batch import BoolArray, FittedSeries, IntArray, SeriesBatch
from grouplearn.learners.series.series_learner import HORIZON, SEASON_LENGTH, Forecaster, frequency_of, state_of
from grouplearn.models.state import State

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
            raise Diverged(_named(problem, count, number) + why)
        panel = cls(
            series,
            np.full((series.y.size, x.shape[1] - OWN), np.nan),
            np.full((count, horizon, x.shape[1] - OWN), np.nan),
        )
        panel._refuse_twice(problem, others)
        for rows in (others, x):
            panel._put(rows)
        return panel

    def _put(self, rows: FloatArray) -> None:
        """Write the features of rows at their steps; steps before the first value and beyond the horizon have no place."""
        of, place, known = self._places(rows)
        past = known & (place < self.series.sizes[of])
        self.past[self.series.start[of[past]] + place[past]] = rows[past, OWN:]
        ahead = known & ~past
        self.ahead[of[ahead], place[ahead] - self.series.sizes[of[ahead]]] = rows[ahead, OWN:]

    def _places(self, rows: FloatArray) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the series of rows, their steps after its first, and whether these are steps of the past or the horizon."""
        series = self.series
        known = (rows[:, 1] >= 0) & (rows[:, 1] < series.n_series)
        of = np.where(known, rows[:, 1], 0).astype(np.int64)
        place = rows[:, 0] - series.first[of]
        known &= (place >= 0) & (place == np.floor(place)) & (place < series.sizes[of] + self.ahead.shape[1])
        return of, np.where(known, place, 0).astype(np.int64), known

    def _refuse_twice(self, problem: Problem, rows: FloatArray) -> None:
        """Raise Diverged for two rows without a value of one step, which may know different features."""
        of, place, known = self._places(rows)
        seen, count = np.unique(np.stack([of[known], place[known]]), axis=1, return_counts=True)
        for number, step in seen[:, count > 1].T.tolist():
            time = frequency_of(problem).text(int(self.series.first[number]) + step)
            raise Diverged(
                f"{_named(problem, self.series.n_series, number)}rows without a label have the same time {time}:"
                " keep one of them, or name what tells series apart in GROUP BY or SERIES BY"
            )


def _named(problem: Problem, count: int, number: int) -> str:
    return "" if count == 1 else f"series {problem.series[number]}: "


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
