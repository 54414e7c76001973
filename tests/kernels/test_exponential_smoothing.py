"""Exponential smoothing against R's forecast, against the formulas in matrices, and against itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.library import on_threads
from grouplearn.kernels.series import exponential_smoothing as smoothing
from grouplearn.kernels.series.calls import STEPS
from grouplearn.kernels.series.exponential_smoothing import MODELS, Model, Smoothed

#: A quarterly series of 48 steps, and each model as ``ets`` of forecast 8.20 fits it: parameters, states of which the next step's
#: season is first, σ², log likelihood, AIC, AICc and BIC, some one-step forecasts, and those of 12 more steps.
R = json.loads((Path(__file__).parent / "reference" / "exponential_smoothing.json").read_text())
Y = np.array(R["y"])
ALONE = np.array([0, Y.size])
names = pytest.mark.parametrize("name", R["models"])


def model_of(name: str) -> Model:
    return Model(name[0], name[1:-1], name[-1])


def array(numbers: list[float | None]) -> np.ndarray:
    return np.array([np.nan if each is None else each for each in numbers])


def given(name: str, y: np.ndarray = Y, horizon: int = 12) -> Smoothed:
    expected = R["models"][name]
    states = array(expected["parameters"])[None], array(expected["initial"])[None]
    return smoothing.filter(y, np.array([0, y.size]), 4, np.array([MODELS.index(model_of(name))]), *states, horizon)


def simulated(count: int, steps: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Positive series with trend and quarterly seasons, of different lengths."""
    random = np.random.default_rng(seed)
    series = []
    for number in range(count):
        t = np.arange(steps + number % 5)
        level = 50 + random.normal(size=t.size).cumsum() * random.uniform(0, 2) + t * random.uniform(-0.1, 0.5)
        season = random.normal(size=4) * random.uniform(0, 8)
        series.append(np.maximum(level + season[t % 4] + random.normal(size=t.size), 1.0))
    return np.concatenate(series), np.concatenate([[0], np.cumsum([each.size for each in series])])


@names
def test_a_model_with_given_numbers_is_as_r_has_it(name: str) -> None:
    found, expected = given(name), R["models"][name]
    np.testing.assert_allclose(found.final[0], array(expected["final"]), rtol=1e-9)
    measures = [each[0] for each in (found.sigma2, found.loglik, found.aic, found.aicc, found.bic)]
    np.testing.assert_allclose(measures, expected["measures"], rtol=1e-9)
    np.testing.assert_allclose(found.fitted[[0, 1, 2, 3, 4, 23, 47]], expected["fitted"], rtol=1e-9)
    if name == "MAdM":  # R leaves out φ in the first step
        return
    np.testing.assert_allclose(found.mean[0], expected["mean"], rtol=1e-9)
    own = slice(0, 3 if name in ("ANA", "MNA") else None)  # R gives γ to the wrong step
    np.testing.assert_allclose(found.deviation[0, own], expected["deviation"][own], rtol=1e-9)


@names
def test_a_fitted_model_is_as_likely_as_rs_or_more(name: str) -> None:
    found = smoothing.fit(Y, ALONE, 4, [model_of(name)], 12)
    assert found.aic[0] <= R["models"][name]["measures"][2] + (1 if name == "MAdN" else 1e-3)
    assert found.converged[0]
    assert found.note[0] == smoothing.FITTED


@names
def test_forecasts_are_those_of_the_formulas_in_matrices(name: str) -> None:
    found = given(name, horizon=14)
    mean, variance = forecast_in_matrices(model_of(name), found)
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-10)
    np.testing.assert_allclose(found.deviation[0], np.sqrt(variance), rtol=1e-8)
    again = smoothing.forecast(4, found.model, found.parameters, found.final, found.sigma2, 14)
    np.testing.assert_array_equal(again, (found.mean, found.deviation))


