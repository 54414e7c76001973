"""What a metric is: declared once, with its computation from sums over rows, in training and as SQL for EVALUATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.layout.spilled import ByRow
from grouplearn.models.state import Tensors

#: How many times worse than a constant counts as far: a note must not be reversed by a few more rows.
FAR = 2
#: A label's deviation, in ``Metric.worse_than_constant``: a constant's mean absolute error is at most that. If r2 is 1 there
#: is nothing left to explain.
DEVIATION = "{rmse} / sqrt(1 - {r2})"
SOME_LEFT = "{r2} < 1 AND"
#: In SQL, the label of a predicted row.
TARGET = "__grouplearn_target"


@dataclass(frozen=True, slots=True)
class MetricSums:
    """Sums over rows from which ``finish`` computes every metric; arrays only, per config where they differ.

    - Regression: ``rows``, ``weight``, ``label_low``, ``label_high``, ``label_mean``, ``label_square`` (scalars),
    ``absolute``,
      ``square``, ``relative`` (c,).
    - Classification: ``weight`` (scalar), ``loss``, ``correct``, ``brier`` (c,), ``actual`` (K,), ``predicted``, ``hit``
    (c, K),
      and ``by_row`` for exact areas: ``scores`` (c, k, n), ``labels``, ``weights`` (n,). ``binary``: a score is one number.
      The
      last ``n_unseen`` of the K classes have no training rows.
    - Without a label: see ``distances``.
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
        """Return the sums without what is stored per row: areas are then undefined."""
        return MetricSums(self.tensors, binary=self.binary, n_unseen=self.n_unseen)


class NoBetterThanConstant(NamedTuple):
    """When held-out rows say that a model is no better than a constant: SQL over metrics by name and ``n_classes``, and the
    note, with a place for the metric's value."""

    condition: str
    note: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, its direction, and its computation.

    - ``finish`` computes it from sums, (c,), NaN if undefined; ``sql`` does from the columns of ``judged``, see ``Judged``.
    - ``always``: every model has it; others only if optimised.
    - ``by_row``: it needs the scores of all rows; array labels do not have it.
    - ``row_loss``: it is the mean of a loss in ``deviances``; array labels do not have it. ``parameter`` names its
    hyperparameter.
    - ``pooled``: over several groups it is the mean over rows of the groups' values, or the root of the mean of their
    squares;
      other metrics of several groups do not follow from those of each.
    - ``of_class``: SQL of its value for a class, see ``classes``; ``of_ranked``: an aggregate over scores that it needs.
    - ``threshold``: the metric that is the probability above which rows are positive, if this one chooses it; ``is_threshold``.
    - ``worse_than_constant``: conditions that a model is far worse than a constant on its own rows; the first that can be asked
      counts. ``useless``: on held-out rows. ``constant``: the value of a model that is a constant. A model above
    ``too_good`` may have learned from what is known only with the label.
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
    of_ranked: str | None = None
    threshold: str | None = None
    is_threshold: bool = False
    worse_than_constant: tuple[str, ...] = ()
    useless: NoBetterThanConstant | None = None
    too_good: float | None = None
    constant: float | None = None


class Scores(NamedTuple):
    """Rows with a learner's ``scores`` (n, c, k), ``y`` and ``weight`` (n,); see ``metrics.measure``."""

    scores: FloatArray
    y: FloatArray
    weight: FloatArray
    n_classes: int = 0
    n_unseen: int = 0


class Asked(NamedTuple):
    """What EVALUATE knows of a model: its ``classes``, whether a group may have ``several``, SQL of the ``prediction`` as
    text, SQL of further row losses by name, and ``further`` metrics at a level."""

    classes: tuple[str, ...]
    several: bool
    prediction: str
    losses: Mapping[str, str]
    further: tuple[Metric, ...] = ()


