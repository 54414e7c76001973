"""Covariances of the weights of linear models, many models at a time, from centred second moments.

At the best weights w̃ = (w, b) of a model the covariance is

    classical   V = s² B⁻¹,   B = Σ ωᵢhᵢ x̃ᵢx̃ᵢ'
    hc1         V = c · B⁻¹ M B⁻¹,   M = Σ ωᵢ²rᵢ² x̃ᵢx̃ᵢ',   c = n / (n − k) for least squares, 1 for other losses
    cluster     V = c · B⁻¹ M B⁻¹,   M = Σ uₖuₖ',   uₖ = Σ ωᵢrᵢx̃ᵢ over cluster k,   c = K / (K − 1) · (n − 1) / (n − k)

with x̃ = (x, 1), weights ω of rows, h the second derivative of a row's loss by its score, r = y − ŷ, k the number of weights
that can be told apart, K that of clusters, and s² = Σ ωᵢrᵢ² / (n − k) for least squares, 1 for other losses (White 1980;
MacKinnon & White 1985; Liang & Zeger 1986).
Weights of rows are analytic: a row of weight 2 has half the variance, and counts once in n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, starts
from grouplearn.kernels.algebra import product
from grouplearn.kernels.linear import moments as kernel
from grouplearn.learners.linear.errors.sums import ClusterSums
from grouplearn.learners.linear.least_squares.moments import inverse_spread
from grouplearn.models.state import Tensors

#: A column is redundant if others explain all but this share of its variance.
_REDUNDANT = 1e-11
#: A column takes part in a redundancy if its share of it is above this.
_TAKES_PART = 1e-8
#: Fewer informative rows than this: the best weight is infinite.
_INFORMATIVE = 0.1


class Inverse(NamedTuple):
    """The ``inverse`` of matrices (M, d, d), without the columns that are ``left`` out (M, d); ``null`` (M, d, d) has for each of
    these, as a column, the combination of columns that is constant."""

    inverse: FloatArray
    left: npt.NDArray[np.bool_]
    null: FloatArray


class Sandwich(NamedTuple):
    """The middle M (M, ...) of robust covariances, about the means of B: ``gram`` (d, d), ``cross`` (d,), ``total``."""

    gram: FloatArray
    cross: FloatArray
    total: FloatArray


class Estimable(NamedTuple):
    """Which ``weights`` (M, d) and ``intercepts`` (M,) can be told from others, and how many ``rank`` (M,)."""

    weights: npt.NDArray[np.bool_]
    intercepts: npt.NDArray[np.bool_]
    rank: npt.NDArray[np.int64]


def inverse_of(moments: Tensors, least: float = _REDUNDANT) -> Inverse:
    """Return the inverse of the ``gram`` of moments (M, ...), by the sweep operator (Goodnight 1979) on columns of unit length.

    A column whose pivot is at most ``least`` is left out.
    """
    gram = moments["gram"]
    scale = inverse_spread(np.diagonal(gram, axis1=-2, axis2=-1), moments["mean"], moments["total"])
    r = gram * scale[..., :, None] * scale[..., None, :]
    d, left = gram.shape[-1], np.zeros(scale.shape, np.bool_)
    for k in range(d):
        pivot = r[:, k, k]
        kept = pivot > least
        left[:, k] = ~kept
        inverse = np.where(kept, 1.0 / np.where(kept, pivot, 1.0), 0.0)
        row, column = r[:, k, :].copy(), r[:, :, k].copy()
        r -= column[:, :, None] * (row * inverse[:, None])[:, None, :]
        r[:, k, :] = np.where(kept[:, None], row * inverse[:, None], row)
        r[:, :, k] = np.where(kept[:, None], -column * inverse[:, None], column)
        r[:, k, k] = np.where(kept, inverse, pivot)
    both = ~left[:, :, None] & ~left[:, None, :]
    null = np.where(~left[:, :, None] & left[:, None, :], -r, 0.0)
    null += np.eye(d) * left[:, None, :]
    back = np.where(scale > 0, scale, 1.0)
    return Inverse(np.where(both, r, 0.0) * scale[:, :, None] * scale[:, None, :], left, null * back[:, :, None])


def estimable(moments: Tensors, found: Inverse, fit_intercept: bool) -> Estimable:
    """Return which weights the plain ``moments`` of features tell apart, given their inverse."""
    spread = np.sqrt(np.maximum(np.diagonal(moments["gram"], axis1=-2, axis2=-1), 0.0))
    size = np.abs(found.null) * np.where(spread > 0, spread, 1.0)[:, :, None]
    largest = size.max(axis=1, keepdims=True, initial=0.0)
    weights = ~(size > _TAKES_PART * largest).any(axis=2)
    shifts = moments["mean"][:, :, None] * found.null
    total, parts = np.abs(shifts.sum(axis=1)), np.abs(shifts).sum(axis=1)
    intercepts = ~(total > 1e-9 * parts).any(axis=1) if fit_intercept else np.zeros(len(weights), np.bool_)
    rank = (~found.left).sum(axis=1) + int(fit_intercept)
    return Estimable(weights, intercepts, rank)


def classical(bread: Tensors, inverse: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the variances (M, d + 1) of weights and intercept."""
    mean = bread["mean"]
    of_intercept = 1.0 / bread["total"] + _quadratic(inverse, mean)
    of_all = np.concatenate([np.diagonal(inverse, axis1=-2, axis2=-1), of_intercept[:, None]], axis=1)
    return np.asarray(of_all * variance[:, None])


