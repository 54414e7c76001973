"""``EVALUATE MODEL``: predictions compared with labels, as a SELECT with a row per group of the model.

The metrics follow the rules of the model table: rows of a class that a group was not trained on count as wrong, and rows
have the weight that they had in training.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

from grouplearn.bind.sql.reading import condition_of_all, leaves_out_rows
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.schema import table
from grouplearn.catalog.views import select_list
from grouplearn.data.encoding.types import as_text, as_text_of, uncollated
from grouplearn.learners.registry import is_known, learner
from grouplearn.learners.series.panel import OWN
from grouplearn.models.definition import ROW
from grouplearn.models.forms.form import FunctionSql
from grouplearn.models.forms.routed import (
    GROUP,
    ROUTED,
    Extra,
    PredictedRows,
    evaluated_row,
    label_sql,
    level_names,
    level_sql,
    routed_cte,
    rows_cte,
)
from grouplearn.models.metrics.deviances import loss_sql, row_losses
from grouplearn.models.metrics.metric import TARGET, Asked, Judged
from grouplearn.sqltext import identifier, literal

_WEIGHT, _AHEAD = "__grouplearn_weight", "__grouplearn_ahead"
_FUNCTION = FunctionSql("its SQL takes longer")
_SUBQUERY = re.compile(r"\b(select|from|table|values)\b", re.IGNORECASE)


def every_level_sql(model: StoredModel, source: str, where: str | None = None, *, weighted: bool = False) -> str:
    """Return ``evaluate_sql`` of each level of the model in turn, finest first, as if there were no other: every level is
    judged on all rows. Rows that a level has no model for are counted with its name and NULL keys."""
    definition, parts = model.definition, []
    for level, name in enumerate(level_names(definition)):
        own = evaluate_sql(model, source, where, weighted=weighted, level=level)
        parts.append(
            f"SELECT {level} AS __grouplearn_level, row_number() OVER () AS __grouplearn_number,"
            f" * REPLACE ({literal(name)} AS model_level) FROM ({own})"
        )
    shown = "* EXCLUDE (__grouplearn_level, __grouplearn_number)"
    return f"SELECT {shown} FROM ({' UNION ALL '.join(parts)}) ORDER BY __grouplearn_level ASC, __grouplearn_number ASC"


def evaluate_sql(
    model: StoredModel, source: str, where: str | None = None, *, weighted: bool = False, level: int | None = None
) -> str:
    """Return a SELECT of group columns, ``model_level``, ``n_rows``, ``n_skipped`` and every metric of the task.

    One row per group that predicts rows of ``source`` (a table or a query in parentheses), and one with a NULL level for
    rows that no group predicts. Rows without a finite label, a prediction or a positive weight are counted in ``n_skipped``
    and in no metric. ``weighted``: rows have the model's weight, whose sum becomes a column ``weight``. With a ``level`` only
    its groups predict.
    """
    definition, catalog = model.definition, model.location.catalog
    if level is not None:
        definition = replace(definition, missing_group="parent")
    family = definition.family
    judged = family.judged(asked_of(definition))
    extras: tuple[Extra, ...] = _extras(definition, weighted=weighted)
    rows = source_rows(source, where)
    asked = asks_predict(model) if level is None else None
    form, known = (model.form, model.id) if asked is None else (_FUNCTION, asked)
    own = asked is not None and _takes_own_features(definition)
    if own:
        rows, extras = _with_own_features(definition, known, rows), (*extras, Extra(_AHEAD, _AHEAD))
    predicted = form.select(PredictedRows(definition, known, partial(_table, catalog, level), rows, extras))
    predicted = _moved(predicted) if own else predicted
    others = (each.name for each in family.metrics if not each.row_loss)
    shown = (name for name in definition.metrics if not family.named(name).is_threshold)
    chosen = dict.fromkeys((*shown, *others))
    columns = [
        *definition.key_columns("g.keys"),
        ("model_level", level_sql(definition, "g.level")),
        ("n_rows", "m.n_rows"),
        ("n_skipped", "m.n_skipped"),
        *([("weight", "m.weight")] if weighted else []),
        *((name, f"m.{name}") for name in chosen),
        *((name, f"o.{_own(place)}") for place, name in enumerate(definition.output.measured)),
    ]
    groups = f"(SELECT * FROM {table(catalog, 'groups')} WHERE model = '{model.id}'::UUID)"
    metrics = ", ".join(f"{family.named(name).sql} AS {name}" for name in chosen)
    return (
        f"WITH predicted AS ({predicted}), {_known(_rows(model, groups, judged), weighted)}, {judged.sums},"
        f" measured AS (SELECT id, n_rows, n_skipped, total * unit AS weight, {metrics} FROM judged)"
        f" SELECT {select_list(columns)} FROM measured AS m LEFT JOIN {groups} AS g ON g.group_id = m.id{_own_means(definition)}"
        " ORDER BY g.level ASC NULLS LAST, m.id ASC NULLS LAST"
    )


def _takes_own_features(definition: ModelDefinition) -> bool:
    """Return whether forecasts depend on features of the steps to come, and can be made again by those of the rows judged."""
    known = is_known(definition.learner)
    return known and getattr(learner(definition.learner), "takes_rows_ahead", False) and len(definition.items) > OWN


def _with_own_features(definition: ModelDefinition, reference: str, rows: str) -> str:
    """Return rows with forecasts by their own features, which the stored ones were not made of; NULL for rows of the past.

    Before: rows. After: the rows of each series in a list, forecast together, and one by one again.
    """
    series = ", ".join(f"({sql}\n)" for sql in (*(key.sql for key in definition.keys), definition.items[1].sql))
    lists = f"SELECT list({{'r': {ROW}, 'e': {evaluated_row(definition)}}}) AS listed FROM {rows} AS {ROW} GROUP BY {series}"
    found = f"forecast({literal(reference)}, [each.e FOR each IN listed])"
    each = f"SELECT unnest(listed).r AS r, unnest({found}) AS f FROM ({lists})"
    return f"(SELECT r.*, f.prediction AS {_AHEAD} FROM ({each}))"


def _moved(predicted: str) -> str:
    """Return forecasts, of which those by own features stand in the place of the stored ones: their intervals move along."""
    by = f"coalesce({_AHEAD} - prediction, 0)"
    moved = ", ".join(f"{name} + {by} AS {name}" for name in ("prediction", "lower", "upper"))
    quantiles = f"list_transform(quantiles, lambda q: q + {by}) AS quantiles"
    return f"SELECT * EXCLUDE ({_AHEAD}) REPLACE ({moved}, {quantiles}) FROM ({predicted})"


def _table(catalog: str, level: int | None, name: str) -> str:
    """Return a catalog table, of ``groups`` only those of a ``level`` if there is one."""
    whole = table(catalog, name)
    return whole if level is None or name != "groups" else f"(SELECT * FROM {whole} WHERE level = {level})"


def asks_predict(model: StoredModel) -> str | None:
    """Return how ``evaluate_sql`` names the model to the function ``predict``; None if it predicts in SQL."""
    if not model.form.reason and not _is_slow(model) and not _takes_own_features(model.definition):
        return None
    # A copied database has models with the same identities.
    return f"{identifier(model.location.catalog)}.{model.id}"


def reading_sql(model: StoredModel, source: str, where: str | None = None, *, weighted: bool = False) -> str:
    """Return a SELECT of what ``evaluate_sql`` reads of rows of ``source`` and their groups: DuckDB reports the same errors
    for it."""
    definition, rows = model.definition, source_rows(source, where)
    extras = _extras(definition, weighted=weighted)
    groups = "(SELECT 0 AS group_id, 0 AS level, []::VARCHAR[] AS keys)"
    ctes = rows_cte(definition, rows, f"{ROW}.*", extras), routed_cte(definition, groups)
    return f"WITH {', '.join(ctes)} SELECT {GROUP} FROM {ROUTED}"


def labels_sql(definition: ModelDefinition, source: str, where: str | None = None) -> str:
    """Return a SELECT of how many rows of ``source`` have a label, how many a value of the type of the model's classes, and one
    label."""
    known = (definition.target_sql or "").join(as_text_of(definition.label_type or ""))
    return (
        f"SELECT count({TARGET}), count(known), min({TARGET})"
        f" FROM (SELECT {label_sql(definition)} AS {TARGET}, {known} AS known FROM {source_rows(source, where)} AS {ROW})"
    )


def _extras(definition: ModelDefinition, *, weighted: bool) -> tuple[Extra, Extra]:
    """Return the SQL of a row's label and weight."""
    target = Extra(TARGET, label_sql(definition))
    weight = f"CAST(({definition.weight_sql}\n) AS DOUBLE)" if weighted else "1.0::DOUBLE"
    return target, Extra(_WEIGHT, weight)


