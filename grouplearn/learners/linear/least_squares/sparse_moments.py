"""Moments of sparse rows with a sparse Gram matrix: products of columns about a shift, which is 0 for most columns.

A column that is stored in every row of a block is shifted by its mean there; the others have shift 0, so that the products
of indicators stay a diagonal. With products P about the shift s, the centred Gram matrix is P − N(x̄ − s)(x̄ − s)'. The
difference x̄ − s is summed separately: subtracting afterwards would lose all digits where a mean is many times the spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.linear import sparse
from grouplearn.learners.linear.least_squares import moments
from grouplearn.models.state import Tensors

#: The products P (d, d) in compressed rows: values, columns, and where each row begins.
_PARTS = ("product_values", "product_columns", "product_starts")


def of_block(x: Any, y: FloatArray, weight: FloatArray) -> Tensors:
    """Return the moments of a block of sparse rows, as ``moments.block_moments``: ``shift``, ``beyond`` x̄ − s (d,), P."""
    sums = moments.block_moments(x, y[:, None], weight, gram=False)
    everywhere = np.bincount(x.indices, minlength=x.shape[1]) == x.shape[0]
    shift = np.where(everywhere, sums["mean"], 0.0)
    shifted, root = x.data - shift[x.indices], np.repeat(np.sqrt(weight), np.diff(x.indptr))
    scaled = _matrix((shifted * root, x.indices, x.indptr), x.shape)
    left = np.bincount(x.indices, shifted * root * root, minlength=x.shape[1]) / sums["total"]
    beyond = np.where(everywhere, left, sums["mean"])
    return {**sums, "shift": shift, "beyond": beyond, **_stored(sparse.gram(scaled))}


def is_sparse(sums: Tensors) -> bool:
    """Return whether the moments are of sparse rows."""
    return "shift" in sums


def merged(left: Tensors, right: Tensors) -> Tensors:
    """Return the moments of the rows of both."""
    shift = np.where(left["shift"] != 0, left["shift"], right["shift"])
    product = _about(left, shift) + _about(right, shift)
    both = [side["total"] * (side["beyond"] + (side["shift"] - shift)) for side in (left, right)]
    beyond = (both[0] + both[1]) / (left["total"] + right["total"])
    return {**moments.merge_moments(left, right), "shift": shift, "beyond": beyond, **_stored(product)}


def about_zero(sums: Tensors) -> Tensors:
    """Return the moments about zero, as ``moments.about_zero``."""
    nothing = np.zeros_like(sums["shift"])
    return {**moments.about_zero(sums), "shift": nothing, "beyond": nothing, **_stored(_about(sums, nothing))}


def products(sums: Tensors) -> Any:
    """Return P as a sparse matrix."""
    size = sums["shift"].size
    return _matrix(tuple(sums[name] for name in _PARTS), (size, size))


def dense(sums: Tensors) -> Tensors:
    """Return the moments with a dense Gram matrix, for solvers of all columns at once."""
    gram = products(sums).toarray()
    gram -= sums["total"] * np.outer(sums["beyond"], sums["beyond"])
    np.fill_diagonal(gram, sums["square"])
    kept = {name: value for name, value in sums.items() if name not in (*_PARTS, "shift", "beyond")}
    return {**kept, "gram": gram}


def _about(sums: Tensors, shift: FloatArray) -> Any:
    """Return P about another shift: P + δq' + qδ' + Nδδ' with δ the old shift minus the new one, and q = Σw(x − s)."""
    change = sums["shift"] - shift
    if not change.any():
        return products(sums)
    step = _matrix(change[:, None])
    mixed = step @ _matrix((sums["total"] * (sums["beyond"] + 0.5 * change))[None, :])
    return products(sums) + mixed + mixed.T


def _stored(product: Any) -> Tensors:
    rows = product.tocsr()
    rows.sort_indices()
    return dict(zip(_PARTS, (rows.data, rows.indices, rows.indptr), strict=True))


def _matrix(values: Any, shape: tuple[int, int] | None = None) -> Any:
    """Return a compressed row matrix from scipy's."""
    import scipy.sparse  # slow to import, and only needed for sparse rows

    return scipy.sparse.csr_matrix(values, shape=shape)
