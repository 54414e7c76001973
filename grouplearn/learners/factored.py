"""Least squares and ridge where a Gram matrix cannot tell columns apart: from a square root of it that is made of the rows.

Singular values below a millionth of the largest are lost in a Gram matrix, which has their squares. A block whose columns
are as close as that keeps a matrix F with F'F = [X y]'W[X y] about the means, by QR of its rows; two merge by QR of both and
of the row by which their means differ (Golub & Van Loan 2013, section 5.2; Demmel et al. 2012).

A direction says something if, on columns of unit length, its singular value is above ``RANK`` of the largest, times the
ratio of a column's size to its spread: what is below that is rounding of the columns as written.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Tensors

#: Share of the largest singular value below which a direction is rounding.
RANK = 1e-13
#: Share of the largest eigenvalue of a correlation matrix below which digits of the weights are lost in it.
_DOUBT = 1e-9
#: What is below this share of the largest eigenvalue, times d, is rounding of the Gram matrix.
_NONE = 1e-14
#: Columns up to which a block is looked at.
_MOST_COLUMNS = 128

BoolArray = npt.NDArray[np.bool_]


def of_block(sums: Tensors, x: FloatArray, y: FloatArray, weight: FloatArray) -> Tensors:
    """Return the moments of a block with ``factor`` (d + 1, d + 1) where its Gram matrix loses digits."""
    size = x.shape[1]
    usable = isinstance(x, np.ndarray) and 0 < size <= _MOST_COLUMNS and bool(np.isfinite(sums["gram"]).all())
    if not usable or not _doubtful(sums["gram"][None])[0]:
        return sums
    rows = np.column_stack([x - sums["mean"], y - sums["target_mean"][0]]) * np.sqrt(weight)[:, None]
    inverse, basis, small = _small_directions(sums["gram"][None])
    # Of no more rows than columns there are directions that are none here and small in the group.
    if len(x) > size and not (small & (_lengths(rows[None, :, :size], inverse, basis) > _tolerance(_one(sums)))).any():
        return sums  # the directions are none: the Gram matrix says as much
    return {**sums, "factor": _triangle(rows)}


def merged(sums: Tensors, left: Tensors, right: Tensors) -> Tensors:
    """Return ``sums``, those of both, with the factor of both where one of them has one."""
    if "factor" not in left and "factor" not in right:
        return sums
    harmonic = left["total"] * right["total"] / sums["total"]
    shift = np.append(right["mean"] - left["mean"], right["target_mean"] - left["target_mean"]) * np.sqrt(harmonic)
    return {**sums, "factor": _triangle(np.vstack([_factor(left), _factor(right), shift]))}


def about_zero(sums: Tensors, raw: Tensors) -> Tensors:
    """Return ``raw``, the moments of one group about zero, with their factor where their Gram matrix loses digits.

    That about the means keeps them, or ``sums`` have its factor: far from zero columns are alike that are not about their means.
    """
    if "factor" not in sums and not lost(raw)[0]:
        return raw
    one = {name: value[0] for name, value in sums.items()}
    origin = np.append(one["mean"], one["target_mean"]) * np.sqrt(one["total"])
    return {**raw, "factor": _triangle(np.vstack([_factor(one), origin]))[None]}


def lost(sums: Tensors) -> BoolArray:
    """Return which groups (G,) have Gram matrices that lose digits of a direction."""
    gram = sums["gram"]
    if not 0 < gram.shape[-1] <= _MOST_COLUMNS:
        return np.zeros(len(gram), np.bool_)
    return _doubtful(gram)


def solve(sums: Tensors, l2: float) -> tuple[FloatArray, float]:
    """Return the weights (d,) of ridge and their objective; of many solutions without penalty, the smallest weights.

    The penalty is d more rows, √l2 on the diagonal, of label 0.
    """
    size = sums["mean"].size
    factor = np.vstack([sums["factor"], np.sqrt(l2) * np.eye(size, size + 1)])
    length = np.sqrt((factor[:, :size] ** 2).sum(axis=0))
    inverse = np.where(length > 0, 1.0 / np.where(length > 0, length, 1.0), 0.0)
    left, values, right = np.linalg.svd(factor[:, :size] * inverse, full_matrices=False)
    kept = values > _tolerance(_one(sums))[0] * values[0]
    inner = np.where(kept, (left.T @ factor[:, size]) / np.where(kept, values, 1.0), 0.0)
    scaled: FloatArray = right.T @ inner
    if not kept.all():
        null = right[~kept].T
        shift = np.linalg.lstsq(null * inverse[:, None], scaled * inverse, rcond=None)[0]
        scaled = scaled - null @ shift
    weights: FloatArray = scaled * inverse
    residual = factor[:, size] - factor[:, :size] @ weights
    return weights, 0.5 * float(residual @ residual)


def matters(l2: FloatArray, sums: Tensors) -> BoolArray:
    """Return which penalties ``l2`` (C,) are so small that a direction which a Gram matrix loses has a say in a group."""
    square = sums["square"]
    found: BoolArray = l2 <= _DOUBT * square.size * square.max(initial=0.0)
    return found


def _doubtful(gram: FloatArray) -> BoolArray:
    """Return which Gram matrices (G, d, d) lose digits of a direction."""
    inverse = _inverse(gram)
    share = np.linalg.eigvalsh(gram * inverse[:, :, None] * inverse[:, None, :] + _diagonal(inverse == 0))
    found: BoolArray = share[:, 0] <= _DOUBT * share[:, -1]
    return found


def unclear(sums: Tensors, x: FloatArray, weight: FloatArray) -> BoolArray:
    """Return which groups of a stack (G, n, d) have directions that their Gram matrices lose and their rows have."""
    found = np.zeros(len(x), np.bool_)
    looked_at = np.flatnonzero(np.isfinite(sums["gram"]).all(axis=(1, 2)))
    if not x.shape[2] or x.shape[2] > _MOST_COLUMNS or not looked_at.size:
        return found
    looked_at = looked_at[_doubtful(sums["gram"][looked_at])]
    if looked_at.size:
        some = {name: value[looked_at] for name, value in sums.items()}
        inverse, basis, small = _small_directions(some["gram"])
        rows = (x[looked_at] - some["mean"][:, None, :]) * np.sqrt(weight[looked_at])[:, :, None]
        real = (_lengths(rows, inverse, basis) > _tolerance(some)) & small
        found[looked_at] = real.any(axis=1)
    return found


def _small_directions(gram: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the scale of the columns (G, d), the eigenvectors (G, d, d) and which of them the Gram matrix loses (G, d)."""
    inverse = _inverse(gram)
    values, basis = np.linalg.eigh(gram * inverse[:, :, None] * inverse[:, None, :])
    return inverse, basis, values <= _DOUBT * values[:, -1:]


