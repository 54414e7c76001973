"""Earlier values of series as features: lags, and what is made of the values of a window before a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.series.batch import IntArray, SeriesBatch

_MOST = 10_000
_SOURCE = "Hyndman & Athanasopoulos 2021"


def _steps(name: str, doc: str, nullable: bool = False, low: int = 1) -> Hyperparameter:
    default = None if nullable else ()
    return Hyperparameter(name, "ints", default, doc, _SOURCE, low=low, high=_MOST, nullable=nullable)


#: The hyperparameters that calls in FEATURES set, by their name.
CALLS = {
    each.name: each
    for each in (
        _steps(
            "lags",
            "the value so many steps before; by default of each step of a season of at most 14, else 1, 2, 3 and a season",
            nullable=True,
        ),
        _steps("rolling_mean", "the mean of so many values before"),
        _steps("rolling_std", "the standard deviation of so many values before", low=2),
        _steps("rolling_min", "the least of so many values before"),
        _steps("rolling_max", "the greatest of so many values before"),
        _steps("difference", "the value before, minus the one so many steps before it"),
    )
}
DIFFERENCES = _steps(
    "differences", "what is learned: the label minus its value so many steps before; several one after another"
)
#: Given a number of steps, the values so many steps before.
Before = Callable[[int], FloatArray]


@dataclass(frozen=True, slots=True)
class LagFeatures:
    """The features that a config makes of earlier values."""

    lags: tuple[int, ...]
    windows: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, config: Config, season: int) -> LagFeatures:
        """Return the features of a config."""
        lags = cast("tuple[int, ...] | None", config["lags"])
        if lags is None:
            lags = tuple(range(1, season + 1)) if 1 < season <= 14 else tuple(sorted({1, 2, 3, season}))
        names = [name for name in CALLS if name != "lags"]
        return cls(lags, tuple((name, width) for name in names for width in cast("tuple[int, ...]", config[name])))

    @property
    def count(self) -> int:
        """Number of features."""
        return len(self.lags) + len(self.windows)

    @property
    def reach(self) -> int:
        """How many steps they look back."""
        return max([*self.lags, *(width + (name == "difference") for name, width in self.windows)], default=1)

    def made(self, before: Before) -> list[FloatArray]:
        """Return the features, NaN where a value that they need is missing."""
        return [*map(before, self.lags), *(_of_window(name, width, before) for name, width in self.windows)]


def _of_window(name: str, width: int, before: Before) -> FloatArray:
    if name == "difference":
        return before(1) - before(1 + width)
    if name in ("rolling_min", "rolling_max"):
        found = before(1)
        for step in range(2, width + 1):
            found = (np.minimum if name == "rolling_min" else np.maximum)(found, before(step))
        return found
    mean = _mean(width, before)
    if name == "rolling_mean":
        return mean
    square = _mean(width, lambda step: (before(step) - mean) ** 2)
    return np.sqrt(square * width / max(1, width - 1))


def _mean(width: int, before: Before) -> FloatArray:
    total = before(1)
    for step in range(2, width + 1):
        total = total + before(step)
    return total / width


@dataclass(frozen=True, slots=True)
class Origins:
    """Places from which forecasts are made: ``end`` (m,) is the place after the last known value, of the series ``of`` (m,)."""

    series: SeriesBatch
    end: IntArray
    of: IntArray

    @classmethod
    def ends(cls, series: SeriesBatch) -> Origins:
        """Return the ends of all series."""
        return cls(series, series.start[1:], np.arange(series.n_series))

    def tails(self, values: FloatArray, steps: int) -> FloatArray:
        """Return the ``steps`` values before each, (m, steps), NaN before the first."""
        places = self.end[:, None] - np.arange(steps, 0, -1)
        inside = places >= self.series.start[:-1][self.of][:, None]
        return np.where(inside, values[np.maximum(places, 0)], np.nan)


@dataclass(frozen=True, slots=True)
class Differenced:
    """Values of series, and their ``differences`` one after another: level j + 1 is level j minus itself some steps before."""

    series: SeriesBatch
    differences: Sequence[int]
    levels: tuple[FloatArray, ...]

    @classmethod
    def of(cls, series: SeriesBatch, values: FloatArray, differences: Sequence[int]) -> Differenced:
        """Return ``values`` (n,) and what is learned of them."""
        levels = [values]
        for lag in differences:
            levels.append(levels[-1] - series.lagged(levels[-1], lag))
        return cls(series, differences, tuple(levels))

    def undone(self, learned: FloatArray) -> FloatArray:
        """Return one-step forecasts of the values, from those of the last level."""
        for lag, level in zip(self.differences, self.levels, strict=False):
            learned = learned + self.series.lagged(level, lag)
        return learned

    def histories(self, steps: Sequence[int], origins: Origins) -> list[FloatArray]:
        """Return the last so many values of each level before m origins, (m, steps): before the first value of a series it."""
        return [_completed(origins.tails(level, own)) for level, own in zip(self.levels, steps, strict=True)]


def _completed(tails: FloatArray) -> FloatArray:
    """Return values (G, steps) with the first known one of a row, or 0, for missing ones."""
    known = np.isfinite(tails)
    first = np.take_along_axis(tails, known.argmax(axis=1)[:, None], axis=1)
    return np.where(known, tails, np.where(np.isfinite(first), first, 0.0))
