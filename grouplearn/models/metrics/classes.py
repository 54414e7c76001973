"""The metrics of classes, here and in SQL; for a group with two classes those of the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.kernels.metrics import ClassCount, class_sums, label_sums
from grouplearn.layout.spilled import ByRow
from grouplearn.models.losses.loss_metric import EPSILON
from grouplearn.models.metrics import ranking
from grouplearn.models.metrics.levels import at_level
from grouplearn.models.metrics.metric import (
    FAR,
    TARGET,
    Asked,
    Family,
    Judged,
    Metric,
    MetricSums,
    NoBetterThanConstant,
    Scores,
    mean_of,
)
from grouplearn.sqltext import literal


def _of_classes(counted: Callable[[FloatArray, FloatArray], FloatArray]) -> Callable[[MetricSums], FloatArray]:
    """Return a function for hits / ``counted`` by class, from the weights of a class's rows and of predictions of it: for
    the positive class, or the mean over classes that occur in labels or predictions."""

    def finish(sums: MetricSums) -> FloatArray:
        predicted = sums.tensors["predicted"]
        actual = np.broadcast_to(sums.tensors["actual"], predicted.shape)
        return _hits(sums, counted(actual, predicted), actual + predicted > 0, sums.binary)

    return finish


def _balanced(sums: MetricSums) -> FloatArray:
    actual = np.broadcast_to(sums.tensors["actual"], sums.tensors["hit"].shape)
    return _hits(sums, actual, actual > 0, False)


def _hits(sums: MetricSums, counted: FloatArray, occurs: npt.NDArray[np.bool_], binary: bool) -> FloatArray:
    """Return hit / counted (c, K), 0 if nothing is counted, for class 1, or its mean over the classes that occur."""
    hit = sums.tensors["hit"]
    if not sums.tensors["weight"] > 0:
        return np.full(len(hit), np.nan)
    per_class = np.divide(hit, counted, out=np.zeros_like(hit), where=counted > 0)
    if binary:
        positive: FloatArray = per_class[:, 1]
        return positive
    mean: FloatArray = ranking.in_order(np.where(occurs, per_class, 0.0).T) / occurs.sum(axis=1)
    return mean


def _area(area: Callable[[ByRow, ByRow, ByRow, int], FloatArray]) -> Callable[[MetricSums], FloatArray]:
    """Return a function for an area from the stored scores, NaN if they are not stored."""

    def finish(sums: MetricSums) -> FloatArray:
        if not sums.by_row:
            return np.full(sums.tensors["loss"].shape, np.nan)
        kept = sums.by_row
        return area(kept["scores"], kept["labels"], kept["weights"], sums.n_unseen)

    return finish


def _second_or(second: str, mean: str) -> str:
    """Return the value of the second of two classes, ``mean`` for more classes."""
    return f"CASE WHEN positive IS NOT NULL THEN {second} ELSE {mean} END"


def _mean_sql(name: str) -> str:
    """Return the mean over the classes that occur; those that the model has not, ``n_new`` of them, have 0."""
    return f"coalesce(sum_{name}, 0) / nullif(n_{name} + n_new, 0)"


def _hits_sql(name: str) -> str:
    """Return the value of the second of two classes, 0 without a row of it, or the mean."""
    return _second_or(f"CASE WHEN total > 0 THEN coalesce(second_{name}, 0) END", _mean_sql(name))


def _area_sql(name: str, new: str) -> str:
    """Return the area of the second of two classes, or the mean over the classes that have one; ``new`` is the sum of the
    areas of classes unknown to the model."""
    extra = f"CASE WHEN n_new > 0 THEN {new} END"
    mean = (
        f"(coalesce(sum_{name}, 0) + coalesce({extra}, 0))"
        f" / nullif(coalesce(n_{name}, 0) + CASE WHEN ({extra}) IS NULL THEN 0 ELSE n_new END, 0)"
    )
    return _second_or(f"second_{name}", mean)


_METRICS = (
    Metric(
        "log_loss",
        False,
        "mean of -log p of the row's own class, p between 2.2e-16 and 1 - 2.2e-16",
        mean_of("loss"),
        "loss / total",
        "mean",
        worse_than_constant=(f"{{log_loss}} > {FAR} * ln({{n_classes}})",),  # log_loss of equal probabilities
    ),
    Metric(
        "auc",
        True,
        "area under the ROC curve; several classes: mean of each against the rest, over classes with rows in and out",
        _area(ranking.area_under_curve),
        _area_sql("auc", "CASE WHEN new < total THEN 0.5 * n_new END"),
        by_row=True,
        of_class="1 - lost / nullif(actual * (every - actual), 0)",
        useless=NoBetterThanConstant(
            "{auc} <= 0.5", "no better on held-out rows than a guess, valid_auc = %.2g: try fewer features or more rows"
        ),
        too_good=0.999,
    ),
    Metric(
        "accuracy", True, "share of rows predicted right", mean_of("correct"), "coalesce(correct, 0) / total", "mean"
    ),
    Metric(
        "f1",
        True,
        "2·hits / (rows of the class + rows predicted so), of the positive class; several classes: mean over those that "
        "occur in labels or predictions",
        _of_classes(lambda actual, predicted: 0.5 * (actual + predicted)),
        _hits_sql("f1"),
        of_class="2 * hit / nullif(actual + said, 0)",
        useless=NoBetterThanConstant(  # auc is known where both classes are held out
            "{f1} = 0 AND {auc} IS NOT NULL AND {n_classes} = 2",
            "no held-out row of the positive class is predicted right, valid_f1 = %.2g: predict with threshold := 0.2",
        ),
    ),
    Metric(
        "precision",
        True,
        "hits / rows predicted so, 0 without any, of the positive class; several classes: mean as for f1",
        _of_classes(lambda _, predicted: predicted),
        _hits_sql("precision"),
        always=False,
        of_class="CASE WHEN actual + said > 0 THEN coalesce(hit / nullif(said, 0), 0) END",
    ),
    Metric(
        "recall",
        True,
        "hits / rows of the class, 0 without any, of the positive class; several classes: mean as for f1",
        _of_classes(lambda actual, _: actual),
        _hits_sql("recall"),
        always=False,
        of_class="CASE WHEN actual + said > 0 THEN coalesce(hit / nullif(actual, 0), 0) END",
    ),
    Metric(
        "balanced_accuracy",
        True,
        "mean of hits / rows of the class, over the classes that occur in labels, of two classes, too",
        _balanced,
        _mean_sql("balanced_accuracy"),
        always=False,
        of_class="hit / nullif(actual, 0)",
    ),
    Metric(
        "pr_auc",
        True,
        "average precision, Σ (Rₙ - Rₙ₋₁)·Pₙ over thresholds, of the positive class; several classes: mean of each "
        "against the rest, over classes with rows",
        _area(ranking.average_precision),
        _area_sql("pr_auc", "new / total"),
        always=False,
        by_row=True,
        of_class="found / nullif(actual, 0)",
    ),
    Metric(
        "brier",
        False,
        "mean of (p - y)², y 1 for the positive class and else 0; several classes: mean of the sum of it over classes; a class "
        "that the model does not know is one more, of p 0 (two classes: half of the sum)",
        mean_of("brier"),
        "error / total",
        "mean",
        always=False,
    ),
)
_OF_CLASS = {metric.name: metric.of_class for metric in _METRICS if metric.of_class}


def _measure(rows: Scores) -> MetricSums:
    scores, y, weight, n_classes, n_unseen = rows
    sums = class_sums(scores, y, weight, ClassCount(n_classes, n_unseen))
    actual, predicted, hit = (each.T for each in sums[2:].reshape(3, n_classes + n_unseen, -1))
    columns = np.ascontiguousarray(scores.transpose(1, 2, 0))
    return MetricSums(
        {
            "weight": np.array(label_sums(y, weight).total),
            "loss": sums[0],
            "brier": sums[1],
            "correct": ranking.in_order(hit.T),
            "actual": actual[0],
            "predicted": predicted,
            "hit": hit,
        },
        {"scores": ByRow((columns,)), "labels": ByRow((y,)), "weights": ByRow((weight,))},
        scores.shape[2] == 1,
        n_unseen,
    )


def _judged(asked: Asked) -> Judged:
    """Return how classes are measured.

    A row has: ``positive``, the number of the second of its group's classes (``g.classes``) if it has two; ``label`` and
    its number ``y`` (-1 if unknown to the model); the number ``guess`` of the prediction; and the probabilities ``p`` of
    all classes.
    """
    known = "probabilities" if asked.several else "probability"
    names = f"CAST([{', '.join(map(literal, asked.classes))}] AS VARCHAR[])"
    row = {
        "positive": "CASE WHEN len(g.classes) = 2 THEN list_max(g.classes) END",
        "label": TARGET,
        "y": f"coalesce(list_position({names}, {TARGET}) - 1, -1)",
        "guess": f"list_position({names}, {asked.prediction}) - 1",
        "p": "map_values(probabilities)" if asked.several else "[1 - probability, probability]",
    }
    return Judged(
        row, f"{TARGET} IS NOT NULL AND {known} IS NOT NULL", _sums_sql(max(2, len(asked.classes)), asked.further)
    )


def _sums_sql(n_classes: int, further: Sequence[Metric]) -> str:
    """Return the CTEs of a group's sums and of its classes' values: their sum, how many have one, and the second's.

    A row becomes one per class: the work is rows times classes.
    """
    clipped = f"least(greatest(own, {EPSILON}), 1 - {EPSILON})"
    of_class = _OF_CLASS | {each.name: each.of_class for each in further}
    # For two classes half of the sum is (p - y)² of the positive one.
    error = "((1 - own) ** 2 + squares - own ** 2) / CASE WHEN positive IS NULL THEN 1 ELSE 2 END"
    others = "(above - hits_above - (every - pos) / 2)"
    means = ", ".join(
        f"sum({name}) AS sum_{name}, count({name}) AS n_{name}, any_value({name}) FILTER (c = positive) AS second_{name}"
        for name in of_class
    )
    # Sums of a class's hits are known only after all of its scores are ranked.
    totals = ", sum(pos) OVER (PARTITION BY id, c) AS all_hits" if further else ""
    ranked = "".join(f", {each.of_ranked} AS ranked_{each.name}" for each in further)
    return (
        "owned AS MATERIALIZED (SELECT *, coalesce(p[y + 1], 0) AS own,"
        " list_sum(list_transform(p, lambda v: v * v)) AS squares FROM known),"
        " summed AS (SELECT id, any_value(positive) AS positive, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped,"
        f" any_value(unit) AS unit, sum(w) FILTER (ok) AS total, sum(w * -ln({clipped})) FILTER (ok) AS loss,"
        f" sum(w) FILTER (ok AND y = guess) AS correct, sum(w * ({error})) FILTER (ok) AS error,"
        " count(DISTINCT label) FILTER (ok AND y = -1) AS n_new, coalesce(sum(w) FILTER (ok AND y = -1), 0) AS new"
        " FROM owned GROUP BY id),"
        " each_class AS (SELECT id, positive, y, guess, w, unnest(p) AS p,"
        f" unnest(range({n_classes})) AS c FROM owned WHERE ok),"
        # Rows with equal scores count as one.
        " tied AS (SELECT id, c, p, any_value(positive) AS positive, sum(w) AS every,"
        " coalesce(sum(w) FILTER (y = c), 0) AS pos, coalesce(sum(w) FILTER (guess = c), 0) AS said,"
        " coalesce(sum(w) FILTER (y = c AND guess = c), 0) AS hit FROM each_class GROUP BY id, c, p),"
        f" ranked AS (SELECT *, sum(every) OVER higher AS above, sum(pos) OVER higher AS hits_above{totals} FROM tied"
        " WINDOW higher AS (PARTITION BY id, c ORDER BY p DESC ROWS UNBOUNDED PRECEDING)),"
        " classed AS (SELECT id, c, any_value(positive) AS positive, sum(every) AS every, sum(pos) AS actual,"
        # The weight of other classes that ranks above the class's rows, ties for one half.
        f" sum(said) AS said, sum(hit) AS hit, sum(pos * {others}) AS lost, sum(pos * hits_above / above) AS found{ranked}"
        " FROM ranked GROUP BY id, c),"
        f" shares AS (SELECT id, c, positive, {', '.join(f'{sql} AS {name}' for name, sql in of_class.items())} FROM classed),"
        f" means AS (SELECT id, {means} FROM shares GROUP BY id),"
        " judged AS (SELECT summed.*, means.* EXCLUDE (id) FROM summed LEFT JOIN means ON means.id = summed.id)"
    )


CLASSES = Family(_METRICS, _measure, _judged, at_level=at_level)
