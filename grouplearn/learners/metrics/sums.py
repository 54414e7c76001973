"""Metrics of classification and regression: weighted, for all configs at once, from mergeable sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.data.spilled import ByRow
from grouplearn.kernels.metrics import ClassCount, class_sums, error_sums
from grouplearn.learners.contract.problem import Task
from grouplearn.learners.contract.state import Tensors
from grouplearn.learners.metrics import distances, ranking

_CLASSIFICATION = frozenset({Task.BINARY, Task.MULTICLASS})
_REGRESSION = frozenset({Task.REGRESSION})
_CLUSTERING, _PROJECTION = frozenset({Task.CLUSTERING}), frozenset({Task.PROJECTION})
_DISTANCES = "sum of weighted squared distances"
#: Probabilities are clipped to [eps, 1 − eps] before their logarithm, as scikit-learn does for float64.
_EPSILON = float(np.finfo(np.float64).eps)
#: Metrics that differ by no more of the better one's size are tied.
TIED = 1e-9
#: Labels within this share of their size, a few units in its last place, are one number and its rounding.
CONSTANT = 4 * _EPSILON
#: A constant label is predicted exactly if errors are this share of it: a model's sums over many rows round more than a label.
EXACT = 1e-13


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, the tasks it applies to, its direction, what must be kept to merge it over rows, and what it is.

    ``always``: every model has it; the others only where they are optimised. ``by_row``: it is computed from the scores of
    all rows, and labels that are arrays have none; nor do they have a ``row_loss``, the mean of a loss of ``deviances``, whose
    ``parameter`` is the hyperparameter of that name.
    """

    name: str
    tasks: frozenset[Task]
    greater_is_better: bool
    mergeable: str
    meaning: str
    always: bool = True
    by_row: bool = False
    row_loss: bool = False
    parameter: str | None = None


def _row_loss(name: str, meaning: str, parameter: str | None = None) -> Metric:
    return Metric(
        name, _REGRESSION, False, "sum of weighted losses", meaning, always=False, row_loss=True, parameter=parameter
    )


