"""Weighted means and centred second moments of features and targets, as mergeable sums.

Blocks are combined by the pairwise update of Chan, Golub & LeVeque (1983), so that a column whose mean is huge
beside its spread keeps its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Stack
from grouplearn.kernels.linear import moments as kernels
from grouplearn.kernels.linear import sparse
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.models.state import Tensors

#: A column whose weighted variance is below this share of its squared mean is constant up to rounding.
_CONSTANT = 1e-24
#: Numbers that fit the processor's cache.
_CACHED = 500_000
#: Overflow is reported once, by ``require_finite``, not as a warning per operation.
_quiet = np.errstate(over="ignore", invalid="ignore")


@_quiet
def block_moments(x: Matrix, targets: FloatArray, weight: FloatArray, gram: bool) -> Tensors:
    """Return the moments of the rows of one block; ``targets`` is (n, t).

    ``total`` Σw, ``mean`` (d,), ``target_mean`` (t,), ``square`` Σw(x−x̄)² (d,), ``cross`` Σw(x−x̄)(t−t̄)' (d, t),
    ``target_gram`` (t, t) and, if ``gram``, ``gram`` Σw(x−x̄)(x−x̄)' (d, d).
    """
    if isinstance(x, np.ndarray):
        found = kernels.of_rows(x, targets, weight, np.array([0, len(weight)]), gram=gram)
        return {name: np.asarray(value[0]) for name, value in found.items()}
    of_targets = kernels.of_rows(np.empty((len(weight), 0)), targets, weight, np.array([0, len(weight)]), gram=False)
    total, target_mean, target_gram = (of_targets[name][0] for name in ("total", "target_mean", "target_gram"))
    mean = sparse.transposed_product(x, weight) / total
    second = _sparse_moments(x, mean, weight, (targets - target_mean) * weight[:, None], gram)
    return {
        "total": np.asarray(total),
        "mean": mean,
        "target_mean": target_mean,
        "target_gram": target_gram,
        **second,
    }


def _sparse_moments(
    x: Any, mean: FloatArray, weight: FloatArray, targets: FloatArray, gram: bool
) -> dict[str, FloatArray]:
    """Return the moments of sparse rows: columns stored in every row are centred, the zeros of the others stay implicit."""
    stored = np.bincount(x.indices, minlength=x.shape[1])
    shift = np.where(stored == x.shape[0], mean, 0.0)
    shifted = x.copy()
    shifted.data = shifted.data - shift[x.indices]
    remaining = mean - shift
    row_weight = np.repeat(weight, np.diff(x.indptr))
    stored_weight = np.bincount(x.indices, row_weight, minlength=x.shape[1])
    squares: FloatArray = np.zeros(x.shape[1])
    squares += np.bincount(x.indices, row_weight * (x.data - mean[x.indices]) ** 2, minlength=x.shape[1])
    squares += np.maximum(weight.sum() - stored_weight, 0.0) * mean**2 * (stored < x.shape[0])
    # Σw(t − t̄) = 0, so the part of the mean that was not subtracted drops out of the cross moments.
    cross = sparse.transposed_product(shifted, targets)
    if not gram:
        return {"cross": cross, "square": squares}
    scaled = shifted.copy()
    scaled.data = shifted.data * np.repeat(np.sqrt(weight), np.diff(x.indptr))
    product = sparse.dense_gram(scaled) - weight.sum() * np.outer(remaining, remaining)
    np.fill_diagonal(product, squares)
    return {"cross": cross, "square": squares, "gram": product}


def merge_moments(left: Tensors, right: Tensors) -> Tensors:
    """Return the moments of the rows of both."""
    return kernels.merged(left, right)


def leave_one_out(folds: Tensors) -> Tensors:
    """Return moments (G, F + 1, ...) from those of the F folds (G, F, ...): all but fold f for each f, then all rows.

    One pass over the rows thus serves every fold. A fold without rows has total 0.
    """
    return kernels.without_each(folds)


def group_moments(stack: Stack, targets: FloatArray) -> Tensors:
    """Return the moments of every group of a stack, (G, ...), for targets (n, t), with those of earlier rows."""
    found = kernels.of_rows(stack.x, targets, stack.weight, stack.start)
    return found if stack.before is None else merge_moments(stack.before, found)


def fold_moments(stack: Stack, fold: npt.NDArray[np.int16], n_folds: int) -> Tensors:
    """Return the moments of every group's folds, (G, F, ...); ``fold`` (n,) is each row's fold."""
    return kernels.of_rows(stack.x, stack.y[:, None], stack.weight, stack.start, (fold, n_folds))


def at_a_time(n_features: int, sets: int = 1) -> int:
    """Return how many groups' moments, for this many sets of rows each, fit the processor's cache."""
    return max(1, _CACHED // (sets * (n_features + 2) ** 2))


def runs_of(stack: Stack, n_features: int, cancelled: Callable[[], bool]) -> Iterator[Stack]:
    """Yield the groups of a stack in runs whose moments fit the processor's cache; raises Interrupted."""
    run = at_a_time(n_features)
    for first in range(0, stack.n_groups, run):
        if cancelled():
            raise Interrupted
        yield stack.part(first, min(first + run, stack.n_groups))


@_quiet
def about_zero(moments: Tensors) -> Tensors:
    """Return the moments about zero instead of the mean, for models without intercept."""
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
    if not np.isfinite(moments["total"]).all():
        raise Diverged("the sum of the weights overflows; scale the weights down")
    if not np.isfinite(moments["target_gram"]).all():
        raise Diverged("the squares of the label overflow; scale the label down")
    if not np.isfinite(column).all():
        first = int(np.argwhere(~np.isfinite(column))[0][-1])
        raise Diverged(f"the squares of feature column {first + 1} overflow; scale it, with zscore for example", first)


def inverse_spread(square: FloatArray, mean: FloatArray, total: FloatArray) -> FloatArray:
    """Return 1/sqrt(square) per column, 0 for constant columns."""
    varies = square > _CONSTANT * total[..., None] * mean**2
    varies &= square > 0
    return np.where(varies, 1.0 / np.sqrt(np.where(varies, square, 1.0)), 0.0)
