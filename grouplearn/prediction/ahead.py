"""What ``forecast('model', row, horizon)`` returns: the steps after the end of the series of each row."""

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
from grouplearn.learners.series.batch import QUANTILES
from grouplearn.learners.series.series_learner import HORIZON, Forecaster
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.metrics.forecasts import LEVEL, UNKNOWN
from grouplearn.prediction.predictions import STEPS_TYPE
from grouplearn.prediction.rows.known_values import Codes

#: The fields of rows that say how many steps are asked for, and the level of their intervals.
_HORIZON, _LEVEL = "__grouplearn_horizon", "__grouplearn_level"
#: Series whose steps are kept while rows are read.
_KEPT = 4096


def with_horizon(rows: Any, horizons: Any, levels: Any = None) -> Any:
    """Return rows, a struct array, with the steps and the level that each asks for."""
    levels = pa.repeat(LEVEL, len(rows)) if levels is None else levels
    if not pa.types.is_struct(rows.type):
        return rows
    own = [pa.field(_HORIZON, pa.int64()), pa.field(_LEVEL, pa.float64())]
    columns = [rows.field(place) for place in range(rows.type.num_fields)]
    asked = [each.cast(field.type) for each, field in zip((horizons, levels), own, strict=True)]
    return pa.StructArray.from_arrays([*columns, *asked], fields=[*rows.type, *own], mask=rows.is_null())


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
        steps = stored if horizon is None else horizon
        if not 1 <= steps <= int(HORIZON.high or 0):
            raise data_error(f"horizon is a number of steps from 1 to {HORIZON.high:,}, not {steps}")
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
            raise data_error(
                f'model "{self.definition.name}" has forecasts of {stored} steps, and its learner needs rows to make more:'
                f" TRAIN ... WITH (horizon = {steps})"
            )
        return found


_NUMBERS = pa.list_(pa.float64())
_COLUMNS = {"last": pa.float64(), "mean": _NUMBERS, "deviation": _NUMBERS, "sampled": _NUMBERS}
