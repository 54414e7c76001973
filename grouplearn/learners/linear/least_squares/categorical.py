"""Least squares and ridge where many columns are never nonzero in the same row, such as those of a one-hot item.

The raw products of such columns X are a diagonal D. Let A be the other columns, centred, with the intercept, and B = X'A.
The weights u of X follow from the weights v of A, (D + l2)u = X'y − Bv, and v solves the small system
(A'A + l2 − B'(D + l2)⁻¹B) v = A'y − B'(D + l2)⁻¹X'y, the Schur complement (Golub & Van Loan 2013, section 4.4).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear import least_squares
from grouplearn.learners.linear.least_squares import moments, sparse_moments
from grouplearn.models.state import Tensors

#: Least share of all columns that such a run must have.
_SHARE = 0.5
#: Most by which (mean − shift)² of a column may exceed its variance before sums about the shift lose digits.
_FAR = 1e4


@dataclass(frozen=True, slots=True)
class CategoricalMoments:
    """Moments of one group, split into the columns [start, stop), never nonzero in the same row, and the others.

    ``square`` (K,) are the raw products of the run; ``beside`` (K, p) its products with the p other columns that are
    ``varying`` (d - K,), about their shift, in compressed rows; ``sizes`` (K,) its products with the intercept; ``centre``
    (p,) the means of the others minus their shift; ``rest`` (p + 1, p + 1) the centred products among them and the
    intercept; ``cross`` and ``others`` the products of both with the label.
    """

    start: int
    stop: int
    varying: npt.NDArray[np.bool_]
    square: FloatArray
    beside: Any
    sizes: FloatArray
    centre: FloatArray
    #: Whether a mean is so far from its shift that centring the finished sums would lose digits.
    is_far: bool
    rest: FloatArray
    cross: FloatArray
    others: FloatArray

    def solve(self, l2: float) -> FloatArray:
        """Return the weights (d,), 0 for constant columns; without penalty, the solution with the smallest weights."""
        beside = (self.beside.indptr, self.beside.indices, self.beside.data)
        offset, labelled = (self.sizes, self.centre, self.is_far), (self.cross, self.others)
        inside, found = least_squares.parted(self.square, beside, offset, self.rest, labelled, l2)
        outside = np.zeros(self.varying.size)
        outside[self.varying] = found
        return np.concatenate([outside[: self.start], inside, outside[self.start :]])


def parted(sums: Tensors) -> CategoricalMoments | None:
    """Return moments of sparse rows split at their longest run of such columns; None if that does not pay."""
    mean, total, size = sums["mean"], float(sums["total"]), sums["mean"].size
    products, beyond = sparse_moments.products(sums), sums["beyond"]
    start, stop = _longest_run(products, sums["shift"])
    if stop - start < _SHARE * size:
        return None
    outside = np.r_[0:start, stop:size]
    varying = moments.inverse_spread(sums["square"], mean, sums["total"])[outside] > 0
    outside = outside[varying]
    centre, square = beyond[outside], sums["square"][outside]
    others = products[outside][:, outside].toarray()
    others -= total * np.outer(centre, centre)
    np.fill_diagonal(others, square)
    rest = np.zeros((outside.size + 1, outside.size + 1))
    rest[:-1, :-1], rest[-1, -1] = others, total
    cross = sums["cross"][:, 0]
    return CategoricalMoments(
        start,
        stop,
        varying,
        products.diagonal()[start:stop],
        products[start:stop][:, outside],
        total * mean[start:stop],
        centre,
        bool((total * centre**2 > _FAR * square).any()),
        rest,
        cross[start:stop],
        np.append(cross[outside], 0.0),
    )


def _longest_run(products: Any, shift: FloatArray) -> tuple[int, int]:
    """Return the longest run of columns that have no shift and no nonzero products with each other."""
    best, start = (0, 0), 0
    for column, (first, last) in enumerate(itertools.pairwise(products.indptr.tolist())):
        others = products.indices[first:last][products.data[first:last] != 0]
        met = others[(others >= start) & (others < column)]
        start = column + 1 if shift[column] else max(start, int(met.max(initial=-1)) + 1)
        if column + 1 - start > best[1] - best[0]:
            best = (start, column + 1)
    return best
