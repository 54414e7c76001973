"""What a metric is: declared once, with how it follows from sums over rows, for those who train and as SQL for EVALUATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.data.spilled import ByRow
from grouplearn.learners.contract.problem import Task
from grouplearn.learners.contract.state import Tensors

#: Probabilities are clipped to [ε, 1 − ε] before their logarithm, as scikit-learn does for float64.
EPSILON = float(np.finfo(np.float64).eps)
#: How much worse than a constant is far: what is said for certain is not said of what a few more rows could turn.
FAR = 2
#: The deviation of a label, in ``Metric.astray``: a constant's absolute errors have at most that mean. Where r2 is 1 nothing is
#: left to explain.
DEVIATION = "{rmse} / sqrt(1 - {r2})"
SOME_LEFT = "{r2} < 1 AND"
#: In SQL the label of a row that is predicted.
TARGET = "__grouplearn_target"


@dataclass(frozen=True, slots=True)
class MetricSums:
    """Sums over rows from which ``finish`` computes every metric of a task; arrays only, per config where they differ.

    Regression: ``rows``, ``weight``, ``label_low``, ``label_high``, ``label_mean``, ``label_square`` (scalars), ``absolute``,
    ``square``, ``relative`` (c,).
    Classification: ``weight`` (scalar), ``loss``, ``correct``, ``brier`` (c,), ``actual`` (K,), ``predicted``, ``hit`` (c, K),
    and ``by_row`` for exact areas ``scores`` (c, k, n), ``labels``, ``weights`` (n,). ``binary``: a score is one number. The
    last ``n_unseen`` of the K classes are those that training had no row of. Without a label: see ``distances``.
    """

    tensors: Tensors
    by_row: Mapping[str, ByRow] = field(default_factory=dict)
    binary: bool = False
    n_unseen: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all sums."""
        sums = sum(int(each.nbytes) for each in self.tensors.values())
        return sums + sum(each.nbytes for each in self.by_row.values())

    def without_rows(self) -> MetricSums:
        """Return the sums without what is kept of each row: areas are then not defined."""
        return MetricSums(self.tensors, binary=self.binary, n_unseen=self.n_unseen)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, its direction, and what it is.

    ``finish`` makes it of sums, (c,), NaN where it is not defined; ``sql`` of what ``judged`` has of a group, see ``Judged``.
    ``always``: every model has it; the others only where they are optimised. ``by_row``: it is computed from the scores of
    all rows, and labels that are arrays have none; nor do they have a ``row_loss``, the mean of a loss of ``deviances``, whose
    ``parameter`` is the hyperparameter of that name. ``pooled``: that of the rows of several groups is the mean over rows of
    those of the groups, or the root of that of their squares; of others it does not follow. ``of_class``: SQL of what it
    is of a class, see ``classes``.
    """

    name: str
    greater_is_better: bool
    meaning: str
    finish: Callable[[MetricSums], FloatArray]
    sql: str
    pooled: Literal["mean", "root"] | None = None
    always: bool = True
    by_row: bool = False
    row_loss: bool = False
    parameter: str | None = None
    of_class: str | None = None
    astray: tuple[str, ...] = ()


class Scores(NamedTuple):
    """Rows with ``scores`` (n, c, k) as a learner gives them, ``y`` and ``weight`` (n,); see ``sums.measure``."""

    scores: FloatArray
    y: FloatArray
    weight: FloatArray
    n_classes: int = 0
    n_unseen: int = 0


class Asked(NamedTuple):
    """What EVALUATE knows of a model: its ``classes``, of which groups may have ``several``, SQL of the ``prediction`` as text,
    and of the losses of a row that it has besides, by name."""

    classes: tuple[str, ...]
    several: bool
    prediction: str
    losses: Mapping[str, str]


class Judged(NamedTuple):
    """How EVALUATE measures predictions, as SQL.

    ``row`` is what it looks at of a row with a prediction and the label ``TARGET``, by name, and ``known`` whether that is there.
    ``sums`` are CTEs: the last, ``judged``, has the sums of each group ``id``, over rows of ``known``, which have besides the
    weight ``w`` in units of ``unit``, and whether they count, ``ok``.
    """

    row: Mapping[str, str]
    known: str
    sums: str


@dataclass(frozen=True, slots=True)
class Family:
    """The metrics of some tasks, in the order in which they are shown, the sums that they follow from, here and in SQL, and the
    name of one of these sums that no other family has."""

    tasks: frozenset[Task]
    metrics: tuple[Metric, ...]
    measure: Callable[[Scores], MetricSums]
    judged: Callable[[Asked], Judged]
    known_by: str


def summed(source: str, sums: Mapping[str, str]) -> str:
    """Return the CTE ``judged`` of sums over the rows of ``source`` that count, by name."""
    columns = "".join(f", {sql} FILTER (ok) AS {name}" for name, sql in sums.items())
    return (
        "judged AS (SELECT id, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped, any_value(unit) AS unit,"
        f" sum(w) FILTER (ok) AS total{columns} FROM {source} GROUP BY id)"
    )


def mean_of(name: str, by: str = "weight") -> Callable[[MetricSums], FloatArray]:
    """Return what divides one sum by another."""
    return lambda sums: ratio(sums.tensors[name], sums.tensors[by])


def ratio(numerator: FloatArray, weight: FloatArray) -> FloatArray:
    """Return a quotient, NaN where it is one by 0."""
    by = np.broadcast_to(weight, numerator.shape)
    found: FloatArray = np.divide(numerator, by, out=np.full(numerator.shape, np.nan), where=by > 0)
    return found
