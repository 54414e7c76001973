"""PEP 249's type objects, which compare with ``description``, and its constructors."""

from __future__ import annotations

import datetime

from duckdb import BINARY, DATETIME, NUMBER, ROWID, STRING  # type: ignore[attr-defined]

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Date",
    "DateFromTicks",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
]

Binary = bytes
Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime


def DateFromTicks(ticks: float) -> datetime.date:  # noqa: N802  (PEP 249 names it)
    """Return the local date, seconds after 1970."""
    return datetime.date.fromtimestamp(ticks)


def TimeFromTicks(ticks: float) -> datetime.time:  # noqa: N802
    """Return the local time of day, seconds after 1970."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:  # noqa: N802
    """Return the local date and time, seconds after 1970."""
    return datetime.datetime.fromtimestamp(ticks)
