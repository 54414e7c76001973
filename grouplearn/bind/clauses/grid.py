"""The grid of an inferred frequency: how many steps of all series have no row, and which time makes the steps so short."""

from __future__ import annotations

from calendar import day_name
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding.types import is_whole
from grouplearn.data.frequency import DAY_IN_MICROSECONDS, Frequency
from grouplearn.parser.statements import Sql

#: Steps per row from which a grid is none, and from which a note says so.
_NONE, _SPARSE = 10, 2
#: Rows that are too few to refuse their grid.
_FEW = 10
#: A time is far from the others if it is this many times as far as they are from each other.
_FAR = 2
#: The days of a week as bits, and the fewest days in which one that never has a row is no chance.
_WHOLE_WEEK, _LONG = 127, 56
#: Days of a month.
_MONTH = range(28, 32)
#: Whole numbers that may be dates: years from 1900 to 2099, their format and what they look like.
_DATES = (("%Y%m%d", 19_000_101, 20_991_231, "days"), ("%Y%m", 190_001, 209_912, "months"))


@dataclass(frozen=True, slots=True)
class Grid:
    """The times of ``source`` on the steps of a ``frequency``; ``keys`` tell its series apart. ``label`` is None if rows
    without one are of steps to come."""

    checker: SqlChecker
    source: tuple[str | Sql, ...]
    time: Sql
    frequency: Frequency
    keys: Sequence[Sql]
    label: Sql | None

    def doubts(self, kind: str) -> Iterator[str]:
        """Yield the notes that numbers look like dates, as 20240131 does, and that most steps have no row; raises if nearly all
        have none."""
        dates = self._dates() if is_whole(kind) else None
        if dates is not None:
            yield dates
        of = ", ".join(f"k{number}" for number in range(len(self.keys)))
        ends = "max(n) FILTER (known) AS last, max(n) FILTER (NOT known) AS unknown"
        is_daily = self.frequency.unit == "day" and self.frequency.every == 1
        day = f"isodow({self.frequency.time('n', 'TIMESTAMP')}) - 1" if is_daily else "0"
        week = f"bit_or(1 << ({day})::INTEGER) AS week"
        each = f"SELECT max(n) - min(n) + 1 AS steps, count(DISTINCT n) AS n_rows, {ends}, {week} FROM ("
        closed = f"FILTER (week <> {_WHOLE_WEEK} AND steps >= {_LONG})"
        counts = f"sum(steps), sum(n_rows), count(*) FILTER (unknown > last), count(*), count(*) {closed}, min(week) {closed}"
        read = (f"SELECT {counts} FROM ({each}", *self._steps(kind), f") GROUP BY {of or 'ALL'})")
        steps, rows, n_unknown, n_series, n_closed, week = self.checker.rows(*read)[0]
        if is_daily and n_closed:
            first = next(name for place, name in enumerate(day_name) if not week >> place & 1)
            which = (
                f"{n_closed:,} of {n_series:,} series {'has' if n_closed == 1 else 'have'}"
                if n_series > 1
                else "the series has"
            )
            yield f"{which} no row on any {first}, which is forecast all the same: add rows of 0 if nothing happens then"
        if n_unknown:
            yield f"at the end of {n_unknown} of {n_series} series, rows without a label count as steps to come"
        if steps is None or steps <= _SPARSE * rows:
            return
        why, usual = self._odd(kind)
        advice = self._advice(bool(why), int(usual))
        counts = f"{steps - rows:,.0f} of {steps:,.0f} steps of {self.frequency.words} have no row{why}"
        if steps > _NONE * max(rows, _FEW):
            hint = f"{advice[0].upper()}{advice[1:]}."
            message = f"the times have no common frequency: {counts}"
            raise self.checker.error(message, self.time.span, hint if dates is None else f"The {dates}.")
        if dates is None:
            yield f"{counts}: {advice}"

    def _advice(self, is_odd: bool, usual: int) -> str:
        """Return what can be done about steps without a row, with the ``usual`` steps between two times."""
        if is_odd:
            return f"mend or leave out such times, or give the step: WITH (frequency = {self._given(usual)})"
        own = f"keep the step by WITH (frequency = {self._given(1)})"
        if self.frequency.unit == "number":
            return own
        return f"bring times to longer steps, such as date_trunc('month', {self.time.text.strip()}), or {own}"

    def _dates(self) -> str | None:
        """Return that whole numbers look like dates, and what makes dates of them."""
        name = self.time.text.strip()
        tests = (
            f"bool_and(n BETWEEN {low} AND {high} AND try_strptime(CAST(n AS VARCHAR), '{style}') IS NOT NULL)"
            for style, low, high, _ in _DATES
        )
        read = f"SELECT {', '.join(tests)}, max(n), min(n) < max(n) FROM (SELECT ("
        *are_dates, last, several = self.checker.rows(read, self.time, ") AS n", *self.source, ")")[0]
        for is_date, (style, _, _, unit) in zip(are_dates, _DATES, strict=True):
            if is_date and several:
                way = f"ORDER BY strptime(CAST({name} AS VARCHAR), '{style}')"
                return f"numbers of {name} such as {last} look like {unit}, and count as numbers: {way}"
        return None

    def _given(self, steps: int) -> str:
        """Return a frequency of so many steps for WITH."""
        unit, size = self.frequency.unit, self.frequency.every * steps
        if unit == "microsecond" and size % DAY_IN_MICROSECONDS == 0:
            unit, size = "day", size // DAY_IN_MICROSECONDS
        if unit == "business_day":
            return "'business day'" if size == 1 else "INTERVAL 7 DAYS"
        if unit == "day" and size in _MONTH:
            unit, size = "month", 1
        words = Frequency(unit, size).words.upper()
        return words if unit == "number" else f"INTERVAL {words}"

    def _steps(self, kind: str) -> tuple[str | Sql, ...]:
        """Return the query of the step ``n`` of each row, and the keys of its series."""
        before, after = self.frequency.step(kind)
        keys = [piece for number, key in enumerate(self.keys) for piece in (", (", key, f") AS k{number}")]
        return (
            f"SELECT * FROM (SELECT {before}",
            self.time,
            f"{after} AS n",
            *keys,
            *([", (", self.label, ") IS NOT NULL AS known"] if self.label else [", true AS known"]),
            *self.source,
            ") WHERE isfinite(n)",
        )

    def _odd(self, kind: str) -> tuple[str, float]:
        """Return which time lies far from the others, or beside the steps of most; and the usual steps between two times."""
        distinct = ("SELECT DISTINCT n FROM (", *self._steps(kind), ")")
        ordered = "SELECT n, n - lag(n) OVER (ORDER BY n) AS gap FROM ("
        ends = "min(n), max(n), max(n) FILTER (n < most), min(n) FILTER (n > least), mode(gap)"
        bounds = "SELECT *, min(n) OVER () AS least, max(n) OVER () AS most FROM ("
        first, last, before, after, usual = self.checker.rows(
            f"SELECT {ends} FROM ({bounds}{ordered}", *distinct, ")))"
        )[0]
        if after is not None and after - first > _FAR * (last - after):
            return f", as {self._text(first, kind)} lies far before the others", usual
        if before is not None and last - before > _FAR * (before - first):
            return f", as {self._text(last, kind)} lies far after the others", usual
        found = self._beside(distinct, usual)
        odd = "" if found is None else f", as {self._text(found, kind)} lies beside the steps of most times"
        return odd, usual

    def _text(self, step: float, kind: str) -> str:
        """Return the time of a step as DuckDB shows it: it has years beyond 9999."""
        moment = self.frequency.time(f"{step:.0f}::BIGINT", kind)
        return str(self.checker.rows(f"SELECT CAST({moment} AS VARCHAR)")[0][0])

    def _beside(self, distinct: tuple[str | Sql, ...], usual: float) -> float | None:
        """Return the first step of the rarest places in longer steps, None if most times have no place in common."""
        moment = self.frequency.time("n", "TIMESTAMP") if self.frequency.unit != "number" else "n"
        places = {
            "day": [f"day({moment})", f"isodow({moment})"],
            "business_day": [f"isodow({moment})"],
        }.get(self.frequency.unit, [f"n % {usual}"])
        for place in places:
            counts = f"SELECT {place} AS place, count(*) AS count, min(n) AS n FROM ("
            read = "SELECT max(count) / sum(count), arg_min(n, count), count(*) FROM ("
            share, step, several = self.checker.rows(f"{read}{counts}", *distinct, ") GROUP BY place)")[0]
            if share >= 0.5 and several > 1:
                return float(step)
        return None
