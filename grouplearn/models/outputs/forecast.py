"""A forecast: ``prediction`` with an interval from ``lower`` to ``upper``, for times in the past and in the future."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from grouplearn.models.metrics.forecasts import COMPONENTS, DEVIATIONS, ENDED, FORECASTS, GRID, JUDGED, UNKNOWN
from grouplearn.models.outputs.horizon import (
    ANOMALIES,
    COMPONENTS_OF,
    DEMAND_ANOMALIES,
    DEMAND_FORECAST,
    ENDLESS_FORECAST,
    FITTED,
    FORECAST,
    SAMPLED_FORECAST,
    at_least_zero,
    steps_ahead_sql,
)
from grouplearn.models.outputs.output import PREDICT, BoolArray, Endpoint, Output, Scored, list_array
from grouplearn.models.outputs.vectors import FEATURES, VectorSql
from grouplearn.models.state import FloatArray

_PARTS = ("fitted", "mean", "deviation", "scale")
_GIVEN = {f"__grouplearn_{name}": f"v.{name}" for name in _PARTS} | {"__grouplearn_first": "v.fitted_value"}
#: The place of a row's series: the second feature is its number, from 0 on, in models of many series.
_SERIES = f"1 + coalesce(r.{FEATURES}[2], 0)"


def _scored(rows: str) -> str:
    """Return the query that adds the forecast of a row's step, its deviation and the scales."""
    step, first = f"{FEATURES}[1]", "__grouplearn_first"
    whole = f"CASE WHEN isfinite({step}) AND {step} = floor({step}) AND {step} >= {first} THEN {step} - {first} + 1 END"
    place = f"SELECT *, CAST({whole} AS BIGINT) AS __grouplearn_place FROM ({rows})"
    past, at = "len(__grouplearn_fitted)", "__grouplearn_place"
    mean = f"CASE WHEN {at} <= {past} THEN __grouplearn_fitted[{at}] ELSE __grouplearn_mean[{at} - {past}] END"
    size = f"abs(__grouplearn_fitted[{at}] / nullif(__grouplearn_mean[1], 0))"
    relative = f"CASE WHEN {at} <= {past} AND __grouplearn_scale[3] > 0 THEN {size} ELSE 1 END"
    columns = [
        f"{mean} AS __grouplearn_s0",
        f"nullif(__grouplearn_deviation[greatest({at} - {past}, 1)], {UNKNOWN}) * {relative} AS __grouplearn_s1",
        *(f"nullif(__grouplearn_scale[{number}], {UNKNOWN}) AS __grouplearn_s{number + 1}" for number in (1, 2)),
    ]
    return f"SELECT *, {', '.join(columns)} FROM ({place})"


def _sampled(rows: str) -> str:
    """Return the query that adds the quantiles, too: those of a past step are those of the first step to come, moved."""
    ahead = "__grouplearn_place - len(__grouplearn_fitted)"
    shift = f"CASE WHEN {ahead} < 1 THEN __grouplearn_s0 - __grouplearn_mean[1] WHEN {ahead} >= 1 THEN 0 END"
    columns = [
        f"{shift} + __grouplearn_quantiles[(greatest({ahead}, 1) - 1) * {len(GRID)} + {GRID.index(round(each, 2)) + 1}]"
        f" AS __grouplearn_s{number}"
        for number, each in enumerate(JUDGED, start=Forecast.n_scores)
    ]
    return f"SELECT *, {', '.join(columns)} FROM ({_scored(rows)})"


def _of_demand(rows: str) -> str:
    """Return the query that adds the quantiles of a normal distribution, at least 0, too."""
    mean = "__grouplearn_s0"
    columns = [
        f"{at_least_zero(f'({mean} + {at} * __grouplearn_s1)', mean)} AS __grouplearn_s{number}"
        for number, at in enumerate(DEVIATIONS, start=Forecast.n_scores)
    ]
    return f"SELECT *, {', '.join(columns)} FROM ({_scored(rows)})"


