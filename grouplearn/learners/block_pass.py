"""One pass over a block of rows for every config of a pack: losses and gradients, a run of rows that fits the cache at a time.

In double precision: in single precision a pass is a quarter quicker, as converting the rows takes most of what it saves.
"""

from __future__ import annotations

import numpy as np

from grouplearn.data.shard import FloatArray, Shard
from grouplearn.learners.base import Tensors
from grouplearn.learners.row_loss import Kernel

#: Scores held at a time, and the fewest rows it is worth to part.
_SCORES, _FEWEST_ROWS = 24_000, 512


def sums(kernel: Kernel, labels: FloatArray, block: Shard, weights: FloatArray, intercept: FloatArray) -> Tensors:
    """Return ``loss`` Σw·loss (c,), ``residual`` Σw·r (c, k) and ``product`` Σw·r·x' (c, k, d), r the loss' derivative.

    ``block`` is dense, ``labels`` (n, k) what the kernel needs, ``weights`` (c, k, d) and ``intercept`` (c, k) the models.
    """
    shape, point = intercept.shape, weights.reshape(intercept.size, -1)
    run = min(max(_FEWEST_ROWS, _SCORES // len(point)), block.n_rows)
    scores, scratch = np.empty((2, len(point), run))
    loss, residual, product = np.zeros(shape[0]), np.zeros(len(point)), np.zeros(point.shape)
    for start in range(0, block.n_rows, run):
        rows = slice(start, min(start + run, block.n_rows))
        x, weight = block.x[rows], block.weight[rows]
        score, spare = scores[:, : len(weight)], scratch[:, : len(weight)]
        np.matmul(point, x.T, out=score)
        score += intercept.reshape(-1, 1)
        by_config = score.reshape(1, *shape, -1), spare.reshape(1, *shape, -1)
        loss += _slopes(kernel, *by_config, labels[rows].T[None], weight)
        residual += score.sum(axis=1)
        product += score @ x
    return {"loss": loss, "residual": residual.reshape(shape), "product": product.reshape(*shape, -1)}


def _slopes(
    kernel: Kernel, score: FloatArray, scratch: FloatArray, label: FloatArray, weight: FloatArray
) -> FloatArray:
    """Return Σw·loss (c,); ``score`` (1, c, k, n) becomes the weighted derivatives."""
    sign = kernel.sign(label)
    if sign is not None:
        score *= sign
    loss: FloatArray = kernel.loss(score, scratch, label)[0] @ weight
    kernel.slope(score, scratch, label)
    score *= weight if sign is None else sign * weight
    return loss
