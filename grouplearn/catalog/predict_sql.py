"""Prediction as one SELECT: rows are routed to the finest group that has a model, then scored from the catalog tables.

The names the SELECT introduces begin with ``__grouplearn`` so that they cannot meet a column of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.catalog.views import level_sql
from grouplearn.learners import registry
from grouplearn.learners.base import Task
from grouplearn.plan.definition import ROW
from grouplearn.sqltext import identifier, literal

_ROWS, BEST, ROUTED, PARAMETERS, SCORED = (
    f"__grouplearn_{part}" for part in ("rows", "best", "routed", "parameters", "scored")
)
#: Group of a routed row, NULL when no group has a model for it.
GROUP = "__grouplearn_group"


@dataclass(frozen=True, slots=True)
class Extra:
    """A column computed from the source beside the predictions: its name and its SQL over the source's columns."""

    name: str
    sql: str


def key_alias(number: int) -> str:
    """Return the name of a key's column in the routed rows."""
    return f"__grouplearn_key{number}"


def item_alias(number: int) -> str:
    """Return the name of a feature item's column in the routed rows."""
    return f"__grouplearn_item{number}"


def rows_cte(definition: ModelDefinition, relation: str, carried: str, extras: Sequence[Extra] = ()) -> str:
    """Return the CTE of source rows with their keys and items computed beside the column ``carried``."""
    # Fragments end with a line break: they are the user's text and may end in a line comment.
    columns = [
        carried,
        *(f"({key.sql}\n) AS {key_alias(number)}" for number, key in enumerate(definition.keys)),
        *(f"({entry.sql}\n) AS {item_alias(number)}" for number, entry in enumerate(definition.items)),
        *(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras),
    ]
    return f"{_ROWS} AS (SELECT {', '.join(columns)} FROM {relation} AS {ROW})"


def routed_cte(definition: ModelDefinition, best: str, otherwise: str = "NULL", kind: str = "") -> str:
    """Return the CTE that adds to every row the group whose model predicts it, or ``otherwise``.

    ``best`` has ``group_id``, ``level`` and ``keys`` of the groups that have a model. Levels are tried finest first;
    without fallback only the finest counts. ``kind`` may be MATERIALIZED, for rows that are read more than once.
    """
    levels = range(len(definition.sets) if definition.missing_group == "parent" else 1)
    found = [_group_of_level(definition, best, level) for level in levels]
    group = f"coalesce({', '.join([*(sql for sql, _ in found), otherwise])})"
    if definition.missing_group == "error":
        group = f"CASE WHEN {group} IS NULL THEN error({_missing_message(definition)}) ELSE {group} END"
    joins = " ".join(join for _, join in found)
    return f"{ROUTED} AS {kind}(SELECT r.*, {group} AS {GROUP} FROM {_ROWS} AS r {joins})"


def _group_of_level(definition: ModelDefinition, best: str, level: int) -> tuple[str, str]:
    keys = definition.sets[level]
    if not keys:
        return f"(SELECT group_id FROM {best} WHERE level = {level})", ""
    values = "".join(f", CAST(keys[{key + 1}] AS {definition.keys[key].type}) AS k{key}" for key in keys)
    same = " AND ".join(f"l{level}.k{key} IS NOT DISTINCT FROM r.{key_alias(key)}" for key in keys)
    source = f"(SELECT group_id{values} FROM {best} WHERE level = {level})"
    return f"l{level}.group_id", f"LEFT JOIN {source} AS l{level} ON {same}"


def _missing_message(definition: ModelDefinition) -> str:
    keys = definition.sets[0]
    parts = [
        f"{literal(definition.keys[key].name + ' = ')} || coalesce(CAST(r.{key_alias(key)} AS VARCHAR), 'NULL')"
        for key in keys
    ]
    head = literal(f'model "{definition.name}" has no model for group ')
    return " || ".join([head, " || ', ' || ".join(parts) or "'()'"])