def _is_slow(model: StoredModel) -> bool:
    """Return whether the function ``predict`` should replace the macro's SQL: for trees it is many times faster.

    It uses its own connection, which has no temporary tables: if there may be a subquery, SQL predicts.
    """
    definition = model.definition
    texts = [*(key.sql for key in definition.keys), *(entry.sql for entry in definition.items)]
    return model.form.is_slow and not any(map(_SUBQUERY.search, texts))


def source_rows(source: str, where: str | None) -> str:
    """Return the query of the rows of ``source`` that satisfy ``where``, in parentheses."""
    condition = f" AND ({where}\n)" if where else ""
    return f"(SELECT * FROM {source}\nWHERE {condition_of_all(leaves_out_rows(source))}{condition})"


def _known(rows: str, weighted: bool) -> str:
    """Return the CTE ``known``: group ``id``, weight ``w``, what the metrics need, and ``ok``: whether all of it is known.

    Weights are divided by ``unit``, a power of two near the group's greatest weight, so that products of sums neither
    overflow nor lose digits.
    """
    if not weighted:
        return f"known AS (SELECT *, 1.0::DOUBLE AS unit FROM ({rows}))"
    unit = "2.0::DOUBLE ** floor(log2(max(w) FILTER (ok) OVER (PARTITION BY id)))"
    return (
        f"weighed AS (SELECT *, {unit} AS unit FROM ({rows})), known AS (SELECT * REPLACE (w / unit AS w) FROM weighed)"
    )