class Forecast(Output):
    """A score is the mean of the forecast, its standard deviation, and the two errors of the seasonal naive forecast.

    The distribution is normal: the ends of an interval lie a multiple of the deviation from the mean.
    """

    width = 4
    n_scores = 4
    shown = ("prediction", "lower", "upper")
    metrics = FORECASTS
    vectors = VectorSql((*_PARTS, "method"), _GIVEN, _scored, place=_SERIES)
    counted = MappingProxyType({"n_missing": "scale"})
    endpoints: tuple[Endpoint, ...] = (PREDICT, FORECAST, FITTED, ANOMALIES)

    def steps_ahead(self, definition: Any, relation: str) -> str:
        """Return the query of ``steps_ahead_sql``."""
        return steps_ahead_sql(definition, relation)

    def quantiles(self, scores: Sequence[str]) -> list[str]:
        """Return the SQL of the quantiles that metrics judge, over the SQL of ``scores``."""
        return [f"{scores[0]} + {at} * {scores[1]}" for at in DEVIATIONS]

    def select(self, scored: Scored) -> str:
        """Return the forecast with its interval of level 0.9; with ``judged`` the quantiles and the scales."""
        scores = [f"__grouplearn_s{number}" for number in range(self.n_scores)]
        columns = [scored.head, *self._columns(scores, judged=scored.judged)]
        return f"SELECT {', '.join(columns)}, {scored.level} AS model_level FROM {scored.relation}"

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``value`` and the ends of the interval."""
        del threshold
        others = (f"nullif({predicted}.predicted[{number}], 'nan'::DOUBLE)" for number in range(1, self.n_scores))
        return self._columns([f"{predicted}.value", *others], judged=judged)

    def held_out(self, outputs: Sequence[str], threshold: str) -> Sequence[tuple[str, str]]:
        """Return the forecast with its interval of level 0.9."""
        del threshold
        quantiles = self.quantiles(outputs)
        return [("prediction", outputs[0]), ("lower", quantiles[0]), ("upper", quantiles[-1])]

    def _columns(self, scores: Sequence[str], *, judged: bool) -> list[str]:
        quantiles = self.quantiles(scores)
        columns = [f"{scores[0]} AS prediction", f"{quantiles[0]} AS lower", f"{quantiles[-1]} AS upper"]
        if judged:
            columns += [
                f"[{', '.join(quantiles)}] AS quantiles",
                f"{scores[2]} AS scale",
                f"{scores[3]} AS scale_square",
            ]
        return columns

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        """Return the scores."""
        del classes
        return score

    def missing(self, outputs: FloatArray) -> BoolArray:
        """Return which rows (n,) have no forecast."""
        return np.isnan(outputs[:, 0])

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        """Return the mean, also as text, and the other scores as ``predicted``."""
        value = pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)
        others = list_array(outputs[:, 1 : self.n_scores], np.full(len(outputs), self.n_scores - 1), missing)
        return {"value": value, "prediction": value.cast(pa.string()), "predicted": others}

    def value(self) -> int | None:
        """Return the place of the mean."""
        return 0


class DecomposedForecast(Forecast):
    """A forecast that is made of a level, a trend and a season, or of some of them."""

    vectors = VectorSql((*_PARTS, "method", *COMPONENTS, *ENDED), _GIVEN, _scored, place=_SERIES)
    endpoints: tuple[Endpoint, ...] = (PREDICT, ENDLESS_FORECAST, FITTED, COMPONENTS_OF, ANOMALIES)


class SampledForecast(Forecast):
    """A score also has the quantiles that metrics judge, of a distribution of any form."""

    width = Forecast.width + len(JUDGED)
    n_scores = Forecast.n_scores + len(JUDGED)
    vectors = VectorSql(
        (*_PARTS, "quantiles"), {**_GIVEN, "__grouplearn_quantiles": "v.quantiles"}, _sampled, place=_SERIES
    )
    endpoints: tuple[Endpoint, ...] = (PREDICT, SAMPLED_FORECAST, FITTED, ANOMALIES)

    def steps_ahead(self, definition: Any, relation: str) -> str:
        """Return the query of ``steps_ahead_sql``."""
        return steps_ahead_sql(definition, relation, sampled=True)

    def quantiles(self, scores: Sequence[str]) -> list[str]:
        """Return the quantiles among the scores."""
        return [*scores[Forecast.n_scores :]]


class DemandForecast(SampledForecast):
    """The quantiles among the scores are those of a normal distribution, and none is below 0."""

    vectors = VectorSql((*_PARTS, "method", *COMPONENTS, *ENDED), _GIVEN, _of_demand, place=_SERIES)
    endpoints: tuple[Endpoint, ...] = (PREDICT, DEMAND_FORECAST, FITTED, COMPONENTS_OF, DEMAND_ANOMALIES)

    def steps_ahead(self, definition: Any, relation: str) -> str:
        """Return the query of ``steps_ahead_sql``."""
        return steps_ahead_sql(definition, relation, demand=True)
