"""The cost of training that a learner declares: seconds per row, update and group, and numbers kept and sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import FeatureBlock

#: Default rows per update (b in kingpin, table 1).
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Single-thread seconds of a learner (kingpin 3.1: ``gradient`` and ``update`` are f_grad and f_update).

    ``gradient`` per row x feature x output x config x pass; ``row`` the same for any number of features; ``update`` per
    update of a config; ``step`` per update of a pack; ``read`` per row x feature and unit (sufficient statistics, bins,
    metrics); ``config`` per config; ``group`` per group. ``typical_epochs``: the passes typically needed. ``correction``
    multiplies all of them.
    """

    gradient: float
    row: float
    update: float
    step: float
    read: float
    config: float
    group: float
    typical_epochs: int | None = None
    correction: float = 1.0

    def per_row(self, width: int) -> float:
        """Return f_grad(1) of kingpin 3.1 for a row of d values: ``gradient * d + row``, per output, config and pass."""
        return self.gradient * width + self.row


#: The assumed cost of a learner that declares none.
UNKNOWN = Coefficients(gradient=1e-8, row=1e-8, update=1e-4, step=1e-4, read=1e-8, config=1e-3, group=1e-3)


@dataclass(frozen=True)
class Cost:
    """The cost of a learner that needs sums and makes a linear model; others override it.

    ``width`` d is stored values per row, ``outputs`` k. ``resident``: the memory of a trial's results until they are
    stored, in sizes of its model. ``unmeasured``: why CALIBRATE does not measure it.
    """

    coefficients: Coefficients = UNKNOWN
    resident: float = 1.0
    unmeasured: str | None = None

    def passes(self, config: Config, epochs: int) -> int:  # noqa: ARG002
        """Return the most passes of a config, given ``epochs``."""
        return epochs

    def steps(self, config: Config, n_rows: int) -> int:  # noqa: ARG002
        """Return how often the model changes per pass."""
        return 1

    def updates(self, config: Config, n_rows: int, width: int) -> int:  # noqa: ARG002
        """Return η of kingpin 3.1: updates of a config per pass."""
        return self.steps(config, n_rows)

    def read_values(self, width: int) -> float:
        """Return the values that ``read`` counts per row: stored ones, and more where sums are of their products."""
        return width

    def solving(self, n_rows: int, columns: int) -> float:  # noqa: ARG002
        """Return how many values are read in the time in which one worker solves for a pack's models of so many rows and columns,
        when all sums are there."""
        return 0.0

    def rounds(self, config: Config, n_rows: int) -> int:
        """Return how often per pass the members of a gang wait for each other."""
        return self.steps(config, n_rows)

    def epoch_rounds(self, configs: Sequence[Config], items: Sequence[FeatureBlock]) -> int:  # noqa: ARG002
        """Return the rounds of an epoch of a learner in rounds, as far as its items determine them."""
        return 1

    def model_values(self, config: Config, width: int, outputs: int, n_rows: int) -> int:
        """Return the numbers of a model of a group of ``n_rows``: those of the state, unless few rows make it smaller."""
        del n_rows
        return self.state_values(config, width, outputs)

    def state_values(self, config: Config, width: int, outputs: int) -> int:  # noqa: ARG002
        """Return the numbers of a config's state, in double precision: what a hop moves (m in kingpin, table 1)."""
        return outputs * (width + 1) + 1

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers of a pass's sums, which workers of a split group exchange: as many as weights."""
        return len(configs) * (outputs * (width + 1) + 1)

    def exchanged_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers exchanged per round of a gang: the gradients."""
        return sum(self.state_values(config, width, outputs) for config in configs)

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return the numbers in memory while a config trains on these items' columns, besides the rows."""
        width = sum(block.width for block in blocks)
        return self.state_values(config, width, outputs) + self.sums_values((config,), width, outputs)

    def gradient_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers of the gradients that a partition sends, which a gang also exchanges."""
        return self.exchanged_values(configs, width, outputs)


class BatchCost(Cost):
    """The cost of a learner that updates its model after every ``batch_size`` rows."""

    def steps(self, config: Config, n_rows: int) -> int:
        """Return ``ceil(n / b)``."""
        return max(1, math.ceil(n_rows / max(1, whole(config, "batch_size", _BATCH))))


def whole(config: Config, name: str, default: int) -> int:
    """Return an integer hyperparameter, ``default`` if the config lacks it."""
    value = config.get(name, default)
    return value if isinstance(value, int) else default
