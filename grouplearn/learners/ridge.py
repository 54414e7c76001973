"""Ridge, least squares and elastic net of many groups from their moments, every config in one batched solve.

Columns are scaled to unit length: G = D⁻¹X'XD⁻¹ with D² = diag(X'X), v = Dw, and the penalty on v is l2·D⁻².
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners import quadratic

#: Directions whose share of the largest eigenvalue of the correlation matrix is below this carry no information.
_RANK_TOLERANCE = 1e-12
#: Elements of the systems factorised at a time.
_AT_A_TIME = 400_000


def ridge(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: FloatArray) -> FloatArray:
    """Return v (G, C, d) of (G + l2·diag(inverse²)) v = r for l2 > 0; gram (G, d, d), linear and inverse (G, d).

    One Cholesky factor of [[A, r], [r', c]] holds L⁻¹r in its last row, so that half of the substitution is free.
    """
    groups, size = linear.shape
    solution = np.empty((groups, len(l2), size))
    run = max(1, _AT_A_TIME // ((size + 1) ** 2 * max(1, len(l2))))
    for first in range(0, groups, run):
        part = slice(first, first + run)
        solution[part] = _ridge_part(gram[part], linear[part], inverse[part], l2)
    return solution


def _ridge_part(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: FloatArray) -> FloatArray:
    groups, size = linear.shape
    system = np.zeros((groups, len(l2), size + 1, size + 1))
    system[..., :size, :size] = gram[:, None]
    system[..., size, :size] = linear[:, None]
    diagonal = np.einsum("gcii->gci", system)
    diagonal[..., :size] += l2[:, None] * inverse[:, None, :] ** 2
    # Any corner above r'A⁻¹r will do, and |r|² / l2's smallest share of the diagonal is above it.
    extra = np.maximum((diagonal[..., :size] - 1.0).min(axis=-1, initial=np.inf), _RANK_TOLERANCE)
    diagonal[..., size] = 1.0 + 2.0 * (linear**2).sum(axis=1)[:, None] / extra
    try:
        factor = np.linalg.cholesky(system)
    except np.linalg.LinAlgError:
        return _each_ridge(gram, linear, inverse, l2)
    return _back_substituted(factor[..., :size, :size], factor[..., size, :size].copy())


def _back_substituted(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return the solutions of L'v = right, (..., d)."""
    for row in range(right.shape[-1] - 1, -1, -1):
        right[..., row] /= factor[..., row, row]
        right[..., :row] -= factor[..., row, :row] * right[..., row, None]
    return right


def _each_ridge(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: FloatArray) -> FloatArray:
    """Return the same one by one, by least squares where a matrix is singular to rounding."""
    solution = np.empty((len(linear), len(l2), linear.shape[1]))
    for group in range(len(linear)):
        for config, value in enumerate(l2):
            matrix = gram[group] + np.diag(value * inverse[group] ** 2)
            try:
                np.linalg.cholesky(matrix)
                solution[group, config] = np.linalg.solve(matrix, linear[group])
            except np.linalg.LinAlgError:
                solution[group, config] = least_squares(gram[[group]], linear[[group]], inverse[[group]])[0]
    return solution


def least_squares(gram: FloatArray, linear: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return v (G, d) of G v = r; of many solutions, the one with the smallest unscaled weights."""
    if not linear.shape[1]:
        return linear
    values, vectors = np.linalg.eigh(gram)
    kept = values > _RANK_TOLERANCE * values[:, -1:]
    inner = (vectors.transpose(0, 2, 1) @ linear[:, :, None])[:, :, 0]
    inner = np.where(kept, inner / np.where(kept, values, 1.0), 0.0)
    solution: FloatArray = (vectors @ inner[:, :, None])[:, :, 0]
    for group in np.flatnonzero(~kept.all(axis=1)):
        # Solutions are D⁻¹(v + Nz) with N the null space: z minimises the length of the weights.
        null = vectors[group][:, ~kept[group]]
        scale = inverse[group]
        shift = np.linalg.lstsq(null * scale[:, None], solution[group] * scale, rcond=None)[0]
        solution[group] -= null @ shift
    return solution


def elastic_net(
    gram: FloatArray,
    linear: FloatArray,
    inverse: FloatArray,
    l1: FloatArray,
    l2: FloatArray,
    tolerance: FloatArray,
) -> FloatArray:
    """Return v (G, C, d), config after config from the largest l1 down, each from the result of the one before."""
    groups, size = linear.shape
    solution = np.zeros((groups, len(l1), size))
    point = np.zeros((groups, size))
    diagonal: npt.NDArray[np.intp] = np.arange(size)
    largest = np.abs(linear).max(axis=1, initial=0.0)
    for config in np.lexsort((-l2, -l1)):
        matrix = gram.copy()
        matrix[:, diagonal, diagonal] += l2[config] * inverse**2
        point, _ = quadratic.minimise(
            quadratic.Dense(matrix), linear, l1[config] * inverse, point, tolerance[config] * largest
        )
        solution[:, config] = point
    return solution