def best_cte(model: str, catalog_tables: str) -> str:
    """Return the CTE of groups that have a model, with the parameters of their best trial."""
    return (
        f"{BEST} AS (SELECT g.*, a.weights, a.intercept FROM {catalog_tables}.groups AS g"
        f" JOIN {catalog_tables}.artifacts AS a"
        " ON a.model = g.model AND a.group_id = g.group_id AND a.config = g.best"
        f" WHERE g.model = '{model}'::UUID AND a.model = '{model}'::UUID)"
    )


def reachable(definition: ModelDefinition, model: str, catalog_tables: str) -> str:
    """Return NULL as SQL that raises when the catalog tables in reach are not those of the model.

    A macro's unqualified names follow the reader's default database, not the macro's own.
    """
    message = literal(
        f'the tables of model "{definition.name}" are not in the default database: USE the database that holds it'
    )
    tables = f"{catalog_tables}.models WHERE model = '{model}'::UUID"
    return f"(SELECT CAST(CASE WHEN count(*) = 0 THEN error({message}) END AS INTEGER) FROM {tables})"


def linear_select(
    definition: ModelDefinition, model: str, relation: str, catalog_tables: str, extras: Sequence[Extra] = ()
) -> str:
    """Return the SELECT that predicts with a linear model in nothing but SQL.

    Columns: those of ``relation``, or instead of them the group and the extras; ``prediction``,
    ``probability`` or ``probabilities``, ``model_level``.
    Numeric items are ``(coalesce(x, fill) - center) / scale``; every other item is a hash join of (group, value) with its
    weights, so no list is carried per row.
    """
    outputs = range(len(definition.classes) if definition.task is Task.MULTICLASS else 1)
    parameters, joins, terms = _parameters(definition, outputs), [], []
    for number, entry in enumerate(definition.items):
        if entry.item.kind != "numeric":
            joins.append(_weights_join(definition, number, outputs))
        terms.append([_term(entry, number, output) for output in outputs])
    scores = [
        f"{score_sql([f'p.b{output}', *(term[output] for term in terms)], definition.task)} AS __grouplearn_s{output}"
        for output in outputs
    ]
    kept = ", ".join([f"r.{ROW}", f"r.{GROUP}", *(f"r.{identifier(extra.name)}" for extra in extras)])
    scored = (
        f"{SCORED} AS (SELECT {kept}, p.level AS __grouplearn_level, {', '.join(scores)}"
        f" FROM {ROUTED} AS r LEFT JOIN {PARAMETERS} AS p ON p.group_id = r.{GROUP} {' '.join(joins)})"
    )
    ctes = [
        rows_cte(definition, relation, ROW, extras),
        best_cte(model, catalog_tables),
        routed_cte(definition, BEST, reachable(definition, model, catalog_tables)),
        parameters,
        scored,
    ]
    return f"WITH {', '.join(ctes)} {linked(definition, extras)}"


def _weight_index(definition: ModelDefinition, output: int, start: str) -> str:
    """Return the 1-based index into the flat weights; NULL for a class that the group does not have."""
    if definition.task is not Task.MULTICLASS:
        return f"{start} + 1"
    return f"(list_position(classes, {output}) - 1) * len(features) + {start} + 1"


def _parameters(definition: ModelDefinition, outputs: range) -> str:
    columns = ["group_id", "level"]
    for output in outputs:
        place = f"list_position(classes, {output})" if definition.task is Task.MULTICLASS else "1"
        columns.append(f"intercept[{place}] AS b{output}")
    for number, entry in enumerate(definition.items):
        at = number + 1
        if entry.item.kind == "numeric":
            columns.append(f"fills[{at}] AS f{number}, centers[{at}] AS c{number}, scales[{at}] AS d{number}")
        if entry.item.encoder not in ("onehot", "hash"):
            columns += [
                f"weights[{_weight_index(definition, output, f'starts[{at}]')}] AS w{number}_{output}"
                for output in outputs
            ]
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {BEST})"


