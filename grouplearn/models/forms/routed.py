"""Prediction as one SELECT: rows are routed to the finest group with a model, then scored from the catalog tables.

Names introduced by the SELECT begin with ``__grouplearn``, so that they are no columns of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from grouplearn.data.encoding.types import as_text_of, exactly, is_nested, uncollated
from grouplearn.learners import registry
from grouplearn.models.calibration import calibrated_sql
from grouplearn.models.definition import ROW, ItemColumn, KeyColumn, ModelDefinition
from grouplearn.models.outputs.link import Link
from grouplearn.models.outputs.output import Scored, SelectsRows
from grouplearn.sqltext import identifier, literal

_THRESHOLD = "__grouplearn_threshold"
ROWS, BEST, ROUTED, PARAMETERS, ENCODED, SCORED = (
    f"__grouplearn_{part}" for part in ("rows", "best", "routed", "parameters", "encoded", "scored")
)
#: Level of a row's group.
LEVEL = "__grouplearn_level"
#: Group of a routed row, NULL if no group has a model for it.
GROUP = "__grouplearn_group"
#: Place of a row in its source. Joins lose the order of rows, which are sorted by it at the end.
NUMBER = "__grouplearn_number"
NUMBERED_ROW = f"{ROW}.*, row_number() OVER () AS {NUMBER}"
#: A row's numeric items in order, not encoded, if they are one list.
NUMERIC = "__grouplearn_numeric"
#: Most levels for which rows are joined with the groups of each.
_JOINED_LEVELS = 16
#: Most terms of a sum without parentheses.
_FLAT = 16
#: The source's columns, without our added ones.
SHOWN = "COLUMNS(lambda c: NOT starts_with(c, '__grouplearn_'))"

#: Returns the SQL for one of the catalog tables, given its name.
CatalogTables = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Extra:
    """A column beside the predictions, computed from the source: its name and SQL."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class ModelTables:
    """A ``model`` whose catalog tables are ``tables``."""

    definition: ModelDefinition
    model: str
    tables: CatalogTables

    def table(self, name: str) -> str:
        """Return a catalog table, and the condition on the model's rows."""
        return f"{self.tables(name)} WHERE model = '{self.model}'::UUID"

    @property
    def reachable(self) -> str:
        """SQL that is NULL, or raises if the tables that were found are not the model's."""
        return reachable(self)


@dataclass(frozen=True, slots=True)
class PredictedRows(ModelTables):
    """The rows of ``relation``, predicted by a model.

    Predictions stand beside the rows' columns; with ``extras`` beside the group and these.
    """

    relation: str
    extras: Sequence[Extra] = ()


def label_sql(definition: ModelDefinition) -> str:
    """Return the SQL of the label: a number, or a class as text, also for values that are none of its type. NULL if there
    is none."""
    if not definition.label.has_classes:
        return f"CAST(({definition.target_sql}\n) AS DOUBLE)" if definition.label.is_number else "NULL"
    known = (definition.target_sql or "").join(as_text_of(definition.label_type or ""))
    return uncollated(f"coalesce({known}, CAST(({definition.target_sql}\n) AS VARCHAR))", "VARCHAR")


def level_names(definition: ModelDefinition) -> tuple[str, ...]:
    """Return the texts of ``model_level`` per grouping set: ``carrier, dest``, ``carrier``, ``()``."""
    return tuple(", ".join(definition.keys[key].name for key in keys) or "()" for keys in definition.sets)


def level_sql(definition: ModelDefinition, level: str) -> str:
    """Return the SQL of ``model_level`` for a 0-based level."""
    names = ", ".join(literal(name) for name in level_names(definition))
    return f"([{names}])[{level} + 1]"


def sortable_row(extras: Sequence[Extra]) -> str:
    """Return the row's columns, with its number if predictions will be sorted by it."""
    return f"{ROW}.*" if extras else NUMBERED_ROW


def key_alias(number: int) -> str:
    """Return the name of a key's column in the routed rows."""
    return f"__grouplearn_key{number}"


def item_alias(number: int) -> str:
    """Return the name of a feature item's column in the routed rows."""
    return f"__grouplearn_item{number}"


