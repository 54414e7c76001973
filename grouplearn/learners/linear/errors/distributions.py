"""Tails and quantiles of Student's t and of the normal distribution; SciPy has them, too, and takes half a second to import."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np

from grouplearn.data.shard import FloatArray

#: From so many degrees of freedom on two terms of the expansion about the normal distribution are exact to rounding.
_ALMOST_NORMAL = 1e7
#: Most terms of the continued fraction, and where it ends.
_TERMS, _SMALL = 10_000, 1e-15
#: Most steps to a quantile: a step doubles one that is far away.
_STEPS = 60


def two_sided(statistic: FloatArray, freedom: FloatArray) -> FloatArray:
    """Return P(|T| ≥ |statistic|) (...) with ``freedom`` (...) degrees of freedom, infinite for the normal distribution."""
    size, df = np.broadcast_arrays(np.abs(statistic), freedom)
    found = np.full(size.shape, np.nan)
    known = ~np.isnan(size)
    normal = known & (df >= _ALMOST_NORMAL)
    student = known & ~normal & (df > 0)
    with np.errstate(all="ignore"):
        found[normal] = _almost_normal(size[normal], df[normal])
        found[student] = _beta_share(df[student] / 2.0, size[student] ** 2)
    return found


def _almost_normal(size: FloatArray, df: FloatArray) -> FloatArray:
    """Return 2·(1 − Φ(t)) + φ(t)·(t³ + t) / (2·df) (Abramowitz & Stegun 26.7.8)."""
    density = np.exp(-0.5 * size**2) / math.sqrt(2.0 * math.pi)
    beyond = np.where(density > 0, density * (size**3 + size) / (2.0 * df), 0.0)
    normal = np.array([math.erfc(each) for each in (size / math.sqrt(2.0)).tolist()])
    return np.asarray(normal + beyond)


def critical(confidence: float, freedom: FloatArray) -> FloatArray:
    """Return the t of ``freedom`` (...) degrees of freedom with P(|T| ≥ t) = 1 − confidence; NaN where that is not above 0."""
    df, place = np.unique(np.asarray(freedom, np.float64), return_inverse=True)
    return np.asarray(_quantiles(confidence, tuple(df.tolist()))[place].reshape(np.shape(freedom)))


@functools.lru_cache(maxsize=64)
def _quantiles(confidence: float, freedom: tuple[float, ...]) -> FloatArray:
    """Return ``critical`` by Newton's method from the normal quantile, which is below: the tail is convex there, so that no step
    goes too far."""
    df = np.array(freedom)
    quantile = np.where(df > 0, -NormalDist().inv_cdf((1.0 - confidence) / 2.0), np.nan)
    student = np.flatnonzero((df > 0) & np.isfinite(df))
    for _ in range(_STEPS):
        at = quantile[student]
        step = (two_sided(at, df[student]) - (1.0 - confidence)) / (2.0 * _density(at, df[student]))
        quantile[student] = at + step
        student = student[np.abs(step) > 1e-13 * at]
        if not student.size:
            break
    return quantile


def _density(t: FloatArray, df: FloatArray) -> FloatArray:
    """Return the density of Student's t."""
    return np.asarray(np.exp(_log_beta_inverse(df / 2.0) - (df + 1.0) / 2.0 * np.log1p(t * t / df)) / np.sqrt(df))


def _beta_share(half: FloatArray, square: FloatArray) -> FloatArray:
    """Return the regularised incomplete beta function I_x(half, ½) at x = 2·half / (2·half + square).

    By Lentz's continued fraction (Press et al., Numerical Recipes, 6.4), on the side where it converges.
    """
    df = 2.0 * half
    x, rest = df / (df + square), square / (df + square)
    front = np.exp(half * -np.log1p(square / df) + 0.5 * np.log(rest) + _log_beta_inverse(half))
    near = x < (half + 1.0) / (half + 2.5)
    a, b = np.where(near, half, 0.5), np.where(near, 0.5, half)
    share = front * _fraction(a, b, np.where(near, x, rest)) / a
    return np.where(square == 0, 1.0, np.where(np.isinf(square), 0.0, np.where(near, share, 1.0 - share)))


def _log_beta_inverse(half: FloatArray) -> FloatArray:
    """Return log(1 / B(half, ½)) = log Γ(half + ½) − log Γ(half) − ½·log π."""
    each, place = np.unique(half, return_inverse=True)
    found = np.array([_gamma_ratio(value) for value in each.tolist()])
    return np.asarray(found[place].reshape(half.shape) - 0.5 * math.log(math.pi))


def _gamma_ratio(a: float) -> float:
    """Return log Γ(a + ½) − log Γ(a); for a large a by its series, as the two would cancel."""
    if a < 50.0:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3) - 1 / (640 * a**5) + 17 / (14336 * a**7)


def _fraction(a: FloatArray, b: FloatArray, x: FloatArray) -> FloatArray:
    """Return the continued fraction of the incomplete beta function."""
    c = np.ones_like(x)
    d = 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    found, left = d.copy(), np.arange(x.size)
    result = np.empty_like(x)
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            found = found * (d * c)
        ended = ~(np.abs(d * c - 1.0) > _SMALL)
        result[left[ended]] = found[ended]
        if ended.all():
            break
        left = left[~ended]
        a, b, x, c, d, found = (each[~ended] for each in (a, b, x, c, d, found))
    return result


def _away(value: FloatArray) -> FloatArray:
    """Return values, none of them 0."""
    return np.where(np.abs(value) < 1e-300, 1e-300, value)