def _lengths(rows: FloatArray, inverse: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the length of the rows (G, n, d) along each direction, (G, d)."""
    along = rows @ (inverse[:, :, None] * basis)
    lengths: FloatArray = np.sqrt(np.einsum("gnd,gnd->gd", along, along))
    return lengths


def _tolerance(sums: Tensors) -> FloatArray:
    """Return what is rounding of the columns as written on the scale of unit length, (G, 1)."""
    square = sums["square"]
    offset = sums["total"][:, None] * sums["mean"] ** 2 / np.where(square > 0, square, np.inf)
    tolerance: FloatArray = RANK * np.sqrt(1.0 + offset.max(axis=1, keepdims=True))
    return tolerance


def _inverse(gram: FloatArray) -> FloatArray:
    square = np.einsum("gii->gi", gram)
    return np.where(square > 0, 1.0 / np.sqrt(np.where(square > 0, square, 1.0)), 0.0)


def _diagonal(chosen: BoolArray) -> FloatArray:
    """Return diagonal matrices with 1 where ``chosen`` (G, d): a constant column is no direction that is lost."""
    return chosen[:, :, None] * np.eye(chosen.shape[1])


def _factor(sums: Tensors) -> FloatArray:
    """Return the factor of moments; of those whose Gram matrix keeps all digits, its square root."""
    if "factor" in sums:
        return sums["factor"]
    cross = sums["cross"][:, :1]
    whole = np.block([[sums["gram"], cross], [cross.T, sums["target_gram"][:1, :1]]])
    inverse = _inverse(whole[None])[0]
    values, vectors = np.linalg.eigh(whole * inverse[:, None] * inverse)
    values = np.where(values > _NONE * len(values) * values[-1], values, 0.0)
    root: FloatArray = np.sqrt(values)[:, None] * vectors.T
    return root * np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse, 1.0), 0.0)


def _triangle(rows: FloatArray) -> FloatArray:
    """Return R of QR of rows (n, p), with zeros below where there are fewer than p rows."""
    triangle = np.linalg.qr(rows, mode="r")
    square = np.zeros((rows.shape[1], rows.shape[1]))
    square[: len(triangle)] = triangle
    return square


def _one(sums: Tensors) -> Tensors:
    return {name: np.asarray(sums[name])[None] for name in ("total", "mean", "square")}
