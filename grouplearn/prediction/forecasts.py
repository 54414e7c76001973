"""The forecasts of a model's series beside their history, as numbers to be drawn."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.data.frequency import ZONED, Frequency
from grouplearn.models.forms.routed import ModelTables
from grouplearn.models.outputs.output import Endpoint
from grouplearn.prediction.history import rows_of_series
from grouplearn.prediction.macro import answered, parameters_of
from grouplearn.sqltext import literal

#: A ``datetime``, or a number where times are numbers.
Time = Any
Keys = tuple[str | None, ...]
_FORECAST, _FITTED = "_forecast", "_fitted"


@dataclass(frozen=True, slots=True)
class Series:
    """A series and its forecasts: (time, value) of the past, (time, mean) of the steps ahead, and their intervals.

    ``keys`` are the group and the series in it as text. ``intervals`` has (low, high) of each step for each level that was
    asked for, None if unknown. ``is_fitted``: the past is not the label but the model's forecast of one step ahead.
    """

    keys: Keys
    label: str
    past: Sequence[tuple[Time, float]]
    is_fitted: bool
    ahead: Sequence[tuple[Time, float]]
    intervals: Sequence[Sequence[tuple[float, float] | None]]

    @property
    def end(self) -> Time | None:
        """The time of the last row that the model learned from."""
        return max((time for time, _ in self.past if time < self.ahead[0][0]), default=None)


class Forecasts:
    """Reads the forecasts of a model of series on a connection.

    It runs the queries of the model's macros as we make them; the macros in a file could be anything.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, stored: StoredModel) -> None:
        self._connection, self._stored = connection, stored
        self._macros = {each.suffix: each for each in stored.definition.output.endpoints}
        self._time = stored.definition.items[0]

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, stored: StoredModel) -> Forecasts | None:
        """Return the forecasts of a model; None if it makes none."""
        exist = any(each.suffix == _FORECAST for each in stored.definition.output.endpoints)
        return cls(connection, stored) if exist else None

    @property
    def frequency(self) -> Frequency:
        """The step of the series."""
        return Frequency.of(self._time.item.options)

    @property
    def season_length(self) -> int:
        """The steps of a season, 1 if there is none."""
        found = [config.get("season_length") for config in self._stored.definition.configs]
        return int(next((each for each in found if isinstance(each, int)), self.frequency.season_length))

    @property
    def names(self) -> list[str]:
        """The names of the columns that tell series apart."""
        definition = self._stored.definition
        return [key.name for key in (*definition.keys, *definition.series)]

    def keys(self) -> list[Keys]:
        """Return the texts of the columns ``names`` for each series."""
        with self._macro(_FORECAST) as macro:
            query = f"SELECT {self._texts} FROM {self._aliased(macro, 1)}"
            return [tuple(row[0]) for row in self._connection.execute(query).fetchall()]

    def series(
        self, chosen: Sequence[Keys], levels: Sequence[float], horizon: int | None = None, past: int | None = None
    ) -> list[Series]:
        """Return some series with intervals of some levels, ``horizon`` steps ahead and the last ``past`` steps before."""
        ahead = self._ahead(chosen, levels, horizon)
        rows, is_fitted = self._past(chosen)
        found = []
        for keys in (keys for keys in chosen if keys in ahead):
            steps = ahead[keys]
            last, first = steps[-1][0], steps[0][0]
            times = [(time, value) for time, value in rows.get(keys, ()) if time <= last]
            before = sum(time < first for time, _ in times)
            most = past or max(4 * len(steps), 2 * self.season_length)
            found.append(
                Series(
                    keys,
                    _label(self.names, keys),
                    times[max(before - most, 0) :],
                    is_fitted,
                    [(time, mean) for time, mean, _ in steps],
                    [[_interval(ends, place) for _, _, ends in steps] for place in range(len(levels))],
                )
            )
        return found

    def _ahead(self, chosen: Sequence[Keys], levels: Sequence[float], horizon: int | None) -> dict[Keys, list[Any]]:
        """Return (time, mean, quantiles) of the steps of each series."""
        ends = [end for level in levels for end in ((1 - level) / 2, (1 + level) / 2)]
        found: dict[Keys, list[Any]] = {}
        with self._macro(_FORECAST) as macro:
            query = (
                f"SELECT {self._texts} AS series, {self._moment('moment')}, mean, quantiles"
                f" FROM {self._aliased(macro, horizon, ends)} WHERE mean IS NOT NULL AND {_AMONG} ORDER BY step"
            )
            for keys, *step in self._chosen(query, chosen):
                found.setdefault(tuple(keys), []).append(step)
        return found

    def _past(self, chosen: Sequence[Keys]) -> tuple[dict[Keys, list[tuple[Time, float]]], bool]:
        """Return (time, value) of the past of each series, and whether the values are fitted ones."""
        rows = rows_of_series(self._connection, self._stored, self._moment("moment"), chosen)
        is_fitted = not rows
        found: dict[Keys, list[tuple[Time, float]]] = {}
        for keys, time, value in rows or self._fitted(chosen):
            found.setdefault(tuple(keys), []).append((time, value))
        return found, is_fitted

    def _fitted(self, chosen: Sequence[Keys]) -> list[tuple[Any, ...]]:
        if _FITTED not in self._macros:
            return []
        with self._macro(_FITTED) as macro:
            columns = ", ".join([*self._aliases, "moment", "value"])
            query = (
                f"SELECT {self._texts} AS series, {self._moment('moment')}, value FROM {macro}() AS f({columns})"
                f" WHERE isfinite(value) AND {_AMONG} ORDER BY moment"
            )
            return self._chosen(query, chosen)

    def _chosen(self, query: str, chosen: Sequence[Keys]) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, {"chosen": [list(each) for each in chosen]}).fetchall()

    def _moment(self, column: str) -> str:
        """Return the SQL of a time as it is drawn: a timestamp, by the clock of the series' time zone, or a number."""
        if self.frequency.unit == "number":
            return f"CAST({column} AS DOUBLE)"
        zone = f"AT TIME ZONE {literal(self.frequency.zone)}" if self._time.type == ZONED else ""
        return f"CAST({column} {zone} AS TIMESTAMP)"

    @property
    def _aliases(self) -> list[str]:
        """Names of our own for the columns that tell series apart, as a key may be named like another column."""
        return [f"k{place}" for place in range(len(self.names))]

    @property
    def _texts(self) -> str:
        """The SQL of the list of these columns as text."""
        return f"CAST([{', '.join(f'CAST({name} AS VARCHAR)' for name in self._aliases)}] AS VARCHAR[])"

    def _aliased(self, macro: str, horizon: int | None, quantiles: Sequence[float] = (0.5,)) -> str:
        """Return the call of ``m_forecast`` with names of our own for its columns."""
        columns = ", ".join([*self._aliases, "step", "moment", "mean", "low", "high", "quantiles"])
        given = f"horizon := {literal(horizon)}, quantiles := {literal(list(quantiles))}"
        return f"{macro}({given}) AS f({columns})"

    @contextmanager
    def _macro(self, suffix: str) -> Iterator[str]:
        """Make a temporary macro of the query of one of the model's, and give its name."""
        endpoint: Endpoint = self._macros[suffix]
        catalog, definition = self._stored.location.catalog, self._stored.definition
        tables = ModelTables(definition, self._stored.id, lambda name: table(catalog, name))
        parameters, _ = parameters_of(definition, endpoint)
        name = f"__grouplearn_{uuid.uuid4().hex}"
        query = answered(endpoint, tables, "")
        self._connection.execute(f"CREATE TEMP MACRO {name}({', '.join(parameters)}) AS TABLE {query}")
        yield name
        self._connection.execute(f"DROP MACRO TABLE temp.{name}")


_AMONG = "series IN (SELECT unnest($chosen::VARCHAR[][]))"


def _label(names: Sequence[str], keys: Keys) -> str:
    """Return a series in one line: ``store = 3``."""
    shown = ("NULL" if key is None else key for key in keys)
    return ", ".join(f"{name} = {key}" for name, key in zip(names, shown, strict=True)) or "all rows"


def _interval(ends: Sequence[float | None], place: int) -> tuple[float, float] | None:
    low, high = ends[2 * place], ends[2 * place + 1]
    return None if low is None or high is None else (low, high)
