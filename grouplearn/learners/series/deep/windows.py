"""Many series as tensors, and windows cut out of them: what a network sees at each step, and what it should say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import FloatArray
from grouplearn.learners.neural.network_module import torch_on_one_thread
from grouplearn.learners.series.batch import SeriesBatch
from grouplearn.learners.series.deep.settings import Settings
from grouplearn.learners.series.deep.time_features import calendar_features, lags
from grouplearn.learners.series.panel import Panel

#: The least scale of a window, as a share of that of its series: a window of zeros has one, too.
_FLOOR = 0.1


class Window(NamedTuple):
    """B windows of C + H steps: network inputs (B, C + H, d), the values (B, C + H), which are known, and the scales (B, 1)."""

    inputs: Any
    target: Any
    known: Any
    scale: Any


class PanelTensors:
    """A panel on a device, from which windows are cut.

    A step's inputs are scaled values ``lags`` steps before, whether the last of them is known, and the step's features: its
    places in the calendar, features of mean 0 and deviation 1, and which of them are unknown, as 0. What lies before a
    series, and missing values, count as 0. The age of a series is no feature: where all begin together it is the date,
    which no later step has.
    """

    def __init__(self, panel: Panel, frequency: Frequency, settings: Settings) -> None:
        torch, batch = torch_on_one_thread(), panel.series
        self.torch, self.settings, self.n_series = torch, settings, batch.n_series
        self.lengths, self.begin = batch.sizes, batch.start[:-1]
        self.lags = lags(frequency, settings.season, int(self.lengths.max()))
        known = np.isfinite(batch.y)
        sizes = _sizes(batch)
        self.weight = sizes * np.maximum(self.lengths - settings.horizon, 1) * (self.lengths > 1)
        self.values, self.known = self.tensor(np.where(known, batch.y, 0.0)), self.tensor(known)
        self.features = self.tensor(_features(panel, frequency))
        self.start, self.length = (torch.from_numpy(each).to(settings.device) for each in (self.begin, self.lengths))
        self.size, self.usual_size = self.tensor(sizes), float(np.exp(np.mean(np.log(sizes))))
        self.lag_steps = torch.tensor(self.lags, device=settings.device)

    def tensor(self, values: Any) -> Any:
        """Return an array in single precision on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(self.settings.device)

    @property
    def n_inputs(self) -> int:
        """The inputs of a step, without those that are the same for all steps of a window."""
        return len(self.lags) + 1 + int(self.features.shape[1])

    def windows(self, series: Any, split: Any) -> Window:
        """Return the windows of series (B,): the C steps before ``split`` (B,) and the H steps from it on.

        Steps are counted in a series from 0. The scale is the mean absolute value of the C steps.
        """
        torch, context = self.torch, self.settings.context
        ahead = torch.arange(-context, self.settings.horizon, device=split.device)
        step = split[:, None] + ahead
        target, known = self._values(series[:, None], step)
        scale = self.scale(series, target[:, :context], known[:, :context])
        before, seen = self._values(series[:, None, None], step[:, :, None] - self.lag_steps)
        inputs = [before / scale[:, :, None], seen[:, :, :1], self.features_of(series, step)]
        return Window(torch.cat(inputs, dim=2), target, known, scale)

    def past(self, series: Any, split: Any, count: int) -> tuple[Any, Any]:
        """Return the ``count`` values before ``split`` and which are known, (B, count) each."""
        ahead = self.torch.arange(-count, 0, device=split.device)
        return self._values(series[:, None], split[:, None] + ahead)

    def scale(self, series: Any, values: Any, known: Any) -> Any:
        """Return the mean of known absolute values (B, 1), at least a tenth of that of the series."""
        if not self.settings.distribution.is_scaled:
            return self.torch.ones_like(values[:, :1])
        mean = values.abs().sum(1) / known.sum(1).clamp(min=1)
        return self.torch.maximum(mean, _FLOOR * self.size[series])[:, None]

    def features_of(self, series: Any, step: Any) -> Any:
        """Return the features (B, T, d) of steps (B, T); steps before the first are as it, steps past the horizon as its end."""
        last = self.length[series] + self.settings.horizon - 1
        inside = self.torch.minimum(step.clamp(min=0), last[:, None])
        begin = self.start[series] + series * self.settings.horizon
        return self.features[begin[:, None] + inside]

    def _values(self, series: Any, step: Any) -> tuple[Any, Any]:
        inside = (step >= 0) & (step < self.length[series])
        place = self.torch.where(inside, self.start[series] + step, 0)
        return self.values[place] * inside, self.known[place] * inside


def _sizes(batch: SeriesBatch) -> FloatArray:
    """Return the mean absolute value of each series; a series with none but zeros gets that of all values."""
    total, count = batch.absolute_sums()
    usual = total.sum() / max(1, count.sum()) or 1.0
    mean = total / np.maximum(count, 1)
    return np.where(mean > 0, mean, usual)


def _features(panel: Panel, frequency: Frequency) -> FloatArray:
    """Return the features of all steps of each series and then of its horizon, (n + G·H, d)."""
    series, horizon = panel.series, panel.ahead.shape[1]
    lengths = series.sizes + horizon
    first = np.cumsum(lengths) - lengths
    place = np.arange(lengths.sum()) - np.repeat(first, lengths)
    calendar = calendar_features(np.repeat(series.first, lengths) + place, frequency)
    x = np.empty((place.size, panel.past.shape[1]))
    is_past = place < np.repeat(series.sizes, lengths)
    x[is_past], x[~is_past] = panel.past, panel.ahead.reshape(series.n_series * horizon, x.shape[1])
    known = np.isfinite(x)
    count = np.maximum(known.sum(0), 1)
    centred = np.where(known, x - np.where(known, x, 0.0).sum(0) / count, 0.0)
    spread = np.sqrt((centred**2).sum(0) / count)
    scaled = centred[:, spread > 0] / spread[spread > 0]
    return np.concatenate([calendar, scaled, ~known[:, ~known.all(0)]], axis=1)
