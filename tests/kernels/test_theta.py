"""The theta method against R's thetaf, against the formulas step by step, and against itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.library import on_threads
from grouplearn.kernels.series import theta
from grouplearn.kernels.series.theta import Theta

#: A quarterly series of 48 steps.
Y = np.array(json.loads((Path(__file__).parent / "reference" / "exponential_smoothing.json").read_text())["y"])
ALONE = np.array([0, Y.size])
variants = pytest.mark.parametrize("variant", theta.VARIANTS)


def alone(y: np.ndarray, season: int, variant: str, horizon: int = 6) -> Theta:
    return theta.fit(y, np.array([0, y.size]), season, horizon, variant)


@pytest.mark.parametrize(
    ("season", "drift", "sigma2", "mean"),
    [
        (1, 0.300141120278, 135.937664688743, [86.9821460620, 87.2822871823, 87.5824283025, 87.8825694228]),
        (4, 0.298001431924, 10.458316188506, [102.1431180125, 72.3538036143, 85.1475164869, 97.5330659876]),
    ],
)
def test_the_standard_method_is_that_of_r(season: int, drift: float, sigma2: float, mean: list[float]) -> None:
    """R looks for alpha until the squared errors change in the eighth digit."""
    found = alone(Y, season, "standard", 4)
    assert found.parameters[0, 3] / 2 == pytest.approx(drift, rel=1e-11)
    assert found.sigma2[0] == pytest.approx(sigma2, rel=1e-7)
    np.testing.assert_allclose(found.mean[0], mean, rtol=5e-6)
    spread = np.sqrt(found.sigma2[0] * (1 + np.arange(4) * found.parameters[0, 0] ** 2))
    np.testing.assert_allclose(found.deviation[0], spread * (found.seasons[0] if season == 4 else 1), rtol=1e-12)


def recursion(found: Theta, y: np.ndarray, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """Return forecasts of the steps of a series without seasons, and of more, step by step."""
    alpha, bend, intercept, slope = found.parameters[0]
    weight = 1 - 1 / bend if variant == "optimised" else 0
    level, forecasts = found.initial[0], []
    for t in range(y.size + found.mean.shape[1]):
        f = level + weight * (intercept * (1 - alpha) ** t + slope * (1 - (1 - alpha) ** (t + 1)) / alpha)
        drift = slope / 2 * (max(t - y.size, 0) + (1 - (1 - alpha) ** min(t, y.size)) / alpha)
        forecasts.append(f + (drift if variant == "standard" else 0))
        value = y[t] if t < y.size and np.isfinite(y[t]) else f
        level = alpha * value + (1 - alpha) * level
    return np.array(forecasts[: y.size]), np.array(forecasts[y.size :])


@variants
def test_forecasts_are_those_of_the_formulas(variant: str) -> None:
    y = Y + np.arange(48) % 3
    y[[7, 20, 21]] = np.nan
    found = alone(y, 1, variant)
    fitted, mean = recursion(found, y, variant)
    np.testing.assert_allclose(found.fitted, fitted, rtol=1e-7)  # 1 − 1/θ has no more digits where θ is large
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-7)
    assert found.n_values[0] == 45
    assert np.isnan(found.seasons).all()


@variants
def test_no_numbers_nearby_have_smaller_errors(variant: str) -> None:
    found = alone(Y, 1, variant)
    errors = _squares(found, variant)
    for place in range(2 if variant == "standard" else 3):
        for factor in (0.999, 1.001):
            numbers = [found.initial.copy(), *found.parameters[0, :2].copy()]
            numbers[place] = numbers[place] * factor
            if not 0.1 <= numbers[1] <= 0.99:
                continue
            parameters = np.array([[numbers[1], numbers[2], *found.parameters[0, 2:]]])
            assert _squares(
                found._replace(initial=np.atleast_1d(numbers[0]), parameters=parameters), variant
            ) > errors * (1 - 1e-9)


def _squares(found: Theta, variant: str) -> float:
    """Return the sum of squares that the method minimises: of the standard one without drift."""
    if variant == "optimised":
        return float(((Y - recursion(found, Y, variant)[0]) ** 2).sum())
    level, squares = found.initial[0], 0.0
    for value in Y:
        squares += (value - level) ** 2
        level += found.parameters[0, 0] * (value - level)
    return squares


@variants
def test_seasons_are_multiplicative_of_positive_values_and_else_additive(variant: str) -> None:
    found = alone(Y, 4, variant)
    assert found.is_multiplicative[0]
    assert found.seasons.mean() == pytest.approx(1)
    off = alone(Y - 80, 4, variant)
    assert not off.is_multiplicative[0]
    assert off.seasons.mean() == pytest.approx(0, abs=1e-12)
    assert np.isnan(alone(Y[:8], 4, variant).seasons).all()  # not more than two of them
    noise = np.random.default_rng(1).normal(size=60) + 10
    assert np.isnan(alone(noise, 4, variant).seasons).all()
    ended = alone(Y[:46], 4, variant)  # the next season is the third
    np.testing.assert_allclose(np.argsort(ended.seasons[0]), np.argsort(np.roll(found.seasons[0], -2)))


def test_a_series_has_seasons_where_its_autocorrelation_is_more_than_chance() -> None:
    random, has_seasons = np.random.default_rng(6), []
    for strength in np.linspace(0, 1.5, 40):
        y = 50 + random.normal(size=40) + strength * np.tile([1.0, -1, 0.5, 0], 10)
        off = y - y.mean()
        r = [(off[lag:] * off[:-lag]).sum() / (off**2).sum() for lag in range(1, 5)]
        has_seasons.append(abs(r[3]) > 1.6448536 * np.sqrt((1 + 2 * np.square(r[:3]).sum()) / 40))
        assert np.isfinite(alone(y, 4, "standard").seasons).all() == has_seasons[-1]
    assert 5 < sum(has_seasons) < 35


@variants
def test_results_have_the_same_bits_in_every_build_alone_and_on_threads(variant: str) -> None:
    y = np.concatenate([Y, Y[:30] - 50, Y[::-1]])
    y[[5, 60, 61]] = np.nan
    start = np.array([0, 48, 78, 126])
    among = theta.fit(y, start, 4, 5, variant)
    in_every_build(lambda: theta.fit(y, start, 4, 5, variant)._asdict())
    with on_threads(lambda: 3):
        threaded = theta.fit(y, start, 4, 5, variant)
    for name, one, other in zip(Theta._fields, threaded, among, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
    for g in range(3):
        own = slice(start[g], start[g + 1])
        found = alone(y[own], 4, variant, 5)
        np.testing.assert_array_equal(found.mean[0], among.mean[g])
        np.testing.assert_array_equal(found.fitted, among.fitted[own])
        np.testing.assert_array_equal(alone(y[own] * 64, 4, variant, 5).mean, 64 * found.mean)


@variants
@pytest.mark.parametrize(
    ("values", "note", "mean"),
    [([0.1] * 12, "CONSTANT", 0.1), ([1.0, 2.0, np.nan, 6.0], "TOO_FEW", 3.0), ([], "TOO_FEW", np.nan)],
)
def test_a_degenerate_series_is_its_mean(values: list[float], note: str, mean: float, variant: str) -> None:
    found = alone(np.array(values), 4, variant, 2)
    assert found.note[0] == getattr(theta, note)
    np.testing.assert_array_equal(found.mean[0], [mean, mean])
    np.testing.assert_array_equal(found.fitted, [mean] * len(values))
    np.testing.assert_array_equal(found.deviation[0], [0.0, 0.0])


@variants
def test_intervals_cover_what_they_say(variant: str) -> None:
    """Of random walks with drift, which both methods forecast without bias."""
    random = np.random.default_rng(8)
    paths = 500 + (0.2 + random.normal(size=(600, 304))).cumsum(axis=1)
    found = theta.fit(np.ascontiguousarray(paths[:, :300]).ravel(), np.arange(601) * 300, 1, 4, variant)
    off = np.abs(paths[:, 300:] - found.mean) / found.deviation
    assert (off < 1.6448536).mean() == pytest.approx(0.9, abs=0.02)