def _weights_join(definition: ModelDefinition, number: int, outputs: range) -> str:
    item, at = definition.items[number].item, number + 1
    count = str(item.buckets) if item.kind == "hash" else f"len(categories[{at}])"
    value = f"range({count})" if item.kind == "hash" else f"categories[{at}]"
    columns = ["group_id", f"unnest({value}) AS value"]
    if item.encoder == "ordinal":
        columns.append(f"unnest(range({count})) AS position")
    else:
        for output in outputs:
            first = _weight_index(definition, output, f"starts[{at}]")
            columns.append(f"unnest(weights[{first} : {first} + {count} - 1]) AS w{output}")
    return (
        f"LEFT JOIN (SELECT {', '.join(columns)} FROM {BEST}) AS j{number}"
        f" ON j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    )


def _term(entry: ItemColumn, number: int, output: int) -> str:
    if entry.item.kind == "numeric":
        x = f"r.{item_alias(number)}"
        known = f"CASE WHEN isfinite({x}) THEN {x} {'' if entry.item.impute is None else f'ELSE p.f{number} '}END"
        return f"({known} - p.c{number}) / p.d{number} * p.w{number}_{output}"
    if entry.item.encoder == "ordinal":
        return f"j{number}.position * p.w{number}_{output}"
    return f"coalesce(j{number}.w{output}, 0)"


def score_sql(terms: Sequence[str], task: Task) -> str:
    """Return a sum; one that is NaN, from opposite infinities, is no prediction (the softmax sees to it itself)."""
    total = " + ".join(terms)
    return total if task is Task.MULTICLASS else f"nullif({total}, 'nan'::DOUBLE)"


def linked(definition: ModelDefinition, extras: Sequence[Extra]) -> str:
    """Return the final SELECT: the inverse link on the scores, and the class."""
    level = f"{level_sql(definition, '__grouplearn_level')} AS model_level"
    # Beside extras the source's own columns are left out: one of them may be called prediction, too.
    head = ", ".join([GROUP, *(identifier(extra.name) for extra in extras)] if extras else [f"{ROW}.*"])
    if definition.task is Task.REGRESSION:
        value = "exp(__grouplearn_s0)" if registry.learner(definition.learner).log_link else "__grouplearn_s0"
        return f"SELECT {head}, {value} AS prediction, {level} FROM {SCORED}"
    if definition.task is Task.BINARY:
        p = "__grouplearn_p"
        source = f"(SELECT *, 1 / (1 + exp(-__grouplearn_s0)) AS {p} FROM {SCORED})"
        prediction = _binary_class(p, definition)
        return f"SELECT {head}, {prediction} AS prediction, {p} AS probability, {level} FROM {source}"
    return _softmax_select(definition, head, level, class_values(definition))


def _binary_class(probability: str, definition: ModelDefinition) -> str:
    if len(definition.classes) < 2:
        # Nothing could be told apart: every group has failed.
        return f"CAST(NULL AS {definition.label_type})"
    negative, positive = class_values(definition)
    return f"CASE WHEN {probability} > 0.5 THEN {positive} WHEN {probability} <= 0.5 THEN {negative} END"


def _softmax_select(definition: ModelDefinition, head: str, level: str, classes: Sequence[str]) -> str:
    numbers = range(len(classes))
    highest = f"greatest({', '.join(f'__grouplearn_s{number}' for number in numbers)})"
    shifted = f"SELECT *, {highest} AS __grouplearn_highest FROM {SCORED}"
    # exp(s - max) cannot overflow; a class that the group does not know has no score and probability 0.
    powers = ", ".join(f"coalesce(exp(__grouplearn_s{number} - __grouplearn_highest), 0)" for number in numbers)
    powered = f"SELECT *, [{powers}] AS __grouplearn_powers FROM ({shifted})"
    known = "isfinite(__grouplearn_highest)"
    place = "list_position(__grouplearn_powers, list_max(__grouplearn_powers))"
    prediction = f"CASE WHEN {known} THEN ([{', '.join(classes)}])[{place}] END"
    texts = ", ".join(literal(name) for name in definition.classes)
    shares = "list_transform(__grouplearn_powers, lambda power: power / list_sum(__grouplearn_powers))"
    probabilities = f"CASE WHEN {known} THEN map([{texts}], {shares}) END"
    return f"SELECT {head}, {prediction} AS prediction, {probabilities} AS probabilities, {level} FROM ({powered})"


def class_values(definition: ModelDefinition) -> list[str]:
    """Return the classes as SQL constants of the label's type."""
    return [f"CAST({literal(name)} AS {definition.label_type})" for name in definition.classes]
