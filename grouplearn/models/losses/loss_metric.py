"""Metrics that are the mean of a loss of each row, in Python and in SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from grouplearn.data.shard import FloatArray

#: Probabilities and means are at least this before their logarithm, as in scikit-learn for float64.
EPSILON = float(np.finfo(np.float64).eps)
#: The means of values per row, by group.
Mean = Callable[[FloatArray], FloatArray]
#: In SQL, a predicted mean that has a logarithm.
MEAN_SQL = f"greatest(p, {EPSILON})"


@dataclass(frozen=True, slots=True)
class LossMetric:
    """A metric that is the mean of a loss of prediction, label and parameter.

    - ``of`` computes it; ``sql`` does from the columns ``y`` and ``p``, NULL for labels without a loss.
    - ``parameter``: the hyperparameter with its value.
    - ``worse_than_constant``: see ``Metric``. ``of_constant``: the metric of the mean label, where it is the best constant.
    """

    name: str
    meaning: str
    of: Callable[[FloatArray, FloatArray, float], FloatArray]
    sql: Callable[[float], str]
    parameter: str | None = None
    worse_than_constant: tuple[str, ...] = ()
    of_constant: Callable[[FloatArray, Mean, float], FloatArray] | None = None
