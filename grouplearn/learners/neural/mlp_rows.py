"""The kernels' input: the shape of a config's network, how a pack learns, and the rows of a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grouplearn.data.shard import Shard, Totals
from grouplearn.kernels import networks
from grouplearn.kernels.library import features
from grouplearn.kernels.networks import NetworkRows, NetworkShape, OptimizerSettings
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Visit
from grouplearn.models.label import NUMBER
from grouplearn.models.state import FloatArray


def shape_of(problem: Problem, config: Config) -> NetworkShape:
    """Return the shape of the network of a config."""
    hidden: tuple[int, ...] = config["hidden_layers"] or ()  # type: ignore[assignment]
    return NetworkShape((problem.n_features, *hidden, problem.n_outputs), str(config["activation"]), problem.label.name)


def scaling_of(problem: Problem, whole: Totals) -> tuple[float, float]:
    """Return the mean and standard deviation by which labels are scaled."""
    return (whole.label_mean, whole.label_scale) if problem.label == NUMBER else (0.0, 1.0)


def descent_of(problem: Problem, configs: Sequence[Config], whole: Totals) -> OptimizerSettings:
    """Return how the configs of a pack learn on a group.

    The objective is divided by Σwᵢ, and for labels divided by their deviation by its square.
    """
    _, scale = scaling_of(problem, whole)
    by = whole.weight * scale**2
    rates = {name: _column(configs, name) for name in ("learning_rate", "momentum", "dropout")}
    lasso, ridge = (_column(configs, name) / by for name in ("l1", "l2"))
    return OptimizerSettings(str(configs[0]["optimizer"]), **rates, lasso=lasso, ridge=ridge, scale=scale)


def rows_of(problem: Problem, config: Config, block: Shard, visit: Visit) -> NetworkRows:
    """Return the visited rows of a block in the order of an epoch; the greater class is 1."""
    whole, seed = block.totals, problem.seed
    mean, scale = scaling_of(problem, whole)
    y, weight = (np.ascontiguousarray(each, np.float64) for each in (block.y, block.weight))
    return NetworkRows(
        features(block.x),
        1.0 - y if problem.mirrored else y,
        weight,
        networks.visiting_order(seed, visit.epoch, block.n_rows, block.first)[visit.start : visit.stop],
        int(config["batch_size"]),  # type: ignore[arg-type]
        mean,
        scale,
        whole.n_rows / whole.weight,
        networks.dropout_key(seed, visit.epoch, block.first),
    )


def _column(configs: Sequence[Config], name: str) -> FloatArray:
    """Return one hyperparameter of every config, shape (c,)."""
    return np.array([config[name] for config in configs], dtype=np.float64)
