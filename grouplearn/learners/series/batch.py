"""Many series in arrays: regular in time, one after another; and what a method makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.amounts import counted
from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray
from grouplearn.layout.ragged import Ragged
from grouplearn.models.metrics.forecasts import UNKNOWN
from grouplearn.models.state import Tensors

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
#: Steps that a series may span for each of its rows.
_SPARSEST = 10_000


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """G series, each from its first to its last row: ``y`` (n,) has NaN at missing steps; ``first`` (G,) is the first step.

    Series g has the values ``start[g]`` to ``start[g + 1]``.
    """

    y: FloatArray
    start: IntArray
    first: IntArray

    @property
    def n_series(self) -> int:
        """Number of series."""
        return self.first.size

    @property
    def of(self) -> IntArray:
        """The series of each value (n,)."""
        return np.repeat(np.arange(self.n_series), np.diff(self.start))

    @classmethod
    def of_rows(
        cls, step: FloatArray, y: FloatArray, start: IntArray, frequency: Frequency
    ) -> tuple[SeriesBatch, dict[int, str]]:
        """Return the series of rows in any order, and by number why series are none; these are empty.

        ``step`` is not a whole number where the time of a row is NULL or between two steps.
        """
        of, flaws = np.repeat(np.arange(start.size - 1), np.diff(start)), dict[int, str]()
        whole = np.isfinite(step) & (step == np.floor(step))
        for number, count in _counted(of, ~np.isfinite(step)):
            flaws[number] = f"the time is NULL in {counted(count, 'row')}"
        for number, _ in _counted(of, ~whole & np.isfinite(step)):
            near = frequency.text(math.floor(step[(of == number) & ~whole][0]))
            flaws.setdefault(number, f"a time after {near} is between two steps of {frequency.words}")
        order = np.lexsort((step, of))
        step, y, of = step[order], y[order], of[order]
        same = np.zeros(step.size, np.bool_)
        same[1:] = (step[1:] == step[:-1]) & (of[1:] == of[:-1])
        for number, count in _counted(of, same):
            twice = frequency.text(int(step[(of == number) & same][0]))
            flaws.setdefault(
                number, f"{counted(count, 'row')} repeat{'s' * (count == 1)} the time of another, such as {twice}"
            )
        kept = ~np.isin(of, [*flaws])
        step, y, of = step[kept].astype(np.int64), y[kept], of[kept]
        rows = np.bincount(of, minlength=start.size - 1)
        ends = np.cumsum(rows)
        some = np.flatnonzero(rows)
        first, span = np.zeros(rows.size, np.int64), np.zeros(rows.size, np.int64)
        first[some] = step[ends[some] - rows[some]]
        span[some] = step[ends[some] - 1] - first[some] + 1
        for number in np.flatnonzero(span > _SPARSEST * rows).tolist():
            flaws[number] = (
                f"its {rows[number]} rows span {span[number]:,} steps: WITH (frequency = ...) gives longer steps"
            )
            span[number] = 0
        kept = span[of] > 0
        begin = np.concatenate([[0], np.cumsum(span)])
        dense = np.full(begin[-1], np.nan)
        dense[(begin[:-1] - first)[of[kept]] + step[kept]] = y[kept]
        return cls(dense, begin, first), flaws

    def scale(self, season: int) -> FloatArray:
        """Return the mean absolute and the mean squared error of the seasonal naive forecast, (G, 2); of the naive one for
        series of at most one season, NaN for a single value."""
        found = np.full((self.n_series, 2), np.nan)
        for lag in (1, season):
            error = self.y - self.lagged(lag)
            known = np.isfinite(error)
            count = np.bincount(self.of[known], minlength=self.n_series)
            for column, values in enumerate((np.abs(error[known]), error[known] ** 2)):
                total = np.bincount(self.of[known], values, self.n_series)
                found[count > 0, column] = total[count > 0] / count[count > 0]
        return found

    def lagged(self, lag: int) -> FloatArray:
        """Return the value ``lag`` steps before each, NaN before the first."""
        place = np.arange(self.y.size)
        before = place - lag
        inside = before >= self.start[:-1][self.of]
        return np.where(inside, self.y[np.maximum(before, 0)], np.nan)


def _counted(of: IntArray, rows: BoolArray) -> Iterator[tuple[int, int]]:
    """Yield the series that have such rows, and how many."""
    yield from ((number, count) for number, count in enumerate(np.bincount(of[rows]).tolist()) if count)


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """What a method makes of G series: one-step forecasts ``fitted`` (n,), and for H steps after the last the ``mean`` and the
    ``deviation`` of forecasts, (G, H).

    ``fitted`` is NaN before the first forecast, ``deviation`` where it is unknown. ``loss`` (G,) is what the method minimises.
    """

    fitted: FloatArray
    mean: FloatArray
    deviation: FloatArray
    loss: FloatArray
    converged: BoolArray

    def tensors(self, batch: SeriesBatch, season: int) -> Mapping[str, Ragged]:
        """Return the tensors of the models of these series, see ``SeriesLearner.finalize``."""
        known = np.isfinite(self.fitted)
        sizes = np.bincount(batch.of[known], minlength=batch.n_series)
        scale = batch.scale(season)
        equal = {
            "first": (batch.first + np.diff(batch.start) - sizes).astype(np.float64),
            "mean": self.mean,
            "deviation": np.where(np.isfinite(self.deviation), self.deviation, UNKNOWN),
            "scale": np.where(np.isfinite(scale), scale, UNKNOWN),
        }
        count = batch.n_series
        flat = {name: Ragged.of_equal(np.ascontiguousarray(each).reshape(-1), count) for name, each in equal.items()}
        return {"fitted": Ragged.of_sizes(self.fitted[known], sizes), **flat}


def scores_at(step: FloatArray, of: IntArray, models: Mapping[str, Ragged] | Tensors) -> FloatArray:
    """Return the scores (n, 4) of rows at these steps, by the models ``of`` each row: mean, deviation, and the two scales.

    Before the end of a series they are its one-step forecasts; before its start and beyond the horizon NaN.
    """
    ragged = {
        name: each if isinstance(each, Ragged) else Ragged.of([each]) for name, each in models.items() if name in _READ
    }
    fitted, mean = ragged["fitted"], ragged["mean"]
    n_fitted, n_steps = fitted.sizes[of], mean.sizes[of]
    found = np.full((step.size, 4), np.nan)
    whole = np.isfinite(step) & (step == np.floor(step))
    place = np.where(whole, step, -1.0) - np.where(whole, ragged["first"].values[of], 0.0)
    inside = (place >= 0) & (place < n_fitted + n_steps)
    place, of = place[inside].astype(np.int64), of[inside]
    ahead = place - n_fitted[inside]
    past = ahead < 0
    value = np.empty(place.size)
    value[past] = fitted.values[fitted.start[of[past]] + place[past]]
    value[~past] = mean.values[mean.start[of[~past]] + ahead[~past]]
    found[inside, 0] = value
    found[inside, 1] = ragged["deviation"].values[mean.start[of] + np.maximum(ahead, 0)]
    found[inside, 2:] = ragged["scale"].values.reshape(-1, 2)[of]
    found[:, 1:][found[:, 1:] == UNKNOWN] = np.nan
    return found


_READ = ("fitted", "first", "mean", "deviation", "scale")