_PER_CLASS = "sums of weights per true and predicted class"
_ROWS = "exact: the scores, labels and weights of all rows"
METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric(
                "log_loss",
                _CLASSIFICATION,
                False,
                "sum of weighted losses",
                "mean of -log p of the row's own class, p between 2.2e-16 and 1 - 2.2e-16",
            ),
            Metric(
                "auc",
                _CLASSIFICATION,
                True,
                _ROWS,
                "area under the ROC curve; several classes: mean of each against the rest, over classes with rows in and out",
                by_row=True,
            ),
            Metric(
                "accuracy", _CLASSIFICATION, True, "sum of weights of rows predicted right", "share predicted right"
            ),
            Metric(
                "f1",
                _CLASSIFICATION,
                True,
                _PER_CLASS,
                "2·hits / (rows of the class + rows predicted so), of the positive class; several classes: mean over those that "
                "occur in labels or predictions",
            ),
            Metric(
                "precision",
                _CLASSIFICATION,
                True,
                _PER_CLASS,
                "hits / rows predicted so, 0 without any, of the positive class; several classes: mean as for f1",
                always=False,
            ),
            Metric(
                "recall",
                _CLASSIFICATION,
                True,
                _PER_CLASS,
                "hits / rows of the class, 0 without any, of the positive class; several classes: mean as for f1",
                always=False,
            ),
            Metric(
                "balanced_accuracy",
                _CLASSIFICATION,
                True,
                _PER_CLASS,
                "mean of hits / rows of the class, over the classes that occur in labels, of two classes, too",
                always=False,
            ),
            Metric(
                "pr_auc",
                _CLASSIFICATION,
                True,
                _ROWS,
                "average precision, Σ (Rₙ - Rₙ₋₁)·Pₙ over thresholds, of the positive class; several classes: mean of each "
                "against the rest, over classes with rows",
                always=False,
                by_row=True,
            ),
            Metric(
                "brier",
                _CLASSIFICATION,
                False,
                "sum of weighted squared errors of probabilities",
                "mean of (p - y)², y 1 for the positive class and else 0; several classes: mean of the sum of it over classes",
                always=False,
            ),
            Metric("rmse", _REGRESSION, False, "sum of weighted squared errors", "root of the mean of (y - ŷ)²"),
            Metric("mae", _REGRESSION, False, "sum of weighted absolute errors", "mean of |y - ŷ|"),
            Metric(
                "r2",
                _REGRESSION,
                True,
                "sums of weighted errors and their squares; least, greatest, mean and squared deviations of the label",
                "1 - Σ(y - ŷ)² / Σ(y - mean of y)²; of a label that is constant but for rounding 1 if predicted exactly, else 0",
            ),
            Metric(
                "mape",
                _REGRESSION,
                False,
                "sum of weighted relative errors",
                "mean of |y - ŷ| / |y|, |y| at least 2.2e-16",
                always=False,
            ),
            _row_loss("pinball", "mean of alpha·(y - ŷ) if positive, else of (alpha - 1)·(y - ŷ)", "alpha"),
            _row_loss("poisson_deviance", "mean of 2·(y·log(y / ŷ) - y + ŷ); of labels >= 0"),
            _row_loss("gamma_deviance", "mean of 2·(log(ŷ / y) + y / ŷ - 1); of labels > 0"),
            _row_loss(
                "tweedie_deviance",
                "mean of 2·(y^(2-p) / ((1-p)(2-p)) - y·ŷ^(1-p) / (1-p) + ŷ^(2-p) / (2-p)), p hyperparameter "
                "tweedie_variance_power; of labels >= 0",
                "tweedie_variance_power",
            ),
            _row_loss(
                "cross_entropy", "mean of -(y·log ŷ + (1 - y)·log(1 - ŷ)), ŷ as for log_loss; of labels from 0 to 1"
            ),
            Metric(
                "silhouette",
                _CLUSTERING,
                True,
                "sum of weighted widths",
                "mean of 1 - a/b, a the distance to the nearest centroid, b to the second nearest; 0 of one cluster (the "
                "simplified silhouette: of centroids in place of all pairs of rows)",
            ),
            Metric("inertia", _CLUSTERING, False, _DISTANCES, "sum of squared distances to the nearest centroid"),
            Metric(
                "mean_squared_distance",
                _CLUSTERING,
                False,
                _DISTANCES,
                "mean of squared distances to the nearest centroid",
            ),
            Metric(
                "explained_variance",
                _PROJECTION,
                True,
                "sums of weighted squared lengths of projections and of residuals",
                "share of the squared distances from the mean of the training rows that projections keep",
            ),
            Metric(
                "reconstruction_error",
                _PROJECTION,
                False,
                "sum of weighted squared residuals",
                "mean of squared residuals",
            ),
        )
    }
)


def metrics_for(task: Task, arrays: bool = False, *also: str) -> tuple[str, ...]:
    """Return the names of the metrics of every model of ``task``, and those of ``also``; for labels that are ``arrays``
    without what keeps every value."""
    chosen = (name for name in every_metric(task, arrays) if METRICS[name].always or name in also)
    return tuple(chosen)


def every_metric(task: Task, arrays: bool = False) -> tuple[str, ...]:
    """Return the names of all metrics of ``task``."""
    kept = (each for each in METRICS.values() if not (arrays and (each.by_row or each.row_loss)))
    return tuple(each.name for each in kept if task in each.tasks)


def default_metric(task: Task) -> str:
    """Return what is optimised unless the user or the learner says so: log_loss for classes, else the first of the task."""
    return next(each.name for each in METRICS.values() if task in each.tasks)


