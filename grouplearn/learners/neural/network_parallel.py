"""Data-parallel training of a user's module with torch's DistributedDataParallel over gloo: batches span all members."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grouplearn.data.shard import Shard, Totals
from grouplearn.kernels.networks import visiting_order
from grouplearn.learners.contract.control import Gang
from grouplearn.learners.gang_sockets import share
from grouplearn.learners.neural.network_module import torch_on_one_thread
from grouplearn.learners.neural.network_training import ModuleTraining

#: Names of the loopback interface, on Linux and elsewhere.
_LOOPBACK = ("lo", "lo0")


@contextmanager
def joined(gang: Gang) -> Iterator[Gang]:
    """Connect this process to the other members of a gang, through a file they share and the loopback interface."""
    torch_on_one_thread()
    import torch.distributed as distributed

    interfaces = {path.name for path in Path("/sys/class/net").iterdir()} if Path("/sys/class/net").exists() else set()
    os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK[0] if _LOOPBACK[0] in interfaces else _LOOPBACK[1]
    store = distributed.FileStore(os.path.join(gang.directory, "gang"), gang.size)
    limit = datetime.timedelta(seconds=gang.seconds)
    distributed.init_process_group("gloo", store=store, rank=gang.rank, world_size=gang.size, timeout=limit)
    try:
        yield gang
    finally:
        distributed.destroy_process_group()


def run_epoch(trainee: ModuleTraining, rows: Shard, epoch: int, gang: Gang, whole: Totals) -> float:
    """Run one epoch of the gang on a module, whose tensors are then equal on all members; return the mean objective.

    Each member contributes rows to a batch so that all take equally many steps.
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
        # Gradients are averaged over replicas, so each scales its own rows by their number.
        trainee.descend(data * (gang.size / together) + penalty)
        sums += torch.stack([data.detach(), penalty.detach() * together / gang.size])
    torch.distributed.all_reduce(sums)
    _share_buffers(trainee.module)
    return float(sums.sum()) / sum(sizes)


def _share_buffers(module: Any) -> None:
    """Give every member the first one's buffers, such as running means."""
    torch = torch_on_one_thread()
    for buffer in module.buffers():
        sent = buffer.to(torch.uint8) if buffer.dtype is torch.bool else buffer.contiguous()
        torch.distributed.broadcast(sent, 0)
        buffer.copy_(sent)


def count_gradients(replica: Any, gang: Gang) -> None:
    """Count the bytes of gradients as they are sent; they are averaged as without a hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def averaged(process_group: Any, bucket: Any) -> Any:
        gang.sent.add(bucket.buffer().nbytes)
        return default_hooks.allreduce_hook(process_group, bucket)

    replica.register_comm_hook(None, lambda group, bucket: averaged(group, bucket))  # torch reads a hook's annotations


def member_rows(rows: int, gang: Gang) -> list[int]:
    """Return how many rows each member of the gang has."""
    torch = torch_on_one_thread()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(gang.size)]
    torch.distributed.all_gather(counts, torch.tensor([rows]))
    return [int(count) for count in counts]