def forecast_in_matrices(model: Model, found: Smoothed) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of forecasts: x becomes A(r)·x, whose moments are those of Kronecker products.

    Level and slope with all seasons are one vector; with multiplicative seasons it is their Kronecker product.
    """
    (alpha, beta, gamma, phi), sigma2 = np.nan_to_num(found.parameters[0]), found.sigma2[0]
    phi = phi or 1.0
    level, seasons = np.nan_to_num(found.final[0, :2]), np.nan_to_num(found.final[0, 2:])
    f, w, g = np.array([[1, phi], [0, phi]]), np.array([1, phi]), np.array([alpha, beta])
    turn, first, last = np.roll(np.eye(4), 1, axis=1), np.eye(4)[0], np.eye(4)[3]
    if model.season == "M":
        # A(r) = (turn + γ·r·last·first') ⊗ (F + r·g·w')
        parts = [np.kron(turn, f), np.kron(turn, np.outer(g, w)) + gamma * np.kron(np.outer(last, first), f)]
        parts.append(gamma * np.kron(np.outer(last, first), np.outer(g, w)))
        observed, x = np.kron(first, w), np.kron(seasons, level)
    else:
        zeros = np.zeros((2, 4))
        observed, x = np.concatenate([w, first]), np.concatenate([level, seasons])
        weights = np.concatenate([g, gamma * last])
        parts = [np.block([[f, zeros], [zeros.T, turn]]), np.outer(weights, observed), np.zeros((6, 6))]
    moments = (1, 0, sigma2, 0, 3 * sigma2**2)
    mean, second, means, variances = x, np.outer(x, x), [], []
    for _ in range(found.mean.shape[1]):
        means.append(observed @ mean)
        square = observed @ second @ observed
        variances.append(
            (1 + sigma2) * square - means[-1] ** 2 if model.error == "M" else square - means[-1] ** 2 + sigma2
        )
        if model.error == "A":
            second = parts[0] @ second @ parts[0].T + sigma2 * np.outer(weights, weights)
        else:
            pairs = [(i, j) for i in range(3) for j in range(3)]
            second = sum(moments[i + j] * parts[i] @ second @ parts[j].T for i, j in pairs)
        mean = parts[0] @ mean + (moments[2] * parts[2] @ mean if model.error == "M" else 0)
    return np.array(means), np.array(variances)


def recursion(model: Model, found: Smoothed, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return one-step forecasts and −2·log likelihood, step by step."""
    (alpha, beta, gamma, phi), state = np.nan_to_num(found.parameters[0]), np.nan_to_num(found.initial[0])
    phi, (level, slope), seasons = phi or 1.0, state[:2], list(state[2:])
    fitted, squares, logs = [], 0.0, 0.0
    for value in y:
        q, season = level + phi * slope, seasons.pop(0)
        f = {"N": q, "A": q + season, "M": q * season}[model.season]
        e = 0.0 if math.isnan(value) else value - f
        fitted.append(f)
        if not math.isnan(value):
            squares += (e / f if model.error == "M" else e) ** 2
            logs += math.log(abs(f))
        by_level, by_season = (e / season, e / q) if model.season == "M" else (e, e)
        level, slope = q + alpha * by_level, phi * slope + beta * by_level
        seasons.append(season + gamma * by_season)
    deviance = np.isfinite(y).sum() * math.log(squares) + (2 * logs if model.error == "M" else 0)
    return np.array(fitted), deviance


@names
def test_a_missing_step_has_no_error_and_is_not_counted(name: str) -> None:
    y = Y.copy()
    y[[7, 20, 21, 22]] = np.nan
    found = given(name, y)
    fitted, deviance = recursion(model_of(name), found, y)
    np.testing.assert_allclose(found.fitted, fitted, rtol=1e-12)
    assert found.loglik[0] == pytest.approx(-0.5 * deviance, rel=1e-12)
    assert found.n_values[0] == 44
    again = smoothing.fit(y, ALONE, 4, [model_of(name)], 2)
    assert again.loglik[0] >= found.loglik[0] - 1e-3
    assert np.isfinite(again.mean).all()


def test_the_model_of_the_least_criterion_is_chosen() -> None:
    for criterion in smoothing.CRITERIA:
        each = [getattr(smoothing.fit(Y, ALONE, 4, [model], 1), criterion)[0] for model in MODELS]
        chosen = smoothing.fit(Y, ALONE, 4, MODELS, 1, criterion)
        assert chosen.model[0] == int(np.argmin(each))
        assert getattr(chosen, criterion)[0] == min(each)


def test_results_have_the_same_bits_in_every_build() -> None:
    y, start = simulated(4, 40)
    y[[5, 6, 50]] = np.nan
    in_every_build(lambda: smoothing.fit(y, start, 4, MODELS, 8)._asdict())


def test_a_series_is_the_same_alone_among_others_on_threads_and_in_another_unit() -> None:
    y, start = simulated(6, 30)
    among = smoothing.fit(y, start, 4, MODELS, 8)
    with on_threads(lambda: 3):
        assert_same(smoothing.fit(y, start, 4, MODELS, 8), among)
    for g in range(6):
        own = slice(start[g], start[g + 1])
        alone = smoothing.fit(y[own], np.array([0, start[g + 1] - start[g]]), 4, MODELS, 8)
        assert_same(
            alone, Smoothed(**{name: each[own if name in STEPS else [g]] for name, each in among._asdict().items()})
        )
    scaled = smoothing.fit(y * 1024, start, 4, MODELS, 8)
    for name in ("model", "parameters", "converged"):
        np.testing.assert_array_equal(getattr(scaled, name), getattr(among, name))
    np.testing.assert_array_equal(scaled.mean, among.mean * 1024)
    np.testing.assert_array_equal(scaled.deviation, among.deviation * 1024)


