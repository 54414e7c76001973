"""The cost of networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import BatchCost, Coefficients


class MlpCost(BatchCost):
    """The cost of multilayer perceptrons."""

    def state_values(self, config: Config, width: int, outputs: int) -> int:
        """Parameters and Adam's two moments, in single precision unless the config says double."""
        parameters = _parameters(config, width, outputs)
        return 3 * parameters if config.get("precision") == "double" else math.ceil(3 * parameters / 2)

    def gradient_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return a number per parameter, in double precision."""
        return sum(_parameters(config, width, outputs) for config in configs)


def _parameters(config: Config, width: int, outputs: int) -> int:
    hidden = config.get("hidden_layers", (32,))
    sizes = (width, *(hidden if isinstance(hidden, tuple) else ()), outputs)
    return sum((wide + 1) * following for wide, following in pairwise(sizes))


MLP = MlpCost(Coefficients(1.1e-9, 2.2e-8, 4e-7, 1.2e-6, 0.0, 1.5e-4, 2e-3))
NETWORK = BatchCost(unmeasured="is a network of your own, whose costs depend on its rows")
