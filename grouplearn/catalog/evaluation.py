"""``EVALUATE MODEL``: predictions against the label, as one SELECT with a row per group of the model."""

from __future__ import annotations

from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.predict_macro import predict_select
from grouplearn.catalog.predict_sql import GROUP, Extra
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import SCHEMA, table
from grouplearn.catalog.views import key_columns, level_sql, select_list
from grouplearn.learners.base import Task
from grouplearn.plan.types import as_text
from grouplearn.sqltext import literal, qualified

_TARGET = "__grouplearn_target"
#: As scikit-learn clips probabilities of float64 before their logarithm.
_EPSILON = "2.220446049250313e-16"


def evaluate_sql(model: StoredModel, source: str, where: str | None = None) -> str:
    """Return a SELECT of group columns, ``model_level``, ``n_rows``, ``n_skipped`` and every metric of the model.

    One row per group that predicts rows of ``source`` (a table or a query in parentheses), and one with a NULL level for
    rows that no group predicts. Rows without a label or a prediction are counted in ``n_skipped`` and enter no metric.
    """
    definition, catalog = model.definition, model.location.catalog
    condition = f" WHERE ({where}\n)" if where else ""
    regression = definition.task is Task.REGRESSION
    before, after = ("CAST((", ") AS DOUBLE)") if regression else as_text(definition.label_type)
    target = Extra(_TARGET, f"{before}{definition.target_sql}\n{after}")
    rows = f"(SELECT * FROM {source}\n{condition})"
    predicted = predict_select(definition, model.id, rows, qualified(catalog, SCHEMA), model.form, (target,))
    columns = [
        *key_columns(definition, "g.keys"),
        ("model_level", level_sql(definition, "g.level")),
        ("n_rows", "m.n_rows"),
        ("n_skipped", "m.n_skipped"),
        *((metric, f"m.{metric}") for metric in definition.metrics),
    ]
    return (
        f"WITH predicted AS ({predicted}), known AS ({_known(definition)}), measured AS ({_measured(definition)})"
        f" SELECT {select_list(columns)} FROM measured AS m LEFT JOIN {table(catalog, 'groups')} AS g"
        f" ON g.model = '{model.id}'::UUID AND g.group_id = m.id ORDER BY g.level, m.id"
    )


def _known(definition: ModelDefinition) -> str:
    """Return rows with: group, label ``y``, what is needed of the prediction, and whether both are there."""
    if definition.task is Task.REGRESSION:
        ok = f"{_TARGET} IS NOT NULL AND prediction IS NOT NULL"
        return f"SELECT {GROUP} AS id, {_TARGET} AS y, prediction AS p, {ok} AS ok FROM predicted"
    # The class as text is how classes are named everywhere in the catalog.
    if definition.task is Task.BINARY:
        shares = ["1 - probability AS p0", "probability AS p1"]
        known = "probability"
    else:
        shares = [f"probabilities[{literal(name)}] AS p{n}" for n, name in enumerate(definition.classes)]
        known = "probabilities"
    classes = ", ".join(literal(name) for name in definition.classes)
    number = f"list_position(CAST([{classes}] AS VARCHAR[]), {_TARGET}) - 1"
    guess = f"list_position(CAST([{classes}] AS VARCHAR[]), CAST(prediction AS VARCHAR)) - 1"
    base = (
        f"SELECT {GROUP} AS id, {_TARGET} AS label, coalesce({number}, -1) AS y, {guess} AS guess, {', '.join(shares)},"
        f" {_TARGET} IS NOT NULL AND {known} IS NOT NULL AS ok FROM predicted"
    )
    ranks = ", ".join(_mean_rank(n) for n in _ranked(definition))
    return f"SELECT *, {ranks} FROM ({base})"


def _ranked(definition: ModelDefinition) -> range:
    return range(1, 2) if definition.task is Task.BINARY else range(len(definition.classes))


def _mean_rank(number: int) -> str:
    """Return the rank of a probability among the rows of its group, ties sharing their mean rank."""
    rank = f"rank() OVER (PARTITION BY id, ok ORDER BY p{number})"
    return f"{rank} + (count(*) OVER (PARTITION BY id, ok, p{number}) - 1) / 2 AS r{number}"


def _measured(definition: ModelDefinition) -> str:
    metrics = _value_metrics() if definition.task is Task.REGRESSION else _class_metrics(definition)
    chosen = ", ".join(f"{metrics[name]} AS {name}" for name in definition.metrics if name in metrics)
    return (
        f"SELECT id, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped{', ' if chosen else ''}{chosen}"
        " FROM known GROUP BY id"
    )


def _value_metrics() -> dict[str, str]:
    square = "sum((p - y) ** 2) FILTER (ok)"
    spread = "var_pop(y) FILTER (ok)"
    return {
        "rmse": "sqrt(avg((p - y) ** 2) FILTER (ok))",
        "mae": "avg(abs(p - y)) FILTER (ok)",
        # R² of a constant label is 1 if predicted exactly and 0 otherwise; of fewer than two rows it is undefined.
        "r2": (
            f"CASE WHEN count(*) FILTER (ok) < 2 THEN NULL WHEN {spread} > 0"
            f" THEN 1 - {square} / ({spread} * count(*) FILTER (ok)) ELSE CAST({square} = 0 AS DOUBLE) END"
        ),
    }


def _class_metrics(definition: ModelDefinition) -> dict[str, str]:
    numbers = range(2) if definition.task is Task.BINARY else range(len(definition.classes))
    own = f"CASE y {' '.join(f'WHEN {n} THEN p{n}' for n in numbers)} ELSE 0 END"
    clipped = f"least(greatest({own}, {_EPSILON}), 1 - {_EPSILON})"
    areas = [_area(n) for n in _ranked(definition)]
    return {
        "log_loss": f"avg(-ln({clipped})) FILTER (ok)",
        "accuracy": "avg(CAST(y = guess AS DOUBLE)) FILTER (ok)",
        "auc": areas[0] if len(areas) == 1 else f"list_avg([{', '.join(areas)}])",
        "f1": _f1(1, "coalesce(", ", 0)") if definition.task is Task.BINARY else _mean_f1(numbers),
    }


def _area(number: int) -> str:
    """Return AUC = (Σ ranks of the class - n₁(n₁+1)/2) / (n₁·n₀); NULL when either side has no row."""
    inside, outside = (f"count(*) FILTER (ok AND y {sign} {number})" for sign in ("=", "<>"))
    ranks = f"sum(r{number}) FILTER (ok AND y = {number})"
    return f"({ranks} - {inside} * ({inside} + 1) / 2) / nullif({inside} * {outside}, 0)"


def _f1(number: int, before: str = "", after: str = "") -> str:
    """Return 2·hit / (actual + predicted) of a class; NULL when it occurs in neither."""
    hit = f"count(*) FILTER (ok AND y = {number} AND guess = {number})"
    either = f"(count(*) FILTER (ok AND y = {number}) + count(*) FILTER (ok AND guess = {number}))"
    score = f"{before}2 * {hit} / nullif({either}, 0){after}"
    return f"CASE WHEN count(*) FILTER (ok) > 0 THEN {score} END"


def _mean_f1(numbers: range) -> str:
    return f"list_avg([{', '.join(_f1(number) for number in numbers)}])"
