"""Data-parallel training of a user's module: torch's DistributedDataParallel over gloo, a batch spread over all members."""

from __future__ import annotations

import math
from typing import Any

from grouplearn.data.shard import Shard, Totals
from grouplearn.learners.base import Gang
from grouplearn.learners.mlp_network import torch_on_one_thread, visiting_order
from grouplearn.learners.mlp_parallel import count_gradients, member_rows, share
from grouplearn.learners.network_training import Trainee


def run_epoch(trainee: Trainee, rows: Shard, epoch: int, gang: Gang, whole: Totals) -> float:
    """Run one epoch of the gang on a module, whose tensors are then the same for every member; return the mean objective.

    A batch has so many rows of each member that all of them take equally many steps.
    """
    torch = torch_on_one_thread()
    replica = torch.nn.parallel.DistributedDataParallel(trainee.module)
    count_gradients(replica, gang)
    x, y, weight = trainee.rows(rows, visiting_order(trainee.problem.seed, epoch, rows.n_rows, gang.rank), whole)
    sizes = member_rows(rows.n_rows, gang)
    n_batches = math.ceil(sum(sizes) / int(trainee.config["batch_size"]))  # type: ignore[arg-type]
    sums = torch.zeros(2, dtype=torch.float64)
    for batch in range(n_batches):
        own = slice(*share(rows.n_rows, batch, n_batches))
        together = sum(stop - start for start, stop in (share(each, batch, n_batches) for each in sizes))
        losses = trainee.losses(replica, x[own], y[own], (epoch, gang.rank, batch))
        data, penalty = (losses * weight[own]).sum(), trainee.penalty(whole.weight)
        # The replicas' gradients are averaged, so each counts its own rows once for every member.
        trainee.descend(data * (gang.size / together) + penalty)
        sums += torch.stack([data.detach(), penalty.detach() * together / gang.size])
    torch.distributed.all_reduce(sums)
    _share_buffers(trainee.module)
    return float(sums.sum()) / sum(sizes)


def _share_buffers(module: Any) -> None:
    """Give every member the first one's buffers, such as the running means of its rows."""
    torch = torch_on_one_thread()
    for buffer in module.buffers():
        sent = buffer.to(torch.uint8) if buffer.dtype is torch.bool else buffer.contiguous()
        torch.distributed.broadcast(sent, 0)
        buffer.copy_(sent)
