"""ORDER BY bound: the time of a series, its frequency as WITH gives it or as the times show it, its season and horizon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grouplearn import sqltext
from grouplearn.bind.bound import BoundKey, Holdout, Series
from grouplearn.bind.clauses.grid import Grid
from grouplearn.bind.clauses.search import searched
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.encoding.categories.ordinal import Ordinal
from grouplearn.data.encoding.numbers.time_step import Step
from grouplearn.data.encoding.types import column_of, is_whole
from grouplearn.data.frequency import DAY_IN_MICROSECONDS, ZONED, Frequency, Unit
from grouplearn.learners.contract.config import Value
from grouplearn.learners.contract.learner import Learner
from grouplearn.messages import Span
from grouplearn.parser.statements import (
    Feature,
    Name,
    Option,
    Sql,
    TrainModel,
    ValidateFolds,
    ValidateRolling,
    ValidateSample,
    ValidateWhere,
)

SEASON, HORIZON = "season_length", "horizon"
#: The horizon of series without a season.
_HORIZON = 10
#: Seasons of steps that are shorter: a day, an hour, a minute, a second, in microseconds.
_SEASONS = (DAY_IN_MICROSECONDS, 3_600_000_000, 60_000_000, 1_000_000)
#: The longest of them in steps: the default horizon has two.
_LONGEST_SEASON = 5_000
#: Options about the label and the weight of rows.
_OF_ROWS = ("weight", "class_weight", "positive_class", "task")
#: Distinct working days from which a series without weekends is one of business days.
_WORKING_DAYS = 6
_GCD = "coalesce(list_reduce(list({0} - least_{0}), lambda a, b: gcd(a, b)), 0)"
_TEXTS = "Cast it: ORDER BY CAST({0} AS DATE) for texts such as 2026-01-31, strptime({0}, '%d.%m.%Y') for 31.01.2026."
#: What makes a time of values of other types.
_HINTS = {
    "VARCHAR": _TEXTS,
    "DOUBLE": "Count steps in whole numbers: ORDER BY CAST({0} AS BIGINT), or to_timestamp({0}) for seconds since 1970.",
    "TIME": "Add the day: ORDER BY day + {0}.",
}


@dataclass(frozen=True)
class SeriesBinder:
    """Binds ORDER BY of a statement over ``source``, its FROM and WHERE."""

    checker: SqlChecker
    statement: TrainModel
    learner: Learner
    source: tuple[str | Sql, ...]

    def bind(
        self,
        given: Sql | Frequency | None,
        keys: tuple[BoundKey, ...],
        groups: tuple[BoundKey, ...],
        label: Sql | None,
    ) -> Series | None:
        """Return the series, None if the learner takes rows in any order.

        ``given`` is the frequency in WITH, or of the model that is refreshed, ``keys`` those of SERIES BY, ``groups`` of GROUP
        BY; ``label`` the SQL of the label.
        """
        own, statement, time = self.learner.declaration, self.statement, self.statement.order_by
        self._refuse_clauses()
        if not own.takes_series:
            if isinstance(given, Sql):
                raise self.checker.error(f"{own.name} learns no series, so it takes no frequency", given.span)
            return None
        if time is None:
            message = f"{own.name} learns a series, and the statement has no ORDER BY clause"
            raise self.checker.error(
                message, statement.learner.span, "Add ORDER BY <time>: the column that orders rows."
            )
        described = self.checker.describe("SELECT (", time, ")", *self.source)
        if len(described) != 1 or not Step().takes(column_of(described[0].type)):
            kind = described[0].type if len(described) == 1 else f"{len(described)} columns"
            message = f"ORDER BY takes a DATE, a TIMESTAMP or a whole number, and this is {kind}"
            raise self.checker.error(message, time.span, _cast_hint(kind, time.text.strip()))
        kind = described[0].type
        if isinstance(given, Frequency):
            return Series(time, given, keys)
        frequency = self._frequency(time, kind, given)
        season = self._season_length(time, frequency)
        if given is not None:
            return Series(time, frequency, keys, season)
        told = label if statement.features is None else None
        grid = Grid(self.checker, self.source, time, frequency, [key.extract for key in (*groups, *keys)], told)
        return Series(time, frequency, keys, season, tuple(grid.doubts(kind)), inferred=True)

    def features(self, series: Series) -> tuple[Feature, ...]:
        """Return the features: the step of the time; of a panel also the series of a row, and those of FEATURES."""
        span, options = series.time.span, series.frequency.options
        call = tuple(Option(Name(name, span), Sql(sqltext.literal(value), span)) for name, value in options.items())
        step = Feature((series.time,), Name(Step.name, span), call, span=span)
        if not self.learner.declaration.takes_panel:
            return (step,)
        parts = [(types.as_key_text(key.stored.type), key.extract.text) for key in series.keys]
        texts = ", ".join(f"{before}{text}\n{after}" for (before, after), text in parts)
        span = series.keys[0].extract.span if series.keys else span
        keys = Sql(f"CAST(CAST([{texts}] AS VARCHAR[]) AS VARCHAR)", span)
        number = Feature((keys,), Name(Ordinal.name, span), alias=Name("series"), span=span)
        return step, number, *(self.statement.features or ())

    def defaults(self, series: Series, fixed: Mapping[str, Value], holdout: Holdout | None) -> dict[str, Value]:
        """Return the season and the horizon, where the statement gives none; a horizon reaches as far as windows are judged."""
        season, horizon = int(str(fixed.get(SEASON) or series.season_length)), fixed.get(HORIZON)
        reach = holdout.split.horizon + holdout.split.gap if holdout else 0
        if horizon is None:
            return {SEASON: season, HORIZON: max(reach, 2 * season if season > 1 else _HORIZON)}
        if int(str(horizon)) < reach and isinstance(self.statement.validation, ValidateRolling):
            message = f"VALIDATE ROLLING judges forecasts of {reach} steps, and the model has {horizon}"
            raise self.checker.error(message, self.statement.validation.horizon.span, f"WITH (horizon = {reach}).")
        return {SEASON: season}

    def judged(self, series: Series, fixed: Mapping[str, Value]) -> int:
        """Return how many steps at the end judge without VALIDATE: the horizon if it is given, else a season."""
        given = any(option.name.value.casefold() == HORIZON for option in self.statement.options)
        season = int(str(fixed.get(SEASON) or series.season_length))
        return int(str(fixed[HORIZON])) if given or season == 1 else season

    def _refuse_clauses(self) -> None:
        """Raise for a clause or an option that does not go with ORDER BY, or with its absence."""
        for message, span, hint in self._of_series() if self.learner.declaration.takes_series else self._of_rows():
            raise self.checker.error(message, span, hint)

    def _of_rows(self) -> Iterator[tuple[str, Span, str]]:
        name, statement = self.learner.declaration.name, self.statement
        if statement.order_by is not None:
            message = f"{name} learns from rows in any order, and ORDER BY makes them a series"
            hint = "Leave ORDER BY out; VALIDATE ROLLING 3 BY <time> HORIZON 7 judges by later rows."
            yield message, statement.order_by.span, hint
        if statement.series_by is not None:
            message = "SERIES BY tells series apart, and the rows have no order"
            yield message, statement.series_by.text.span, "Add ORDER BY <time>: the column that orders rows."

    def _of_series(self) -> Iterator[tuple[str, Span, str]]:
        name, statement = self.learner.declaration.name, self.statement
        panel = self.learner.declaration.takes_panel
        if statement.series_by is not None and not panel:
            message = f"{name} learns one series per group, and SERIES BY gives a group many"
            yield message, statement.series_by.text.span, "Write the columns in GROUP BY."
        if statement.group_by is not None and len(statement.group_by.sets) > 1:
            hint = "Write GROUP BY without ROLLUP, CUBE and GROUPING SETS."
            yield "a series is a group of one level", statement.group_by.text.span, hint
        if isinstance(statement.validation, ValidateSample | ValidateFolds | ValidateWhere):
            message = f"{name} learns a series, whose steps cannot be held out from the middle"
            hint = "VALIDATE ROLLING 3 HORIZON 12 judges the last steps; without VALIDATE the last season does."
            yield message, statement.learner.span, hint
        if statement.features is not None and not panel:
            message = f"{name} learns from earlier values of the label alone, and FEATURES names others"
            yield message, statement.features[0].span, "Leave FEATURES out."
        for option in statement.options:
            if option.name.value.casefold() in _OF_ROWS:
                message = f"{name} learns a series of numbers, whose steps count alike"
                yield message, option.name.span, f"Leave {option.name.value} out."
        for searching in searched(statement.search) if statement.search else ():
            if (given := searching.value.casefold()) in (SEASON, HORIZON):
                message = f"{given} is one for all configurations, so that they are judged alike"
                yield message, searching.span, f"Give it once: WITH ({given} = 12)."

    def _frequency(self, time: Sql, kind: str, given: Sql | None) -> Frequency:
        """Return the frequency in WITH, or the widest grid on which all times lie."""
        if is_whole(kind):
            return self._of_numbers(time, given)
        zone = str(self.checker.rows("SELECT current_setting('TimeZone')")[0][0]) if kind == ZONED else "UTC"
        seen = self._seen(time, kind, zone)
        instants = self._seen(time, kind, "UTC") if zone != "UTC" else seen
        if instants.days > seen.days:
            seen, zone = instants, "UTC"
        if given is not None:
            return self._as_given(given, seen, instants, zone)
        unit: Unit
        if seen.is_monthly:
            unit, every, first = "month", seen.every_months, seen.first_month
        elif not seen.is_daily:
            unit, every, first = "microsecond", instants.every_microseconds, instants.first_microsecond
        elif seen.every_days == 1 and not seen.has_weekends and seen.n_times >= _WORKING_DAYS:
            return Frequency("business_day", zone=zone, time_of_day=seen.time_of_day)
        else:
            unit, every, first = "day", seen.every_days, seen.first_day
        return _aligned(unit, every, first, seen, zone)

    def _season_length(self, time: Sql, frequency: Frequency) -> int:
        """Return the steps of the usual season: of steps shorter than a day, of the longest that the times have twice."""
        if frequency.unit != "microsecond":
            return frequency.season_length
        times = ("FROM (SELECT (", time, ") AS t", *self.source, ") WHERE isfinite(t)")
        span = self.checker.rows("SELECT coalesce(max(epoch_us(t)) - min(epoch_us(t)), 0) ", *times)[0][0]
        most = min((span // frequency.every + 1) // 2, _LONGEST_SEASON)
        found = (size // frequency.every for size in _SEASONS if size % frequency.every == 0)
        return next((each for each in found if each <= most), 1)

    def _of_numbers(self, time: Sql, given: Sql | None) -> Frequency:
        times = ("FROM (SELECT DISTINCT CAST((", time, ") AS BIGINT) AS n", *self.source, ") WHERE n IS NOT NULL")
        every = f"{_GCD.format('n')}, min(n)"
        least = ("SELECT *, min(n) OVER () AS least_n", *times)
        found, first = self.checker.rows(f"SELECT {every} FROM (", *least, ")")[0]
        if given is not None:
            value = self.checker.constant(given)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                message = f"the frequency of whole numbers is a whole number, at least 1, got {sqltext.shown(value)}"
                raise self.checker.error(message, given.span)
            return Frequency("number", value, (first or 0) % value)
        return Frequency("number", max(1, found), (first or 0) % max(1, found))

    def _seen(self, time: Sql, kind: str, zone: str) -> _Times:
        """Return what the distinct times of all groups show."""
        at = f" AT TIME ZONE {sqltext.literal(zone)}" if kind == ZONED else ""
        distinct = ("SELECT DISTINCT (", time, ") AS moment", *self.source)
        numbers = {"month": "date_diff('month', DATE '1970-01-01', t)", "day": "date_diff('day', DATE '1970-01-01', t)"}
        numbers["microsecond"] = "epoch_us(t)"
        columns = ", ".join(f"{sql} AS {unit}, min({sql}) OVER () AS least_{unit}" for unit, sql in numbers.items())
        times = (f"SELECT moment, moment{at} AS t FROM (", *distinct, ") WHERE isfinite(moment)")
        # Some clocks are put forward at midnight, and the day begins at 1:00.
        clock = "mode(epoch_us(t) - epoch_us(date_trunc('day', t))) OVER () AS clock, max(day(t)) OVER () AS latest"
        rows = (f"SELECT moment, t, {clock}, {columns} FROM (", *times, ")")
        read = [
            "count(*)",
            f"coalesce(bool_and(moment = (CAST(t AS DATE) + to_microseconds(clock)){at}), true)",
            "coalesce(any_value(clock), 0)",
            "coalesce(bool_and(day(t) = least(latest, day(last_day(t)))), false)",
            "coalesce(bool_and(CAST(t AS DATE) = last_day(t)), false)",
            "coalesce(any_value(latest), 1)",
            "coalesce(bool_or(isodow(t) > 5), false)",
            *(part for unit in numbers for part in (_GCD.format(unit), f"coalesce(min({unit}), 0)")),
        ]
        return _Times(*self.checker.rows(f"SELECT {', '.join(read)} FROM (", *rows, ")")[0])

    def _as_given(self, given: Sql, seen: _Times, instants: _Times, zone: str) -> Frequency:
        text = given.text.strip().strip("'").casefold().replace("_", " ")
        if text in ("business day", "business days", "1 business day"):
            return Frequency("business_day", zone=zone, time_of_day=seen.time_of_day)
        parts = [f"date_part('{part}', i)" for part in ("year", "month", "day")]
        clock = "epoch_us(i - to_months(CAST(12 * y + m AS INTEGER)) - to_days(CAST(d AS INTEGER)))"
        cast = "CASE WHEN typeof(v) IN ('INTERVAL', 'VARCHAR') THEN TRY_CAST(CAST(v AS VARCHAR) AS INTERVAL) END"
        interval = (f"SELECT {cast} AS i FROM (SELECT (", given, ") AS v)")
        named = f"SELECT i, {parts[0]} AS y, {parts[1]} AS m, {parts[2]} AS d FROM ("
        found = f"SELECT coalesce(12 * y + m, 0), coalesce(d, 0), coalesce({clock}, 0) FROM ({named}"
        months, days, rest = self.checker.rows(found, *interval, "))")[0]
        days, rest = (0, rest + days * DAY_IN_MICROSECONDS) if rest else (days, rest)
        sizes: dict[Unit, int] = {"month": months, "day": days, "microsecond": rest}
        positive = [unit for unit, size in sizes.items() if size > 0]
        if len(positive) != 1 or min(sizes.values()) < 0:
            message = "a frequency is a positive interval of months, of days or of a time of day"
            raise self.checker.error(
                message, given.span, "For example INTERVAL 1 MONTH, INTERVAL 7 DAYS, 'business day'."
            )
        unit = positive[0]
        counted = instants if sizes["microsecond"] % DAY_IN_MICROSECONDS else seen
        first = {"month": seen.first_month, "day": seen.first_day, "microsecond": counted.first_microsecond}[unit]
        return _aligned(unit, sizes[unit], first, seen, zone)


def _cast_hint(kind: str, time: str) -> str | None:
    floating = "DOUBLE" if types.has_fractions(kind) else kind
    found = next((hint for begin, hint in _HINTS.items() if floating.startswith(begin)), None)
    return None if found is None or floating.startswith("TIMESTAMP") else found.format(time)


@dataclass(frozen=True, slots=True)
class _Times:
    """Distinct times: the widest steps in months, days and microseconds on whose grid all lie, and the first of each.

    ``is_daily``: all have the same ``time_of_day``; ``on_one_day``: of months they have the same day, or the last.
    """

    n_times: int
    is_daily: bool
    time_of_day: int
    on_one_day: bool
    at_month_ends: bool
    latest_day: int
    has_weekends: bool
    every_months: int
    first_month: int
    every_days: int
    first_day: int
    every_microseconds: int
    first_microsecond: int

    @property
    def days(self) -> tuple[bool, bool]:
        """Whether all times are days, and begin at midnight."""
        return self.is_daily, self.is_daily and self.time_of_day == 0

    @property
    def is_monthly(self) -> bool:
        """Whether all times are the same day of months, or their last."""
        return self.is_daily and self.n_times > 1 and self.on_one_day


def _aligned(unit: Unit, every: int, first: int, seen: _Times, zone: str) -> Frequency:
    """Return the frequency whose grid has the first time."""
    every, day = max(1, every), 31 if seen.at_month_ends else seen.latest_day
    return Frequency(unit, every, first % every, day, zone, 0 if unit == "microsecond" else seen.time_of_day)
