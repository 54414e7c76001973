"""The mixed model of groups: how much their weights differ, by restricted maximum likelihood from moments.

Group g of a parent has y = X̃(β + b) + e with b ~ N(0, s²Ψ) and e ~ N(0, s²/ω). With Ψ = LL' and A = X̃'WX̃,

    M = A − AL(I + L'AL)⁻¹L'A,   u = (I + AΨ)⁻¹X̃'Wy,   β = (ΣM)⁻¹Σu,   s² = (Σ y'Wy − u'... − β'Σu) / (n − r)

minimise the deviance (n − r) log s² + Σ log|I + L'AL| + log|ΣM|, whose derivative by Ψ is ΣM − ΣM(ΣM)⁻¹M − Σee'/s² with
e = u − Mβ (Bates & DebRoy 2004; Laird & Ware 1982). Only L is searched for, by L-BFGS, of all parents side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import logarithm as logarithm_of
from grouplearn.learners.linear.pooling.siblings import Siblings, among, inverse_and_logarithm, product
from grouplearn.models.state import Tensors

#: Steps that are remembered, most steps, most halvings of one, and the gain of a step from which on no more are taken.
_MEMORY, _STEPS, _HALVINGS, _GAIN = 12, 500, 40, 1e-7
#: What Ψ is at least, as a share of what one group of average size tells: its inverse must exist.
_LEAST = 1e-6


class Mixed(NamedTuple):
    """How weights of the groups of P parents are distributed: their mean (P, m), Ψ (P, m, m) and s² (P,)."""

    mean: FloatArray
    spread: FloatArray
    variance: FloatArray


class _Fit(NamedTuple):
    deviance: FloatArray
    slope: FloatArray
    mean: FloatArray
    variance: FloatArray


def fitted(own: Siblings, free: npt.NDArray[np.bool_]) -> Mixed:
    """Return the distribution of weights; ``free`` (P, m, m) are the entries of L that are not 0."""
    size = np.sqrt(np.add.reduceat(own.gram[:, -1, -1], own.start) / own.counts)[:, None, None]
    m = own.gram.shape[-1]
    # One unit of L is what a group of average size tells about a column of unit length.
    found = _minimum(own, free, np.eye(m) / size, 1.0 / size)
    fit = _deviance(own, found)
    spread = product(found, found.swapaxes(1, 2)) + np.eye(m) * _LEAST / size**2
    return Mixed(fit.mean + own.base, spread, fit.variance)


def _deviance(own: Siblings, factor: FloatArray) -> _Fit:
    """Return the deviance (P,) at L (P, m, m), its derivative by L, the mean weights beyond the base, and s²."""
    of_group = factor[own.of]
    transposed = of_group.swapaxes(1, 2)
    loaded = product(own.gram, of_group)
    inner, logarithm = inverse_and_logarithm(product(transposed, loaded) + np.eye(factor.shape[-1]))
    back = product(loaded, inner)
    told = own.gram - product(back, loaded.swapaxes(1, 2))
    scaled = product(transposed, own.cross[:, :, None])
    left = own.cross - product(back, scaled)[:, :, 0]
    explained = (scaled[:, :, 0] * product(inner, scaled)[:, :, 0]).sum(axis=1)
    covariance, of_mean = inverse_and_logarithm(among(own.sums(told), own.fixed))
    covariance = np.where(own.fixed[:, :, None] & own.fixed[:, None, :], covariance, 0.0)
    both = own.sums(left)
    mean = product(covariance, both[:, :, None])[:, :, 0]
    freedom = own.sums(own.rows) - own.fixed.sum(axis=1)
    squares = np.maximum(own.sums(own.squares - explained) - (mean * both).sum(axis=1), 1e-300)
    variance = squares / freedom
    rest = left - product(told, mean[own.of][:, :, None])[:, :, 0]
    rest = rest / np.sqrt(variance)[own.of][:, None]
    by_mean = product(product(told, covariance[own.of]), told)
    slope = own.sums(told - by_mean - rest[:, :, None] * rest[:, None, :])
    deviance = freedom * logarithm_of(squares / own.sums(own.squares)) + own.sums(logarithm) + of_mean
    return _Fit(deviance, 2.0 * product(slope, factor), mean, variance)


def _minimum(own: Siblings, free: npt.NDArray[np.bool_], start: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the L (P, m, m) with the least deviance, by L-BFGS (Nocedal & Wright 2006, algorithm 7.4)."""
    at, going = np.array(start), np.arange(len(start))
    part, scale, allowed = own, unit, free
    fit = _deviance(part, at)
    slope = np.where(allowed, fit.slope * scale, 0.0)
    deviance, steps = fit.deviance, list[tuple[FloatArray, FloatArray, FloatArray]]()
    for _ in range(_STEPS):
        direction = _direction(slope, steps)
        gain = -_inner(direction, slope)
        ended = gain <= _GAIN
        length, moved = np.ones(len(going)), np.array(at[going])
        new, tried, waiting = deviance.copy(), slope.copy(), ~ended
        for _ in range(_HALVINGS):
            if not waiting.any():
                break
            trial = at[going] + length[:, None, None] * direction * scale
            fit = _deviance(part, trial)
            good = waiting & (fit.deviance <= deviance - 1e-4 * length * gain)
            moved[good], new[good] = trial[good], fit.deviance[good]
            tried[good] = np.where(allowed, fit.slope * scale, 0.0)[good]
            waiting &= ~good
            length = np.where(waiting, 0.5 * length, length)
        ended |= waiting
        step, change = (moved - at[going]) / scale, tried - slope
        at[going] = moved
        product_of = _inner(step, change)
        inverse = np.where(product_of > 0, 1.0 / np.where(product_of > 0, product_of, 1.0), 0.0)
        steps = [*steps[-_MEMORY + 1 :], (step, change, inverse)]
        slope, deviance = tried, new
        if ended.any():
            kept = np.flatnonzero(~ended)
            going, part, scale, allowed = going[kept], part.take(kept), scale[kept], allowed[kept]
            slope, deviance = slope[kept], deviance[kept]
            steps = [(one[kept], other[kept], inverse[kept]) for one, other, inverse in steps]
        if not going.size:
            break
    return at