def rows_cte(
    definition: ModelDefinition, relation: str, carried: str, extras: Sequence[Extra] = (), listed: bool = True
) -> str:
    """Return the CTE of source rows with their keys and items computed, beside the columns ``carried``.

    The numeric items are one list if ``listed``, else columns like the others.
    """
    # Fragments are followed by a line break: they are the user's text and may end in a line comment.
    numbers = [item_sql(entry) for entry in definition.items if listed and entry.item.kind == "numeric"]
    columns = [
        carried,
        *(f"{key_sql(key)} AS {key_alias(number)}" for number, key in enumerate(definition.keys)),
        *([f"[{', '.join(numbers)}] AS {NUMERIC}"] if numbers else []),
        *(
            f"{item_sql(entry)} AS {item_alias(number)}"
            for number, entry in enumerate(definition.items)
            if not (listed and entry.item.kind == "numeric")
        ),
        *(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras),
    ]
    kind = "" if len(_levels(definition)) <= _JOINED_LEVELS else "MATERIALIZED "  # read twice
    return f"{ROWS} AS {kind}(SELECT {', '.join(columns)} FROM {relation} AS {ROW})"


def evaluated_row(definition: ModelDefinition) -> str:
    """Return the SQL of a row's keys and items as a struct, for predictions that evaluate no expression: ``evaluated``."""
    values = [(key_alias(number), key.sql) for number, key in enumerate(definition.keys)]
    values += [(item_alias(number), entry.sql) for number, entry in enumerate(definition.items)]
    return "{" + ", ".join(f"{name}: ({sql}\n)" for name, sql in values) + "}"


def evaluated(definition: ModelDefinition) -> ModelDefinition:
    """Return the definition of the same model for rows whose keys and items are columns of their aliases."""
    return replace(
        definition,
        keys=tuple(replace(key, sql=identifier(key_alias(number))) for number, key in enumerate(definition.keys)),
        items=tuple(
            replace(entry, sql=identifier(item_alias(number))) for number, entry in enumerate(definition.items)
        ),
    )


def key_sql(key: KeyColumn) -> str:
    """Return a key's SQL over the source's columns."""
    text = f"CAST(({key.sql}\n) AS VARCHAR)" if key.type == "VARCHAR" else key.sql
    return uncollated(text, key.type)


def item_sql(entry: ItemColumn) -> str:
    """Return an item's SQL over the source's columns, not encoded."""
    # Categories are texts from training, compared bytewise whatever the collation of a column or session.
    return uncollated(entry.sql, "VARCHAR" if entry.item.is_named else "")


def routed_cte(definition: ModelDefinition, best: str, otherwise: str = "NULL", kind: str = "") -> str:
    """Return the CTE that adds to every row the group whose model predicts it, or ``otherwise``.

    ``best`` has ``group_id``, ``level`` and ``keys`` of the groups with a model. Levels are tried finest first; without
    fallback only the finest counts. ``kind`` may be MATERIALIZED, for rows that are read more than once.
    """
    levels = _levels(definition)
    many = len(levels) > _JOINED_LEVELS
    found = [_group_of_any(definition, best)] if many else [group_of_level(definition, best, level) for level in levels]
    group = f"coalesce({', '.join([*(sql for sql, _ in found), otherwise])})"
    if definition.missing_group == "error":
        group = f"CASE WHEN {group} IS NULL THEN error({_missing_message(definition)}) ELSE {group} END"
    joins = " ".join(join for _, join in found)
    return f"{ROUTED} AS {kind}(SELECT r.*, {group} AS {GROUP} FROM {ROWS} AS r {joins})"


def _levels(definition: ModelDefinition) -> range:
    """Return the levels at which a row may find its group, finest first."""
    return range(len(definition.sets) if definition.missing_group == "parent" else 1)


