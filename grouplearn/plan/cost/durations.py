"""What units and their steps take and move: what the simulated runtime counts with, and what orders units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.plan.cost.coefficients import Coefficients, Rates

VALUE_BYTES, SINGLE_BYTES = 8, 4
#: Rows per update of a sequential learner that does not say (b in kingpin, table 1).
_BATCH = 32
#: Leaves of a tree that does not say.
_LEAVES = 31
#: Bytes of a histogram bin (sum of gradients, sum of Hessians), bins per feature, and bytes of a leaf in a model's text.
_BIN_BYTES, _BINS, _LEAF_BYTES = 16, 255, 100
#: Up to this many parameters generalised linear models have second derivatives; the numbers of their solver besides vectors.
_SECOND_DERIVATIVES_UP_TO, _SOLVER_NUMBERS = 256, 18


def load_seconds(n_rows: int, width: int, rates: Rates | None = None) -> float:
    """Return the estimated time to encode a group's rows once: ``load + encode * n * d``."""
    machine = (rates or Rates()).machine
    return machine.load + machine.encode * n_rows * width


def unit_seconds(
    learner: Learner,
    configs: Sequence[Config],
    n_rows: int,
    width: int,
    epochs: int,
    outputs: int,
    groups: int = 1,
    rates: Rates | None = None,
) -> float:
    """Return the estimated time of one unit: a pack of s configs on n rows of d values, of one group or several small ones.

    ``fixed = group * g + config * s + read * n * d``; each pass adds ``(gradient * d + row) * n * k + update * η`` per
    config and ``step`` per step of the pack, k outputs, η updates (kingpin 3.1, Cost_Comp).
    """
    known = (rates or Rates()).of(learner.name)
    seconds = known.group * groups + known.config * len(configs) + known.read * n_rows * width
    steps = 0
    for config in configs:
        passes = typical_passes(config, epochs, known)
        updates = passes * updates_per_pass(learner, config, n_rows, width)
        seconds += known.per_row(width) * n_rows * outputs * passes + known.update * updates
        steps = max(steps, passes * steps_per_pass(learner, config, n_rows))
    return known.correction * (seconds + known.step * steps)


def typical_passes(config: Config, epochs: int, known: Coefficients) -> int:
    """Return the passes that a config typically makes of those that it may make."""
    passes = passes_of(config, epochs)
    return passes if known.typical_epochs is None else min(passes, known.typical_epochs)


def passes_of(config: Config, epochs: int) -> int:
    """Return the passes that a config may make: its boosting rounds, or the epochs."""
    rounds = config.get("num_iterations", epochs)
    return rounds if isinstance(rounds, int) else epochs


def leaves_of(config: Config) -> int:
    """Return the most leaves of a tree."""
    return _whole(config, "num_leaves", _LEAVES)


