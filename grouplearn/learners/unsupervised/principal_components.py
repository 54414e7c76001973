"""Principal components from weighted moments (``learners.linear.moments``): directions of a group's rows by variance.

With mean m, weights w and S = Σ wᵢ(xᵢ − m)(xᵢ − m)' / (Σw − 1), the components v are orthonormal eigenvectors of S with the
eigenvalues as variances. A row x has the coordinates v'(x − m).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels import algebra
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.linear.least_squares.moments import inverse_spread, require_finite
from grouplearn.models.state import Tensors


class Components(NamedTuple):
    """Principal components of rows of d features; all may have leading axes.

    ``mean`` (d,) is subtracted from rows. ``components`` (d, d) are orthonormal rows, the greatest ``variance`` (d,) first;
    the entry of a component that is largest in size is positive, the first of equal ones (to 1e-9). ``rank`` () counts the
    components with a variance above 0: along all other directions rows are constant up to rounding, and these are 0 here.
    ``rest`` () is the variance along all other directions, if these components are not all.
    """

    mean: FloatArray
    components: FloatArray
    variance: FloatArray
    rank: npt.NDArray[np.int64]
    rest: FloatArray

    @property
    def total(self) -> FloatArray:
        """The variance along all directions."""
        return np.asarray(self.variance.sum(axis=-1) + self.rest)


def fit(moments: Tensors) -> Components:
    """Return the components of rows with these moments, which have a ``gram``; leading axes are kept.

    Variances are NaN if they exist but Σw ≤ 1; everything is NaN if moments are not finite.
    """
    total, mean, square = (np.asarray(moments[name], np.float64) for name in ("total", "mean", "square"))
    with np.errstate(all="ignore"):
        varies = inverse_spread(square, mean, total) > 0
        root = deviation_unit(total)
        # 0 for a column that is constant up to rounding; non-finite values stay.
        gram = np.where(
            varies[..., :, None] & varies[..., None, :], moments["gram"], 0.0 * square.sum(axis=-1)[..., None, None]
        )
        found = algebra.eigen(gram)
        variance = found.values / (root * root)
        variance = np.where(found.values == 0, 0.0, np.where(root > 0, variance, np.nan))
    return Components(mean, found.directions, variance, found.rank, np.zeros(total.shape))


def deviation_unit(total: FloatArray) -> FloatArray:
    """Return √(Σw − 1) with a further axis: sums of squares divided by it twice are variances."""
    return np.sqrt(np.maximum(total - 1.0, 0.0))[..., None]


def fit_one(moments: Tensors) -> Components:
    """Return the components of one group.

    Raises Diverged if moments are not finite, no row has weight, or rows differ although their weights sum to 1 or less.
    """
    require_rows(moments)
    found = fit(moments)
    if np.isnan(found.variance).any():
        raise too_light(moments)
    return found


def require_rows(moments: Tensors) -> None:
    """Raise Diverged if moments are not finite, or no row has weight."""
    if not moments["total"] > 0:
        raise Diverged("no row has a weight above 0")
    require_finite(moments)


def too_light(moments: Tensors) -> Diverged:
    """Return why rows have no variances whose weights sum to 1 or less."""
    return Diverged(f"the weights sum to {float(moments['total']):g}: variances need more than 1; scale the weights up")
