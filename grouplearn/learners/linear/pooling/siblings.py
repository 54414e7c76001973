"""The moments of groups that share a parent, in units that they have in common."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels import algebra as kernel
from grouplearn.learners.linear.errors.covariance import inverse_of
from grouplearn.models.state import Tensors

#: A column is redundant among the groups of a parent if others explain all but this share of its variance.
_REDUNDANT = 1e-9
#: Matrices with so many columns are inverted, and multiplied, column by column.
_SWEPT = 8
#: Least pivot: rounding may leave none.
_TINY = 1e-300


class Units(NamedTuple):
    """The units of P parents: columns are taken about ``mean`` (P, d) and divided by ``scale`` (P, d), labels about ``label``
    (P,)."""

    mean: FloatArray
    scale: FloatArray
    label: FloatArray


class Siblings(NamedTuple):
    """K groups of P parents, in order of parent: those of parent i begin at ``start[i]`` (P,), and ``of`` (K,) is its number.

    With m columns, the intercept among them, each group has ``gram`` X̃'WX̃ (K, m, m), ``cross`` X̃'W(y − X̃β) (K, m), the
    ``squares`` Σω(y − x̃'β)² (K,) and so many ``rows`` (K,), with β the least squares ``base`` (P, m) of all rows of the parent.
    ``fixed`` (P, m) are the columns whose mean weight can be told from others.
    """

    gram: FloatArray
    cross: FloatArray
    squares: FloatArray
    rows: FloatArray
    of: npt.NDArray[np.intp]
    start: npt.NDArray[np.intp]
    base: FloatArray
    fixed: npt.NDArray[np.bool_]

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums (P, ...) of values (K, ...) over the groups of each parent."""
        return np.asarray(np.add.reduceat(values, self.start, axis=0))

    @property
    def counts(self) -> npt.NDArray[np.intp]:
        """The number of groups (P,) of each parent."""
        return np.diff(np.append(self.start, len(self.of)))

    def take(self, parents: npt.NDArray[np.intp]) -> Siblings:
        """Return the groups of some parents."""
        counts = self.counts[parents]
        chosen = np.flatnonzero(np.isin(self.of, parents))
        of, start = np.repeat(np.arange(len(parents)), counts), np.cumsum(counts) - counts
        own = self.gram[chosen], self.cross[chosen], self.squares[chosen], self.rows[chosen]
        return Siblings(*own, of, start, self.base[parents], self.fixed[parents])


def siblings(sums: Tensors, rows: FloatArray, of: npt.NDArray[np.intp], intercept: bool) -> tuple[Siblings, Units]:
    """Return groups with these moments (K, ...), numbers of rows (K,) and parents (K,), ascending from 0 on."""
    start = np.flatnonzero(np.diff(of, prepend=-1))
    units, parent = _units(sums, of, start, intercept)
    shift, scale = sums["mean"] - units.mean[of], units.scale[of]
    total, label = sums["total"], sums["target_mean"][:, 0] - units.label[of]
    shift = shift / scale
    own, crossed = sums["gram"] / scale[:, :, None] / scale[:, None, :], sums["cross"][:, :, 0] / scale
    around = np.concatenate([shift, np.ones((len(of), 1))], axis=1) if intercept else shift
    gram = total[:, None, None] * around[:, :, None] * around[:, None, :]
    cross = (total * label)[:, None] * around
    d = shift.shape[1]
    gram[:, :d, :d] += own
    cross[:, :d] += crossed
    fixed = ~inverse_of(parent, _REDUNDANT).left
    fixed = np.concatenate([fixed, np.ones((len(start), 1), np.bool_)], axis=1) if intercept else fixed
    found = Siblings(gram, cross, np.empty(0), rows, of, start, np.empty(0), fixed)
    base = _solved(found)
    weights = base[of]
    slopes = weights[:, :d]
    within = sums["target_gram"][:, 0, 0] - 2.0 * _dot(slopes, crossed) + _dot(slopes, _times(own, slopes))
    squares = np.maximum(within, 0.0) + total * (label - _dot(around, weights)) ** 2
    return found._replace(cross=cross - _times(gram, weights), squares=squares, base=base), units


def _units(
    sums: Tensors, of: npt.NDArray[np.intp], start: npt.NDArray[np.intp], intercept: bool
) -> tuple[Units, Tensors]:
    """Return the units of parents, and their moments (P, ...)."""

    def added(values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, start, axis=0))

    total = added(sums["total"])
    if intercept:
        mean = added(sums["total"][:, None] * sums["mean"]) / total[:, None]
        label = added(sums["total"] * sums["target_mean"][:, 0]) / total
    else:
        mean, label = np.zeros((len(start), sums["mean"].shape[1])), np.zeros(len(start))
    shift = sums["mean"] - mean[of]
    gram = added(sums["gram"] + sums["total"][:, None, None] * shift[:, :, None] * shift[:, None, :])
    spread = np.sqrt(np.diagonal(gram, axis1=1, axis2=2) / total[:, None])
    least = 1e-12 * np.sqrt(added(sums["total"][:, None] * sums["mean"] ** 2) / total[:, None])
    scale = np.where(spread > least, spread, 1.0)
    return Units(mean, scale, label), {"gram": gram, "mean": mean, "total": total}


