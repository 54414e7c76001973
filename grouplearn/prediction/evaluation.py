"""``EVALUATE MODEL``: predictions against the label, as one SELECT with a row per group of the model.

The metrics are those of the model table, by the same rules: rows of a class that a group was not trained on count as wrong, and
rows have the weight that they had in training.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from grouplearn.bind.definition import ROW
from grouplearn.bind.sql.types import as_text, as_text_of, told_apart
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.models import StoredModel
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import table
from grouplearn.catalog.sql_forms import SqlForm
from grouplearn.catalog.views import key_columns, level_sql, select_list
from grouplearn.learners.answers.answer import Answer
from grouplearn.learners.answers.classes import SeveralClasses, TwoClasses
from grouplearn.learners.answers.clusters import Clusters
from grouplearn.learners.answers.number import Number
from grouplearn.learners.answers.projection import Projection
from grouplearn.learners.contract.config import Config
from grouplearn.learners.metrics.deviances import RowLoss, loss_sql, row_losses
from grouplearn.learners.metrics.sums import CONSTANT, EXACT, every_metric
from grouplearn.prediction.class_metrics import class_metrics, judged_classes
from grouplearn.prediction.forms.macro import predict_select
from grouplearn.prediction.forms.routed import GROUP, ROUTED, Extra, routed_cte, rows_cte
from grouplearn.sqltext import identifier, literal

_TARGET, _WEIGHT = "__grouplearn_target", "__grouplearn_weight"
_FUNCTION = SqlForm("function")
_SUBQUERY = re.compile(r"\b(select|from|table|values)\b", re.IGNORECASE)
_EPSILON = "2.220446049250313e-16"


def evaluate_sql(model: StoredModel, source: str, where: str | None = None, *, weighted: bool = False) -> str:
    """Return a SELECT of group columns, ``model_level``, ``n_rows``, ``n_skipped`` and every metric of the task.

    One row per group that predicts rows of ``source`` (a table or a query in parentheses), and one with a NULL level for
    rows that no group predicts. Rows without a finite label, a prediction or a weight above 0 are counted in ``n_skipped``
    and enter no metric. ``weighted``: rows have the model's weight, whose sum is then a column ``weight``.
    """
    definition, catalog = model.definition, model.location.catalog
    judge = _JUDGES[type(definition.answer)]
    extras = _extras(definition, weighted=weighted)
    rows = source_rows(source, where)
    form = _FUNCTION if _is_slow(model) else model.form
    # The copy of a database has models of the same identities.
    known = f"{identifier(catalog)}.{model.id}" if form.kind == "function" else model.id
    predicted = predict_select(definition, known, rows, partial(table, catalog), form, extras)
    measured = judge.metrics(definition)
    others = (name for name in every_metric(definition.task) if name not in definition.metrics)
    chosen = [name for name in (*definition.metrics, *others) if name in measured]
    columns = [
        *key_columns(definition, "g.keys"),
        ("model_level", level_sql(definition, "g.level")),
        ("n_rows", "m.n_rows"),
        ("n_skipped", "m.n_skipped"),
        *([("weight", "m.weight")] if weighted else []),
        *((name, f"m.{name}") for name in chosen),
    ]
    groups = f"(SELECT * FROM {table(catalog, 'groups')} WHERE model = '{model.id}'::UUID)"
    judged = judge.sums(definition)
    metrics = ", ".join(f"{measured[name]} AS {name}" for name in chosen)
    return (
        f"WITH predicted AS ({predicted}), {_known(judge.rows(definition, groups), weighted)}, {judged},"
        f" measured AS (SELECT id, n_rows, n_skipped, total * unit AS weight, {metrics} FROM judged)"
        f" SELECT {select_list(columns)} FROM measured AS m LEFT JOIN {groups} AS g ON g.group_id = m.id"
        " ORDER BY g.level ASC NULLS LAST, m.id ASC NULLS LAST"
    )


def reading_sql(model: StoredModel, source: str, where: str | None = None, *, weighted: bool = False) -> str:
    """Return a SELECT of what ``evaluate_sql`` reads of rows of ``source``, and of the groups that they are of: what DuckDB
    says of it, it says of that."""
    definition, rows = model.definition, source_rows(source, where)
    extras = _extras(definition, weighted=weighted)
    groups = "(SELECT 0 AS group_id, 0 AS level, []::VARCHAR[] AS keys)"
    ctes = rows_cte(definition, rows, f"{ROW}.*", extras), routed_cte(definition, groups)
    return f"WITH {', '.join(ctes)} SELECT {GROUP} FROM {ROUTED}"


def _extras(definition: ModelDefinition, *, weighted: bool) -> tuple[Extra, Extra]:
    """Return the label and the weight of a row."""
    target = Extra(_TARGET, _JUDGES[type(definition.answer)].label(definition))
    weight = f"CAST(({definition.weight_sql}\n) AS DOUBLE)" if weighted else "1.0::DOUBLE"
    return target, Extra(_WEIGHT, weight)


def _is_slow(model: StoredModel) -> bool:
    """Return whether the function ``predict`` is to predict in place of the macro's SQL: for trees it is many times as fast.

    It reads on a connection of its own, which knows no temporary tables: where there may be a subquery, SQL predicts.
    """
    definition = model.definition
    texts = [*(key.sql for key in definition.keys), *(entry.sql for entry in definition.items)]
    return model.form.kind == "trees" and not any(map(_SUBQUERY.search, texts))


def source_rows(source: str, where: str | None) -> str:
    """Return the query of the rows of ``source`` for which ``where`` holds, in parentheses."""
    condition = f" WHERE ({where}\n)" if where else ""
    return f"(SELECT * FROM {source}\n{condition})"


def _label(definition: ModelDefinition) -> str:
    """Return the label as the classes are named; a value that the label's type does not have stays the text that it is."""
    known = (definition.target_sql or "").join(as_text_of(definition.label_type or ""))
    return told_apart(f"coalesce({known}, CAST(({definition.target_sql}\n) AS VARCHAR))", "VARCHAR")


