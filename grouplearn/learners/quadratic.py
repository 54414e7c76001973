"""Many small L1-penalised quadratics at once: minimise ½ z'Bz − r'z + Σ λⱼ|zⱼ|, one problem per config.

No data is read here: B is a Gram matrix (linear regression) or a quasi-Newton model of a loss (logistic regression).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.algebra import product, solve_each, times

BoolArray = npt.NDArray[np.bool_]
IndexArray = npt.NDArray[np.intp]

#: Added to the (unit-scaled) diagonal when a subspace is solved, so that collinear columns do not stop it.
_RIDGE = 1e-13
#: A coordinate enters a face once the violation inside it is below this share of the violation outside.
_SETTLED = 1e-3
#: Share of the terms of a gradient that is its rounding.
_ROUNDING = 4 * float(np.finfo(np.float64).eps)


class Quadratic(Protocol):
    """A symmetric positive (semi)definite matrix per config, shape (c, p, p), perhaps never formed."""

    def times(self, z: FloatArray) -> FloatArray:
        """Return B z, shape (c, p)."""
        ...

    def terms(self, z: FloatArray) -> FloatArray:
        """Return the size of the terms that B z sums, shape (c, p): what its rounding is a share of."""
        ...

    def majoriser(self) -> FloatArray:
        """Return a diagonal (c, p) with diag ≽ B."""
        ...

    def solve(self, free: BoolArray, right: FloatArray) -> FloatArray:
        """Return z with zeros outside ``free`` and (B z)ⱼ = rightⱼ inside it."""
        ...

    def take(self, index: IndexArray) -> Quadratic:
        """Return the matrices of the configs in ``index``."""
        ...


@dataclass(frozen=True, slots=True)
class Dense:
    """B itself, shape (c, p, p)."""

    matrix: FloatArray

    def times(self, z: FloatArray) -> FloatArray:
        """Return B z, shape (c, p)."""
        image: FloatArray = times(self.matrix, z)
        return image

    def terms(self, z: FloatArray) -> FloatArray:
        """Return |B| |z|, shape (c, p)."""
        sizes: FloatArray = times(np.abs(self.matrix), np.abs(z))
        return sizes

    def majoriser(self) -> FloatArray:
        """Return row sums of |B|: by Gershgorin, diag(Σₖ|Bⱼₖ|) − B is positive semidefinite."""
        sums: FloatArray = np.abs(self.matrix).sum(axis=2)
        positive: FloatArray = np.where(sums > 0, sums, 1.0)
        return positive

    def solve(self, free: BoolArray, right: FloatArray) -> FloatArray:
        """Return z with zeros outside ``free`` and (B z)ⱼ = rightⱼ inside it."""
        masked: FloatArray = self.matrix * (free[:, :, None] & free[:, None, :])
        diagonal = np.arange(free.shape[1])
        masked[:, diagonal, diagonal] += np.where(free, _RIDGE * masked[:, diagonal, diagonal], 1.0)
        masked[:, diagonal, diagonal] += masked[:, diagonal, diagonal] == 0
        return solve_each(masked, np.where(free, right, 0.0)[:, :, None])[:, :, 0]

    def take(self, index: IndexArray) -> Dense:
        """Return the matrices of the configs in ``index``."""
        return Dense(self.matrix[index])


@dataclass(frozen=True, slots=True)
class LowRank:
    """B = σI − W'K⁻¹W with ``scale`` σ (c,), ``rows`` W (c, q, p) and ``core`` K (c, q, q), q small.

    ``excess`` (c,) bounds the largest eigenvalue: B ≼ (σ + excess) I.
    """

    scale: FloatArray
    rows: FloatArray
    core: FloatArray
    excess: FloatArray

    def times(self, z: FloatArray) -> FloatArray:
        """Return B z, shape (c, p)."""
        inner = solve_each(self.core, product(self.rows, z[:, :, None]))
        image: FloatArray = self.scale[:, None] * z - product(inner.transpose(0, 2, 1), self.rows)[:, 0, :]
        return image

    def terms(self, z: FloatArray) -> FloatArray:
        """Return σ|z| + |W'| |K⁻¹Wz|, shape (c, p)."""
        inner = np.abs(solve_each(self.core, product(self.rows, z[:, :, None])))
        low_rank = product(inner.transpose(0, 2, 1), np.abs(self.rows))[:, 0, :]
        sizes: FloatArray = self.scale[:, None] * np.abs(z) + low_rank
        return sizes

    def majoriser(self) -> FloatArray:
        """Return (σ + excess) in every coordinate."""
        return np.repeat((self.scale + self.excess)[:, None], self.rows.shape[2], axis=1)

    def solve(self, free: BoolArray, right: FloatArray) -> FloatArray:
        """Return z with zeros outside ``free`` and (B z)ⱼ = rightⱼ inside it.

        Woodbury: (σI − W'K⁻¹W)⁻¹ = I/σ + W'(K − WW'/σ)⁻¹W / σ².
        """
        rows = self.rows * free[:, None, :]
        right = np.where(free, right, 0.0)
        small = self.core - product(rows, rows.transpose(0, 2, 1)) / self.scale[:, None, None]
        inner = solve_each(small, product(rows, right[:, :, None]))
        correction = product(inner.transpose(0, 2, 1), rows)[:, 0, :]
        solution: FloatArray = (right + correction / self.scale[:, None]) / self.scale[:, None]
        return solution

    def take(self, index: IndexArray) -> LowRank:
        """Return the matrices of the configs in ``index``."""
        return LowRank(self.scale[index], self.rows[index], self.core[index], self.excess[index])