def _group_of_any(definition: ModelDefinition, best: str) -> tuple[str, str]:
    """Return the SQL of the group at the finest level that has one, and the join that finds it.

    DuckDB's planning time grows with the cube of the number of joins. Here there are two for any number of levels: each
    combination of keys is looked up with every level's keys and NULL for others, as in the catalog.
    """
    keys = list(enumerate(definition.keys))
    values = {f"k{number}": key_value(key, number) for number, key in keys}
    # A NULL key is a group; a value that is not of the key's type is not.
    values |= {
        f"o{number}": f"({values[f'k{number}']} IS NULL AND r.{key_alias(number)} IS NOT NULL)" for number, _ in keys
    }
    distinct = f"SELECT DISTINCT {', '.join(f'{sql} AS {name}' for name, sql in values.items())} FROM {ROWS} AS r"
    listed = ", ".join(
        f"({level}, {', '.join(str(number in definition.sets[level]).lower() for number, _ in keys)})"
        for level in _levels(definition)
    )
    levels = f"(VALUES {listed}) AS v(level, {', '.join(f'm{number}' for number, _ in keys)})"
    stored = ", ".join(f"CAST(keys[{number + 1}] AS {key.type}) AS k{number}" for number, key in keys)
    same = " AND ".join(
        f"b.k{number} IS NOT DISTINCT FROM CASE WHEN v.m{number} THEN d.k{number} END" for number, _ in keys
    )
    odd = " OR ".join(f"(v.m{number} AND d.o{number})" for number, _ in keys)
    names = ", ".join(f"d.{name}" for name in values)
    found = (
        f"SELECT {names}, arg_min(b.group_id, b.level) AS group_id FROM ({distinct}) AS d CROSS JOIN {levels}"
        f" JOIN (SELECT b.group_id, b.level, {stored} FROM {best} AS b) AS b ON b.level = v.level AND {same}"
        f" WHERE NOT ({odd}) GROUP BY {names}"
    )
    at = " AND ".join(f"f.{name} IS NOT DISTINCT FROM {sql}" for name, sql in values.items())
    return "f.group_id", f"LEFT JOIN ({found}) AS f ON {at}"


def group_of_level(definition: ModelDefinition, best: str, level: int) -> tuple[str, str]:
    """Return the SQL of the group that a row ``r`` belongs to at a level, NULL if there is none, and the join that finds it."""
    keys = definition.sets[level]
    if not keys:
        return f"(SELECT b.group_id FROM {best} AS b WHERE b.level = {level})", ""
    values = "".join(f", CAST(keys[{key + 1}] AS {definition.keys[key].type}) AS k{key}" for key in keys)
    found = {key: key_value(definition.keys[key], key) for key in keys}
    same = " AND ".join(f"l{level}.k{key} IS NOT DISTINCT FROM {value}" for key, value in found.items())
    source = f"(SELECT b.group_id{values} FROM {best} AS b WHERE b.level = {level})"
    # A NULL key is a group; a value that is not of the key's type is not.
    odd = " OR ".join(f"({value} IS NULL AND r.{key_alias(key)} IS NOT NULL)" for key, value in found.items())
    return f"CASE WHEN NOT ({odd}) THEN l{level}.group_id END", f"LEFT JOIN {source} AS l{level} ON {same}"


def key_value(key: KeyColumn, number: int) -> str:
    """Return a row's key cast to its type in training, NULL if it has no such value."""
    name = f"r.{key_alias(number)}"
    return name if is_nested(key.type) or key.type == "VARCHAR" else exactly(name, key.type)


def _missing_message(definition: ModelDefinition) -> str:
    keys = definition.sets[0]
    parts = [
        f"{literal(definition.keys[key].name + ' = ')} || coalesce(CAST(r.{key_alias(key)} AS VARCHAR), 'NULL')"
        for key in keys
    ]
    head = literal(f'model "{definition.name}" has no model for group ')
    return " || ".join([head, " || ', ' || ".join(parts) or "'()'"])


def best_cte(rows: PredictedRows) -> str:
    """Return the CTE of groups with a model, with their best trial's parameters."""
    wide = ", a.places, a.nonzeros" if rows.definition.is_wide else ""
    return (
        f"{BEST} AS (SELECT g.*, a.weights, a.intercept{wide} FROM {rows.tables('groups')} AS g"
        f" JOIN {rows.tables('artifacts')} AS a"
        " ON a.model = g.model AND a.group_id = g.group_id AND a.config = g.best"
        f" WHERE g.model = '{rows.model}'::UUID AND a.model = '{rows.model}'::UUID)"
    )


def reachable(rows: ModelTables) -> str:
    """Return NULL as SQL that raises if the catalog tables found are not the model's.

    A macro's unqualified names are looked up in the reader's default database, not the macro's.
    """
    definition = rows.definition
    message = literal(
        f'model "{definition.name}" is not in the database that {definition.name}_predict reads, the default one or'
        f" {database_parameter(definition)} := 'its name': USE or name the database that the model is in"
    )
    return f"(SELECT CAST(CASE WHEN count(*) = 0 THEN error({message}) END AS INTEGER) FROM {rows.table('models')})"


def database_parameter(definition: ModelDefinition) -> str:
    """Return the name of the macro's parameter for the database of the model's tables."""
    return definition.free_parameter("database")


