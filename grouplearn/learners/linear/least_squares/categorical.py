"""Least squares and ridge with many columns that are never set together, such as those of a one-hot item.

Raw products of such columns are a diagonal D. With the other columns A centred and the intercept beside them, the weights
of the first follow from those of the others, (D + l2)u = X'y − Bv, which solve the small system
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
from grouplearn.learners.contract.state import Tensors
from grouplearn.learners.linear.least_squares import moments, sparse_moments

#: Least share of the columns in such a run.
_SHARE = 0.5
#: Times its spread about the mean, beyond which a column's spread about its shift loses digits.
_FAR = 1e4


@dataclass(frozen=True, slots=True)
class Parted:
    """Moments of one group, cut at the columns [start, stop) that are never set together.

    ``square`` (K,) are their raw products, ``beside`` (K, p) those with the other columns that are ``varying`` (d - K,), about
    their shift, in compressed rows; ``sizes`` (K,) those with the intercept, ``centre`` (p,) what the others' means are beyond
    their shift, and ``rest`` (p + 1, p + 1) the centred products among these; ``cross`` and ``others`` are those with the label.
    """

    start: int
    stop: int
    varying: npt.NDArray[np.bool_]
    square: FloatArray
    beside: Any
    sizes: FloatArray
    centre: FloatArray
    #: Whether a centre is so far from zero that centring what is added up already would lose digits.
    is_far: bool
    rest: FloatArray
    cross: FloatArray
    others: FloatArray

    def solve(self, l2: float) -> FloatArray:
        """Return the weights (d,), 0 of a constant; without penalty, of many solutions the one with the smallest weights."""
        beside = (self.beside.indptr, self.beside.indices, self.beside.data)
        offset, labelled = (self.sizes, self.centre, self.is_far), (self.cross, self.others)
        inside, found = least_squares.parted(self.square, beside, offset, self.rest, labelled, l2)
        outside = np.zeros(self.varying.size)
        outside[self.varying] = found
        return np.concatenate([outside[: self.start], inside, outside[self.start :]])


def parted(sums: Tensors) -> Parted | None:
    """Return moments of sparse rows cut at their longest run of such columns, None if that does not pay."""
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
    return Parted(
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
    """Return the longest run of columns without shift that have no products with each other."""
    best, start = (0, 0), 0
    for column, (first, last) in enumerate(itertools.pairwise(products.indptr.tolist())):
        others = products.indices[first:last][products.data[first:last] != 0]
        met = others[(others >= start) & (others < column)]
        start = column + 1 if shift[column] else max(start, int(met.max(initial=-1)) + 1)
        if column + 1 - start > best[1] - best[0]:
            best = (start, column + 1)
    return best
