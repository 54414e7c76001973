"""What ``forecast`` returns: the steps after the end of the series of a row, or of a list of rows of the steps to come."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.dataset import FloatArray
from grouplearn.errors import data_error
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.series.batch import QUANTILES, IntArray
from grouplearn.learners.series.panel import OWN
from grouplearn.learners.series.series_learner import HORIZON, Forecaster
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.metrics.forecasts import LEVEL, UNKNOWN
from grouplearn.prediction.predictions import STEPS_TYPE
from grouplearn.prediction.rows.known_values import Codes
from grouplearn.sqltext import literal

#: The fields of rows that say how many steps are asked for, and the level of their intervals; and that of lists of rows.
_HORIZON, _LEVEL, _LIST = "__grouplearn_horizon", "__grouplearn_level", "__grouplearn_rows"
#: Series whose steps are kept while rows are read.
_KEPT = 4096


def with_horizon(rows: Any, horizons: Any = None, levels: Any = None) -> Any:
    """Return rows, or lists of rows, as a struct array with the steps and the level that each asks for."""
    levels = pa.repeat(LEVEL, len(rows)) if levels is None else levels
    horizons = pa.nulls(len(rows), pa.int64()) if horizons is None else horizons
    if pa.types.is_struct(rows.type):
        fields, columns = [*rows.type], [rows.field(place) for place in range(rows.type.num_fields)]
    elif pa.types.is_list(rows.type) and pa.types.is_struct(rows.type.value_type):
        fields, columns = [pa.field(_LIST, rows.type)], [rows]
    else:
        return rows
    own = [pa.field(_HORIZON, pa.int64()), pa.field(_LEVEL, pa.float64())]
    asked = [each.cast(field.type) for each, field in zip((horizons, levels), own, strict=True)]
    return pa.StructArray.from_arrays([*columns, *asked], fields=[*fields, *own], mask=rows.is_null())


def listed(rows: Any) -> tuple[Any, IntArray] | None:
    """Return the rows of lists one after another, and the list of each; None for rows that are no lists."""
    if rows.type.get_field_index(_LIST) < 0:
        return None
    lists = rows.field(_LIST)
    of = np.repeat(np.arange(len(lists)), lists.value_lengths().fill_null(0))
    flat = lists.flatten()
    known = flat.is_valid()
    return flat.filter(known), of[known.to_numpy(zero_copy_only=False)]


@dataclass(frozen=True, slots=True)
class StepsAhead:
    """Makes the steps after the series of a model's groups; raises DataError where they take training."""

    definition: ModelDefinition
    learner: Learner
    groups: Sequence[GroupModel]
    relation: str
    query: str

    @classmethod
    def of(cls, definition: ModelDefinition, learner: Learner, groups: Sequence[GroupModel]) -> StepsAhead:
        """Return those of a model; raises DataError if it is not of series."""
        relation = f"__grouplearn_ends_{uuid.uuid4().hex}"
        try:
            query = definition.output.steps_ahead(definition, relation)
        except ValueError as error:
            raise data_error(
                f'forecast is for models of series (ORDER BY), and model "{definition.name}" {error}'
            ) from None
        return cls(definition, learner, groups, relation, query)

    def read(self, con: duckdb.DuckDBPyConnection, rows: Any, group: Codes, series: Codes) -> Any:
        """Return the lists of the steps for rows of the series at these places of these groups, -1: of none."""
        found = functools.lru_cache(_KEPT)(self._of_series)
        horizons, levels = (rows.field(name) for name in (_HORIZON, _LEVEL))
        if any(not (each.is_valid and 0 < each.as_py() < 1) for each in levels.filter(group >= 0).unique()):
            raise data_error("level is a probability between 0 and 1")
        asked = zip(group.tolist(), series.tolist(), horizons.to_pylist(), strict=True)
        steps = [None if min(place, number) < 0 else found(place, number, horizon) for place, number, horizon in asked]
        return self._listed(con, steps, levels)

    def read_lists(
        self, con: duckdb.DuckDBPyConnection, rows: Any, of: IntArray, x: Sequence[tuple[int, FloatArray]]
    ) -> Any:
        """Return the lists of the steps for lists of rows of the steps to come: the place of the group of each of these rows, and
        its features, which are the rows of the list ``of`` [i]."""
        steps: list[dict[str, Any] | None] = [None] * len(rows)
        places, lists = [place for place, _ in x], rows.field(_HORIZON).to_pylist()
        for number in np.unique(of).tolist():
            own = np.flatnonzero(of == number).tolist()
            group = {places[row] for row in own}
            if len(group) > 1:
                raise data_error(
                    "the rows of a list are of one group: forecast('model', list(r)) ... GROUP BY its keys"
                )
            if min(group) >= 0:
                steps[number] = self._of_rows(min(group), np.array([x[row][1] for row in own]), lists[number])
        return self._listed(con, steps, rows.field(_LEVEL))

    def of_each(self, rows: Any, of: IntArray, x: Sequence[tuple[int, FloatArray]]) -> Any:
        """Return the forecast of each row of lists of the rows of series, by the features of all later rows; NULL for rows of the
        past and beyond the stored steps. The others are as in ``read_lists``."""
        mean = np.full(of.size, np.nan)
        for number in np.unique(of).tolist():
            own = np.flatnonzero(of == number)
            if (place := x[own[0]][0]) >= 0:
                mean[own] = self._of_later(place, np.array([x[row][1] for row in own.tolist()]))
        columns = {"prediction": pa.array(mean, mask=np.isnan(mean))}
        fields = [*STEPS_TYPE.value_type]
        each = [columns.get(field.name, pa.nulls(mean.size, field.type)) for field in fields]
        bounds = np.cumsum([0, *np.bincount(of, minlength=len(rows))]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(bounds), pa.StructArray.from_arrays(each, fields=fields)).cast(
            STEPS_TYPE
        )

    def _of_later(self, place: int, x: FloatArray) -> FloatArray:
        """Return the forecasts of rows with features ``x`` (n, d), of which a step without a row has those of the row before."""
        tensors = self.groups[place].artifact.tensors
        ends = tensors["first"] + tensors["size"] - 1
        found, number = np.full(len(x), np.nan), int(np.nan_to_num(x[0, 1], nan=-1.0))
        if not 0 <= number < ends.size:
            return found
        ahead = x[:, 0] - ends[number]
        later = np.isfinite(ahead) & (ahead >= 1) & (ahead <= tensors["mean"].size // ends.size)
        if later.any():
            steps = ahead[later].astype(np.int64)
            before = np.searchsorted(known := np.unique(steps), np.arange(1, steps.max() + 1), side="right") - 1
            rows = np.array([np.flatnonzero(steps == step)[0] for step in known])
            features = np.where((before >= 0)[:, None], x[later, OWN:][rows[before]], np.nan)
            found[later] = self._values(place, number, features)[steps - 1]
        return found

    def _values(self, place: int, series: int, ahead: FloatArray) -> FloatArray:
        """Return the values of the next steps of a series, by the features ``ahead`` (H, p)."""
        try:
            return cast(Forecaster, self.learner).values_ahead(self.groups[place].artifact, series, ahead)
        except ValueError as error:
            raise data_error(f'model "{self.definition.name}" cannot forecast these rows: {error}') from None

    def _of_rows(self, place: int, x: FloatArray, horizon: int | None) -> dict[str, Any] | None:
        """Return the end of a series and its forecasts by the features ``x`` (n, d) of steps to come."""
        artifact = self.groups[place].artifact
        series = np.unique(x[:, 1:2])
        if series.size > 1:
            raise data_error("the rows of a list are of one series: forecast('model', list(r)) ... GROUP BY its keys")
        number = int(np.nan_to_num(series, nan=-1.0)[0]) if series.size else 0
        ends = artifact.tensors["first"] + artifact.tensors["size"] - 1
        if not 0 <= number < ends.size:
            return None
        step = x[:, 0] - ends[number]
        later = np.isfinite(step) & (step > 0) & (step <= float(HORIZON.high or 0))
        count = int(step[later].max(initial=0)) if horizon is None else _checked(horizon)
        if count < 1 or np.unique(step[later]).size != later.sum():
            raise data_error("the rows of a list are of steps after the end of the series, one row per step")
        features = x[:, OWN:]
        ahead = np.full((count, features.shape[1]), np.nan)
        later &= step <= count
        ahead[step[later].astype(np.int64) - 1] = features[later]
        mean = self._values(place, number, ahead)
        stored = artifact.tensors["deviation"].reshape(ends.size, -1)[number]
        return {"last": ends[number], "mean": mean, "deviation": _grown(stored, count), "sampled": np.empty(0)}

    def _listed(self, con: duckdb.DuckDBPyConnection, steps: Sequence[dict[str, Any] | None], levels: Any) -> Any:
        """Return the lists of the steps of series, None where there is no series."""
        numbers = [number for number, each in enumerate(steps) if each is not None]
        table = pa.table(
            {
                "number": pa.array(numbers, pa.int64()),
                "level": levels.take(pa.array(numbers, pa.int64())),
                **{
                    name: pa.array([each[name] for each in steps if each is not None], kind)
                    for name, kind in _COLUMNS.items()
                },
            }
        )
        con.register(self.relation, table)
        try:
            listed = con.sql(self.query).to_arrow_table()
        finally:
            con.unregister(self.relation)
        places = np.full(len(steps), -1)
        places[listed.column(0).to_numpy()] = np.arange(listed.num_rows)
        return listed.column(1).combine_chunks().cast(STEPS_TYPE).take(pa.array(places, mask=places < 0))

    def _of_series(self, place: int, number: int, horizon: int | None) -> dict[str, Any] | None:
        """Return the end of a series and its forecasts, None if its group has no such series."""
        tensors = self.groups[place].artifact.tensors
        count = tensors["first"].size
        if number >= count:
            return None
        stored = tensors["mean"].size // count
        steps = stored if horizon is None else _checked(horizon)
        own = slice(number * stored, number * stored + min(steps, stored))
        mean, deviation = tensors["mean"][own], tensors["deviation"][own]
        if steps > stored:
            more = self._beyond(place, steps, stored)
            mean, deviation = (
                np.append(one, other[stored:]) for one, other in zip((mean, deviation), more, strict=True)
            )
        sampled = tensors.get(QUANTILES, np.empty(0)).reshape(count, -1)[number]
        last = tensors["first"][number] + tensors["size"][number] - 1
        return {
            "last": last,
            "mean": mean,
            "deviation": np.where(np.isnan(deviation), UNKNOWN, deviation),
            "sampled": sampled,
        }

    def _beyond(self, place: int, steps: int, stored: int) -> tuple[FloatArray, FloatArray]:
        learner = cast(Forecaster, self.learner)
        if (found := learner.continued(self.groups[place].artifact.tensors, steps)) is None:
            by_rows = (
                f" or forecast({literal(self.definition.name)}, list(r)) of rows r of these steps"
                * learner.takes_rows_ahead
            )
            raise data_error(
                f'model "{self.definition.name}" has forecasts of {stored} steps, and its learner needs rows to make more:'
                f" TRAIN ... WITH (horizon = {steps}){by_rows}"
            )
        return found


def _checked(horizon: int) -> int:
    if not 1 <= horizon <= int(HORIZON.high or 0):
        raise data_error(f"horizon is a number of steps from 1 to {HORIZON.high:,}, not {horizon}")
    return horizon


def _grown(deviation: FloatArray, horizon: int) -> FloatArray:
    """Return the deviations of so many steps: beyond those that are known, the last grows with the root of the step."""
    step, known = np.arange(1, horizon + 1), deviation.size
    found: FloatArray = deviation[np.minimum(step, known) - 1] * np.sqrt(np.maximum(step / known, 1.0))
    return np.where(found < 0, UNKNOWN, found)


_NUMBERS = pa.list_(pa.float64())
_COLUMNS = {"last": pa.float64(), "mean": _NUMBERS, "deviation": _NUMBERS, "sampled": _NUMBERS}