def _known(rows: str, weighted: bool) -> str:
    """Return the CTE ``known``: group ``id``, weight ``w``, what is judged, and whether all of it is there, ``ok``.

    Weights are in units of their group, ``unit``: a power of two near the greatest, so that products of sums of any weights
    are finite and have the digits that they would have.
    """
    if not weighted:
        return f"known AS (SELECT *, 1.0::DOUBLE AS unit FROM ({rows}))"
    unit = "2.0::DOUBLE ** floor(log2(max(w) FILTER (ok) OVER (PARTITION BY id)))"
    return (
        f"weighed AS (SELECT *, {unit} AS unit FROM ({rows})), known AS (SELECT * REPLACE (w / unit AS w) FROM weighed)"
    )


_WEIGHED = f"coalesce({_WEIGHT} > 0 AND isfinite({_WEIGHT}), false)"


def _value_rows(definition: ModelDefinition, groups: str) -> str:
    """Return the SELECT of what ``_known`` says, with weights as they are given; ``p`` is the predicted number."""
    del definition, groups
    ok = f"coalesce(isfinite({_TARGET}), false) AND prediction IS NOT NULL AND {_WEIGHED}"
    return f"SELECT {GROUP} AS id, {_TARGET} AS y, prediction AS p, {_WEIGHT} AS w, {ok} AS ok FROM predicted"


def _class_rows(definition: ModelDefinition, groups: str) -> str:
    """Return the SELECT of what ``judged_classes`` says: the class as text is how classes are named in the catalog."""
    several = definition.task.scores_classes
    known = "probabilities" if several else "probability"
    shares = "map_values(probabilities)" if several else "[1 - probability, probability]"
    classes = ", ".join(literal(name) for name in definition.classes)
    number = f"list_position(CAST([{classes}] AS VARCHAR[]), {_TARGET}) - 1"
    predicted = told_apart("prediction".join(as_text(definition.label_type or "")), "VARCHAR")
    guess = f"list_position(CAST([{classes}] AS VARCHAR[]), {predicted}) - 1"
    return (
        f"SELECT {GROUP} AS id, CASE WHEN len(g.classes) = 2 THEN list_max(g.classes) END AS positive, {_TARGET} AS label,"
        f" coalesce({number}, -1) AS y, {guess} AS guess, {shares} AS p, {_WEIGHT} AS w,"
        f" {_TARGET} IS NOT NULL AND {known} IS NOT NULL AND {_WEIGHED} AS ok"
        f" FROM predicted LEFT JOIN {groups} AS g ON g.group_id = {GROUP}"
    )


def _cluster_rows(definition: ModelDefinition, groups: str) -> str:
    """Return the SELECT of the distances to the nearest centroid and to the second nearest, ``d`` and ``e``."""
    del definition, groups
    ok = f"distance IS NOT NULL AND {_WEIGHED}"
    return f"SELECT {GROUP} AS id, distance AS d, second AS e, {_WEIGHT} AS w, {ok} AS ok FROM predicted"


def _projected_rows(definition: ModelDefinition, groups: str) -> str:
    """Return the SELECT of the squared residual ``r``, and of the squared length ``p`` of the projection."""
    del definition, groups
    ok = f"residual IS NOT NULL AND {_WEIGHED}"
    # Of what CASE leaves NULL DuckDB takes the values to be NULL, which list_dot_product refuses, but not of a slice of it.
    length = "list_dot_product(projection[:], projection[:])"
    return f"SELECT {GROUP} AS id, residual ** 2 AS r, {length} AS p, {_WEIGHT} AS w, {ok} AS ok FROM predicted"


def _config(definition: ModelDefinition) -> Config:
    """Return a config of the model: of what metrics depend on, all have the same."""
    return definition.configs[0] if definition.configs else {}


