"""Times as numbers on an axis, and its round ticks: seconds to days, months, years."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator

from grouplearn.prediction.forecasts import Time

_EPOCH = dt.datetime(1970, 1, 1)
_DAY = 86_400
_SECONDS = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_MONTHS = (1, 3, 6, *(12 * years for power in range(4) for years in (10**power, 2 * 10**power, 5 * 10**power)))
#: Most ticks: a date is some 60 pixels wide.
_MOST = 4


def place(time: Time) -> float:
    """Return a time as the number at which it is drawn."""
    return (time - _EPOCH).total_seconds() if isinstance(time, dt.datetime) else time


def marks(first: Time, last: Time) -> list[tuple[float, str]] | None:
    """Return the round times between two as (number, text); None for numbers."""
    if not isinstance(first, dt.datetime) or not isinstance(last, dt.datetime):
        return None
    span = (last - first).total_seconds()
    for step in _SECONDS:
        if span / step <= _MOST:
            return [(place(time), _text(time, step)) for time in _multiples(first, last, step)]
    for months in _MONTHS:
        found = list(_first_days(first, last, months))
        if len(found) <= _MOST or months == _MONTHS[-1]:
            return [(place(time), f"{time:%Y}" if months % 12 == 0 else f"{time:%Y-%m}") for time in found]
    return []


def _multiples(first: dt.datetime, last: dt.datetime, step: int) -> Iterator[dt.datetime]:
    for number in range(math.ceil(place(first) / step), math.floor(place(last) / step) + 1):
        yield _EPOCH + dt.timedelta(seconds=number * step)


def _text(time: dt.datetime, step: int) -> str:
    return f"{time:%Y-%m-%d}" if step >= _DAY else f"{time:%H:%M:%S}" if step < 60 else f"{time:%m-%d %H:%M}"


def _first_days(first: dt.datetime, last: dt.datetime, months: int) -> Iterator[dt.datetime]:
    """Yield the first days of every so many months."""
    low, high = (12 * time.year + time.month - 1 for time in (first, last))
    for number in range(-(-low // months) * months, high + 1, months):
        day = dt.datetime(number // 12, number % 12 + 1, 1)
        if day >= first:
            yield day