def robust(bread: Tensors, inverse: FloatArray, middle: Sandwich, factor: FloatArray) -> FloatArray:
    """Return the variances (M, d + 1) of weights and intercept with this middle."""
    both = product(product(inverse, middle.gram), inverse)
    with_centre = product(inverse, middle.cross[:, :, None])[:, :, 0] / bread["total"][:, None]
    mean = bread["mean"]
    of_intercept = middle.total / bread["total"] ** 2 - 2.0 * (mean * with_centre).sum(axis=1) + _quadratic(both, mean)
    of_all = np.concatenate([np.diagonal(both, axis1=-2, axis2=-1), of_intercept[:, None]], axis=1)
    return np.asarray(of_all * factor[:, None])


def middle_of(bread: Tensors, scores: Tensors) -> Sandwich:
    """Return the middle from the moments of rows weighted by ω²r²."""
    shift, total = scores["mean"] - bread["mean"], scores["total"]
    gram = scores["gram"] + total[:, None, None] * shift[:, :, None] * shift[:, None, :]
    return Sandwich(gram, total[:, None] * shift, total)


def middle_of_clusters(bread: Tensors, clusters: ClusterSums) -> Sandwich:
    """Return the middle from the sums by cluster."""
    sums = clusters.about(bread["mean"])
    start = starts(clusters.counts.astype(np.int64))
    about_zero = without_intercept(kernel.of_rows(sums, np.empty((len(sums), 0)), np.ones(len(sums)), start))["gram"]
    return Sandwich(about_zero[:, :-1, :-1], about_zero[:, :-1, -1], about_zero[:, -1, -1])


def separated(plain: Inverse, curved: Inverse, rows: FloatArray) -> npt.NDArray[np.bool_]:
    """Return which weights (M, d) so few rows tell anything about that the best one is infinite.

    The curvature of the loss as seen by a weight is the ratio of its variance without curvature and with it. Where the
    features separate labels, rows have almost none.
    """
    without, with_it = (np.diagonal(each.inverse, axis1=-2, axis2=-1) for each in (plain, curved))
    informative = rows[:, None] * without < _INFORMATIVE * with_it
    return np.asarray(informative | (curved.left & ~plain.left))


def without_intercept(moments: Tensors) -> Tensors:
    """Return moments (M, ...) about zero, whose intercept has no variance."""
    mean, total = moments["mean"], moments["total"]
    gram = moments["gram"] + total[:, None, None] * mean[:, :, None] * mean[:, None, :]
    return {**moments, "gram": gram, "mean": np.zeros_like(mean)}


def _quadratic(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Return v'Av (M,)."""
    return np.asarray((vector * product(matrix, vector[:, :, None])[:, :, 0]).sum(axis=1))
