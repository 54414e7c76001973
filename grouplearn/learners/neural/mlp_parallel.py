"""Data-parallel training of multilayer perceptrons: each batch is spread over the members of a gang.

Every member has a replica of the networks and its own rows. Each member sums all gradients in the order of ranks, so that
the replicas stay equal bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard
from grouplearn.kernels import networks
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Gang
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Visit
from grouplearn.learners.gang_sockets import gathered, share, summed
from grouplearn.learners.neural.mlp_rows import descent_of, rows_of, scaling_of, shape_of
from grouplearn.models.state import FloatArray


def run_epoch(
    problem: Problem, configs: Sequence[Config], part: dict[str, npt.NDArray[Any]], shard: Shard, epoch: int, gang: Gang
) -> FloatArray:
    """Run one epoch of the gang over ``part``, which is changed; return the mean objective per config, (c,).

    Each member contributes rows to a batch so that all take equally many steps. Order and dropout of a member's rows are
    those of the block with its rank as number.
    """
    whole = shard.totals
    shape, descent = shape_of(problem, configs[0]), descent_of(problem, configs, whole)
    own = Shard(shard.x, shard.y, shard.weight, (0, shard.n_rows), gang.rank, whole)
    rows = rows_of(problem, configs[0], own, Visit(epoch, 0, shard.n_rows))
    sizes = [int(count[0]) for count in gathered(gang, np.array([shard.n_rows]))]
    n_batches = math.ceil(sum(sizes) / rows.batch_size)
    losses, penalties = np.zeros((2, len(configs)))
    for batch in range(n_batches):
        shares = [share(size, batch, n_batches) for size in sizes]
        together = sum(stop - start for start, stop in shares)
        found, loss = networks.gradients(shape, descent, part, rows, slice(*shares[gang.rank]), together)
        gang.sent.add(found.nbytes)
        penalties += networks.descend(shape, descent, part, summed(gang, found)) * together
        losses += loss * together
    _, scale = scaling_of(problem, whole)
    objective: FloatArray = (summed(gang, losses) + penalties) / sum(sizes) * scale**2
    return objective
