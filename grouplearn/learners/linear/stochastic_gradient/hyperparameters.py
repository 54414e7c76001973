"""The hyperparameters of stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.kernels.linear import stochastic_gradient as kernel
from grouplearn.learners.contract.config import Config, Hyperparameter
from grouplearn.learners.linear.linear_model import L1

LEARNING_RATE = Hyperparameter(
    "learning_rate",
    "float",
    0.5,
    "length of the first steps, as a share of one over the curvature of the loss times the mean square length of a row, "
    "longer rows counting more (of all rows, each counting once, where operator averaging sends gradients)",
    "Bottou 2012, section 5.1",
    low=0.0,
    open_low=True,
    remedy="lower",
)
SCHEDULE = Hyperparameter(
    "schedule",
    "str",
    "bottou",
    "how steps get shorter: not at all (constant), as 1/√t, or as 1/t, the sooner the larger l2 is; without l2 "
    "(l1 alone) inverse_sqrt gets closer in few passes",
    "Bottou 2012, section 5.1",
    choices=kernel.SCHEDULES,
)
BATCH_SIZE = Hyperparameter(
    "batch_size",
    "int",
    1,
    "rows per step; a batch ends where a block of 16,384 rows does",
    "Bottou 2012, section 4.1",
    low=1,
    high=1 << 31,
)
AVERAGE = Hyperparameter(
    "average",
    "bool",
    None,
    "whether the model is the mean of all steps (later ones count more) instead of the last one; by default true "
    "without l1 and false with it, as a mean has no zeros",
    "Lacoste-Julien, Schmidt & Bach 2012",
    nullable=True,
)
TOLERANCE = Hyperparameter(
    "tolerance",
    "float",
    0.0,
    "training ends after five epochs in a row that did not lower the objective by this share (the mean of all "
    "steps may still get better); 0: after the last epoch",
    "scikit-learn SGDClassifier",
    low=0.0,
)


def number(config: Config, hyperparameter: Hyperparameter) -> float:
    """Return a hyperparameter's value."""
    return float(config.get(hyperparameter.name, hyperparameter.default))  # type: ignore[arg-type]


def averages(config: Config) -> bool:
    """Return whether the model of a config is a mean of steps."""
    asked = config.get(AVERAGE.name)
    return number(config, L1) == 0 if asked is None else bool(asked)


def averaged(configs: Sequence[Config]) -> npt.NDArray[np.bool_]:
    """Return whether the model of each config (c,) is a mean of steps."""
    return np.array([averages(config) for config in configs], np.bool_)
