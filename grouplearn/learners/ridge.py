"""Ridge, least squares and elastic net of many groups from their moments, every config in one batched solve.

Columns are scaled to unit length: G = D⁻¹X'XD⁻¹ with D² = diag(X'X), v = Dw, and the penalty on v is l2·D⁻².
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from grouplearn.data.shard import FloatArray
from grouplearn.learners import quadratic

#: Directions whose share of the largest eigenvalue of the correlation matrix is below this carry no information.
_RANK_TOLERANCE = 1e-12


def ridge(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: FloatArray) -> FloatArray:
    """Return v (G, C, d) of (G + l2·diag(inverse²)) v = r for l2 > 0; gram (G, d, d), linear and inverse (G, d).

    LAPACK is called system by system: for few features NumPy's batched routines take two to three times as long. Where a
    matrix is singular to rounding, the solution is that of least squares.
    """
    solution = np.repeat(linear[:, None], len(l2), axis=1)
    if not linear.shape[1]:
        return solution
    diagonals = np.einsum("gii->gi", gram)[:, None] + l2[:, None] * inverse[:, None] ** 2
    matrix = np.empty(gram.shape[1:])
    diagonal = np.einsum("ii->i", matrix)
    for group, rights in enumerate(solution):
        matrix[:] = gram[group]
        for config, right in enumerate(rights):
            diagonal[:] = diagonals[group, config]
            *_, failed = lapack.dposv(
                matrix.T, right, lower=1, overwrite_b=1
            )  # symmetric, and .T as LAPACK lays it out
            if failed:
                one = slice(group, group + 1)
                rights[config] = least_squares(gram[one], linear[one], inverse[one])[0]
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
