"""Intermittent demand against R's croston, against statsforecast, against the formulas and against itself."""

from __future__ import annotations

import numpy as np
import pytest
from builds import in_every_build

from grouplearn.kernels.library import on_threads
from grouplearn.kernels.series import intermittent
from grouplearn.kernels.series.intermittent import Intermittent

DEMANDS = {2: 3, 6: 5, 8: 2, 13: 4, 14: 1, 17: 6, 21: 2}
Y = np.array([DEMANDS.get(t, 0) for t in range(24)], np.float64)
variants = pytest.mark.parametrize("variant", intermittent.VARIANTS)


def alone(
    y: np.ndarray, variant: str, alpha: float | None = None, beta: float | None = None, horizon: int = 2
) -> Intermittent:
    return intermittent.fit(y, np.array([0, y.size]), horizon, variant, alpha, beta)


@pytest.mark.parametrize(
    ("variant", "alpha", "beta", "mean", "fitted"),
    [
        ("by_interval", 0.1, 0.1, 1.0182465515353, [1, 1.032258064516, 0.994246105185]),
        ("without_bias", 0.1, 0.1, 0.9673342239585553, [0.95, 0.9806451612903225, 0.9445337999259733]),
        ("by_probability", 0.2, 0.3, 0.6515113745035932, [0.9, 1.264902, 1.6077322564499394]),
    ],
)
def test_given_weights(variant: str, alpha: float, beta: float, mean: float, fitted: list[float]) -> None:
    found = alone(Y, variant, alpha, beta)
    np.testing.assert_allclose(found.mean[0], [mean, mean], rtol=1e-12)
    np.testing.assert_allclose(found.fitted[[3, 7, 15]], fitted, rtol=1e-11)
    assert np.isnan(found.fitted[:3]).all()
    np.testing.assert_array_equal(found.parameters[0], [alpha, beta])
    errors = (Y - found.fitted)[3:]
    assert found.sigma2[0] == pytest.approx((errors**2).mean(), rel=1e-12)
    np.testing.assert_allclose(found.deviation[0], [np.sqrt((errors**2).mean())] * 2, rtol=1e-12)
    assert (found.n_values[0], found.n_demands[0], found.final[0, 2]) == (24, 7, 2)


@variants
def test_fitted_weights_have_the_least_errors(variant: str) -> None:
    random = np.random.default_rng(4)
    y = np.where(random.random(200) < np.linspace(0.2, 0.7, 200), 5 + random.normal(size=200).cumsum() * 0.5, 0)
    found = alone(y, variant)
    weights = [0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5]
    least = min(alone(y, variant, alpha, beta).sigma2[0] for alpha in weights for beta in weights)
    assert found.sigma2[0] <= least * (1 + 1e-9)
    assert found.converged[0]
    half = alone(y, variant, alpha=0.3)
    assert half.parameters[0, 0] == 0.3
    assert half.sigma2[0] <= min(alone(y, variant, 0.3, beta).sigma2[0] for beta in weights) * (1 + 1e-9)


@variants
def test_a_missing_step_changes_nothing(variant: str) -> None:
    with_gaps = np.insert(Y, [5, 10, 10, 14], np.nan)
    known = np.isfinite(with_gaps)
    found, expected = alone(with_gaps, variant, 0.2, 0.2), alone(Y, variant, 0.2, 0.2)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.fitted[known], expected.fitted)
    np.testing.assert_array_equal(found.sigma2, expected.sigma2)
    assert np.isfinite(found.fitted[4:]).all()
    assert found.n_values[0] == 24


@pytest.mark.parametrize(
    ("values", "note", "mean"),
    [([0.0] * 9, "NO_DEMAND", 0.0), ([0, 0, 6.0], "TOO_FEW", 2.0), ([4.0, 0, 0, 4.0], "TOO_FEW", 4 / 1.2)],
)
def test_few_demands_have_the_usual_weights(values: list[float], note: str, mean: float) -> None:
    found = alone(np.array(values), "by_interval")
    assert found.note[0] == getattr(intermittent, note)
    np.testing.assert_allclose(found.mean[0], [mean, mean], rtol=1e-15)
    assert (found.parameters[0] == 0.1).all() or note == "NO_DEMAND"
    if note == "NO_DEMAND":
        np.testing.assert_array_equal(found.fitted, values)
        assert found.deviation[0, 0] == 0


@variants
def test_results_have_the_same_bits_in_every_build_alone_and_on_threads(variant: str) -> None:
    y = np.concatenate([Y, Y[:12] / 7, Y[::-1]])
    y[[5, 30]] = np.nan
    start = np.array([0, 24, 36, 60])
    among = intermittent.fit(y, start, 2, variant)
    in_every_build(lambda: intermittent.fit(y, start, 2, variant)._asdict())
    with on_threads(lambda: 3):
        threaded = intermittent.fit(y, start, 2, variant)
    for name, one, other in zip(Intermittent._fields, threaded, among, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)
    for g in range(3):
        own = slice(start[g], start[g + 1])
        np.testing.assert_array_equal(alone(y[own], variant).mean[0], among.mean[g])
        np.testing.assert_array_equal(alone(y[own] * 64, variant).mean[0], 64 * among.mean[g])
