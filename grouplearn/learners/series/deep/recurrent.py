"""The network: layers of long short-term memory over the inputs of each step, with a vector for each series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from grouplearn.learners.neural.network_module import torch_on_one_thread
from grouplearn.learners.series.deep.settings import Settings

_WIDEST_VECTOR = 50


class Recurrent:
    """h(t) = LSTM(h(t - 1), inputs of t, vectors of the series, log scale); the parameters of y(t) are linear in h(t).

    A single series has no vector. Weights are drawn from ``random``.
    """

    def __init__(self, n_inputs: int, n_series: int, settings: Settings, random: np.random.Generator) -> None:
        torch = torch_on_one_thread()
        width = min(_WIDEST_VECTOR, (n_series + 1) // 2) if n_series > 1 else 0
        hidden = settings.hidden_units
        wide = [n_inputs + width + 1] + [hidden] * (settings.layers - 1)
        nn, likelihood = torch.nn, settings.distribution
        with torch.device("meta"):  # torch draws no weights: its generator is not ours
            layers = nn.ModuleList(nn.LSTM(each, hidden, batch_first=True) for each in wide)
            self.module = nn.ModuleList([nn.Embedding(n_series, width), layers, nn.Linear(hidden, likelihood.n_raw)])
        self.module.to_empty(device=settings.device)
        self.vectors, self.layers, self.head = self.module
        self.torch, self.dropout = torch, settings.dropout
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                normal = name.startswith("0.")
                drawn = random.normal(size=parameter.shape) if normal else random.uniform(-1, 1, parameter.shape)
                parameter.copy_(torch.from_numpy(drawn if normal else drawn / np.sqrt(hidden)))

    def static(self, series: Any, log_scale: Any) -> Any:
        """Return the inputs of a window that are the same at all steps (B, s), from its series (B,) and log scale (B, 1)."""
        return self.torch.cat([self.vectors(series), log_scale], dim=1)

    def __call__(
        self, inputs: Any, static: Any, memory: Sequence[Any] | None = None, drawn: Callable[[Any], Any] | None = None
    ) -> Any:
        """Return the raw parameters (B, T, r) of each step, and the memory of the layers after the last step.

        With ``drawn``, which draws numbers between 0 and 1 like a tensor's, numbers between layers are dropped by chance.
        """
        torch, after = self.torch, []
        x = torch.cat([inputs, static[:, None].expand(-1, inputs.shape[1], -1)], dim=2)
        for number, layer in enumerate(self.layers):
            if number and drawn is not None and self.dropout:
                kept = drawn(x) >= self.dropout
                x = x * kept / (1 - self.dropout)
            x, state = layer(x, None if memory is None else memory[number])
            after.append(state)
        return self.head(x), after
