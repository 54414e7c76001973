"""``m_permutation_importance(src, repeats := 5)``: how much worse the optimised metric is when a feature's values are shuffled.

A feature's values change places among the rows that the same group predicts; all others stay. Rows are ordered by a hash of their
place in the group, the feature and the repeat: the same rows give the same answer, to rounding. EVALUATE has the same metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.drift import feature_sql
from grouplearn.models.forms.routed import (
    BEST,
    GROUP,
    NUMBER,
    NUMBERED_ROW,
    ROUTED,
    Extra,
    ModelTables,
    item_alias,
    key_alias,
    label_sql,
    level_sql,
    routed_cte,
    rows_cte,
)
from grouplearn.models.metrics.judging import whole_parameter
from grouplearn.models.metrics.metric import TARGET
from grouplearn.prediction.evaluation import asked_of
from grouplearn.sqltext import identifier, literal

#: Returns the query of the predictions of a relation by a definition, beside extras.
Predicted = Callable[[ModelDefinition, str, Sequence[Extra]], str]
_ITEM, _REPEAT, _PLACE, _OTHER, _TRIED, _PLACED, _MIXED = (
    f"__grouplearn_{name}" for name in ("item", "repeat", "place", "other", "tried", "placed", "mixed")
)


def permutation_sql(model: ModelTables, relation: str, predicted: Predicted) -> str:
    """Return the query of a row per group and item."""
    definition = model.definition
    metric, judged = definition.family.named(definition.metric), definition.family.judged(asked_of(definition))
    extras = [Extra(name, _shuffled(name)) for name in (TARGET, _ITEM, _REPEAT)]
    rows = predicted(_of_shuffled(definition), f"({_mixed(model, relation)})", extras)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in judged.row.items())
    groups = f"(SELECT * FROM {model.table('groups')})"
    known = (
        f"SELECT {{g: {GROUP}, item: {_ITEM}, repeat: {_REPEAT}}} AS id, {columns}, 1.0::DOUBLE AS w, {judged.known} AS ok,"
        f" 1.0::DOUBLE AS unit FROM predicted LEFT JOIN {groups} AS g ON g.group_id = {GROUP}"
    )
    measured = f"SELECT id, n_rows - n_skipped AS n_rows, {metric.sql} AS value FROM judged"
    sign = "-1" if metric.greater_is_better else "1"
    found = (
        f"SELECT s.id.g AS group_id, s.id.item AS item, any_value(o.n_rows) AS n_rows, any_value(o.value) AS as_is,"
        f" avg(s.value) AS shuffled, {sign} * (avg(s.value) - any_value(o.value)) AS importance, stddev(s.value) AS deviation"
        " FROM measured AS s JOIN measured AS o ON o.id.g = s.id.g AND o.id.item = 0 WHERE s.id.item > 0 GROUP BY ALL"
    )
    keys = "".join(f"{sql} AS {identifier(name)}, " for name, sql in definition.key_columns("g.keys"))
    return (
        f"WITH predicted AS ({rows}), known AS ({known}), {judged.sums}, measured AS ({measured})"
        f" SELECT {keys}{level_sql(definition, 'g.level')} AS model_level, {feature_sql(definition, 'f.item')} AS feature,"
        f" f.importance, f.deviation, {literal(metric.name)} AS metric, f.as_is, f.shuffled, f.n_rows"
        f" FROM ({found}) AS f JOIN {groups} AS g ON g.group_id = f.group_id"
        " ORDER BY g.level ASC, g.group_id ASC, f.importance DESC NULLS LAST, f.item ASC"
    )


def _shuffled(name: str) -> str:
    """Return the column of a shuffled row, which none of the expressions of a model has."""
    return f"shuffled{name}"


def _of_shuffled(definition: ModelDefinition) -> ModelDefinition:
    """Return the definition for rows whose keys and items are evaluated."""
    keys, items = enumerate(definition.keys), enumerate(definition.items)
    return replace(
        definition,
        keys=tuple(replace(key, sql=_shuffled(key_alias(number))) for number, key in keys),
        items=tuple(replace(entry, sql=_shuffled(item_alias(number))) for number, entry in items),
    )


def _mixed(model: ModelTables, relation: str) -> str:
    """Return the query of the rows as they are, item 0, and for each item and repeat with its values shuffled in each group."""
    definition = model.definition
    count, repeats = len(definition.items), whole_parameter(model, "repeats")
    ctes = [
        rows_cte(definition, relation, NUMBERED_ROW, [Extra(TARGET, label_sql(definition))], listed=False),
        f"{BEST} AS (SELECT * FROM {model.table('groups')} AND best IS NOT NULL)",
        routed_cte(definition, BEST, model.reachable),
        f"{_PLACED} AS MATERIALIZED (SELECT *, row_number() OVER (PARTITION BY {GROUP} ORDER BY {NUMBER}) AS {_PLACE}"
        f" FROM {ROUTED} WHERE {GROUP} IS NOT NULL)",
        f"{_TRIED} AS (SELECT 0 AS {_ITEM}, 0 AS {_REPEAT} UNION ALL SELECT i.item, r.repeat"
        f" FROM range(1, {count + 1}) AS i(item), range(1, {repeats} + 1) AS r(repeat))",
        f"{_MIXED} AS (SELECT b.*, t.*, row_number() OVER (PARTITION BY b.{GROUP}, t.{_ITEM}, t.{_REPEAT}"
        f" ORDER BY hash(b.{_PLACE}, t.{_ITEM}, t.{_REPEAT}), b.{_PLACE}) AS {_OTHER} FROM {_PLACED} AS b, {_TRIED} AS t)",
    ]
    kept = [*(key_alias(number) for number in range(len(definition.keys))), TARGET, _ITEM, _REPEAT]
    columns = [f"b.{name} AS {_shuffled(name)}" for name in kept]
    columns += [
        f"CASE WHEN b.{_ITEM} = {number + 1} THEN o.{name} ELSE b.{name} END AS {_shuffled(name)}"
        for number, name in ((number, item_alias(number)) for number in range(count))
    ]
    joined = f"{_MIXED} AS b JOIN {_PLACED} AS o ON o.{GROUP} = b.{GROUP} AND o.{_PLACE} = b.{_OTHER}"
    return f"WITH {', '.join(ctes)} SELECT {', '.join(columns)} FROM {joined}"