def score_sql(terms: Sequence[str], definition: ModelDefinition) -> str:
    """Return a sum with NULL for NaN (from opposite infinities), which is no prediction; softmax handles that itself."""
    total = sum_sql(terms)
    return total if definition.label.scores_classes else f"nullif({total}, 'nan'::DOUBLE)"


def sum_sql(terms: Sequence[str]) -> str:
    """Return a sum as a balanced tree: DuckDB refuses expressions of a thousand levels."""
    if len(terms) <= _FLAT:
        return " + ".join(terms)
    half = len(terms) // 2
    return f"({sum_sql(terms[:half])} + {sum_sql(terms[half:])})"


def linked(rows: PredictedRows) -> str:
    """Return the final SELECT: the inverse link of the scores, and the class; without extras in the source's order."""
    select = _linked(rows)
    return select if rows.extras else f"{select} ORDER BY {NUMBER} ASC"


def _linked(rows: PredictedRows) -> str:
    definition, extras = rows.definition, rows.extras
    # With extras the source's columns are left out: one of them may be called prediction.
    head = ", ".join([GROUP, *(identifier(extra.name) for extra in extras)] if extras else [SHOWN])
    level, threshold, relation = level_sql(definition, LEVEL), threshold_sql(definition, extras), SCORED
    if definition.threshold_metric:
        threshold, relation = f"coalesce({threshold}, {_THRESHOLD}, 0.5)", _with_thresholds(rows)
    output = cast(SelectsRows, definition.output)  # others are not predicted in SQL
    scored = Scored(relation, head, level, _link(definition), threshold, judged=bool(extras))
    return output.select(_calibrated(rows, scored) if definition.calibrate else scored)


def _calibrated(rows: PredictedRows, scored: Scored) -> Scored:
    """Return the rows with the calibrated probability of groups that have a calibration."""
    found, p = "__grouplearn_calibration", "__grouplearn_raw"
    own = (
        f"SELECT group_id AS id, calibration AS {found} FROM {rows.tables('groups')} WHERE model = '{rows.model}'::UUID"
    )
    relation = (
        f"(SELECT r.*, g.{found}, {scored.probability} AS {p} FROM {scored.relation} AS r"
        f" LEFT JOIN ({own}) AS g ON g.id = r.{GROUP})"
    )
    value = calibrated_sql(rows.definition.calibrate or "", found, p, "__grouplearn_s0")
    return replace(scored, relation=relation, probability=f"CASE WHEN {found} IS NULL THEN {p} ELSE {value} END")


def _with_thresholds(rows: PredictedRows) -> str:
    """Return the rows with the threshold of their group's best trial."""
    own = f"SELECT group_id AS id, {rows.definition.threshold_sql('')} AS {_THRESHOLD} FROM {rows.tables('trials')}"
    best = f"{own} WHERE model = '{rows.model}'::UUID AND is_best"
    return f"(SELECT r.*, t.{_THRESHOLD} FROM {SCORED} AS r LEFT JOIN ({best}) AS t ON t.id = r.{GROUP})"


def _link(definition: ModelDefinition) -> Link:
    """Return the link of a model with an SQL form: the one of all its configs, else none is left to apply."""
    found = registry.links(definition.learner, definition.configs, definition.label)
    return min(found) if len(found) == 1 else "identity"


def threshold_parameter(definition: ModelDefinition) -> str:
    """Return the name of the macro's threshold parameter."""
    return definition.free_parameter("threshold")


def threshold_sql(definition: ModelDefinition, extras: Sequence[Extra]) -> str:
    """Return the threshold: the macro's parameter, checked to be from 0 to 1; without a macro, which extras mean, 0.5.

    NULL for that of the group, in models whose groups have one.
    """
    own = definition.threshold_metric is not None
    if extras or not definition.output.has_threshold:
        return "NULL::DOUBLE" if own else "0.5"
    given = threshold_parameter(definition)
    message = f"'threshold is a probability from 0 to 1, got ' || coalesce(CAST({given} AS VARCHAR), 'NULL')"
    number, of_group = f"TRY_CAST({given} AS DOUBLE)", f"WHEN {given} IS NULL THEN NULL " if own else ""
    return f"CASE {of_group}WHEN {number} BETWEEN 0 AND 1 THEN {number} ELSE CAST(error({message}) AS DOUBLE) END"
