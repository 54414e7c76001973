"""What a unit is estimated to take: enough to order units, to decide where to run, and for EXPLAIN to show."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.learners.base import Config, Learner

#: Seconds to encode one value of a shard into the design matrix.
ENCODE_SECONDS = 6e-9
#: Seconds a unit costs whatever its size: Python around the arithmetic.
UNIT_SECONDS = 1.5e-3


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds per (row x feature x config x epoch x output), and the epochs typically needed of those allowed.

    Measured on two cores of a current x86-64 server, single thread, 20 to 60 features.
    """

    per_value: float
    per_config: float
    typical_epochs: int | None = None


_COEFFICIENTS: dict[str, Coefficients] = {
    "linear_regression": Coefficients(per_value=4e-9, per_config=1e-4),
    "logistic_regression": Coefficients(per_value=2.6e-9, per_config=1e-3, typical_epochs=40),
    "gbdt": Coefficients(per_value=3e-9, per_config=2e-3),
    "mlp": Coefficients(per_value=4e-8, per_config=5e-3),
}


def load_seconds(n_rows: int, width: int) -> float:
    """Return the estimated time to encode a group's rows once."""
    return ENCODE_SECONDS * n_rows * width


def unit_seconds(
    learner: Learner, configs: tuple[Config, ...], n_rows: int, width: int, epochs: int, outputs: int, groups: int = 1
) -> float:
    """Return the estimated time of one unit: a pack of configs on the rows of a group, or of several small ones."""
    known = _COEFFICIENTS.get(learner.name, Coefficients(1e-8, 1e-3, None))
    total = UNIT_SECONDS * groups
    for config in configs:
        rounds = config.get("num_iterations", epochs)
        passes = rounds if isinstance(rounds, int) else epochs
        if known.typical_epochs is not None:
            passes = min(passes, known.typical_epochs)
        total += known.per_config + known.per_value * n_rows * width * passes * outputs
    return total