def _losses(definition: ModelDefinition) -> tuple[RowLoss, ...]:
    try:
        return row_losses(definition.metrics, _config(definition))
    except (KeyError, ValueError) as error:
        flaw = f"there is no number for {error}, on which a metric depends"
        raise damaged(definition.catalog, definition.name, "configs", flaw) from None


def _value_sums(definition: ModelDefinition) -> str:
    """Return the CTE ``judged``: the sums of each group."""
    losses = _losses(definition)
    mean = "sum(w * y) FILTER (ok) OVER (PARTITION BY id) / sum(w) FILTER (ok) OVER (PARTITION BY id)"
    sums = {
        "square": "sum(w * (p - y) ** 2)",
        "absolute": "sum(w * abs(p - y))",
        "relative": f"sum(w * abs(p - y) / greatest(abs(y), {_EPSILON}))",
        "spread": "sum(w * (y - mean) ** 2)",
        "low": "min(y)",
        "high": "max(y)",
        "n_judged": "count(*)",
        **{f"sum_{loss.name}": f"sum(w * {loss_sql(loss)})" for loss in losses},
        # Where a label has no such loss, neither has the group.
        **{f"all_{loss.name}": f"bool_and({loss_sql(loss)} IS NOT NULL)" for loss in losses},
    }
    columns = ", ".join(f"{sql} FILTER (ok) AS {name}" for name, sql in sums.items())
    return (
        f"centred AS (SELECT *, {mean} AS mean FROM known), judged AS (SELECT id, count(*) AS n_rows,"
        f" count(*) FILTER (NOT ok) AS n_skipped, any_value(unit) AS unit,"
        f" sum(w) FILTER (ok) AS total, {columns} FROM centred GROUP BY id)"
    )


def _value_metrics(definition: ModelDefinition) -> dict[str, str]:
    losses = _losses(definition)
    size = "greatest(abs(low), abs(high))"
    return {
        "rmse": "sqrt(square / total)",
        "mae": "absolute / total",
        # As ``learners.metrics.r_squared``; of fewer than two rows it is undefined.
        "r2": (
            f"CASE WHEN n_judged < 2 THEN NULL WHEN spread > 0 AND high - low > {CONSTANT} * {size} THEN 1 - square / spread"
            f" ELSE CAST(absolute / total <= {EXACT} * {size} AS DOUBLE) END"
        ),
        "mape": "relative / total",
        **{loss.name: f"CASE WHEN all_{loss.name} THEN sum_{loss.name} / total END" for loss in losses},
    }


def _summed(**sums: str) -> str:
    columns = "".join(f", {sql} FILTER (ok) AS {name}" for name, sql in sums.items())
    return (
        "judged AS (SELECT id, count(*) AS n_rows, count(*) FILTER (NOT ok) AS n_skipped, any_value(unit) AS unit,"
        f" sum(w) FILTER (ok) AS total{columns} FROM known GROUP BY id)"
    )


def _cluster_sums(definition: ModelDefinition) -> str:
    del definition
    # As ``learners.metrics.distances.silhouette``.
    width = "CASE WHEN e IS NULL THEN 0 WHEN e > 0 THEN (e - d) / e ELSE 0 END"
    return _summed(square="sum(w * d ** 2)", width=f"sum(w * {width})")


def _cluster_metrics(definition: ModelDefinition) -> dict[str, str]:
    del definition
    return {
        "inertia": "square * unit",
        "mean_squared_distance": "square / total",
        "silhouette": "width / total",
    }


def _projected_sums(definition: ModelDefinition) -> str:
    del definition
    return _summed(residual="sum(w * r)", explained="sum(w * p)")


def _projected_metrics(definition: ModelDefinition) -> dict[str, str]:
    del definition
    return {
        "explained_variance": "explained / nullif(explained + residual, 0)",
        "reconstruction_error": "residual / total",
    }


def _number_label(definition: ModelDefinition) -> str:
    return f"CAST(({definition.target_sql}\n) AS DOUBLE)"


def _no_label(definition: ModelDefinition) -> str:
    del definition
    return "NULL"


@dataclass(frozen=True, slots=True)
class _Judge:
    """How an answer is measured, in SQL: the label of a row, what is judged of it, sums over rows, metrics of these."""

    label: Callable[[ModelDefinition], str]
    rows: Callable[[ModelDefinition, str], str]
    sums: Callable[[ModelDefinition], str]
    metrics: Callable[[ModelDefinition], dict[str, str]]


_CLASSES = _Judge(_label, _class_rows, judged_classes, class_metrics)
_JUDGES: Mapping[type[Answer], _Judge] = {
    Number: _Judge(_number_label, _value_rows, _value_sums, _value_metrics),
    TwoClasses: _CLASSES,
    SeveralClasses: _CLASSES,
    Clusters: _Judge(_no_label, _cluster_rows, _cluster_sums, _cluster_metrics),
    Projection: _Judge(_no_label, _projected_rows, _projected_sums, _projected_metrics),
}
