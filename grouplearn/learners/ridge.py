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
#: Elements of the systems solved at a time.
_AT_A_TIME = 400_000
#: Rounds of a minimisation with l1 before it is left where it is: of fewer columns more, as each is quicker.
_LEAST_ROUNDS, _ROUNDS_OF_COLUMNS = 1_000, 1_000_000


def ridge(gram: FloatArray, linear: FloatArray, inverse: FloatArray, l2: FloatArray) -> FloatArray:
    """Return v (G, C, d) of (G + l2·diag(inverse²)) v = r for l2 > 0; gram (G, d, d), linear and inverse (G, d).

    One LU after the other, in batches: for few features faster than Cholesky factors and two substitutions, and other threads
    go on meanwhile. Where a penalty is lost in rounding, a system may be singular: these are solved one by one.
    """
    groups, size = linear.shape
    solution = np.empty((groups, len(l2), size))
    run = max(1, _AT_A_TIME // max(1, size**2 * len(l2)))
    for part in (slice(first, first + run) for first in range(0, groups, run)):
        penalty = l2[:, None] * inverse[part, None] ** 2
        system = np.repeat(gram[part, None], len(l2), axis=1)
        np.einsum("gcii->gci", system)[:] += penalty
        # A column that is constant has inverse 0 and is in no other equation.
        if ((penalty > _RANK_TOLERANCE) | (inverse[part, None] == 0)).all():
            solution[part] = np.linalg.solve(system, linear[part, None, :, None])[..., 0]
        else:
            solution[part] = _each_ridge(system, gram[part], linear[part], inverse[part])
    return solution


def _each_ridge(system: FloatArray, gram: FloatArray, linear: FloatArray, inverse: FloatArray) -> FloatArray:
    """Return the same one by one, by least squares without the penalty where a system is singular to rounding."""
    solution = np.empty(system.shape[:-1])
    for group, config in np.ndindex(*system.shape[:2]):
        try:
            np.linalg.cholesky(system[group, config])
            solution[group, config] = np.linalg.solve(system[group, config], linear[group])
        except np.linalg.LinAlgError:
            one = slice(group, group + 1)
            solution[group, config] = least_squares(gram[one], linear[one], inverse[one])[0]
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
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return v (G, C, d), config after config from the largest l1 down, each from the result of the one before.

    And whether nothing was left to gain (G, C).
    """
    groups, size = linear.shape
    solution, converged = np.zeros((groups, len(l1), size)), np.ones((groups, len(l1)), np.bool_)
    rounds = max(_LEAST_ROUNDS, _ROUNDS_OF_COLUMNS // max(1, size))
    point = np.zeros((groups, size))
    diagonal: npt.NDArray[np.intp] = np.arange(size)
    for config in np.lexsort((-l2, -l1)):
        matrix = gram.copy()
        matrix[:, diagonal, diagonal] += l2[config] * inverse**2
        penalty = l1[config] * inverse
        # A share of each column's own penalty: beside a huge column, the whole penalty of another is a small correlation.
        accuracy = tolerance[config] * penalty
        found = quadratic.minimise(quadratic.Dense(matrix), linear, penalty, point, accuracy, rounds)
        point, converged[:, config] = found
        solution[:, config] = point
    return solution, converged
