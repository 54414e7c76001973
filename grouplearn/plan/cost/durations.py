"""Estimated seconds and bytes of units and their steps: for the simulated runtime, and to order units."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.cost import Coefficients
from grouplearn.learners.contract.learner import Learner
from grouplearn.plan.cost.coefficients import Rates

VALUE_BYTES, SINGLE_BYTES = 8, 4
#: Rows that LightGBM samples to place bins (its default for ``bin_construct_sample_cnt``).
_BINNING_ROWS = 200_000


def load_seconds(n_rows: int, width: int, rates: Rates | None = None) -> float:
    """Return the estimated time to encode a group's rows once: ``load + encode * n * d``."""
    machine = (rates or Rates()).machine
    return machine.load + machine.encode * n_rows * width


#: Share of the fixed cost per group and config that is Python's, saved where one call trains many: 1,000 groups of 20 rows
#: and 10 rounds take 2.2 s one by one and 0.45 s in one call.
_SAVED_TOGETHER = 0.8


def unit_seconds(
    learner: Learner,
    configs: Sequence[Config],
    n_rows: int,
    width: int,
    epochs: int,
    outputs: int,
    groups: int = 1,
    rates: Rates | None = None,
    columns: int = 0,
) -> float:
    """Return the estimated time of one unit: a pack of s configs on n rows of d values, of one group or several small ones.

    ``fixed = group * g + config * s + read * n * d``, and for each group ``solving_seconds`` of ``columns``; each pass adds
    ``(gradient * d + row) * n * k + update * η`` per config and ``step`` per step of the pack, k outputs, η updates
    (kingpin 3.1, Cost_Comp).
    """
    known = (rates or Rates()).of(learner.way)
    if groups > 1 and learner.access.one_by_one:  # one call trains them one after the other, so each costs less
        mean = n_rows // groups
        own = unit_seconds(learner, configs, mean, width, epochs, outputs, 1, rates, columns)
        return groups * (own - _SAVED_TOGETHER * known.correction * (known.group + known.config * len(configs)))
    seconds = known.group * groups + known.config * len(configs) + known.read * n_rows * learner.cost.read_values(width)
    steps = 0
    for config in configs:
        passes = typical_passes(learner, config, epochs, known)
        updates = passes * learner.cost.updates(config, n_rows, width)
        seconds += known.per_row(width) * n_rows * outputs * passes + known.update * updates
        steps = max(steps, passes * learner.cost.steps(config, n_rows))
    solving = groups * solving_seconds(learner, n_rows // groups, columns, known)
    return known.correction * (seconds + known.step * steps) + solving


def solving_seconds(learner: Learner, n_rows: int, columns: int, known: Coefficients) -> float:
    """Return the estimated time in which one worker solves for a pack's models of a group whose sums it has."""
    return known.correction * known.read * learner.cost.solving(n_rows, columns)


def most_passes(learner: Learner, configs: Sequence[Config], epochs: int, known: Coefficients) -> int:
    """Return the passes that the longest of these configs typically makes."""
    return max((typical_passes(learner, config, epochs, known) for config in configs), default=0)


def typical_passes(learner: Learner, config: Config, epochs: int, known: Coefficients) -> int:
    """Return the passes that a config typically makes, of the most that it may make."""
    passes = learner.cost.passes(config, epochs)
    return passes if known.typical_epochs is None else min(passes, known.typical_epochs)


# --- bytes -------------------------------------------------------------------------------------------------------------


def row_bytes(width: int, *, single: bool = False) -> int:
    """Return the bytes of one encoded row on a worker: d values (maybe single precision), label and weight as doubles."""
    return (SINGLE_BYTES if single else VALUE_BYTES) * width + 2 * VALUE_BYTES


def binned_bytes(width: int, row_bytes: int, rows: int) -> int:
    """Return the bytes that boosting needs for rows read a block at a time: the rows that place the bins, and all rows as
    bins.

    A binned row has a byte per column, label, score, prediction, its number in two places, and two copies of gradient and
    second derivative in single precision.
    """
    return row_bytes * min(rows, _BINNING_ROWS) + rows * (width + 6 * VALUE_BYTES)


def state_bytes(learner: Learner, configs: Sequence[Config], width: int, outputs: int) -> int:
    """Return the estimated bytes of a pack's state, which a hop moves (m in kingpin, table 1, times s)."""
    return VALUE_BYTES * sum(learner.cost.state_values(config, width, outputs) for config in configs)


def gradient_bytes(learner: Learner, configs: Sequence[Config], width: int, outputs: int) -> int:
    """Return the estimated bytes of a pack's gradients, where the partitions of a group send them."""
    return VALUE_BYTES * learner.cost.gradient_values(configs, width, outputs)


def sums_bytes(learner: Learner, configs: Sequence[Config], width: int, outputs: int) -> int:
    """Return the estimated bytes of the sums of one pass, which workers of a split group send each other."""
    return VALUE_BYTES * learner.cost.sums_values(configs, width, outputs)
