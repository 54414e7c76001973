"""Generalised linear models of few rows that Newton's method over columns does not end: on their rows, by another kernel.

One row of 10,000s, or weights over eight powers of ten, leave nothing of other rows in a matrix of columns. A matrix of rows
keeps each of them (``kernels.linear.few_rows``). Whole groups go there after their last pass; epoch by epoch models are told
apart by the number of passes, after which a pass sums rows as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels.linear import few_rows as kernel
from grouplearn.kernels.linear import generalised_linear
from grouplearn.models.state import Tensors

#: How the names of rows, labels and weights begin among the sums of a pass.
PREFIX = "row_"
NAMES = ("row_features", "row_labels", "row_weights")


def finish(
    models: generalised_linear.FittedModels,
    stack: Stack,
    loss: str,
    fit_intercept: bool,
    penalties: generalised_linear.GlmPenalties,
    epochs: int,
) -> generalised_linear.FittedModels:
    """Return the models of a stack; those that were left before their last epoch are solved on rows, which counts as one.

    What this finds is kept where it is better.
    """
    left = ~models.converged & (models.passes < epochs) & np.isfinite(models.value)
    if not left.any():
        return models
    curve = np.concatenate([models.curve, np.full((1, *left.shape), np.nan)])
    for group in np.flatnonzero(left.any(axis=1)).tolist():
        configs = np.flatnonzero(left[group])
        rows = slice(int(stack.start[group]), int(stack.start[group + 1]))
        chosen = some_of(penalties, configs)
        found = kernel.solve(stack.x[rows], stack.y[rows], stack.weight[rows], loss, fit_intercept, chosen)
        better = found.value < models.value[group, configs]
        places, kept = configs[better], np.flatnonzero(better)
        models.weights[group, places, 0], models.intercept[group, places, 0] = (
            found.weights[kept],
            found.intercept[kept],
        )
        models.value[group, places], models.converged[group, configs] = found.value[kept], found.converged
        curve[models.passes[group, configs], group, configs] = models.value[group, configs]
        models.passes[group, configs] += 1
    return replace(models, curve=curve[: int(models.passes.max())])


def of_block(block: Shard) -> Tensors:
    """Return the rows of a block, dense, with their labels and weights, under ``NAMES``."""
    x = block.x if isinstance(block.x, np.ndarray) else block.x.toarray()
    return dict(zip(NAMES, (np.asarray(x, np.float64), block.y, block.weight), strict=True))


def some_of(
    penalties: generalised_linear.GlmPenalties, places: npt.NDArray[np.intp]
) -> generalised_linear.GlmPenalties:
    """Return the penalties of the configs at some places."""
    return generalised_linear.GlmPenalties(penalties.l1[places], penalties.l2[places], penalties.tolerance[places])


def solve(
    sums: Tensors, loss: str, fit_intercept: bool, penalties: generalised_linear.GlmPenalties
) -> Sequence[FloatArray | npt.NDArray[np.bool_]]:
    """Return weights (C, 1, d), intercepts (C, 1), objectives and whether these are the least ones (C,), from the rows among
    the sums of a pass."""
    x, y, weight = (np.asarray(sums[name]) for name in NAMES)
    found = kernel.solve(x, y, weight, loss, fit_intercept, penalties)
    return found.weights[:, None], found.intercept[:, None], found.value, found.converged
