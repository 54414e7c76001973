"""Training: windows drawn by the size of their series, and Adam on the log density of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from grouplearn.learners.contract.control import Diverged, Interrupted
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

    The step of Adam falls from ``learning_rate`` to 0 as a half cosine. Raises Interrupted if ``cancelled`` between two
    batches, and Diverged if a loss is not finite.
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
    share = weight / weight.sum() if weight.any() else None
    series = random.choice(tensors.n_series, settings.batch_size, p=share)
    last = np.maximum(tensors.lengths[series] - settings.horizon, 1)
    split = random.integers(1, last, endpoint=True)
    return tuple(tensors.torch.from_numpy(each).to(settings.device) for each in (series, split))


def _descend(network: Recurrent, tensors: PanelTensors, optimizer: Any, drawn: Sequence[Any], dropped: Any) -> Any:
    """Take a step down the mean of -log p over the known values of windows, and return it."""
    series, split = drawn
    window = tensors.windows(series, split)
    static = network.static(series, (window.scale / tensors.usual_size).log())
    raw, _ = network(window.inputs, static, drawn=dropped)
    likelihood = tensors.settings.distribution
    density = likelihood.log_density(window.target, *likelihood.parameters(raw, window.scale))
    loss = -(density * window.known).sum() / window.known.sum().clamp(min=1)
    optimizer.zero_grad()
    loss.backward()
    tensors.torch.nn.utils.clip_grad_norm_(network.module.parameters(), _LONGEST_GRADIENT)
    optimizer.step()
    return loss.detach()
