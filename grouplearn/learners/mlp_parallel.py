"""Data-parallel training of multilayer perceptrons: torch's DistributedDataParallel over gloo, as its users write it.

Every member of a gang has a replica of the networks and rows of its own; a batch is spread over all members, whose
gradients are averaged before each step.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Totals
from grouplearn.learners.base import Config, FloatArray, Gang, Problem, Task
from grouplearn.learners.mlp_network import Layer, layers_of, torch_on_one_thread, visiting_order

#: The network interface of 127.0.0.1, by its name on Linux and elsewhere.
_LOOPBACK = ("lo", "lo0")


@contextmanager
def joined(gang: Gang) -> Iterator[None]:
    """Connect this process to the other members of a gang, through a file they share and the loopback interface."""
    torch_on_one_thread()
    import torch.distributed as distributed

    interfaces = {path.name for path in Path("/sys/class/net").iterdir()} if Path("/sys/class/net").exists() else set()
    os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK[0] if _LOOPBACK[0] in interfaces else _LOOPBACK[1]
    store = distributed.FileStore(os.path.join(gang.directory, "gang"), gang.size)
    limit = datetime.timedelta(seconds=gang.seconds)
    distributed.init_process_group("gloo", store=store, rank=gang.rank, world_size=gang.size, timeout=limit)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def run_epoch(
    problem: Problem,
    configs: Sequence[Config],
    part: dict[str, npt.NDArray[Any]],
    rows: Shard,
    epoch: int,
    gang: Gang,
    whole: Totals,
) -> FloatArray:
    """Run one epoch of the gang over ``part`` (replaced by the results); return the mean objective per config, (c,)."""
    torch = torch_on_one_thread()
    torch.manual_seed(problem.seed + epoch * gang.size + gang.rank)
    mean, scale = (whole.label_mean, whole.label_scale) if problem.task is Task.REGRESSION else (0.0, 1.0)
    networks = [_network(problem, config, part, index) for index, config in enumerate(configs)]
    replica = torch.nn.parallel.DistributedDataParallel(_side_by_side(networks))
    count_gradients(replica, gang)
    optimizer = _optimizer(problem, configs, networks, part)
    order = visiting_order(problem.seed, epoch, rows.n_rows, gang.rank)
    values = (np.asarray(rows.x), (rows.y - mean) / scale, rows.weight * (whole.n_rows / whole.weight))
    x, y, weight = (torch.from_numpy(each.astype(part["parameters"].dtype))[order] for each in values)
    owners = list(zip(configs, networks, strict=True))
    sizes = member_rows(rows.n_rows, gang)
    n_batches = math.ceil(sum(sizes) / int(configs[0]["batch_size"]))  # type: ignore[arg-type]
    sums = torch.zeros(len(configs), dtype=torch.float64)
    penalties = np.zeros(len(configs))
    for batch in range(n_batches):
        own = slice(*share(rows.n_rows, batch, n_batches))
        together = sum(stop - start for start, stop in (share(each, batch, n_batches) for each in sizes))
        optimizer.zero_grad()
        data = torch.stack([(_loss(problem, z, y[own]) * weight[own]).sum() for z in replica(x[own])])
        penalty = torch.stack([_penalty(config, network, whole.weight, scale) for config, network in owners])
        # The replicas' gradients are averaged, so each counts its own rows once for every member.
        (data * (gang.size / together) + penalty).sum().backward()
        optimizer.step()
        sums += data.detach()
        penalties += penalty.detach().numpy() * together
    torch.distributed.all_reduce(sums)
    _write_back(problem, configs, networks, optimizer, part)
    part["step"] = part["step"] + n_batches
    objective: FloatArray = (sums.numpy() + penalties) / sum(sizes) * scale**2
    return objective


def count_gradients(replica: Any, gang: Gang) -> None:
    """Have the bytes of gradients counted as they go to the other members; they are averaged as without."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def averaged(process_group: Any, bucket: Any) -> Any:
        gang.sent.add(bucket.buffer().nbytes)
        return default_hooks.allreduce_hook(process_group, bucket)

    replica.register_comm_hook(None, lambda group, bucket: averaged(group, bucket))  # torch reads a hook's annotations


def share(rows: int, batch: int, n_batches: int) -> tuple[int, int]:
    """Return where the rows of a batch begin and end among a member's rows."""
    return batch * rows // n_batches, (batch + 1) * rows // n_batches


def member_rows(rows: int, gang: Gang) -> list[int]:
    """Return how many rows each member of the gang has."""
    torch = torch_on_one_thread()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(gang.size)]
    torch.distributed.all_gather(counts, torch.tensor([rows]))
    return [int(count) for count in counts]


