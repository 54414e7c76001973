"""Least squares and ridge where the Gram matrix loses precision: solved by its square root, computed from the rows.

A Gram matrix has squared singular values, so those below a millionth of the largest are lost. A block with such columns
keeps a matrix F with F'F = [X y]'W[X y] about the means, by QR of its rows. Two blocks are merged by QR of both factors and
of the row by which their means differ (Golub & Van Loan 2013, section 5.2; Demmel et al. 2012).

A direction counts if its singular value, on columns of unit length, is above 1e-13 of the largest, times the ratio of a
column's size to its spread; smaller ones are rounding of the columns as written (``kernels.least_squares``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Stack
from grouplearn.kernels.linear import least_squares
from grouplearn.models.state import Tensors

#: Blocks with more columns are not checked.
_MOST_COLUMNS = 128
#: Blocks with more columns keep up to so many rows per column if descent over their moments might never end.
_ROWS_A_COLUMN, _MOST_KEPT_COLUMNS = 2, 1024

BoolArray = npt.NDArray[np.bool_]


def of_block(sums: Tensors, x: Matrix, y: FloatArray, weight: FloatArray, descends: bool) -> Tensors:
    """Return a block's moments, with ``factor`` (d + 1, d + 1) if its Gram matrix loses digits.

    Few rows of more columns than are checked are kept as ``rows`` (n, d + 1) if a model of them ``descends``.
    """
    size = x.shape[1]
    if not (isinstance(x, np.ndarray) and size):
        return sums
    if size > _MOST_COLUMNS:
        return {**sums, "rows": _centred(sums, x, y, weight)} if descends and _are_few(len(x), size) else sums
    one = {name: np.asarray(value)[None] for name, value in sums.items()}
    (found,) = least_squares.lost_directions(one, x, weight, np.array([0, len(x)]))
    # A block with no more rows than columns may lack directions that are small in the group.
    if found == least_squares.KEPT or (found == least_squares.NOTHING_LOST and len(x) > size):
        return sums
    return {**sums, "factor": least_squares.triangle(_centred(sums, x, y, weight))}


def merged(sums: Tensors, left: Tensors, right: Tensors) -> Tensors:
    """Return the merged ``sums`` with the factor of both, if either has one, or the rows of both if they are few."""
    if "rows" in left and "rows" in right:
        rows = np.vstack([left["rows"], right["rows"], _shift(sums, left, right)])
        return {**sums, "rows": rows} if _are_few(len(rows), sums["mean"].size) else sums
    if "factor" not in left and "factor" not in right:
        return sums
    shift = _shift(sums, left, right)
    return {**sums, "factor": least_squares.triangle(np.vstack([_factor(left), _factor(right), shift]))}


def unclear(sums: Tensors, stack: Stack) -> BoolArray:
    """Return which groups of a stack (G,) have directions in their rows that the Gram matrix loses."""
    if not 0 < stack.x.shape[1] <= _MOST_COLUMNS:
        return np.zeros(stack.n_groups, np.bool_)
    found: BoolArray = least_squares.lost_directions(sums, stack.x, stack.weight, stack.start) == least_squares.LOST
    return found


def _are_few(rows: int, columns: int) -> bool:
    return rows <= _ROWS_A_COLUMN * columns and columns <= _MOST_KEPT_COLUMNS


def _centred(sums: Tensors, x: npt.NDArray[Any], y: FloatArray, weight: FloatArray) -> FloatArray:
    """Return rows about their means, times the roots of their weights, the label last."""
    rows: FloatArray = np.column_stack([x - sums["mean"], y - sums["target_mean"][0]]) * np.sqrt(weight)[:, None]
    return rows


def _shift(sums: Tensors, left: Tensors, right: Tensors) -> FloatArray:
    """Return the row by which the means of both differ."""
    harmonic = left["total"] * right["total"] / sums["total"]
    between = np.append(right["mean"] - left["mean"], right["target_mean"] - left["target_mean"])
    shift: FloatArray = between * np.sqrt(harmonic)
    return shift


def keeps_rows(stack: Stack) -> BoolArray:
    """Return which groups of a stack (G,), trained alone, keep rows for what descent over their moments does not end."""
    columns = stack.x.shape[1]
    found: BoolArray = (np.diff(stack.start) <= _ROWS_A_COLUMN * columns) & (
        _MOST_COLUMNS < columns <= _MOST_KEPT_COLUMNS
    )
    return found


def _factor(sums: Tensors) -> FloatArray:
    """Return the factor of moments, or the square root of a precise Gram matrix."""
    if "factor" in sums:
        return sums["factor"]
    cross = sums["cross"][:, :1]
    return least_squares.root(np.block([[sums["gram"], cross], [cross.T, sums["target_gram"][:1, :1]]]))
