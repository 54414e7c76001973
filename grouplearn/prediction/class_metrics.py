"""The metrics of classes in SQL, by the rules of ``learners.metrics``: of a group with two classes those of the second one."""

from __future__ import annotations

from grouplearn.catalog.records import ModelDefinition

#: As scikit-learn clips probabilities of float64 before their logarithm.
_EPSILON = "2.220446049250313e-16"
#: Over the columns of ``classed``, what is a mean over classes or that of the second of two: of a class, NULL where it has none.
_OF_CLASS = {
    "auc": "1 - lost / nullif(actual * (every - actual), 0)",
    "f1": "2 * hit / nullif(actual + said, 0)",
    "precision": "CASE WHEN actual + said > 0 THEN coalesce(hit / nullif(said, 0), 0) END",
    "recall": "CASE WHEN actual + said > 0 THEN coalesce(hit / nullif(actual, 0), 0) END",
    "balanced_accuracy": "hit / nullif(actual, 0)",
    "pr_auc": "found / nullif(actual, 0)",
}
_MEAN_ALONE = "balanced_accuracy"


def judged_classes(definition: ModelDefinition) -> str:
    """Return the CTE ``judged``: the sums of each group, and of what is of a class its sum, how many have it, and the second's.

    Rows come from ``known``: the group ``id``, the number ``positive`` of the second of its classes where it has two, ``label``
    and its number ``y`` (-1 for one that the model has not), the number ``guess`` of the prediction, the list ``p`` of each
    class, weight ``w``, and whether all is there, ``ok``. A row becomes one of each class: the work is rows times classes.
    """
    clipped = f"least(greatest(own, {_EPSILON}), 1 - {_EPSILON})"
    # Of two classes the error is that of the positive one alone: a row of any other class is not of it.
    error = (
        "CASE WHEN positive IS NOT NULL THEN (p[positive + 1] - (y = positive)::INT) ** 2"
        " ELSE (1 - own) ** 2 + squares - own ** 2 END"
    )
    others = "(above - hits_above - (every - pos) / 2)"
    means = ", ".join(_of_group(name, several=definition.task.scores_classes) for name in _OF_CLASS)
    return (
        "owned AS MATERIALIZED (SELECT *, coalesce(p[y + 1], 0) AS own,"
        " list_sum(list_transform(p, lambda v: v * v)) AS squares FROM known),"
        " summed AS (SELECT id, any_value(positive) AS positive, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped,"
        f" any_value(unit) AS unit, sum(w) FILTER (ok) AS total, sum(w * -ln({clipped})) FILTER (ok) AS loss,"
        f" sum(w) FILTER (ok AND y = guess) AS correct, sum(w * ({error})) FILTER (ok) AS error,"
        " count(DISTINCT label) FILTER (ok AND y = -1) AS n_new, coalesce(sum(w) FILTER (ok AND y = -1), 0) AS new"
        " FROM owned GROUP BY id),"
        " each_class AS (SELECT id, positive, y, guess, w, unnest(p) AS p,"
        f" unnest(range({max(2, len(definition.classes))})) AS c FROM owned WHERE ok),"
        # Rows that score the same count as one.
        " tied AS (SELECT id, c, p, any_value(positive) AS positive, sum(w) AS every,"
        " coalesce(sum(w) FILTER (y = c), 0) AS pos, coalesce(sum(w) FILTER (guess = c), 0) AS said,"
        " coalesce(sum(w) FILTER (y = c AND guess = c), 0) AS hit FROM each_class GROUP BY id, c, p),"
        " ranked AS (SELECT *, sum(every) OVER higher AS above, sum(pos) OVER higher AS hits_above FROM tied"
        " WINDOW higher AS (PARTITION BY id, c ORDER BY p DESC ROWS UNBOUNDED PRECEDING)),"
        " classed AS (SELECT id, c, any_value(positive) AS positive, sum(every) AS every, sum(pos) AS actual,"
        # The weight outside the class that ranks above rows of the class, ties for one half.
        f" sum(said) AS said, sum(hit) AS hit, sum(pos * {others}) AS lost, sum(pos * hits_above / above) AS found"
        " FROM ranked GROUP BY id, c),"
        f" shares AS (SELECT id, c, positive, {', '.join(f'{sql} AS {name}' for name, sql in _OF_CLASS.items())} FROM classed),"
        f" means AS (SELECT id, {means} FROM shares GROUP BY id),"
        " judged AS (SELECT summed.*, means.* EXCLUDE (id) FROM summed LEFT JOIN means ON means.id = summed.id)"
    )


def _of_group(name: str, *, several: bool) -> str:
    """Return what of the classes' values makes a metric of a group; of a model of two classes a group has only the second's."""
    mean = f"sum({name}) AS sum_{name}, count({name}) AS n_{name}"
    second = f"any_value({name}) FILTER (c = positive) AS second_{name}"
    return mean if name == _MEAN_ALONE else f"{mean}, {second}" if several else second


def class_metrics(definition: ModelDefinition) -> dict[str, str]:
    """Return the SQL of each metric over the columns of ``judged``."""
    several = definition.task.scores_classes
    return {
        "log_loss": "loss / total",
        "auc": _of_second("auc", _mean_area("auc", "CASE WHEN new < total THEN 0.5 * n_new END"), several=several),
        "accuracy": "coalesce(correct, 0) / total",
        **{name: _of_second(name, _mean(name), several=several, nowhere=0) for name in ("f1", "precision", "recall")},
        _MEAN_ALONE: _mean(_MEAN_ALONE),
        "pr_auc": _of_second("pr_auc", _mean_area("pr_auc", "new / total"), several=several),
        "brier": "error / total",
    }


def _of_second(name: str, mean: str, *, several: bool, nowhere: int | None = None) -> str:
    """Return the value of the second of two classes, or ``nowhere`` if no row is of it; of a group with more the ``mean``."""
    second = f"second_{name}" if nowhere is None else f"CASE WHEN total > 0 THEN coalesce(second_{name}, {nowhere}) END"
    return f"CASE WHEN positive IS NOT NULL THEN {second} ELSE {mean} END" if several else second


def _mean(name: str) -> str:
    """Return the mean over the classes that occur; those that the model has not, ``n_new`` of them, have 0."""
    return f"sum_{name} / nullif(n_{name} + n_new, 0)"


def _mean_area(name: str, new: str) -> str:
    """Return an area's mean over the classes that have one; ``new`` is the sum of those of the classes that the model has not."""
    extra = f"CASE WHEN n_new > 0 THEN {new} END"
    return (
        f"(coalesce(sum_{name}, 0) + coalesce({extra}, 0))"
        f" / nullif(coalesce(n_{name}, 0) + CASE WHEN ({extra}) IS NULL THEN 0 ELSE n_new END, 0)"
    )
