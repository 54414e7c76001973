"""What training takes, as a learner declares it: seconds per row, update and group, and the numbers that it keeps and sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import FeatureBlock

#: Rows per update of a learner that does not say (b in kingpin, table 1).
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds that a learner takes, single thread (kingpin 3.1: ``gradient`` and ``update`` are f_grad and f_update).

    ``gradient`` per row x feature x output x config x pass, ``row`` the same however many features, ``update`` per update of
    a config, ``step`` per update of a pack however many configs it has, ``read`` per row x feature and unit (sufficient
    statistics, bins, metrics), ``config`` per config, ``group`` per group, whatever the rows. ``typical_epochs``: the passes
    typically needed of those allowed. ``correction`` multiplies all of them.
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


#: A learner that declares none is taken to cost this.
UNKNOWN = Coefficients(gradient=1e-8, row=1e-8, update=1e-4, step=1e-4, read=1e-8, config=1e-3, group=1e-3)


@dataclass(frozen=True)
class Cost:
    """The cost of a learner that goes by sums and keeps a linear model; others say where they differ.

    ``width`` d is stored values per row, ``outputs`` k. ``resident``: how many times the size of a finished model its results
    take until they are in tables. ``unmeasured``: why CALIBRATE does not measure it.
    """

    coefficients: Coefficients = UNKNOWN
    resident: float = 1.0
    unmeasured: str | None = None

    def passes(self, config: Config, epochs: int) -> int:  # noqa: ARG002
        """Return the passes that a config may make of ``epochs``."""
        return epochs

    def steps(self, config: Config, n_rows: int) -> int:  # noqa: ARG002
        """Return how often a pass changes the model."""
        return 1

    def updates(self, config: Config, n_rows: int, width: int) -> int:  # noqa: ARG002
        """Return η of kingpin 3.1: how often a pass updates a config."""
        return self.steps(config, n_rows)

    def rounds(self, config: Config, n_rows: int) -> int:
        """Return how often in a pass the members of a gang wait for each other."""
        return self.steps(config, n_rows)

    def epoch_rounds(self, configs: Sequence[Config], items: Sequence[FeatureBlock]) -> int:  # noqa: ARG002
        """Return how many rounds an epoch of a learner in rounds has, as far as its items say."""
        return 1

    def state_values(self, config: Config, width: int, outputs: int) -> int:  # noqa: ARG002
        """Return the numbers of a config's state, in double precision: what a hop moves (m in kingpin, table 1)."""
        return outputs * (width + 1) + 1

    def sums_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers of the sums of one pass that workers of a split group send each other: as many as weights."""
        return len(configs) * (outputs * (width + 1) + 1)

    def exchanged_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers that go around in one round of a gang: the gradients of the state."""
        return sum(self.state_values(config, width, outputs) for config in configs)

    def most_values(self, config: Config, blocks: Sequence[FeatureBlock], outputs: int) -> int:
        """Return the numbers that training a config on the columns of these items takes at once, besides the rows."""
        width = sum(block.width for block in blocks)
        return self.state_values(config, width, outputs) + self.sums_values((config,), width, outputs)

    def gradient_values(self, configs: Sequence[Config], width: int, outputs: int) -> int:
        """Return the numbers of the gradients that a partition of a group sends: what goes around in a gang."""
        return self.exchanged_values(configs, width, outputs)


class BatchCost(Cost):
    """The cost of a learner that updates its model after every ``batch_size`` rows."""

    def steps(self, config: Config, n_rows: int) -> int:
        """Return ``ceil(n / b)``."""
        return max(1, math.ceil(n_rows / max(1, whole(config, "batch_size", _BATCH))))


def whole(config: Config, name: str, default: int) -> int:
    """Return a hyperparameter that is a whole number, ``default`` where a config lacks it."""
    value = config.get(name, default)
    return value if isinstance(value, int) else default