def _direction(slope: FloatArray, steps: list[tuple[FloatArray, FloatArray, FloatArray]]) -> FloatArray:
    """Return where to go from a slope (P, m, m), given the steps before: each with its change of the slope, and 1 / their
    product, 0 for one that does not count."""
    found, shares = -slope, []
    for step, change, inverse in reversed(steps):
        share = inverse * _inner(step, found)
        found = found - share[:, None, None] * change
        shares.append(share)
    size = 1.0 / np.maximum(np.sqrt(_inner(slope, slope)), 1.0)
    for _, change, inverse in steps:
        square = _inner(change, change)
        size = np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse * square, 1.0), size)
    found = found * size[:, None, None]
    for (step, change, inverse), share in zip(steps, reversed(shares), strict=True):
        found = found + (share - inverse * _inner(change, found))[:, None, None] * step
    return found


def _inner(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray((left * right).sum(axis=(1, 2)))


def prior(mixed: Mixed, units: tuple[FloatArray, FloatArray, FloatArray], intercept: bool) -> Tensors:
    """Return what is known of the weights of a parent's groups as moments (P, ...) of rows that tell just that.

    Least squares over a group's rows and these minimise Σ ω(y − x'w − b)² + (w̃ − β)'Ψ⁻¹(w̃ − β).
    """
    mean, scale, label = units
    precise, _ = inverse_and_logarithm(mixed.spread)
    d = mean.shape[1]
    weights = mixed.mean[:, :d]
    if intercept:
        total = precise[:, d, d]
        centre = precise[:, :d, d] / total[:, None]
        gram = precise[:, :d, :d] - total[:, None, None] * centre[:, :, None] * centre[:, None, :]
        target = label + mixed.mean[:, d] + (centre * weights).sum(axis=1)
    else:
        total, centre, gram, target = np.ones(len(mean)), np.zeros_like(mean), precise, label
    cross = product(gram, weights[:, :, None])
    squares = (weights * cross[:, :, 0]).sum(axis=1)
    gram = gram * scale[:, :, None] * scale[:, None, :]
    return {
        "total": total,
        "mean": mean + scale * centre,
        "target_mean": target[:, None],
        "square": np.diagonal(gram, axis1=1, axis2=2).copy(),
        "cross": cross * scale[:, :, None],
        "target_gram": squares[:, None, None],
        "gram": gram,
    }
