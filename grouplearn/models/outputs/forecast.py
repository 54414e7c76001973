"""A forecast: ``prediction`` with an interval from ``lower`` to ``upper``, for times in the past and in the future."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from grouplearn.models.metrics.forecasts import FORECASTS, UNKNOWN, WIDTH
from grouplearn.models.outputs.horizon import ANOMALIES, FITTED, FORECAST
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
    columns = [
        f"{mean} AS __grouplearn_s0",
        f"nullif(__grouplearn_deviation[greatest({at} - {past}, 1)], {UNKNOWN}) AS __grouplearn_s1",
        *(f"nullif(__grouplearn_scale[{number}], {UNKNOWN}) AS __grouplearn_s{number + 1}" for number in (1, 2)),
    ]
    return f"SELECT *, {', '.join(columns)} FROM ({place})"


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

    def select(self, scored: Scored) -> str:
        """Return the forecast with its interval of level 0.9; with ``judged`` the deviation and the scales."""
        low, high = (f"__grouplearn_s0 {sign} {WIDTH} * __grouplearn_s1" for sign in "-+")
        columns = [scored.head, "__grouplearn_s0 AS prediction", f"{low} AS lower", f"{high} AS upper"]
        if scored.judged:
            names = ("deviation", "scale", "scale_square")
            columns += [f"__grouplearn_s{number} AS {name}" for number, name in enumerate(names, start=1)]
        return f"SELECT {', '.join(columns)}, {scored.level} AS model_level FROM {scored.relation}"

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        """Return the field ``value`` and the ends of the interval."""
        del threshold
        deviation = f"{predicted}.predicted[1]"
        ends = [
            f"{predicted}.value {sign} {WIDTH} * {deviation} AS {name}"
            for sign, name in (("-", "lower"), ("+", "upper"))
        ]
        more = ("deviation", "scale", "scale_square") if judged else ()
        named = [
            f"nullif({predicted}.predicted[{number}], 'nan'::DOUBLE) AS {name}"
            for number, name in enumerate(more, start=1)
        ]
        return f"{predicted}.value AS prediction", *ends, *named

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
        others = list_array(outputs[:, 1:], np.full(len(outputs), 3), missing)
        return {"value": value, "prediction": value.cast(pa.string()), "predicted": others}

    def value(self) -> int | None:
        """Return the place of the mean."""
        return 0