def first_best(values: FloatArray, greater_is_better: bool) -> npt.NDArray[np.intp]:
    """Return the place of the best of the last axis, the first of those that differ from it by no more than rounding does:
    by ``TIED`` of its size. NaN is never best; where all are NaN the place is 0."""
    badness = np.where(np.isnan(values), np.inf, -values if greater_is_better else values)
    least = badness.min(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # of infinite values the difference is not a number
        tied = (badness == least) | (badness - least <= TIED * np.abs(least))
    place: npt.NDArray[np.intp] = (tied & ~np.isnan(values)).argmax(axis=-1)
    return place


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


def measure(
    task: Task, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int = 0
) -> MetricSums:
    """Return the sums of some rows: ``scores`` (n, c, k) as a learner gives them, ``y`` and ``weight`` (n,).

    Where labels are arrays, ``y`` (n, L) and ``scores`` (n, c, k·L), every value of a label is measured as a row is. The
    ``n_unseen`` labels from ``n_classes`` on are of classes that training had no row of: their probability is 0.
    """
    if y.ndim == 2:
        return _measure_arrays(task, n_classes, scores, y, weight, n_unseen)
    if task is Task.CLUSTERING:
        return MetricSums(distances.cluster_sums(scores, weight))
    if task is Task.PROJECTION:
        return MetricSums(distances.projection_sums(scores, weight))
    if task is Task.REGRESSION:
        return _measure_values(scores[:, :, 0], y, weight)
    return _measure_classes(n_classes, scores, y, weight, n_unseen)


def _measure_arrays(
    task: Task, n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int
) -> MetricSums:
    rows, length = y.shape
    split = scores.reshape(rows, scores.shape[1], -1, length).transpose(0, 3, 1, 2)
    by_value = split.reshape(rows * length, scores.shape[1], -1)
    weights = np.repeat(weight, length)
    return measure(task, n_classes, by_value, y.reshape(-1), weights, n_unseen).without_rows()


def merge(a: MetricSums, b: MetricSums) -> MetricSums:
    """Return the sums of the rows of both, those of ``a`` first."""
    left, right = a.tensors, b.tensors
    merged = {name: value + right[name] for name, value in left.items()}
    if "loss" in left:
        by_row = {name: values.followed_by(b.by_row[name]) for name, values in a.by_row.items()}
        return MetricSums(merged, by_row, a.binary, a.n_unseen)
    if "label_mean" not in left:
        return MetricSums(merged)
    total = merged["weight"]
    share = np.divide(right["weight"], total, out=np.zeros(()), where=total > 0)
    shift = right["label_mean"] - left["label_mean"]
    # Chan, Golub & LeVeque (1983).
    merged["label_mean"] = left["label_mean"] + share * shift
    merged["label_square"] = left["label_square"] + right["label_square"] + left["weight"] * share * shift**2
    merged["label_low"] = np.minimum(left["label_low"], right["label_low"])
    merged["label_high"] = np.maximum(left["label_high"], right["label_high"])
    return MetricSums(merged)


def r_squared(
    square: FloatArray, spread: FloatArray, error: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return 1 - Σw(y-ŷ)²/Σw(y-ȳ)², ``square`` and ``spread``; of a label that is constant but for rounding, from ``low`` to
    ``high``, 1 if predicted exactly, by the mean absolute ``error``, and 0 otherwise."""
    size = np.maximum(np.abs(low), np.abs(high))
    exact = np.where(error <= EXACT * size, 1.0, 0.0)
    with np.errstate(all="ignore"):  # what is divided by 0 is not used, and a range may overflow
        r2: FloatArray = np.where((spread > 0) & (high - low > CONSTANT * size), 1.0 - square / spread, exact)
    return r2


def finish(sums: MetricSums, *only: str) -> dict[str, FloatArray]:
    """Return every metric of the task, each (c,); NaN where it is not defined (no rows, or one class for auc).

    ``only`` names those that are wanted: an area needs a sort.
    """
    finished = next(finish for name, finish in _FINISH.items() if name in sums.tensors)(sums)
    return {name: compute() for name, compute in finished.items() if not only or name in only}


def _measure_values(predictions: FloatArray, y: FloatArray, weight: FloatArray) -> MetricSums:
    square, absolute, relative = error_sums(predictions, y, weight)
    total = weight.sum()
    mean = (weight * y).sum() / total if total > 0 else 0.0
    return MetricSums(
        {
            "rows": np.array(float(len(y))),
            "weight": np.array(total),
            "label_low": np.array(np.min(y, initial=np.inf, where=weight > 0)),
            "label_high": np.array(np.max(y, initial=-np.inf, where=weight > 0)),
            "label_mean": np.array(mean),
            "label_square": np.array((weight * (y - mean) ** 2).sum()),
            "absolute": absolute,
            "square": square,
            "relative": relative,
        }
    )


def _finish_values(sums: MetricSums) -> dict[str, Callable[[], FloatArray]]:
    tensors = sums.tensors
    return {
        "rmse": lambda: np.sqrt(_ratio(tensors["square"], tensors["weight"])),
        "mae": lambda: _ratio(tensors["absolute"], tensors["weight"]),
        "r2": lambda: _r2(tensors),
        "mape": lambda: _ratio(tensors["relative"], tensors["weight"]),
        **{name: partial(_ratio, tensors[name], tensors["weight"]) for name in tensors if name in METRICS},
    }


def _r2(tensors: Tensors) -> FloatArray:
    """Return ``r_squared``; NaN of fewer than two rows."""
    square = tensors["square"]
    if tensors["rows"] < 2:
        return np.full(square.shape, np.nan)
    error = _ratio(tensors["absolute"], tensors["weight"])
    return r_squared(square, tensors["label_square"], error, tensors["label_low"], tensors["label_high"])


def _measure_classes(
    n_classes: int, scores: FloatArray, y: FloatArray, weight: FloatArray, n_unseen: int
) -> MetricSums:
    sums = class_sums(scores, y, weight, ClassCount(n_classes, n_unseen))
    actual, predicted, hit = (each.T for each in sums[2:].reshape(3, n_classes + n_unseen, -1))
    columns = np.ascontiguousarray(scores.transpose(1, 2, 0))
    return MetricSums(
        {
            "weight": np.array(weight.sum()),
            "loss": sums[0],
            "brier": sums[1],
            "correct": hit.sum(axis=1),
            "actual": actual[0],
            "predicted": predicted,
            "hit": hit,
        },
        {"scores": ByRow((columns,)), "labels": ByRow((y,)), "weights": ByRow((weight,))},
        scores.shape[2] == 1,
        n_unseen,
    )


def _finish_classes(sums: MetricSums) -> dict[str, Callable[[], FloatArray]]:
    tensors, weight = sums.tensors, sums.tensors["weight"]
    nowhere = np.full(tensors["loss"].shape, np.nan)
    actual = np.broadcast_to(tensors["actual"], tensors["hit"].shape)

    def of_classes(counted: FloatArray) -> Callable[[], FloatArray]:
        either = actual + tensors["predicted"] > 0
        return lambda: _of_classes(tensors["hit"], counted, either, sums.binary) if weight > 0 else nowhere

    def by_row(area: Callable[..., FloatArray]) -> Callable[[], FloatArray]:
        return lambda: area(**sums.by_row, n_unseen=sums.n_unseen) if sums.by_row else nowhere

    return {
        "log_loss": lambda: _ratio(tensors["loss"], weight),
        "auc": by_row(ranking.area_under_curve),
        "accuracy": lambda: _ratio(tensors["correct"], weight),
        "f1": of_classes(0.5 * (actual + tensors["predicted"])),
        "precision": of_classes(tensors["predicted"]),
        "recall": of_classes(actual),
        "balanced_accuracy": lambda: _of_classes(tensors["hit"], actual, actual > 0) if weight > 0 else nowhere,
        "pr_auc": by_row(ranking.average_precision),
        "brier": lambda: _ratio(tensors["brier"], weight),
    }


def _of_classes(
    hit: FloatArray, counted: FloatArray, occurs: npt.NDArray[np.bool_], binary: bool = False
) -> FloatArray:
    """Return hit / counted (c, K), 0 where nothing is counted, of class 1, or its mean over the classes that occur."""
    per_class = np.divide(hit, counted, out=np.zeros_like(hit), where=counted > 0)
    if binary:
        positive: FloatArray = per_class[:, 1]
        return positive
    mean: FloatArray = np.where(occurs, per_class, 0.0).sum(axis=1) / occurs.sum(axis=1)
    return mean


def _ratio(numerator: FloatArray, weight: FloatArray) -> FloatArray:
    return numerator / weight if weight > 0 else np.full(numerator.shape, np.nan)


#: How sums become metrics, by a sum that they have and no others.
_FINISH: Mapping[str, Callable[[MetricSums], dict[str, Callable[[], FloatArray]]]] = {
    "loss": _finish_classes,
    "label_mean": _finish_values,
    "clustered": lambda sums: distances.finish_clusters(sums.tensors),
    "projected": lambda sums: distances.finish_projection(sums.tensors),
}
