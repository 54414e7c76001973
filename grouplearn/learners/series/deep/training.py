"""Training: windows drawn by the size of their series, and Adam on the log density of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from grouplearn.learners.contract.control import Diverged, Gang, Interrupted
from grouplearn.learners.gang_sockets import share, summed
from grouplearn.learners.neural.network_module import torch_on_one_thread
from grouplearn.learners.series.deep.recurrent import Recurrent
from grouplearn.learners.series.deep.windows import PanelTensors

#: The longest gradient of a step.
_LONGEST_GRADIENT = 10.0


def check_device(name: str) -> None:
    """Raise Diverged if torch has no such device."""
    torch = torch_on_one_thread()
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise Diverged(f"torch has no device {name!r} here: {str(error).splitlines()[0]}") from None


def trained(
    tensors: PanelTensors, cancelled: Callable[[], bool], report: Callable[[float], None] = lambda _: None
) -> Recurrent:
    """Return a network trained on all series of a panel; ``report`` is given the loss of each epoch.

    The step of Adam falls from ``learning_rate`` to 0 as a half cosine. Members of a gang draw the same windows, and sum the
    gradients of their shares in the order of ranks: all return one network, which differs from that of one worker by rounding
    alone. Raises Interrupted if ``cancelled`` between two batches, and Diverged if a loss is not finite.
    """
    settings = tensors.settings
    random = np.random.default_rng((settings.seed, 0))
    network = Recurrent(tensors.n_inputs, tensors.n_series, settings, random)
    torch = tensors.torch
    optimizer = torch.optim.Adam(network.module.parameters(), lr=settings.learning_rate)
    drawn = torch.Generator(settings.device)
    total = settings.epochs * settings.batches_per_epoch
    for epoch in range(settings.epochs):
        random = np.random.default_rng((settings.seed, 1, epoch))
        drawn.manual_seed(int(random.integers(1 << 62)))
        losses = []
        for number in range(settings.batches_per_epoch):
            if cancelled():
                raise Interrupted
            done = (epoch * settings.batches_per_epoch + number) / total
            optimizer.param_groups[0]["lr"] = settings.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
            losses.append(_descend(network, tensors, optimizer, _drawn_windows(tensors, random), drawn))
        loss = float(torch.stack(losses).mean())
        if not math.isfinite(loss):
            raise Diverged(f"the loss of epoch {epoch + 1} is not finite: a lower learning_rate may help")
        report(loss)
    return network


def _drawn_windows(tensors: PanelTensors, random: np.random.Generator) -> tuple[Any, Any]:
    """Return the series of a batch, each drawn in proportion to its size and windows, and the step at which each is split.

    Source: Salinas et al. 2020, 3.3.
    """
    settings, weight = tensors.settings, tensors.weight
    probability = weight / weight.sum() if weight.any() else None
    series = random.choice(tensors.n_series, settings.batch_size, p=probability)
    last = np.maximum(tensors.lengths[series] - settings.horizon, 1)
    split = random.integers(1, last, endpoint=True)
    return tuple(tensors.torch.from_numpy(each).to(settings.device) for each in (series, split))


def _descend(network: Recurrent, tensors: PanelTensors, optimizer: Any, drawn: Sequence[Any], generator: Any) -> Any:
    """Take a step down the mean of -log p over the known values of windows, and return it."""
    torch, settings = tensors.torch, tensors.settings
    count = settings.batch_size
    own = slice(*share(count, settings.rank, settings.members))
    series, split = (each[own] for each in drawn)

    def uniform(x: Any) -> Any:
        return torch.rand((count, *x.shape[1:]), generator=generator, device=x.device)[own]

    window = tensors.windows(series, split)
    static = network.static(series, (window.scale / tensors.usual_size).log())
    raw, _ = network(window.inputs, static, drawn=uniform)
    likelihood = settings.distribution
    density = likelihood.log_density(window.target, *likelihood.parameters(raw, window.scale))
    loss = -(density * window.known).sum()
    optimizer.zero_grad()
    loss.backward()
    parameters = list(network.module.parameters())
    sums = [loss.detach(), window.known.sum(), *(each.grad for each in parameters)]
    loss, known, *gradients = sums if settings.gang is None else _summed(torch, sums, settings.gang)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient / known.clamp(min=1)
    torch.nn.utils.clip_grad_norm_(parameters, _LONGEST_GRADIENT)
    optimizer.step()
    return loss / known.clamp(min=1)


def _summed(torch: Any, own: Sequence[Any], gang: Gang) -> list[Any]:
    """Return the sums of tensors over all members, each of which calls it with its ``own``."""
    flat = torch.cat([each.ravel() for each in own])
    sent = flat.cpu().numpy()
    gang.sent.add(sent.nbytes)
    total = torch.from_numpy(summed(gang, sent)).to(flat.device)
    parts = total.split([each.numel() for each in own])
    return [part.reshape(each.shape) for part, each in zip(parts, own, strict=True)]