def assert_same(found: Smoothed, expected: Smoothed) -> None:
    for name, one, other in zip(Smoothed._fields, found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_fit_goes_on_where_it_ended() -> None:
    y, start = simulated(1, 60)
    whole = smoothing.fit(y, start, 4, MODELS, 6)
    given_again = smoothing.filter(y, start, 4, whole.model, whole.parameters, whole.initial, 6)
    assert_same(given_again._replace(converged=whole.converged), whole)
    head = smoothing.filter(y[:41], np.array([0, 41]), 4, whole.model, whole.parameters, whole.initial, 6)
    tail = smoothing.filter(y[41:], np.array([0, 19]), 4, whole.model, whole.parameters, head.final, 6)
    np.testing.assert_allclose(tail.final, whole.final, rtol=1e-12)
    np.testing.assert_allclose(np.concatenate([head.fitted, tail.fitted]), whole.fitted, rtol=1e-12)


@pytest.mark.parametrize(
    ("values", "note", "mean"),
    [
        ([3.5] * 30, "CONSTANT", 3.5),
        ([0.0] * 30, "CONSTANT", 0.0),
        ([0.1, np.nan, 0.1, 0.1, 0.1], "CONSTANT", 0.1),
        ([1.0, 2.0, 6.0], "TOO_FEW", 3.0),
        ([1.0, np.nan, np.nan, 2.0], "TOO_FEW", 1.5),
        ([7.0], "TOO_FEW", 7.0),
        ([], "TOO_FEW", np.nan),
        ([1.0, 2.0, 4.0, 3.0], "NO_CANDIDATE", 2.5),
    ],
)
def test_a_degenerate_series_is_its_mean(values: list[float], note: str, mean: float) -> None:
    found = smoothing.fit(np.array(values), np.array([0, len(values)]), 4, MODELS, 3)
    assert found.note[0] == getattr(smoothing, note)
    assert MODELS[found.model[0]] == Model("A", "N", "N")
    np.testing.assert_array_equal(found.mean[0], [mean] * 3)
    np.testing.assert_array_equal(found.fitted, [mean] * len(values))
    np.testing.assert_array_equal(found.deviation[0], [0.0] * 3)


def test_candidates_suit_their_series() -> None:
    """Seasons are at most 24 steps and there are two of them, multiplicative parts are of positive series."""
    y = np.tile([1.0, 5.0, 2.0, 9.0, 4.0], 12) + simulated(1, 60)[0]
    start = np.array([0, 60])
    seasonal = [model for model in MODELS if model.season != "N"]
    assert smoothing.fit(y, start, 5, seasonal, 1).note[0] == smoothing.FITTED
    assert smoothing.fit(y, start, 30, seasonal, 1).note[0] == smoothing.NO_CANDIDATE
    assert smoothing.fit(y[:9], np.array([0, 9]), 5, seasonal, 1, "aic").note[0] == smoothing.NO_CANDIDATE
    relative = [model for model in MODELS if model.error == "M"]
    assert smoothing.fit(y, start, 5, relative, 1).note[0] == smoothing.FITTED
    y[3] = 0
    assert smoothing.fit(y, start, 5, relative, 1).note[0] == smoothing.NO_CANDIDATE
    assert MODELS[smoothing.fit(y, start, 5, MODELS, 1).model[0]].error == "A"


def test_a_given_season_that_is_too_long_is_refused() -> None:
    states = np.zeros((1, 4)), np.zeros((1, 27))
    with pytest.raises(ValueError, match="a season has at most 24 steps, not 25"):
        smoothing.filter(Y, ALONE, 25, np.array([MODELS.index(Model("A", "N", "A"))]), *states, 3)
    assert smoothing.filter(Y, ALONE, 25, np.array([0]), *states, 3).mean.shape == (1, 3)


@pytest.mark.parametrize("name", ["ANN", "AAA", "MNM"])
def test_intervals_cover_what_they_say(name: str) -> None:
    """Of 2,000 futures of 500 series of the model, nine in ten lie within the bounds of nine in ten."""
    random, steps, horizon, count = np.random.default_rng(5), 300, 4, 500
    alpha, beta, gamma = {"ANN": (0.4, 0, 0), "AAA": (0.3, 0.02, 0.1), "MNM": (0.3, 0, 0.1)}[name]
    model = model_of(name)
    paths = np.empty((count, steps + horizon))
    for path in paths:
        level, slope, seasons = 100.0, 0.5 if model.trend == "A" else 0.0, [1.1, 0.9, 0.8, 1.2]
        seasons = [10 * each - 10 for each in seasons] if model.season == "A" else seasons
        for t in range(path.size):
            q, season = level + slope, seasons.pop(0)
            e = random.normal() * (3 if model.error == "A" else 0.03 * q)
            path[t] = {"N": q + e, "A": q + season + e, "M": (q + e) * season}[model.season]
            level, slope = q + alpha * e, slope + beta * e
            seasons.append(season + gamma * (e if model.season != "M" else season * e / q))
    start = np.arange(count + 1) * steps
    found = smoothing.fit(np.ascontiguousarray(paths[:, :steps]).ravel(), start, 4, [model], horizon)
    off = np.abs(paths[:, steps:] - found.mean) / found.deviation
    assert (off < 1.6448536).mean() == pytest.approx(0.9, abs=0.02)