def updates_per_pass(learner: Learner, config: Config, n_rows: int, width: int) -> int:
    """Return η of kingpin 3.1: 1, or ``ceil(n / b)`` for sequential learners.

    Kingpin has 1 for sampling learners, too. Here an update of theirs is the search of one leaf for a split by one
    feature, ``leaves * d`` per tree: on small groups that takes longer than the rows.
    """
    if not learner.access.in_one_go:
        return steps_per_pass(learner, config, n_rows)
    leaves = min(leaves_of(config), n_rows // max(1, _whole(config, "min_data_in_leaf", 1)))
    return max(1, leaves) * width


def steps_per_pass(learner: Learner, config: Config, n_rows: int) -> int:
    """Return how often a pass changes the model: once, for sequential learners with every batch."""
    if not learner.access.visits:
        return 1
    return max(1, math.ceil(n_rows / max(1, _whole(config, "batch_size", _BATCH))))


def _whole(config: Config, name: str, default: int) -> int:
    value = config.get(name, default)
    return value if isinstance(value, int) else default


#: Rows by which LightGBM places bins (``bin_construct_sample_cnt``), unless it is told another number.
_BINNING_ROWS = 200_000


# --- bytes -------------------------------------------------------------------------------------------------------------


def row_bytes(width: int, *, single: bool = False) -> int:
    """Return the bytes of one encoded row on a worker: d values, which may be single, label and weight as doubles."""
    return (SINGLE_BYTES if single else VALUE_BYTES) * width + 2 * VALUE_BYTES


def binned_bytes(width: int, row_bytes: int, rows: int) -> int:
    """Return the bytes that boosting holds of rows read a block at a time: those that place the bins, and all as bins.

    A binned row has a byte a column, label, score, prediction, its number here and there, and gradient and second derivative
    twice, these in single precision.
    """
    return row_bytes * min(rows, _BINNING_ROWS) + rows * (width + 6 * VALUE_BYTES)


def state_bytes(learner: Learner, configs: Sequence[Config], width: int, outputs: int) -> int:
    """Return the estimated bytes of a pack's state: what a hop moves (m in kingpin, table 1, times s)."""
    values = _STATE_VALUES.get(learner.name, _linear_values)
    return VALUE_BYTES * sum(values(config, width, outputs) for config in configs)


def sums_bytes(learner: Learner, configs: Sequence[Config], width: int, outputs: int) -> int:
    """Return the estimated bytes of the sums of one pass: what workers of a split group send each other.

    Least squares sends X'X once for the pack, boosting the histograms of one tree, gradients are as large as weights; beside
    them generalised linear models send second derivatives in most passes.
    """
    if learner.name == "linear_regression":
        return VALUE_BYTES * (width * width + 2 * width + 4)
    if learner.access.in_one_go:
        return len(configs) * width * _BINS * _BIN_BYTES * outputs
    bends = _SECOND_DERIVATIVES.get(learner.name)
    values = outputs * (width + 1) + 1 + (bends(width, outputs) if bends else 0)
    return VALUE_BYTES * len(configs) * values


def _linear_values(config: Config, width: int, outputs: int) -> int:
    del config
    return outputs * (width + 1) + 1


def _second_derivatives(width: int, outputs: int) -> int:
    """Return how many second derivatives a config of a generalised linear model has: those of one triangle, while few."""
    parameters = outputs * (width + 1)
    return parameters * (parameters + 1) // 2 if parameters <= _SECOND_DERIVATIVES_UP_TO else 0


def _glm_values(config: Config, width: int, outputs: int) -> int:
    """Weights as written, four points of the solver and the steps it keeps, second derivatives or a diagonal, a few numbers."""
    parameters, triangle = outputs * (width + 1), _second_derivatives(width, outputs)
    steps = _whole(config, "history", 10)
    return (5 + 2 * steps) * parameters + (triangle or parameters) + 2 * width + steps + _SOLVER_NUMBERS


def _second_derivatives_one_by_one(width: int, outputs: int) -> int:
    """Return how many second derivatives a config has whose outputs are models of their own."""
    return outputs * _second_derivatives(width, 1)


def _glm_values_one_by_one(config: Config, width: int, outputs: int) -> int:
    return outputs * _glm_values(config, width, 1)


def _mlp_values(config: Config, width: int, outputs: int) -> int:
    """Parameters and Adam's two moments, in single precision unless the config says double."""
    hidden = config.get("hidden_layers", (32,))
    sizes = (width, *(hidden if isinstance(hidden, tuple) else ()), outputs)
    parameters = sum((wide + 1) * following for wide, following in pairwise(sizes))
    return 3 * parameters if config.get("precision") == "double" else math.ceil(3 * parameters / 2)


def _gbdt_values(config: Config, width: int, outputs: int) -> int:
    del width
    trees = passes_of(config, 100) * outputs
    return trees * leaves_of(config) * _LEAF_BYTES // VALUE_BYTES


_STATE_VALUES: Mapping[str, Callable[[Config, int, int], int]] = {
    "linear_regression": _linear_values,
    "logistic_regression": _glm_values,
    "poisson_regression": _glm_values,
    "linear_svm": _glm_values_one_by_one,
    "mlp": _mlp_values,
    "gbdt": _gbdt_values,
    "random_forest": _gbdt_values,
}
#: Of the generalised linear models.
_SECOND_DERIVATIVES: Mapping[str, Callable[[int, int], int]] = {
    "logistic_regression": _second_derivatives,
    "poisson_regression": _second_derivatives,
    "linear_svm": _second_derivatives_one_by_one,
}