def _side_by_side(networks: Sequence[Any]) -> Any:
    """Return one module of several networks, so that their gradients travel together."""
    torch = torch_on_one_thread()

    class Networks(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.networks = torch.nn.ModuleList(networks)

        def forward(self, x: Any) -> list[Any]:
            return [network(x) for network in self.networks]

    return Networks()


def _network(problem: Problem, config: Config, part: dict[str, npt.NDArray[Any]], index: int) -> Any:
    torch = torch_on_one_thread()
    activation = {
        "relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "gelu": torch.nn.GELU, "sigmoid": torch.nn.Sigmoid
    }[str(config["activation"])]  # fmt: skip
    layers, _ = layers_of(problem, config)
    parameters = torch.from_numpy(part["parameters"][index : index + 1])
    modules: list[Any] = []
    for layer in layers:
        linear = torch.nn.Linear(layer.inputs, layer.outputs).to(parameters.dtype)
        with torch.no_grad():
            linear.weight.copy_(layer.weight_of(parameters)[0])
            linear.bias.copy_(layer.bias_of(parameters)[0, 0])
        modules.append(linear)
        if layer is not layers[-1]:
            modules += [activation(), torch.nn.Dropout(float(config["dropout"]))]  # type: ignore[arg-type]
    return torch.nn.Sequential(*modules)


def _linears(network: Any) -> list[Any]:
    return [module for module in network if hasattr(module, "weight")]


def _optimizer(
    problem: Problem, configs: Sequence[Config], networks: Sequence[Any], part: dict[str, npt.NDArray[Any]]
) -> Any:
    """Return Adam or SGD with one parameter group per network, its moments those of the state."""
    torch = torch_on_one_thread()
    groups = [
        {"params": list(network.parameters()), "lr": config["learning_rate"], "momentum": config["momentum"]}
        for config, network in zip(configs, networks, strict=True)
    ]
    adam = configs[0]["optimizer"] == "adam"
    for group in groups if adam else ():
        del group["momentum"]
    optimizer = torch.optim.Adam(groups) if adam else torch.optim.SGD(groups, lr=1e-3)
    if not part["step"].any():
        return optimizer
    layers, _ = layers_of(problem, configs[0])
    for index, network in enumerate(networks):
        moments = [_by_parameter(layers, part[name], index) for name in ("first_moment", "second_moment")]
        for parameter, first, second in zip(network.parameters(), *moments, strict=True):
            step = torch.tensor(float(part["step"][index]))
            optimizer.state[parameter] = (
                {"step": step, "exp_avg": first, "exp_avg_sq": second} if adam else {"momentum_buffer": first}
            )
    return optimizer


def _by_parameter(layers: Sequence[Layer], values: npt.NDArray[Any], index: int) -> list[Any]:
    """Return copies of one row of (c, p) by weight and bias of each layer."""
    torch = torch_on_one_thread()
    row = torch.from_numpy(values[index : index + 1])
    return [view.clone() for layer in layers for view in (layer.weight_of(row)[0], layer.bias_of(row)[0, 0])]


def _write_back(
    problem: Problem,
    configs: Sequence[Config],
    networks: Sequence[Any],
    optimizer: Any,
    part: dict[str, npt.NDArray[Any]],
) -> None:
    """Put parameters and moments into the rows of the state."""
    torch = torch_on_one_thread()
    layers, size = layers_of(problem, configs[0])
    dtype = next(networks[0].parameters()).dtype
    names = {"first_moment": ("exp_avg", "momentum_buffer"), "second_moment": ("exp_avg_sq",)}
    rows = {name: torch.zeros(len(networks), size, dtype=dtype) for name in ("parameters", *names)}
    for index, network in enumerate(networks):
        for layer, linear in zip(layers, _linears(network), strict=True):
            for parameter, place in ((linear.weight, layer.weight), (linear.bias, layer.bias)):
                rows["parameters"][index, place] = parameter.detach().reshape(-1)
                for name, keys in names.items():
                    found = [optimizer.state[parameter].get(key) for key in keys]
                    for moment in found:
                        if moment is not None:
                            rows[name][index, place] = moment.reshape(-1)
    part.update({name: row.numpy() for name, row in rows.items()})


def _loss(problem: Problem, z: Any, y: Any) -> Any:
    functional = torch_on_one_thread().nn.functional
    if problem.task is Task.REGRESSION:
        return 0.5 * (z[:, 0] - y) ** 2
    if problem.task is Task.BINARY:
        return functional.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none")
    return functional.cross_entropy(z, y.long(), reduction="none")


def _penalty(config: Config, network: Any, total: float, scale: float) -> Any:
    """Return (l1·‖w‖₁ + ½·l2·‖w‖²)/Σwᵢ on labels divided by ``scale``, of which the last layer holds w/scale."""
    l1, l2 = float(config["l1"]), float(config["l2"])  # type: ignore[arg-type]
    terms = []
    for linear in _linears(network):
        own = linear.weight * (scale if linear is _linears(network)[-1] else 1.0)
        terms.append((l1 * own.abs().sum() + 0.5 * l2 * (own**2).sum()) / (total * scale**2))
    return sum(terms)