def _rows(model: StoredModel, groups: str, judged: Judged) -> str:
    """Return the SELECT behind ``_known``, with the original weights."""
    definition = model.definition
    own = {_own(place): sql for place, sql in enumerate(definition.output.measured.values())}
    columns = ", ".join(f"{sql} AS {name}" for name, sql in {**judged.row, **own}.items())
    ok = f"{judged.known} AND coalesce({_WEIGHT} > 0 AND isfinite({_WEIGHT}), false)"
    joined = f" LEFT JOIN {groups} AS g ON g.group_id = {GROUP}" if definition.label.has_classes else ""
    if judged.vectors:
        joined += f" LEFT JOIN ({_of_vectors(model, judged)}) AS v ON v.group_id = {GROUP}"
    return f"SELECT {GROUP} AS id, {columns}, {_WEIGHT} AS w, {ok} AS ok FROM predicted{joined}"


def _of_vectors(model: StoredModel, judged: Judged) -> str:
    """Return the query of what metrics need of each group's vectors."""
    columns = ", ".join(f"{sql} AS {name}" for name, sql in judged.vectors.items())
    factors = table(model.location.catalog, "factors")
    return f"SELECT group_id, {columns} FROM {factors} WHERE model = '{model.id}'::UUID GROUP BY group_id"


def _own(place: int) -> str:
    """Return the column of a metric that the output alone has."""
    return f"__grouplearn_own{place}"


def _own_means(definition: ModelDefinition) -> str:
    """Return the join with the weighted means of what the output alone measures."""
    names = [_own(place) for place in range(len(definition.output.measured))]
    if not names:
        return ""
    means = ", ".join(
        f"sum(w * CAST({name} AS DOUBLE)) FILTER (ok) / nullif(sum(w) FILTER (ok), 0) AS {name}" for name in names
    )
    return f" LEFT JOIN (SELECT id, {means} FROM known GROUP BY id) AS o ON o.id IS NOT DISTINCT FROM m.id"


def asked_of(definition: ModelDefinition) -> Asked:
    """Return what to measure; losses depend only on hyperparameters that all configs share."""
    prediction = uncollated("prediction".join(as_text(definition.label_type or "")), "VARCHAR")
    try:
        losses = row_losses(definition.metrics, definition.configs[0])
    except (KeyError, ValueError) as error:
        flaw = f"{error} has no number, and a metric needs it"
        raise damaged(definition.catalog, definition.name, "configs", flaw) from None
    of_rows = {loss.name: loss_sql(loss) for loss in losses}
    levels = [definition.family.named(name) for name in definition.metrics]
    further = tuple(each for each in levels if each.of_ranked is not None)
    return Asked(definition.classes, definition.label.scores_classes, prediction, of_rows, further)
