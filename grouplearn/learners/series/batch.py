"""Many series in arrays: regular in time, one after another; and what a method makes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from grouplearn.amounts import counted
from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray
from grouplearn.layout.ragged import Ragged
from grouplearn.learners.series import methods
from grouplearn.models.metrics.forecasts import COMPONENTS, GRID, JUDGED, UNKNOWN
from grouplearn.models.state import Tensors

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
#: The least deviation of a forecast over the largest absolute value of its series: more than the rounding errors of forecasts.
_ROUNDING = 2.0**-46
#: Steps that a series may span for each of its rows.
_SPARSEST = 10_000


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """G series, each from its first to its last row: ``y`` (n,) has NaN at missing steps; ``first`` (G,) is the first step.

    Series g has the values ``start[g]`` to ``start[g + 1]``; ``of`` (n,) is the series of each value.
    """

    y: FloatArray
    start: IntArray
    first: IntArray
    of: IntArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", np.repeat(np.arange(self.n_series), self.sizes))

    @property
    def n_series(self) -> int:
        """Number of series."""
        return self.first.size

    @property
    def sizes(self) -> IntArray:
        """Steps of each series, (G,)."""
        return np.diff(self.start)

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
            flaws[number] = f"the time is NULL or infinite in {counted(count, 'row')}"
        for number, _ in _counted(of, ~whole & np.isfinite(step)):
            near = frequency.text(math.floor(np.nanmin(step[(of == number) & ~whole])))
            way = f": ORDER BY date_trunc('{frequency.unit}', ...)" if frequency.unit in ("month", "day") else ""
            flaws.setdefault(number, f"a time after {near} is between two steps of {frequency.words}{way}")
        order = np.lexsort((step, of))
        step, y, of = step[order], y[order], of[order]
        same = np.zeros(step.size, np.bool_)
        same[1:] = (step[1:] == step[:-1]) & (of[1:] == of[:-1])
        for number, count in _counted(of, same):
            twice = frequency.text(int(step[(of == number) & same][0]))
            flaws.setdefault(
                number,
                f"{counted(count, 'row')} repeat{'s' * (count == 1)} the time of another, such as {twice}:"
                " name what tells series apart in GROUP BY or SERIES BY, or sum the rows of a step",
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
            error = self.y - self.lagged(self.y, lag)
            known = np.isfinite(error)
            count = np.bincount(self.of[known], minlength=self.n_series)
            for column, values in enumerate((np.abs(error[known]), error[known] ** 2)):
                total = np.bincount(self.of[known], values, self.n_series)
                found[count > 0, column] = total[count > 0] / count[count > 0]
        return found

    def lagged(self, values: FloatArray, lag: int | IntArray) -> FloatArray:
        """Return the value ``lag`` steps (of each series, if several) before each of ``values`` (n,), NaN before the first."""
        by = lag if isinstance(lag, int) else lag[self.of]
        before = np.arange(values.size) - by
        inside = before >= self.start[:-1][self.of]
        return np.where(inside, values[np.maximum(before, 0)], np.nan)

    def filled(self, values: FloatArray, lag: int | IntArray = 1) -> FloatArray:
        """Return ``values`` (n,) with those ``lag`` steps before for missing ones, NaN where there is none."""
        while (gaps := np.isnan(values) & np.isfinite(before := self.lagged(values, lag))).any():
            values = np.where(gaps, before, values)
        return values

    def rounding(self) -> FloatArray:
        """Return the deviation of each series (G,) below which errors of forecasts are those of rounding."""
        largest = np.zeros(self.n_series)
        some = np.flatnonzero(self.sizes)
        if some.size:
            largest[some] = np.fmax.reduceat(np.abs(self.y), self.start[some])
        return _ROUNDING * largest

    def absolute_sums(self) -> tuple[FloatArray, IntArray]:
        """Return the sum of the absolute values of each series, and the number of its values, (G,) each."""
        known = np.isfinite(self.y)
        total = np.asarray(np.bincount(self.of[known], np.abs(self.y[known]), self.n_series), np.float64)
        return total, np.bincount(self.of[known], minlength=self.n_series)


def _counted(of: IntArray, rows: BoolArray) -> Iterator[tuple[int, int]]:
    """Yield the series that have such rows, and how many."""
    yield from ((number, count) for number, count in enumerate(np.bincount(of[rows]).tolist()) if count)


def known(numbers: FloatArray) -> FloatArray:
    """Return stored numbers, NaN where they are unknown."""
    return np.where(numbers == UNKNOWN, np.nan, numbers)


#: The tensors of a model.
PARTS = frozenset({"fitted", "size", "first", "missing", "mean", "deviation", "scale"})
#: The tensor that models of sampled forecasts have, too, and the places in it of the quantiles that metrics judge.
QUANTILES = "quantiles"
_JUDGED = [GRID.index(round(each, 2)) for each in JUDGED]


@dataclass(frozen=True, slots=True)
class Parts:
    """What one-step forecasts of G series with n steps are made of, and where the series end.

    ``components`` (n,) are some of ``COMPONENTS``, NaN where a series has no such one; the one that is the forecast itself need
    not be there. ``parameters`` (G, p) and ``state`` (G, q) are the method's own, NaN where it has fewer.
    """

    components: Mapping[str, FloatArray]
    parameters: FloatArray
    state: FloatArray

    def tensors(self, batch: SeriesBatch, fitted: FloatArray) -> Iterator[tuple[str, Ragged]]:
        """Yield the tensors of models of one series each; the remainder of a missing step is 0."""
        known = np.isfinite(fitted)
        remainder = np.where(np.isfinite(batch.y), batch.y - fitted, np.where(known, 0.0, np.nan))
        for name in COMPONENTS:
            values = remainder if name == "remainder" else self.components.get(name, np.full(fitted.size, np.nan))
            there = known & np.isfinite(values)
            yield name, Ragged.of_sizes(values[there], np.bincount(batch.of[there], minlength=batch.n_series))
        parameters = np.where(np.isfinite(self.parameters), self.parameters, UNKNOWN)
        yield "parameters", Ragged.of_equal(parameters.ravel(), batch.n_series)
        there = np.isfinite(self.state)
        yield "state", Ragged.of_sizes(self.state[there], there.sum(axis=1))


@dataclass(frozen=True, slots=True)
class FittedSeries:
    """What a method makes of G series: one-step forecasts ``fitted`` (n,), and for H steps after the last the ``mean`` and the
    ``deviation`` of forecasts, (G, H), and of sampled ones the ``quantiles`` of ``GRID`` (G, H, 101).

    ``fitted`` is NaN before the first forecast, ``deviation`` where it is unknown. ``loss`` (G,) is what the method minimises.
    ``method`` (G,) is how each is forecast, where that is chosen, and ``note`` (G,) why simply; see ``methods``. ``parts``
    are, where a method takes forecasts apart, see ``Parts``. ``kept`` is what a single model needs to forecast from other
    features of the steps to come. ``relative`` (G,) are series whose errors grow with their forecasts.
    """

    fitted: FloatArray
    mean: FloatArray
    deviation: FloatArray
    loss: FloatArray
    converged: BoolArray
    method: Sequence[str] = ()
    note: methods.Notes | None = None
    quantiles: FloatArray | None = None
    parts: Parts | None = None
    kept: Tensors = field(default_factory=dict)
    relative: BoolArray | None = None

    def tensors(self, batch: SeriesBatch, scale: FloatArray, models: int) -> Mapping[str, Ragged]:
        """Return the tensors of so many ``models``, of as many of these series each, see ``SeriesLearner.finalize``."""
        known, relative = np.isfinite(self.fitted), np.zeros(batch.n_series) if self.relative is None else self.relative
        sizes = np.bincount(batch.of[known], minlength=batch.n_series)
        deviation = np.maximum(self.deviation, batch.rounding()[:, None])
        equal = {
            "size": sizes.astype(np.float64),
            "missing": np.bincount(batch.of[np.isnan(batch.y)], minlength=batch.n_series).astype(np.float64),
            "first": (batch.first + batch.sizes - sizes).astype(np.float64),
            "mean": self.mean,
            "deviation": np.where(np.isfinite(deviation), deviation, UNKNOWN),
            "scale": np.column_stack([np.where(np.isfinite(scale), scale, UNKNOWN), relative]),
            **({} if self.quantiles is None else {QUANTILES: self.quantiles}),
        }
        flat = {name: Ragged.of_equal(np.ascontiguousarray(each).reshape(-1), models) for name, each in equal.items()}
        own = {} if self.note is None else methods.tensors(self.method or [""] * models, self.note)
        apart = {} if self.parts is None else dict(self.parts.tensors(batch, self.fitted))
        fitted = Ragged.of_sizes(self.fitted[known], sizes.reshape(models, -1).sum(axis=1))
        kept = {name: Ragged.of([each]) for name, each in self.kept.items()}
        return {"fitted": fitted, **flat, **own, **apart, **kept}


def scores_at(x: FloatArray, of: IntArray, models: Mapping[str, Ragged] | Tensors) -> FloatArray:
    """Return the scores (n, 4) of rows by the models ``of`` each row: mean, deviation, and the two scales; by sampled forecasts
    (n, 15), with the quantiles that metrics judge, which are for the past those of the first step to come, moved.

    ``x`` (n, d) has a row's step, and in models of many series the number of its series. Before the end of a series scores
    are its one-step forecasts, with the deviation of the first step to come (in proportion to the forecast, where errors grow
    with it); before its start, beyond the horizon and of another series NaN.
    """
    ragged = {
        name: each if isinstance(each, Ragged) else Ragged.of([each])
        for name, each in models.items()
        if name in {*PARTS, QUANTILES}
    }
    found = np.full((len(x), 4 + len(_JUDGED) * (QUANTILES in ragged)), np.nan)
    series, known = _series_of(x, of, ragged["first"])
    n_fitted = ragged["size"].values.astype(np.int64)
    n_steps = np.repeat(ragged["mean"].sizes // np.maximum(ragged["first"].sizes, 1), ragged["first"].sizes)
    whole = known & np.isfinite(x[:, 0]) & (x[:, 0] == np.floor(x[:, 0]))
    place = np.where(whole, x[:, 0] - ragged["first"].values[series], -1.0)
    inside = (place >= 0) & (place < n_fitted[series] + n_steps[series])
    place, series = place[inside].astype(np.int64), series[inside]
    ahead = place - n_fitted[series]
    past, after = ahead < 0, (np.cumsum(n_steps) - n_steps)[series] + np.maximum(ahead, 0)
    before = (np.cumsum(n_fitted) - n_fitted)[series] + place
    values = np.concatenate([ragged["fitted"].values, [np.nan]])
    found[inside, 0] = np.where(past, values[np.where(past, before, -1)], ragged["mean"].values[after])
    scale = ragged["scale"].values.reshape(-1, 3)[series]
    found[inside, 1] = ragged["deviation"].values[after]
    found[inside, 2:4] = scale[:, :2]
    found[:, 1:4][found[:, 1:4] == UNKNOWN] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.abs(found[inside, 0] / ragged["mean"].values[after])
    found[inside, 1] *= np.where(past & (scale[:, 2] > 0), size, 1.0)
    if QUANTILES in ragged:
        shift = np.where(past, found[inside, 0] - ragged["mean"].values[after], 0.0)
        found[inside, 4:] = shift[:, None] + ragged[QUANTILES].values.reshape(-1, len(GRID))[after][:, _JUDGED]
    return found


def _series_of(x: FloatArray, of: IntArray, first: Ragged) -> tuple[IntArray, BoolArray]:
    """Return the series of rows, counted over all models, and whether their models have it."""
    number = x[:, 1] if x.shape[1] > 1 else np.zeros(len(x))
    known = (number >= 0) & (number < first.sizes[of])
    return first.start[of] + np.where(known, number, 0).astype(np.int64), known
