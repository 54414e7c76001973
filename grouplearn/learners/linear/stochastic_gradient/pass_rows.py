"""The rows of a pass of stochastic gradient descent: their order, weights and lengths."""

from __future__ import annotations

import itertools

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard
from grouplearn.kernels import networks
from grouplearn.kernels.algebra import product
from grouplearn.kernels.linear import stochastic_gradient as kernel
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Visit


def blocks_of(problem: Problem, batch_size: int, shard: Shard, visit: Visit) -> list[kernel.BlockRows]:
    """Return the visited rows of each nonempty block, in the order of an epoch."""
    whole, blocks = shard.totals, []
    for number, (start, stop) in enumerate(itertools.pairwise(shard.bounds), start=shard.first):
        if stop > start:
            order = networks.visiting_order(problem.seed, visit.epoch, stop - start, number)[visit.start : visit.stop]
            parts = (shard.x[start:stop], shard.y[start:stop], shard.weight[start:stop])
            blocks.append(kernel.BlockRows(*parts, order, batch_size, whole.n_rows / whole.weight))
    return blocks


def seen(rows: kernel.BlockRows) -> float:
    """Return Σ w̃ᵢ of the rows visited."""
    weight = rows.weight if len(rows.order) == len(rows.y) else rows.weight[rows.order]
    return float(weight.sum() * rows.weighed)


def steepness(block: kernel.BlockRows) -> float:
    """Return Σ lᵢ² / Σ lᵢ over the rows of a block, ``lᵢ = w̃ᵢ·(‖xᵢ‖² + 1)``: the mean of l, weighted by l itself.

    Steps of up to twice its inverse keep squared errors from growing, however much rows differ in length; the plain mean of
    l would do so only for rows of equal length (Bach & Moulines 2013, section 2.2).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        long = (_squares(block.x) + 1.0) * block.weight * block.weighed
        return float(product(long[None], long[:, None])[0, 0] / product(np.ones((1, len(long))), long[:, None])[0, 0])


def _squares(x: Matrix) -> FloatArray:
    """Return ‖x‖² of each row (n,), summed in column order for dense and sparse rows alike."""
    if not isinstance(x, np.ndarray):
        squares: FloatArray = x.astype(np.float64).power(2) @ np.ones(x.shape[1])
        return squares
    squares = np.zeros(len(x))
    for column in range(x.shape[1]):
        squares += np.square(x[:, column], dtype=np.float64)
    return squares
