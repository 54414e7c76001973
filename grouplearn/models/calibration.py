"""Calibration: a function of a model's probability p of the second of two classes, fitted on held-out rows.

``sigmoid`` is 1 / (1 + exp(a·s + b)) of the log-odds s = ln(p / (1 - p)), where a and b minimise the log loss towards Platt's
targets (n₁ + 1) / (n₁ + 2) and 1 / (n₀ + 2) of n₁ rows of the second class and n₀ of the first (Platt 1999; Lin, Lin, Weng 2007).
``isotonic`` is the non-decreasing function of p with the least squared error (pool adjacent violators), with straight lines
between the probabilities of rows, and constant beyond them. A row counts as much as its weight, also in n₀ and n₁, as in
scikit-learn's ``CalibratedClassifierCV``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
#: ``sigmoid``: a and b, a list of one each; ``isotonic``: probabilities in ascending order, and what they become.
Calibration = tuple[tuple[float, ...], tuple[float, ...]]
KINDS = ("isotonic", "sigmoid")
#: Fewest held-out rows of a group that is calibrated.
FEWEST = 10
#: Log-odds of probabilities that round to 0 or 1.
_MOST_ODDS = 36.0
_STEPS, _CONVERGED = 100, 1e-12


def fitted(kind: str, p: FloatArray, is_second: npt.NDArray[np.bool_], weight: FloatArray) -> Calibration | None:
    """Return the calibration of rows (n,) with probabilities ``p`` and a ``weight``; None of too few rows, or of one class."""
    known = np.isfinite(p)
    p, is_second, weight = p[known], is_second[known], weight[known]
    if p.size < FEWEST or is_second.all() or not is_second.any():
        return None
    return _isotonic(p, is_second, weight) if kind == "isotonic" else _sigmoid(log_odds(p), is_second, weight)


def log_odds(p: FloatArray) -> FloatArray:
    """Return ln(p / (1 - p)), within bounds."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -_MOST_ODDS, _MOST_ODDS))


def calibrated(kind: str, calibration: Calibration, p: FloatArray) -> FloatArray:
    """Return the calibrated probabilities (n,); NaN of NaN."""
    first, second = (np.array(part) for part in calibration)
    if kind == "isotonic":
        return np.asarray(np.interp(p, first, second))
    return _logistic(-(first[0] * log_odds(p) + second[0]))


def calibrated_sql(kind: str, calibration: str, p: str, odds: str) -> str:
    """Return SQL of the calibrated probability, over SQL of a group's calibration, of the probability, and of its log-odds."""
    if kind == "sigmoid":
        bounded = f"greatest(least({odds}, {_MOST_ODDS}), -{_MOST_ODDS})"
        return f"1 / (1 + exp({calibration}[1][1] * {bounded} + {calibration}[2][1]))"
    at = f"len(list_filter({calibration}[1], lambda edge: edge <= {p}))"
    x, y, next_x, next_y = (f"{calibration}[{part}][{place}]" for place in (at, f"{at} + 1") for part in (1, 2))
    return (
        f"CASE WHEN {at} = 0 THEN {calibration}[2][1] WHEN {at} = len({calibration}[1]) THEN {y}"
        f" ELSE {y} + ({next_y} - {y}) * ({p} - {x}) / ({next_x} - {x}) END"
    )


def _logistic(s: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-s)))


def _isotonic(p: FloatArray, is_second: npt.NDArray[np.bool_], weight: FloatArray) -> Calibration:
    x, place = np.unique(p, return_inverse=True)
    second = np.bincount(place, weight * is_second)
    total = np.bincount(place, weight).astype(np.float64)
    means: list[float] = []
    weights: list[float] = []
    counts: list[int] = []
    for mean, own in zip((second / total).tolist(), total.tolist(), strict=True):
        count = 1
        while means and means[-1] >= mean:
            before = weights.pop()
            mean, own, count = (means.pop() * before + mean * own) / (before + own), own + before, count + counts.pop()
        means.append(mean)
        weights.append(own)
        counts.append(count)
    y = np.repeat(means, counts)
    # Between two equal values a row says nothing.
    kept = np.ones(y.size, np.bool_)
    kept[1:-1] = (y[1:-1] != y[:-2]) | (y[1:-1] != y[2:])
    return tuple(x[kept].tolist()), tuple(y[kept].tolist())


def _sigmoid(s: FloatArray, is_second: npt.NDArray[np.bool_], weight: FloatArray) -> Calibration:
    """Minimise by Newton's method, with halved steps."""
    second, first = float(weight[is_second].sum()), float(weight[~is_second].sum())
    target = np.where(is_second, (second + 1) / (second + 2), 1 / (first + 2))
    x = np.column_stack([s, np.ones_like(s)])
    w = np.array([0.0, np.log((second + 1) / (first + 1))])  # 1 / (1 + exp(-x·w)), so that a and b are -w

    def loss(at: FloatArray) -> float:
        z = x @ at
        return float(weight @ (np.logaddexp(0, z) - target * z))

    for _ in range(_STEPS):
        q = _logistic(x @ w)
        gradient = x.T @ (weight * (q - target))
        curvature = (x.T * (weight * np.maximum(q * (1 - q), 1e-12))) @ x + 1e-12 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        size, before = 1.0, loss(w)
        while loss(w - size * step) > before and size > 1e-10:
            size /= 2
        w = w - size * step
        if np.abs(size * step).max() < _CONVERGED * max(1.0, float(np.abs(w).max())):
            break
    return (-float(w[0]),), (-float(w[1]),)
