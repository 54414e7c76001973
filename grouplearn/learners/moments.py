"""Weighted means and centred second moments of features and targets, as mergeable sums.

Blocks are combined by the pairwise update of Chan, Golub & LeVeque (1983), so that a column whose mean is huge
beside its spread keeps its digits.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
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
    mean_shift = right["mean"] - left["mean"]
    target_shift = right["target_mean"] - left["target_mean"]
    merged = {
        "total": total,
        "mean": left["mean"] + mean_shift * share[..., None],
        "target_mean": left["target_mean"] + target_shift * share[..., None],
    }
    between = _between(left["total"] * share, mean_shift, target_shift, gram="gram" in left)
    return {**merged, **{name: left[name] + right[name] + value for name, value in between.items()}}


def _between(harmonic: FloatArray, shift: FloatArray, target_shift: FloatArray, gram: bool) -> dict[str, FloatArray]:
    """Return what two parts add to centred second moments beyond their own, because their means differ."""
    scaled, scaled_target = harmonic[..., None] * shift, harmonic[..., None] * target_shift
    return {
        "square": scaled * shift,
        "cross": _outer(scaled, target_shift),
        "target_gram": _outer(scaled_target, target_shift),
        **({"gram": _outer(scaled, shift)} if gram else {}),
    }


def leave_one_out(folds: Tensors) -> Tensors:
    """Return moments (G, F + 1, ...) from those of the F folds (G, F, ...): all but fold f for each f, then all rows.

    One pass over the rows thus serves every fold. The rest of a fold is what is before it merged with what is after it: the
    sums of all less its own would keep no digits of a column that is far larger in that fold. A fold without rows has total 0.
    """
    n_folds = folds["total"].shape[1]
    parts = [{name: value[:, fold] for name, value in folds.items()} for fold in range(n_folds)]
    before = [*itertools.accumulate(parts, _merged_where)]
    after = [*itertools.accumulate(reversed(parts), lambda later, part: _merged_where(part, later))][::-1]
    between = [_merged_where(left, right) for left, right in zip(before, after[2:], strict=False)]
    rest = [after[1], *between, before[-2]] if n_folds > 1 else []
    return {name: np.stack([each[name] for each in (*rest, before[-1])], axis=1) for name in parts[0]}


def _merged_where(left: Tensors, right: Tensors) -> Tensors:
    """Return the merged moments, where an empty side changes nothing."""
    return _choose(left["total"] > 0, _choose(right["total"] > 0, merge_moments(left, right), left), right)


def _choose(first: npt.NDArray[np.bool_], one: Tensors, other: Tensors) -> Tensors:
    if first.all():
        return one
    return {
        name: np.where(first.reshape(first.shape + (1,) * (one[name].ndim - first.ndim)), one[name], other[name])
        for name in one
    }


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


@_quiet
def finite(moments: Tensors) -> npt.NDArray[np.bool_]:
    """Return for which groups, along the leading axes, the second moments are finite."""
    sums: FloatArray = moments["square"].sum(axis=-1) + np.abs(moments["cross"]).sum(axis=(-1, -2))
    sums = sums + moments["target_gram"].sum(axis=(-1, -2)) + moments["total"] * (moments["mean"] ** 2).sum(axis=-1)
    known: npt.NDArray[np.bool_] = np.isfinite(sums)
    return known


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
        first = int(np.argwhere(~np.isfinite(column))[0][-1])
        raise Diverged(f"the squares of feature column {first + 1} overflow; scale it, with zscore for example", first)


def inverse_spread(square: FloatArray, mean: FloatArray, total: FloatArray) -> FloatArray:
    """Return 1/sqrt(square) per column, and 0 for a column that is constant about its centre."""
    varies = square > _CONSTANT * total[..., None] * mean**2
    varies &= square > 0
    return np.where(varies, 1.0 / np.sqrt(np.where(varies, square, 1.0)), 0.0)