class Judged(NamedTuple):
    """How EVALUATE measures predictions, as SQL.

    ``row``: by name what it needs of a row with a prediction and the label ``TARGET``; ``known``: whether that exists.
    ``sums`` are CTEs: the last, ``judged``, has the sums of each group ``id`` over rows of ``known``, which also have the
    weight ``w`` in units of ``unit``, and ``ok``: whether they count. ``vectors``: by name columns ``v.name`` of the row's
    group, as aggregates over its vectors.
    """

    row: Mapping[str, str]
    known: str
    sums: str
    vectors: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Family:
    """The metrics of an output in display order, the first optimised by default, and the sums that they need, here and in
    SQL.

    ``fallback`` names the metric that chooses where the optimised one is NULL: every model has it on all rows that judge. By
    default it is the first. ``at_level`` makes the metrics that are named with a level.
    """

    metrics: tuple[Metric, ...]
    measure: Callable[[Scores], MetricSums]
    judged: Callable[[Asked], Judged]
    fallback: str = ""
    at_level: Callable[[str], Metric | None] = lambda _: None

    @property
    def default(self) -> str:
        """The name of the metric that is optimised by default."""
        return self.metrics[0].name

    def choosing(self, optimised: str) -> tuple[Metric, ...]:
        """Return the metrics that choose the best model: the first that is known of any."""
        return tuple(map(self.named, dict.fromkeys([optimised, self.fallback or self.default])))

    def named(self, name: str) -> Metric:
        """Return the metric of that name; KeyError if there is none."""
        found = next((each for each in self.metrics if each.name == name), None) or self.at_level(name)
        if found is None:
            raise KeyError(name)
        return found

    def names(self, arrays: bool = False) -> tuple[str, ...]:
        """Return the names of all metrics; for ``arrays`` without those that need every row."""
        return tuple(each.name for each in self.metrics if not (arrays and (each.by_row or each.row_loss)))

    def usual(self, arrays: bool = False, *also: str) -> tuple[str, ...]:
        """Return the names of the metrics of every model, and those in ``also``."""
        known = self.names(arrays)
        usual = [name for name in known if self.named(name).always or name in also]
        further = [self.named(name) for name in also if name not in known]
        thresholds = [each.threshold for each in further if each.threshold is not None]
        return (*usual, *(each.name for each in further), *thresholds)

    def finish(self, sums: MetricSums, *only: str) -> dict[str, FloatArray]:
        """Return every metric, each (c,); NaN if undefined (no rows, or one class for auc).

        ``only`` names the wanted ones: an area needs a sort.
        """
        kept = [each for each in self.metrics if not each.row_loss or each.name in sums.tensors]
        kept += [own for name in only if (own := self.at_level(name)) is not None]
        return {each.name: each.finish(sums) for each in kept if not only or each.name in only}

    def has(self, name: str) -> bool:
        """Return whether there is a metric of that name, with its level if it has one."""
        return name in self.names() or self.at_level(name) is not None


def summed(source: str, sums: Mapping[str, str]) -> str:
    """Return the CTE ``judged`` of sums over the rows of ``source`` that count, by name."""
    columns = "".join(f", {sql} FILTER (ok) AS {name}" for name, sql in sums.items())
    return (
        "judged AS (SELECT id, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped, any_value(unit) AS unit,"
        f" sum(w) FILTER (ok) AS total{columns} FROM {source} GROUP BY id)"
    )


def mean_of(name: str, by: str = "weight") -> Callable[[MetricSums], FloatArray]:
    """Return a function that divides one sum by another."""
    return lambda sums: ratio(sums.tensors[name], sums.tensors[by])


def ratio(numerator: FloatArray, weight: FloatArray) -> FloatArray:
    """Return a quotient, NaN for division by 0."""
    by = np.broadcast_to(weight, numerator.shape)
    found: FloatArray = np.divide(numerator, by, out=np.full(numerator.shape, np.nan), where=by > 0)
    return found
