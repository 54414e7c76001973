"""Generalised linear models of few rows by kernel: at the least objective beside rows and weights of very different sizes."""

import hashlib

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special

from grouplearn.kernels.linear import few_rows as kernel
from grouplearn.kernels.linear import generalised_linear

LOSSES: tuple[str, ...] = ("logistic", "poisson", "squared_hinge")
#: Of `test_the_same_bits_everywhere`.
BITS = "c8cf0b313b9b47435289da4518412e2608b267769c84cbb762bbbc49fd86873c"


def rows_of(loss: str, n: int, d: int, size: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal features and labels of chance; the first row is ``size`` times as large."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d))
    y = random.poisson(2, n).astype(float) if loss == "poisson" else (random.random(n) < 0.5).astype(float)
    x[0] *= size
    return x, y, np.ones(n)


def solve(loss, rows, *, l1=(0.0,), l2=(0.0,), fit_intercept=False):
    penalties = generalised_linear.GlmPenalties(
        *(np.broadcast_to(each, len(l1) + len(l2) - 1) for each in (l1, l2, 1e-9))
    )
    return kernel.solve(*rows, loss, fit_intercept, penalties)


def loss_and_slope(loss: str, score: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if loss == "logistic":
        return np.logaddexp(0, score) - y * score, scipy.special.expit(score) - y
    if loss == "poisson":
        return np.exp(score) - y * score + scipy.special.xlogy(y, y) - y, np.exp(score) - y
    short = np.maximum(0, 1 - (2 * y - 1) * score)
    return short**2, -2 * (2 * y - 1) * short


def dual(loss: str, slope: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minus the conjugate of each row's loss at its slope: their sum is no more than any objective whose penalty holds it."""
    if loss == "logistic":
        return -scipy.special.xlogy(slope + y, slope + y) - scipy.special.xlogy(1 - slope - y, 1 - slope - y)
    if loss == "poisson":
        return -scipy.special.xlogy(slope + y, slope + y) + slope + y + scipy.special.xlogy(y, y) - y
    size = abs(slope)
    return size - size**2 / 4


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("n", "d", "size"), [(15, 25, 1e4), (78, 129, 1e4), (15, 150, 1e5), (40, 30, 1e4)])
def test_l1_leaves_no_gap_to_the_dual_beside_an_outlier(loss: str, n: int, d: int, size: float) -> None:
    """By duality no model has a lower objective (Boyd & Vandenberghe 2004, section 5.5.1)."""
    x, y, weight = rows_of(loss, n, d, size)
    l1 = np.array([0.03, 1.0])
    found = solve(loss, (x, y, weight), l1=l1)
    assert found.converged.all()
    for each, weights, value in zip(l1, found.weights, found.value, strict=True):
        losses, slope = loss_and_slope(loss, x @ weights, y)
        assert value == pytest.approx(losses.sum() + each * abs(weights).sum(), rel=1e-10)
        # The slope of the large row is told by what penalties hold: its score, of products that cancel, has lost the digits.
        some = weights != 0
        off = x[:, some].T @ slope + each * np.sign(weights[some])
        slope[0] -= x[0, some] @ off / (x[0, some] @ x[0, some])
        slope[0] = np.clip(slope[0], -y[0], 1 - y[0]) if loss == "logistic" else slope[0]
        slope = slope * min(1, each / abs(x.T @ slope).max())
        assert dual(loss, slope, y).sum() == pytest.approx(value, rel=1e-5)
        assert (weights != 0).sum() <= n  # what penalties hold is zero


def test_l1_with_an_intercept_is_as_scipy_finds_it() -> None:
    x, y, weight = rows_of("logistic", 15, 25, 100)
    found = solve("logistic", (x, y, weight), l1=(0.3,), fit_intercept=True)
    scale = 1 / np.sqrt((x**2).mean(axis=0))

    def split(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss_and_slope("logistic", x @ (scale * (point[:25] - point[25:50])) + point[50], y)
        pull = scale * (x.T @ slope)
        value = value.sum() + 0.3 * scale @ (point[:25] + point[25:50])
        return value, np.concatenate([pull + 0.3 * scale, 0.3 * scale - pull, [slope.sum()]])

    bounds = [(0, None)] * 50 + [(None, None)]
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 50}
    least = scipy.optimize.minimize(split, np.zeros(51), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    assert found.converged.all()
    assert found.value[0] == pytest.approx(least.fun, rel=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_l2_with_weights_of_eight_powers_of_ten_is_as_scipy_finds_it(loss: str) -> None:
    """By a trust region in the space of the rows, where the least model is."""
    x, y, _ = rows_of(loss, 30, 60, 1)
    weight = 10 ** np.random.default_rng(2).uniform(-4, 4, 30)
    found = solve(loss, (x, y, weight), l2=(0.01,))
    basis = scipy.linalg.orth(x.T)
    z = x @ basis

    def value(point: np.ndarray) -> float:
        return weight @ loss_and_slope(loss, z @ point, y)[0] + 0.005 * point @ point

    def slope(point: np.ndarray) -> np.ndarray:
        return z.T @ (weight * loss_and_slope(loss, z @ point, y)[1]) + 0.01 * point

    def curvature(point: np.ndarray) -> np.ndarray:
        score = z @ point
        bend = {"logistic": scipy.special.expit(score) * scipy.special.expit(-score), "poisson": np.exp(score)}
        bend["squared_hinge"] = 2.0 * ((2 * y - 1) * score < 1)
        return z.T @ ((weight * bend[loss])[:, None] * z) + 0.01 * np.eye(30)

    options = {"gtol": 1e-7, "maxiter": 2_000}
    least = scipy.optimize.minimize(
        value, np.zeros(30), method="trust-exact", jac=slope, hess=curvature, options=options
    )
    assert found.converged.all()
    assert found.value[0] == pytest.approx(least.fun, rel=1e-6)
    assert found.value[0] == pytest.approx(value(basis.T @ found.weights[0]), rel=1e-9)


def test_rows_without_weight_and_constant_columns_change_nothing() -> None:
    x, y, weight = rows_of("squared_hinge", 20, 30, 100)
    more = np.vstack([x, 1e6 * np.ones((3, 30))]), np.append(y, [0, 1, 1]), np.append(weight, [0, 0, 0])
    plain, beside = solve("squared_hinge", (x, y, weight), l1=(0.1,)), solve("squared_hinge", more, l1=(0.1,))
    assert beside.value == pytest.approx(plain.value, rel=1e-8)
    constant = solve("squared_hinge", (np.hstack([x, np.full((20, 1), 7.0)]), y, weight), l1=(0.1,), fit_intercept=True)
    assert constant.weights[0, 30] == 0
    assert constant.value == pytest.approx(
        solve("squared_hinge", (x, y, weight), l1=(0.1,), fit_intercept=True).value, rel=1e-8
    )


def test_the_same_bits_everywhere(build: str) -> None:
    digest = hashlib.sha256()
    for loss in LOSSES:
        for fit_intercept in (False, True):
            rows = rows_of(loss, 21, 35, 1e3)
            for each in solve(loss, rows, l1=(0.1, 1.0), l2=(0.5,), fit_intercept=fit_intercept):
                digest.update(np.ascontiguousarray(each).tobytes())
    assert digest.hexdigest() == BITS


def test_which_rows_are_few() -> None:
    def until(loss: str, rows: int, columns: int, outputs: int = 1) -> int:
        return kernel.epochs_until(loss, outputs, rows, columns, dense=True)

    assert until("logistic", 400, 100) == until("squared_hinge", 1, 1) > 0
    assert kernel.epochs_until("logistic", 1, 400, 100, dense=False) > until("logistic", 400, 100)
    assert until("logistic", 401, 100) == until("logistic", 0, 100) == until("logistic", 1_000, 1_000) == 0
    assert until("softmax", 20, 100, outputs=3) == until("hinge", 20, 100) == 0
