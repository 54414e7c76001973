"""Forecasts of a trained network: paths sampled into the future, and the mean of each past step one step before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract.control import Gang, Interrupted
from grouplearn.learners.gang_sockets import gathered
from grouplearn.learners.series.batch import IntArray
from grouplearn.learners.series.deep.recurrent import Recurrent
from grouplearn.learners.series.deep.windows import PanelTensors
from grouplearn.models.metrics.forecasts import GRID

#: The paths that are sampled together, and the windows whose means are found together.
_PATHS, _WINDOWS = 8192, 256


@dataclass(frozen=True, slots=True)
class SampledForecasts:
    """Forecasts of S series: ``fitted`` (n,) one step ahead, NaN at the first step of a series; for H steps after the last the
    ``mean`` and ``deviation`` (S, H), and the ``quantiles`` of ``GRID`` (S, H, 101).
    """

    fitted: FloatArray
    mean: FloatArray
    deviation: FloatArray
    quantiles: FloatArray


def forecasts(network: Recurrent, tensors: PanelTensors, cancelled: Callable[[], bool]) -> SampledForecasts:
    """Return the forecasts of all series of a panel, of which each member of a gang makes some; raises Interrupted if
    ``cancelled``."""
    settings = tensors.settings
    count, horizon = tensors.n_series, settings.horizon
    mean, deviation = np.full((count, horizon), np.nan), np.full((count, horizon), np.nan)
    quantiles = np.full((count, horizon, len(GRID)), np.nan)
    at_once = max(1, _PATHS // settings.n_samples)
    by = np.arange(count) // at_once % settings.members
    with tensors.torch.no_grad():
        fitted = _fitted(network, tensors, np.flatnonzero(by == settings.rank), cancelled)
        for first in range(settings.rank * at_once, count, settings.members * at_once):
            chosen = np.arange(first, min(first + at_once, count))
            means, paths = _paths(network, tensors, chosen, cancelled)
            mean[chosen], deviation[chosen] = means.mean(1), paths.std(1)
            quantiles[chosen] = np.moveaxis(np.quantile(paths, GRID, axis=1), 0, 2)
    found = SampledForecasts(fitted, mean, deviation, quantiles)
    return found if settings.gang is None else _joined(found, by, np.repeat(by, tensors.lengths), settings.gang)


def _joined(own: SampledForecasts, by: IntArray, value_by: IntArray, gang: Gang) -> SampledForecasts:
    """Return the forecasts of all members: series are forecast ``by`` a rank (S,), and their values ``value_by`` (n,)."""

    def chosen(name: str, owner: IntArray) -> FloatArray:
        return np.choose(owner.reshape(-1, *[1] * (getattr(own, name).ndim - 1)), gathered(gang, getattr(own, name)))

    return SampledForecasts(
        chosen("fitted", value_by), chosen("mean", by), chosen("deviation", by), chosen("quantiles", by)
    )


def _paths(
    network: Recurrent, tensors: PanelTensors, chosen: Any, cancelled: Callable[[], bool]
) -> tuple[FloatArray, FloatArray]:
    """Return N sampled futures of series, and the mean of each value given those before it: (B, N, H) each."""
    torch, settings = tensors.torch, tensors.settings
    likelihood, n_samples, horizon = settings.distribution, settings.n_samples, settings.horizon
    random = np.random.default_rng((settings.seed, 2, int(chosen[0])))
    series = torch.from_numpy(chosen).to(settings.device)
    end = tensors.length[series]
    window = tensors.windows(series, end)
    static = network.static(series, (window.scale / tensors.usual_size).log())
    _, memory = network(window.inputs[:, : settings.context], static)
    values, known = tensors.past(series, end, max(tensors.lags))
    features = tensors.features_of(series, end[:, None] + torch.arange(horizon, device=end.device))

    def repeated(x: Any, dim: int = 0) -> Any:
        return x.repeat_interleave(n_samples, dim=dim)

    scale, static = repeated(window.scale), repeated(static)
    memory = [tuple(repeated(each, 1) for each in layer) for layer in memory]
    past = torch.cat([repeated(values) / scale, torch.zeros(len(scale), horizon, device=scale.device)], dim=1)
    seen = repeated(known[:, -1:])
    found = np.empty((2, len(scale), horizon))
    for ahead in range(horizon):
        if cancelled():
            raise Interrupted
        before = past[:, max(tensors.lags) + ahead - tensors.lag_steps]
        inputs = torch.cat([before, seen, repeated(features[:, ahead])], dim=1)
        raw, memory = network(inputs[:, None], static, memory)
        parameters = likelihood.parameters(raw[:, 0], scale[:, 0])
        found[0, :, ahead] = likelihood.mean(*parameters).cpu()
        found[1, :, ahead] = likelihood.sample(random, *(each.double().cpu().numpy() for each in parameters))
        past[:, max(tensors.lags) + ahead] = tensors.tensor(found[1, :, ahead]) / scale[:, 0]
        seen = torch.ones_like(seen)
    means, paths = found.reshape(2, len(chosen), n_samples, horizon)
    return means, paths


def _fitted(network: Recurrent, tensors: PanelTensors, chosen: IntArray, cancelled: Callable[[], bool]) -> FloatArray:
    """Return the mean of each value of the ``chosen`` series given those before it, by windows whose last H steps lie side by
    side; NaN for the others."""
    torch, settings = tensors.torch, tensors.settings
    context, horizon, likelihood = settings.context, settings.horizon, settings.distribution
    counts = -(-np.maximum(tensors.lengths[chosen] - 1, 0) // horizon)
    series = np.repeat(chosen, counts)
    number = np.arange(series.size) - np.repeat(np.cumsum(counts) - counts, counts)
    fitted = np.full(tensors.lengths.sum(), np.nan)
    for first in range(0, series.size, _WINDOWS):
        if cancelled():
            raise Interrupted
        part, split = series[first : first + _WINDOWS], 1 + horizon * number[first : first + _WINDOWS]
        of = torch.from_numpy(part).to(settings.device)
        window = tensors.windows(of, torch.from_numpy(split).to(settings.device))
        static = network.static(of, (window.scale / tensors.usual_size).log())
        raw, _ = network(window.inputs, static)
        mean = likelihood.mean(*likelihood.parameters(raw, window.scale))[:, context:].double().cpu().numpy()
        step = split[:, None] + np.arange(horizon)
        inside = step < tensors.lengths[part][:, None]
        fitted[(tensors.begin[part][:, None] + step)[inside]] = mean[inside]
    return fitted