def subgradient(z: FloatArray, gradient: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the element of smallest norm of gradient + ∂Σλⱼ|zⱼ|; it is zero exactly at a minimum."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.where(z == 0, at_zero, gradient + penalty * np.sign(z))


def minimise(
    quadratic: Quadratic,
    linear: FloatArray,
    penalty: FloatArray,
    start: FloatArray,
    tolerance: FloatArray,
    rounds: int = 1000,
) -> tuple[FloatArray, BoolArray]:
    """Return argmin ½ z'Bz − r'z + Σ λⱼ|zⱼ| per config, shape (c, p), and whether nothing is left to gain.

    A face is the set of points with given signs. A round solves two faces exactly: the one a majorised proximal step
    lands on, where many coordinates enter or leave at once, and that of feature-sign search (Lee, Battle, Raina & Ng
    2007), where one does, unless it is the same; each minimum is cut back to its face. The lowest point is kept, so the
    objective never rises and finitely many rounds are enough. ``tolerance`` (c, p) or (c, 1) bounds the entries of the
    minimum-norm subgradient; a config that rounding keeps from reaching it stops where it no longer descends. Only one that
    could go on after so many ``rounds`` has something left to gain.
    """
    if not penalty.any():
        free = np.ones(start.shape, dtype=bool)
        return start + quadratic.solve(free, linear - quadratic.times(start)), np.ones(len(start), dtype=bool)
    z, converged = start.copy(), np.zeros(len(start), dtype=bool)
    active = np.arange(len(start))
    for _ in range(rounds):
        product = quadratic.times(z[active])
        violation = subgradient(z[active], product - linear[active], penalty[active])
        converged[active] = (np.abs(violation) <= tolerance[active]).all(axis=1)
        going = np.flatnonzero(~converged[active])
        if going.size < active.size:
            active, quadratic, product = active[going], quadratic.take(going), product[going]
        if active.size == 0:
            break
        z[active], lower = _round(quadratic, linear[active], penalty[active], z[active], product)
        if not lower.all():
            converged[active[~lower]] = True
            active, quadratic = active[lower], quadratic.take(np.flatnonzero(lower))
    return z, converged


def _round(
    quadratic: Quadratic, linear: FloatArray, penalty: FloatArray, z: FloatArray, product: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the next point and whether it is lower than ``z`` by more than rounding."""
    gradient = product - linear
    bound = quadratic.majoriser()
    moved = z - gradient / bound
    near = np.sign(moved) * np.maximum(np.abs(moved) - penalty / bound, 0.0)
    near_signs = np.where(penalty > 0, np.sign(near), 0.0)
    candidates = [z, near, *_face(quadratic, linear, penalty, near, near_signs)]
    signs = _one_enters(z, gradient, penalty)
    other = np.flatnonzero((signs != near_signs).any(axis=1))
    if other.size:
        part = quadratic if other.size == len(z) else quadratic.take(other)
        for points in _face(part, linear[other], penalty[other], z[other], signs[other]):
            candidates.append(z.copy())
            candidates[-1][other] = points
    rounding = _ROUNDING * (quadratic.terms(z) + np.abs(linear) + penalty)
    rises = np.stack([_rise(quadratic, gradient, penalty, z, candidate, rounding) for candidate in candidates])
    rises = np.where(np.isfinite(rises), rises, np.inf)
    choice = rises.argmin(axis=0)
    chosen = np.arange(len(z))
    return np.stack(candidates)[choice, chosen], rises[choice, chosen] < 0


def _one_enters(z: FloatArray, gradient: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the signs of ``z``, with the most violating zero coordinate added once the others are nearly optimal."""
    violation = subgradient(z, gradient, penalty)
    outside = np.where((z == 0) & (penalty > 0), np.abs(violation), 0.0)
    inside = np.where((z == 0) & (penalty > 0), 0.0, np.abs(violation))
    entering = (outside == outside.max(axis=1, keepdims=True)) & (outside > 0)
    entering &= np.cumsum(entering, axis=1) == 1
    entering &= inside.max(axis=1, keepdims=True) <= _SETTLED * outside.max(axis=1, keepdims=True)
    return np.where(penalty > 0, np.where(entering, -np.sign(violation), np.sign(z)), 0.0)


def _face(
    quadratic: Quadratic, linear: FloatArray, penalty: FloatArray, start: FloatArray, signs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the minimum of the face with its flipped coordinates set to zero, and the lowest point on the way to it."""
    free = (signs != 0) | (penalty == 0)
    slope = linear - penalty * signs - quadratic.times(start)
    direction = quadratic.solve(free, slope)
    face = start + direction
    # On the line the derivative starts at −slope'd, grows by d'Bd per unit, and jumps where a sign flips.
    descent = (slope * direction).sum(axis=1)
    growth = (direction * quadratic.times(direction)).sum(axis=1)
    flipped = face * signs < 0
    flip_at = np.where(flipped, start / np.where(flipped, -direction, 1.0), np.inf)
    length = _line_minimum(flip_at, 2 * penalty * np.abs(direction), descent, growth)[:, None]
    lowest = np.where(flip_at == length, 0.0, start + length * direction)
    return np.where(flipped, 0.0, face), lowest


def _line_minimum(flip_at: FloatArray, jump: FloatArray, descent: FloatArray, growth: FloatArray) -> FloatArray:
    """Return where the derivative −descent + t·growth + Σ jumps at flips before t crosses zero, at most 1, shape (c,)."""
    order = np.argsort(flip_at, axis=1, kind="stable")
    ends = np.minimum(np.take_along_axis(flip_at, order, axis=1), 1.0)
    ends = np.concatenate([ends, np.ones((len(ends), 1))], axis=1)
    jumps = np.cumsum(np.take_along_axis(jump, order, axis=1), axis=1)
    jumps = np.concatenate([np.zeros((len(ends), 1)), jumps], axis=1)
    roots = (descent[:, None] - jumps) / np.where(growth > 0, growth, 1.0)[:, None]
    # The first piece whose root lies before its end holds the minimum; a root before its start means the kink itself.
    piece = np.where((roots <= ends).any(axis=1), (roots <= ends).argmax(axis=1), ends.shape[1] - 1)
    chosen = np.arange(len(ends))
    start = np.where(piece > 0, ends[chosen, piece - 1], 0.0)
    length: FloatArray = np.clip(roots[chosen, piece], start, ends[chosen, piece])
    return length


def _rise(
    quadratic: Quadratic,
    gradient: FloatArray,
    penalty: FloatArray,
    z: FloatArray,
    other: FloatArray,
    rounding: FloatArray,
) -> FloatArray:
    """Return by how much ``other`` lies above ``z`` at most, shape (c,), where gradients are off by ``rounding``.

    Two values of the objective have no digits left for a small penalty where one column explains nearly everything.
    """
    step = other - z
    smooth = ((gradient + 0.5 * quadratic.times(step)) * step).sum(axis=1)
    penalties = (penalty * (np.abs(other) - np.abs(z))).sum(axis=1)
    rise: FloatArray = smooth + penalties + (rounding * np.abs(step)).sum(axis=1)
    return rise
