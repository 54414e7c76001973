"""What a network knows of a step: its place in the calendar, and the earlier steps whose values it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray

IntArray = npt.NDArray[np.int64]
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
#: The last steps that are always seen, and the farthest one back.
_LAST, _FARTHEST = 7, 1200


def calendar_features(step: IntArray, frequency: Frequency) -> FloatArray:
    """Return the places of steps in the cycles of the calendar, each from -0.5 to 0.5: (n, cycles).

    Cycles are those longer than a step: of months the year; of days the week, the month and the year; of hours the day, too ...
    """
    names = _cycles(frequency)
    if not names:
        return np.empty((step.size, 0))
    moment = _moments(step, frequency)
    return np.stack([_CYCLES[name](moment) for name in names], axis=1)


def _cycles(frequency: Frequency) -> tuple[str, ...]:
    match frequency.unit:
        case "month":
            return ("month",) if frequency.every < 12 else ()
        case "day" | "business_day":
            return ("weekday", "day", "yearday") if frequency.every % 7 else ("day", "yearday")
        case "microsecond":
            sizes = {"second": _MINUTE, "minute": _HOUR, "hour": _DAY, "weekday": 7 * _DAY}
            return (*(name for name, size in sizes.items() if frequency.every < size), "day", "yearday")
    return ()


def _moments(step: IntArray, frequency: Frequency) -> npt.NDArray[np.datetime64]:
    """Return the times of steps, in seconds, by the clock of their time zone."""
    units = step * frequency.every + frequency.offset
    match frequency.unit:
        case "month":
            found = units.astype("datetime64[M]")
        case "day":
            found = units.astype("datetime64[D]")
        case "business_day":
            weeks, days = np.divmod(units, 5)
            found = (4 + 7 * weeks + days).astype("datetime64[D]")
        case _:
            found = _by_clock(units, frequency).astype("datetime64[us]")
    return found.astype("datetime64[s]")


def _by_clock(microseconds: IntArray, frequency: Frequency) -> IntArray:
    """Return times as the clock of the frequency's time zone shows them."""
    if frequency.clock == frequency.zone:
        return microseconds
    distinct, place = np.unique(microseconds, return_inverse=True)
    return microseconds + np.array([frequency.shift(each) for each in distinct.tolist()], np.int64)[place]


def _part(finer: str, coarser: str, size: int) -> Callable[[npt.NDArray[np.datetime64]], FloatArray]:
    """Return the function from moments to their place within a coarser unit, counted in finer ones from 0 to size - 1."""

    def place(moment: npt.NDArray[np.datetime64]) -> FloatArray:
        begun = moment.astype(f"datetime64[{coarser}]").astype(f"datetime64[{finer}]")
        found: FloatArray = (moment.astype(f"datetime64[{finer}]") - begun).astype(np.int64) / (size - 1) - 0.5
        return found

    return place


_CYCLES = {
    "second": _part("s", "m", 60),
    "minute": _part("m", "h", 60),
    "hour": _part("h", "D", 24),
    # 1970-01-01 is a Thursday, and weeks of NumPy begin with it.
    "weekday": lambda moment: ((moment.astype("datetime64[D]").astype(np.int64) + 3) % 7) / 6 - 0.5,
    "day": _part("D", "M", 31),
    "yearday": _part("D", "Y", 366),
    "month": _part("M", "Y", 12),
}


def lags(frequency: Frequency, season: int, longest: int) -> tuple[int, ...]:
    """Return how many steps back a network looks: the last ones, and around those of earlier seasons.

    ``longest`` is the length of the longest series: none looks farther.
    """
    found = {*range(1, _LAST + 1)}
    for length, count in (*_seasons(frequency), (season, 3)):
        if length > 1:
            found |= {number * length + near for number in range(1, count + 1) for near in (-1, 0, 1)}
    return tuple(sorted(lag for lag in found if 0 < lag <= max(1, min(longest, _FARTHEST))))


def _seasons(frequency: Frequency) -> Iterator[tuple[int, int]]:
    """Yield the lengths of the seasons of a frequency in steps, and how many of them are seen."""
    per: dict[str, tuple[tuple[float, int], ...]] = {
        "month": ((12, 3),),
        "day": ((7, 4), (30, 1), (364, 3)),
        "business_day": ((5, 4), (22, 1), (260, 3)),
        "microsecond": ((_HOUR, 3), (_DAY, 7), (7 * _DAY, 4)),
    }
    for size, count in per.get(frequency.unit, ()):
        if size % frequency.every == 0:
            yield int(size // frequency.every), count
