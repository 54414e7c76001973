"""Weighted means and centred second moments of features and targets, as mergeable sums.

Blocks are combined by the pairwise update of Chan, Golub & LeVeque (1983), so that a column whose mean is huge
beside its spread keeps its digits.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from grouplearn.data.shard import FloatArray, Matrix
from grouplearn.learners.base import Diverged, Tensors

#: A column whose weighted variance is below this share of its squared mean is constant up to rounding.
_CONSTANT = 1e-24


#: Overflow is reported once, by ``require_finite``, not as a warning per operation.
_quiet = np.errstate(over="ignore", invalid="ignore")


@_quiet
def block_moments(x: Matrix, targets: FloatArray, weight: FloatArray, gram: bool) -> Tensors:
    """Return the moments of the rows of one block; ``targets`` is (n, t).

    ``total`` Σw, ``mean`` (d,), ``target_mean`` (t,), ``square`` Σw(x−x̄)² (d,), ``cross`` Σw(x−x̄)(t−t̄)' (d, t),
    ``target_gram`` (t, t) and, if ``gram``, ``gram`` Σw(x−x̄)(x−x̄)' (d, d).
    """
    total = weight.sum()
    mean = np.asarray(x.T @ weight) / total
    target_mean = targets.T @ weight / total
    centred_targets = targets - target_mean
    moments = _sparse_moments if scipy.sparse.issparse(x) else _dense_moments
    second = moments(x, mean, weight, centred_targets * weight[:, None], gram)
    return {
        "total": np.asarray(total),
        "mean": mean,
        "target_mean": target_mean,
        "target_gram": (centred_targets * weight[:, None]).T @ centred_targets,
        **second,
    }


def _dense_moments(
    x: FloatArray, mean: FloatArray, weight: FloatArray, targets: FloatArray, gram: bool
) -> dict[str, FloatArray]:
    centred = x - mean
    cross = centred.T @ targets
    centred *= np.sqrt(weight)[:, None]
    if not gram:
        return {"cross": cross, "square": np.einsum("ij,ij->j", centred, centred)}
    product = centred.T @ centred
    return {"cross": cross, "square": product.diagonal().copy(), "gram": product}


def _sparse_moments(
    x: scipy.sparse.csr_matrix, mean: FloatArray, weight: FloatArray, targets: FloatArray, gram: bool
) -> dict[str, FloatArray]:
    """Columns stored in every row are centred in place of their values; the zeros of the others stay implicit."""
    stored = np.bincount(x.indices, minlength=x.shape[1])
    shift = np.where(stored == x.shape[0], mean, 0.0)
    shifted = x.copy()
    shifted.data = shifted.data - shift[x.indices]
    remaining = mean - shift
    row_weight = np.repeat(weight, np.diff(x.indptr))
    stored_weight = np.bincount(x.indices, row_weight, minlength=x.shape[1])
    squares = np.bincount(x.indices, row_weight * (x.data - mean[x.indices]) ** 2, minlength=x.shape[1])
    squares += np.maximum(weight.sum() - stored_weight, 0.0) * mean**2 * (stored < x.shape[0])
    # Σw(t − t̄) = 0, so the part of the mean that was not subtracted drops out of the cross moments.
    cross = np.asarray(shifted.T @ targets)
    if not gram:
        return {"cross": cross, "square": squares}
    root = np.sqrt(weight)
    scaled = scipy.sparse.csr_matrix(
        (shifted.data * np.repeat(root, np.diff(x.indptr)), shifted.indices, shifted.indptr), shape=x.shape
    )
    product = (scaled.T @ scaled).toarray() - weight.sum() * np.outer(remaining, remaining)
    np.fill_diagonal(product, squares)
    return {"cross": cross, "square": squares, "gram": product}


@_quiet
def merge_moments(left: Tensors, right: Tensors) -> Tensors:
    """Return the moments of the rows of both."""
    total = left["total"] + right["total"]
    share = right["total"] / total
    harmonic = left["total"] * share
    shift = right["mean"] - left["mean"]
    target_shift = right["target_mean"] - left["target_mean"]
    merged = {
        "total": total,
        "mean": left["mean"] + shift * share,
        "target_mean": left["target_mean"] + target_shift * share,
        "square": left["square"] + right["square"] + harmonic * shift**2,
        "cross": left["cross"] + right["cross"] + harmonic * np.outer(shift, target_shift),
        "target_gram": left["target_gram"] + right["target_gram"] + harmonic * np.outer(target_shift, target_shift),
    }
    if "gram" in left:
        merged["gram"] = left["gram"] + right["gram"] + harmonic * np.outer(shift, shift)
    return merged


@_quiet
def stack_moments(x: FloatArray, targets: FloatArray, weight: FloatArray) -> Tensors:
    """Return the moments of every group of a stack: x (G, n, d), targets (G, n, t), weight (G, n), 0 where padded.

    As ``block_moments`` with ``gram``, each tensor with the group as its first axis.
    """
    total = weight.sum(axis=1)
    mean = (weight[:, None, :] @ x)[:, 0, :] / total[:, None]
    target_mean = (weight[:, None, :] @ targets)[:, 0, :] / total[:, None]
    root = np.sqrt(weight)[:, :, None]
    centred = (x - mean[:, None, :]) * root
    centred_targets = (targets - target_mean[:, None, :]) * root
    gram = centred.transpose(0, 2, 1) @ centred
    return {
        "total": total,
        "mean": mean,
        "target_mean": target_mean,
        "target_gram": centred_targets.transpose(0, 2, 1) @ centred_targets,
        "cross": centred.transpose(0, 2, 1) @ centred_targets,
        "square": np.einsum("gii->gi", gram).copy(),
        "gram": gram,
    }


@_quiet
def about_zero(moments: Tensors) -> Tensors:
    """Return the moments taken about zero instead of about the mean: what a model without intercept sees."""
    total, mean, target_mean = moments["total"], moments["mean"], moments["target_mean"]
    raw = {
        **moments,
        "mean": np.zeros_like(mean),
        "square": moments["square"] + total[..., None] * mean**2,
        "cross": moments["cross"] + total[..., None, None] * _outer(mean, target_mean),
        "target_gram": moments["target_gram"] + total[..., None, None] * _outer(target_mean, target_mean),
    }
    if "gram" in moments:
        raw["gram"] = moments["gram"] + total[..., None, None] * _outer(mean, mean)
    return raw


def _outer(left: FloatArray, right: FloatArray) -> FloatArray:
    product: FloatArray = left[..., :, None] * right[..., None, :]
    return product


@_quiet
def require_finite(moments: Tensors) -> None:
    """Raise Diverged, with the reason, when sums over the features or the label are not finite."""
    column = (
        moments["square"] + np.abs(moments["cross"]).sum(axis=-1) + moments["total"][..., None] * moments["mean"] ** 2
    )
    if not np.isfinite(moments["target_gram"]).all():
        raise Diverged("the squares of the label overflow; scale the label down")
    if not np.isfinite(column).all():
        number = int(np.argwhere(~np.isfinite(column))[0][-1]) + 1
        raise Diverged(f"the squares of feature column {number} overflow; scale it, with zscore for example")


def inverse_spread(square: FloatArray, mean: FloatArray, total: FloatArray) -> FloatArray:
    """Return 1/sqrt(square) per column, and 0 for a column that is constant about its centre."""
    varies = square > _CONSTANT * total[..., None] * mean**2
    varies &= square > 0
    return np.where(varies, 1.0 / np.sqrt(np.where(varies, square, 1.0)), 0.0)