def _solved(own: Siblings) -> FloatArray:
    """Return the least squares (P, m) of all rows of each parent, 0 for redundant columns."""
    inverse, _ = inverse_and_logarithm(among(own.sums(own.gram), own.fixed))
    return np.where(own.fixed, _times(inverse, np.where(own.fixed, own.sums(own.cross), 0.0)), 0.0)


def among(matrices: FloatArray, chosen: npt.NDArray[np.bool_]) -> FloatArray:
    """Return matrices (P, m, m) with the rows and columns that are not ``chosen`` (P, m) as those of the identity."""
    both = chosen[:, :, None] & chosen[:, None, :]
    return np.where(both, matrices, np.eye(chosen.shape[1]) * ~chosen[:, None, :])


def inverse_and_logarithm(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the inverses (M, m, m) of positive definite matrices, and the logarithms (M,) of their determinants.

    [[A, B], [B', C]] has the inverse of its Schur complement C − B'A⁻¹B in the lower right corner.
    """
    m = matrices.shape[-1]
    if m <= _SWEPT:
        return _swept(matrices)
    half = m // 2
    first, logarithm = inverse_and_logarithm(matrices[:, :half, :half])
    across = product(first, matrices[:, :half, half:])
    last, beyond = inverse_and_logarithm(matrices[:, half:, half:] - product(matrices[:, half:, :half], across))
    beside = product(across, last)
    found = np.empty(matrices.shape)
    found[:, :half, :half] = first + product(beside, across.swapaxes(1, 2))
    found[:, :half, half:], found[:, half:, :half] = -beside, -beside.swapaxes(1, 2)
    found[:, half:, half:] = last
    return found, logarithm + beyond


def _swept(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same for small matrices, by the sweep operator (Goodnight 1979)."""
    r, logarithm = np.array(matrices), np.zeros(len(matrices))
    for k in range(r.shape[-1]):
        pivot = np.maximum(r[:, k, k], _TINY)
        logarithm += kernel.logarithm(pivot)
        row, column = r[:, k, :] / pivot[:, None], r[:, :, k].copy()
        r -= column[:, :, None] * row[:, None, :]
        r[:, k, :], r[:, :, k] = row, -column / pivot[:, None]
        r[:, k, k] = 1.0 / pivot
    return r, logarithm


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return A·B (M, n, k) of many matrices; a kernel for each small one would take longer than its arithmetic."""
    size = left.shape[-1]
    if not 0 < size <= _SWEPT:
        return kernel.product(left, right)
    found = left[:, :, 0, None] * right[:, 0, None, :]
    for column in range(1, size):
        found += left[:, :, column, None] * right[:, column, None, :]
    return np.asarray(found)


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return A v (M, m)."""
    return np.asarray(product(matrices, vectors[:, :, None])[:, :, 0])


def _dot(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray((left * right).sum(axis=1))
