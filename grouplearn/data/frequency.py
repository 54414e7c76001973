"""The frequency of a series: times as whole numbers of steps, and back, in SQL and as text."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from grouplearn.sqltext import literal

Unit = Literal["month", "day", "business_day", "microsecond", "number"]
UNITS: tuple[Unit, ...] = get_args(Unit)
#: With time zone.
ZONED = "TIMESTAMP WITH TIME ZONE"
DAY_IN_MICROSECONDS = 86_400_000_000
#: The most microseconds from one unit to the next.
_LONGEST = {"month": 31 * DAY_IN_MICROSECONDS, "day": DAY_IN_MICROSECONDS, "business_day": 3 * DAY_IN_MICROSECONDS}
_EPOCH, _MONDAY = "DATE '1970-01-01'", "DATE '1970-01-05'"


@dataclass(frozen=True, slots=True)
class Frequency:
    """A step is ``every`` units long; step 0 is ``offset`` units after 1970-01-01, of business days after 1970-01-05.

    ``day`` is the day at which a month's step lies, the last one in shorter months; ``time_of_day`` the time at which steps of
    whole days lie, in microseconds. ``zone`` is the time zone in which timestamps with time zone have months and days; shorter
    steps are of UTC, as clocks are put back and forward.
    """

    unit: Unit = "day"
    every: int = 1
    offset: int = 0
    day: int = 1
    zone: str = "UTC"
    time_of_day: int = 0

    @classmethod
    def of(cls, options: Iterable[tuple[str, Any]]) -> Frequency:
        """Return the frequency with the options of an item of the encoder ``time_step``."""
        return cls(**dict(options))

    @property
    def clock(self) -> str:
        """The time zone by whose clock steps of timestamps with time zone are counted: UTC unless they are whole days."""
        in_days = self.unit != "microsecond" or self.every % DAY_IN_MICROSECONDS == 0
        return self.zone if in_days else "UTC"

    def shift(self, microsecond: int) -> int:
        """Return how far the clock of ``zone`` is ahead of UTC at a time, in microseconds; 0 if Python has no such zone."""
        moment = datetime.datetime.fromtimestamp(microsecond // 1_000_000, _time_zone(self.zone))
        return (moment.utcoffset() or datetime.timedelta()) // datetime.timedelta(microseconds=1)

    def step(self, kind: str) -> tuple[str, str]:
        """Return the SQL around a time of a DuckDB type: its step as DOUBLE, not a whole number between two steps.

        Times of other types are cast, texts too.
        """
        match self.unit:
            case "number":
                before, after = "(\n", "\n)"
            case "microsecond":
                before, after = "epoch_us(CAST((\n", f"\n) AS {_moment(kind)}){self._by_clock(kind)})"
            case _:
                unit = self._in_units(f"t{self._by_clock(kind)}")
                # Months and days have times between them, too: n is the unit that a time is in.
                beside = f"epoch_us(t) - epoch_us({self._lies_at('n', _moment(kind))})"
                number = f"list_transform([{unit}], lambda n: n + ({beside}) / {_LONGEST[self.unit]})[1]"
                before, after = "list_transform([CAST((\n", f"\n) AS {_moment(kind)})], lambda t: {number})[1]"
        return f"(CAST({before}", f"{after} AS DOUBLE) - {self.offset}) / {self.every}"

    def time(self, step: str, kind: str) -> str:
        """Return the SQL of the time of a whole step, in a DuckDB type."""
        return self._lies_at(f"CAST(({step}) * {self.every} + {self.offset} AS BIGINT)", kind)

    def _in_units(self, t: str) -> str:
        """Return the SQL of the whole month or day that a timestamp is in, a weekend in Friday."""
        if self.unit == "business_day":
            return f"floor(date_diff('day', {_MONDAY}, {t}) / 7) * 5 + least(isodow({t}) - 1, 4)"
        return f"date_diff('{self.unit}', {_EPOCH}, {t})"

    def _lies_at(self, units: str, kind: str) -> str:
        """Return the SQL of the time at so many whole units, in a DuckDB type."""
        match self.unit:
            case "month":
                found = f"(DATE '1970-01-{self.day:02}' + to_months(CAST({units} AS INTEGER)))"
            case "day":
                found = f"({_EPOCH} + CAST({units} AS INTEGER))"
            case "business_day":
                weeks = f"CAST(floor({units} / 5) AS INTEGER)"
                found = f"({_MONDAY} + {weeks} * 7 + CAST({units} - 5 * {weeks} AS INTEGER))"
            case "microsecond":
                found = f"make_timestamp({units})"
            case _:
                found = units
        if self.time_of_day:
            found = f"({found} + to_microseconds({self.time_of_day}))"
        if kind == ZONED:
            return f"(CAST({found} AS TIMESTAMP){self._by_clock(kind)})"
        return f"CAST({found} AS {kind})"

    def _by_clock(self, kind: str) -> str:
        return f" AT TIME ZONE {literal(self.clock)}" if kind == ZONED else ""

    def text(self, step: int) -> str:
        """Return the time of a step as text, of timestamps with time zone in their zone."""
        units = step * self.every + self.offset
        match self.unit:
            case "month":
                year, month = divmod(units, 12)
                last = calendar.monthrange(1970 + year, month + 1)[1]
                return self._at_time(datetime.date(1970 + year, month + 1, min(self.day, last)))
            case "day":
                return self._at_time(_epoch() + datetime.timedelta(units))
            case "business_day":
                weeks, days = divmod(units, 5)
                return self._at_time(_epoch() + datetime.timedelta(4 + 7 * weeks + days))
            case "microsecond":
                moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=units)
                if self.clock == self.zone:
                    return f"{moment}"
                return f"{moment.replace(tzinfo=datetime.UTC).astimezone(_time_zone(self.zone))}"
        return str(units)

    def _at_time(self, day: datetime.date) -> str:
        """Return the text of a day, with the time of day unless that is midnight."""
        if not self.time_of_day:
            return f"{day}"
        return f"{datetime.datetime.combine(day, datetime.time()) + datetime.timedelta(microseconds=self.time_of_day)}"

    @property
    def words(self) -> str:
        """The step in words: ``1 month``, ``7 days``, ``1 business day``, ``2 hours``."""
        count, unit = self.every, self.unit.replace("_", " ")
        if self.unit == "number":
            return str(count)
        if self.unit == "microsecond":
            for name, size in (("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)):
                if count % size == 0:
                    count, unit = count // size, name
                    break
        return f"{count} {unit}{'' if count == 1 else 's'}"

    @property
    def season_length(self) -> int:
        """The steps of the usual season: a year of months, a week of days, a day of hours or minutes; 1 if there is none."""
        whole = {"month": 12, "day": 7, "business_day": 5, "microsecond": DAY_IN_MICROSECONDS}.get(self.unit, 1)
        if self.unit == "day" and self.every == 7:
            return 52
        return whole // self.every if whole % self.every == 0 else 1

    @property
    def options(self) -> Mapping[str, int | str]:
        """The options of the encoder's call."""
        return asdict(self)


def _moment(kind: str) -> str:
    """Return the type of times in which steps are looked for, whatever that of their column."""
    return kind if kind == ZONED else "TIMESTAMP"


def _epoch() -> datetime.date:
    return datetime.date(1970, 1, 1)


def _time_zone(name: str) -> datetime.tzinfo:
    """Return the time zone, UTC if Python does not have it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return datetime.UTC
