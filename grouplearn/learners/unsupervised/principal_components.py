"""Principal components from weighted moments (``learners.linear.moments``): directions of a group's rows by variance.

With mean m, weights w and S = Σ wᵢ(xᵢ − m)(xᵢ − m)' / (Σw − 1), components v are orthonormal eigenvectors of S, and their
variances the eigenvalues. A row has the scores v'(x − m). With ``scale`` each column is divided by its standard deviation
first, that with the same denominator, so that S is the matrix of correlations (R's ``prcomp(scale. = TRUE)``; after
scikit-learn's ``StandardScaler``, which divides by n, variances are n/(n − 1) times as large).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels import algebra
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.state import Tensors
from grouplearn.learners.linear.moments import inverse_spread, require_finite


class Components(NamedTuple):
    """Principal components of rows of d features; all may have leading axes.

    ``mean`` and ``scale`` (d,): a column is centred and divided by these, ``scale`` being 1 unless it was asked for, and 1 of
    a constant column. ``components`` (d, d) as rows, orthonormal, the greatest ``variance`` (d,) first; of a component the
    entry that is largest in size is positive, of entries alike (to 1e-9) the first. ``ratio`` (d,) is the share of ``total``
    (), the variance of all columns; NaN where that is 0. ``rank`` () says how many components have a variance above 0: the
    others, beyond rounding, are constant, and any orthonormal directions that complete the rest.
    """

    mean: FloatArray
    scale: FloatArray
    components: FloatArray
    variance: FloatArray
    ratio: FloatArray
    total: FloatArray
    rank: npt.NDArray[np.int64]


def fit(moments: Tensors, scale: bool = False) -> Components:
    """Return the components of rows with these moments, which have a ``gram``; leading axes stay.

    Variances are NaN where there are some but Σw ≤ 1, and everything is NaN where moments are not finite.
    """
    total, mean, square = (np.asarray(moments[name], np.float64) for name in ("total", "mean", "square"))
    with np.errstate(all="ignore"):
        inverse = inverse_spread(square, mean, total)
        root = np.sqrt(np.maximum(total - 1.0, 0.0))[..., None]
        factor = inverse if scale else np.where(inverse > 0, 1.0, 0.0)
        gram = np.asarray(moments["gram"]) * factor[..., :, None] * factor[..., None, :]
        gram = np.where(
            (factor[..., :, None] > 0) & (factor[..., None, :] > 0), gram, 0.0 * square.sum(axis=-1)[..., None, None]
        )
        divisor = np.where(inverse > 0, 1.0 / (inverse * root), 1.0) if scale else np.ones_like(mean)
        found = algebra.eigen(gram)
        # With ``scale`` the matrix already is that of correlations.
        variance = found.values if scale else found.values / (root * root)
        variance = np.where(found.values == 0, 0.0, np.where(root > 0, variance, np.nan))
        all_variance = variance.sum(axis=-1)
        ratio = variance / all_variance[..., None]
    return Components(mean, divisor, found.directions, variance, ratio, all_variance, found.rank)


def fit_one(moments: Tensors, scale: bool = False) -> Components:
    """Return the components of one group.

    Raises Diverged where moments are not finite, no row has weight, or rows differ though their weights sum to 1 or less.
    """
    if not moments["total"] > 0:
        raise Diverged("no row has a weight above 0")
    require_finite(moments)
    found = fit(moments, scale)
    if np.isnan(found.variance).any():
        raise Diverged(
            f"the weights sum to {float(moments['total']):g}: variances need more than 1; scale the weights up"
        )
    return found


def transform(model: Components, x: npt.NDArray[Any], n_components: int) -> FloatArray:
    """Return the scores (n, n_components) of rows x (n, d) on the first components; NaN of a row with a NaN."""
    centred = (np.asarray(x, np.float64) - model.mean) / model.scale
    return algebra.product(centred, np.ascontiguousarray(model.components[:n_components].T))
