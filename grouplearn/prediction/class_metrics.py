"""The metrics of classes in SQL, by the rules of ``learners.metrics``: of a group with two classes those of the second one."""

from __future__ import annotations

from grouplearn.catalog.records import ModelDefinition

#: As scikit-learn clips probabilities of float64 before their logarithm.
_EPSILON = "2.220446049250313e-16"


def judged_classes(definition: ModelDefinition) -> str:
    """Return the CTE ``judged``: the sums of each group, those by class as lists in the order of ``definition.classes``.

    Rows come from ``known``: the group ``id`` and its ``classes``, ``label`` and its number ``y`` (-1 for one that the model has
    not), the number ``guess`` of the prediction, ``p<n>`` of each class, weight ``w``, and whether all is there, ``ok``.
    """
    numbers = range(max(2, len(definition.classes)))
    ranks = ", ".join(each for number in numbers for each in _ranks(number))
    own = f"CASE y {' '.join(f'WHEN {n} THEN p{n}' for n in numbers)} ELSE 0 END"
    clipped = f"least(greatest(own, {_EPSILON}), 1 - {_EPSILON})"
    squares = " + ".join(f"coalesce(p{n}, 0) ** 2" for n in numbers)
    positive = f"coalesce(CASE list_max(classes) {' '.join(f'WHEN {n} THEN p{n}' for n in numbers)} END, 0)"
    # Of two classes the error is that of the positive one alone: a row of any other class is not of it.
    error = (
        f"CASE WHEN len(classes) = 2 THEN ({positive} - (y = list_max(classes))::INT) ** 2"
        " ELSE (1 - own) ** 2 + squares - own ** 2 END"
    )
    lists = {
        "actual": "sum(w) FILTER (ok AND y = {0})",
        "said": "sum(w) FILTER (ok AND guess = {0})",
        "hit": "sum(w) FILTER (ok AND y = {0} AND guess = {0})",
        # The weight outside the class that ranks below a row of the class, ties for one half.
        "won": "sum(w * (total_w - own{0} - all{0} + tp{0} + at{0} / 2)) FILTER (ok AND y = {0})",
        "found": "sum(w * tp{0} / all{0}) FILTER (ok AND y = {0})",
    }
    by_class = [
        f"[{', '.join(f'coalesce({sql.format(n)}, 0)' for n in numbers)}] AS {name}" for name, sql in lists.items()
    ]
    return (
        f"ranked AS (SELECT *, coalesce({own}, 0) AS own, {squares} AS squares, {ranks},"
        f" sum(w) FILTER (ok) OVER (PARTITION BY id) AS total_w FROM known),"
        f" judged AS (SELECT id, any_value(classes) AS classes, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped,"
        " any_value(unit) AS unit,"
        f" sum(w) FILTER (ok) AS total, sum(w * -ln({clipped})) FILTER (ok) AS loss, sum(w) FILTER (ok AND y = guess) AS correct,"
        f" sum(w * ({error})) FILTER (ok) AS error,"
        f" count(DISTINCT label) FILTER (ok AND y = -1) AS n_new, coalesce(sum(w) FILTER (ok AND y = -1), 0) AS new,"
        f" {', '.join(by_class)} FROM ranked GROUP BY id)"
    )


def _ranks(number: int) -> tuple[str, ...]:
    """Return columns of a row: the weight of its group's rows, and of those of the class, that score no less, the weight of
    others that score the same, and the weight of the class."""
    order = f"OVER (PARTITION BY id, ok ORDER BY p{number} DESC)"
    return (
        f"sum(w) {order} AS all{number}",
        f"coalesce(sum(w) FILTER (y = {number}) {order}, 0) AS tp{number}",
        f"coalesce(sum(w) FILTER (y <> {number}) OVER (PARTITION BY id, ok, p{number}), 0) AS at{number}",
        f"coalesce(sum(w) FILTER (y = {number}) OVER (PARTITION BY id, ok), 0) AS own{number}",
    )


def class_metrics(definition: ModelDefinition) -> dict[str, str]:
    """Return the SQL of each metric over the columns of ``judged``."""
    last = max(2, len(definition.classes))
    either = "actual[i] + said[i]"
    return {
        "log_loss": "loss / total",
        "auc": _mean_area(
            "won[i] / nullif(actual[i] * (total - actual[i]), 0)", "CASE WHEN new < total THEN 0.5 * n_new END", last
        ),
        "accuracy": "CASE WHEN total > 0 THEN coalesce(correct, 0) / total END",
        "f1": _share("2 * hit[i]", either, either, last),
        "precision": _share("hit[i]", "said[i]", either, last),
        "recall": _share("hit[i]", "actual[i]", either, last),
        "balanced_accuracy": _mean_share("hit[i]", "actual[i]", "actual[i]", last),
        "pr_auc": _mean_area("found[i] / nullif(actual[i], 0)", "new / total", last),
        "brier": "error / total",
    }


#: The greater class of a group with two, counted from 1.
_SECOND = "list_max(classes) + 1"


def _per_class(sql: str, last: int) -> str:
    return f"list_transform(range(1, {last + 1}), lambda i: {sql})"


def _share(hit: str, counted: str, occurs: str, last: int) -> str:
    """Return hit / counted, 0 where nothing is counted, of the second of two classes or its mean as ``_mean_share``."""
    second = f"{_per_class(f'coalesce({hit} / nullif({counted}, 0), 0)', last)}[{_SECOND}]"
    mean = _mean_share(hit, counted, occurs, last)
    return f"CASE WHEN len(classes) = 2 THEN CASE WHEN total > 0 THEN {second} END ELSE {mean} END"


def _mean_share(hit: str, counted: str, occurs: str, last: int) -> str:
    """Return the mean over the classes that occur; those that the model has not, ``n_new`` of them, have 0."""
    each = _per_class(f"CASE WHEN {occurs} > 0 THEN coalesce({hit} / nullif({counted}, 0), 0) END", last)
    return f"list_sum({each}) / nullif(len(list_filter({each}, lambda v: v IS NOT NULL)) + n_new, 0)"


def _mean_area(area: str, new: str, last: int) -> str:
    """Return an area of the second of two classes, or its mean over the classes that have one; ``new`` is the sum of those of
    the classes that the model has not."""
    each = _per_class(area, last)
    known = f"list_filter({each}, lambda v: v IS NOT NULL)"
    extra = f"CASE WHEN n_new > 0 THEN {new} END"
    several = (
        f"(coalesce(list_sum({known}), 0) + coalesce({extra}, 0))"
        f" / nullif(len({known}) + CASE WHEN ({extra}) IS NULL THEN 0 ELSE n_new END, 0)"
    )
    return f"CASE WHEN len(classes) = 2 THEN ({each})[{_SECOND}] ELSE {several} END"
