"""Stored models read back: definitions, listings, descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import duckdb

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.definition_checks import check_definition, too_long
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.combinations import Combination
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.records import HyperparameterColumn, ItemColumn, KeyColumn, ModelDefinition, StoredModel
from grouplearn.catalog.schema import Location, databases_with_models, first_row, table
from grouplearn.catalog.stored_forms import stored_form
from grouplearn.catalog.versions import usable_rows
from grouplearn.data.dataset import Item
from grouplearn.data.encoding.registry import BY_NAME, encoder_of
from grouplearn.data.encoding.types import is_whole
from grouplearn.data.frequency import Frequency
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config, Value
from grouplearn.learners.contract.learner import OVER_LAGS
from grouplearn.models.definition import SQL_TYPES
from grouplearn.models.label import Label
from grouplearn.search.space import MAX_CONFIGS
from grouplearn.sqltext import identifier, literal

_COLUMNS = (
    "model::VARCHAR, schema_name, model_name, learner, task, statement, target_name, target_sql, label_type,"
    " classes, keys, sets, items, hyperparameters, metric, greater_is_better, metrics, missing_group, seed, keep_best,"
    " keep_versions, null_label, group_failure, weight_sql, refit, search_path, series, held_out, calibrate"
)
_NAMES = tuple(part.strip().removesuffix("::VARCHAR") for part in _COLUMNS.split(","))
#: Columns that a definition has unchanged.
_AS_STORED = (
    "learner", "statement", "target_name", "target_sql", "label_type", "metric", "greater_is_better",
    "missing_group", "null_label", "group_failure", "refit", "seed", "keep_best", "keep_versions", "weight_sql", "calibrate",
)  # fmt: skip


#: Limits of hyperparameters in bytes: a file of a few MB can expand to many GB of equal ones. Lists of whole numbers, which
#: become Python objects, count as a few numbers each.
_BYTES = "list_sum(list_transform(map_entries(parameters), lambda x: strlen(x.key) + coalesce(strlen(x.value), 0)))"
_MOST_BYTES, _MOST_BYTES_OF_LISTS = 1 << 30, 1 << 24


def load_definition(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> StoredModel | None:
    """Return the model of that name (case does not matter), or None."""
    found = identity_at(con, catalog, schema, name)
    return None if found is None else load_by_id(con, catalog, found.id)


def load_by_id(
    con: duckdb.DuckDBPyConnection, catalog: str, model: str, part: Literal["models", "past_models"] = "models"
) -> StoredModel | None:
    """Return the model of that identity whose row is in a table, or None."""
    row = _row(con, catalog, part, f"model = {literal(model)}::UUID")
    if row is None:
        return None
    definition = _definition(con, catalog, row)
    form = stored_form(con, catalog, row["model"], definition)
    if not definition.configs:
        raise damaged(catalog, definition.name, "configs", "there are none")
    location = Location(catalog, definition.schema, definition.name)
    stored = StoredModel(row["model"], location, definition, form)
    refuse_invalid_rows(con, stored, ("configs",))
    return stored


def _row(con: duckdb.DuckDBPyConnection, catalog: str, part: str, where: str) -> dict[str, Any] | None:
    """Return the checked row of a table of models by column, or None if there is none."""
    rows, long = f"{table(catalog, part)} WHERE {where}", too_long()
    bounded = f"NOT coalesce({' OR '.join(long.values())}, false)"
    row = first_row(con, f"SELECT {_COLUMNS} FROM {rows} AND {bounded}")
    if row is not None:
        values = dict(zip(_NAMES, row, strict=True))
        check_definition(catalog, values, part)
        return values
    found = first_row(con, f"SELECT model_name, {', '.join(long.values())} FROM {rows}")
    if found is None:
        return None
    name = next(name for name, longer in zip(long, found[1:], strict=True) if longer)
    raise damaged(catalog, found[0], part, f"{name} is longer than there can be")


def _definition(con: duckdb.DuckDBPyConnection, catalog: str, row: Mapping[str, Any]) -> ModelDefinition:
    columns = tuple(HyperparameterColumn(entry["name"], entry["type"]) for entry in row["hyperparameters"])
    return ModelDefinition(
        catalog=catalog,
        schema=row["schema_name"],
        name=row["model_name"],
        label=Label.named(row["task"]),
        classes=tuple(row["classes"]),
        keys=_key_columns(row["keys"]),
        series=_key_columns(row["series"]),
        held_out=None if row["held_out"] is None else _key_columns(row["held_out"]),
        sets=tuple(tuple(keys) for keys in row["sets"]),
        items=tuple(map(_item, row["items"])),
        hyperparameters=columns,
        configs=_configs(con, catalog, row["model"], row["model_name"], _types(row["learner"], columns)),
        metrics=tuple(row["metrics"]),
        search_path=tuple((entry["database"], entry["schema"]) for entry in row["search_path"]),
        **{name: row[name] for name in _AS_STORED},
    )


def _key_columns(entries: Iterable[Mapping[str, str]]) -> tuple[KeyColumn, ...]:
    return tuple(KeyColumn(entry["name"], entry["sql"], entry["type"]) for entry in entries)


def _item(entry: Mapping[str, Any]) -> ItemColumn:
    impute = entry["impute"]
    item = Item(
        entry["name"],
        entry["kind"],
        entry["position"],
        entry["encoder"],
        impute if impute in (None, "mean", "median") else float(impute),
        entry["scope"],
        entry["buckets"],
        BY_NAME[entry["kind"], entry["encoder"]].stored_options(entry["options"]),
    )
    return ItemColumn(item, entry["sql"], entry["type"])


def _types(learner: str, columns: Iterable[HyperparameterColumn]) -> dict[str, str]:
    """Return the SQL types of hyperparameters: of all that a known learner declares, and of those shown."""
    ways = registry.ways(registry.learner(learner)) if registry.is_known(learner) else ()
    declared = {each.name: SQL_TYPES[each.kind] for way in ways for each in way.declaration.hyperparameters}
    return declared | {column.name: column.type for column in columns}


def _configs(
    con: duckdb.DuckDBPyConnection, catalog: str, model: str, name: str, types: Mapping[str, str]
) -> tuple[Config, ...]:
    rows = f"{table(catalog, 'configs')} WHERE model = '{model}'::UUID"
    lists = [f"coalesce(strlen(parameters[{literal(each)}]), 0)" for each, kind in types.items() if kind.endswith("[]")]
    counted = {
        f"there are more than {MAX_CONFIGS:,}": f"count(*) > {MAX_CONFIGS}",
        "parameters are longer than there can be": f"sum({_BYTES}) > {_MOST_BYTES}",
        "lists in parameters are longer than there can be": f"sum({' + '.join(['0', *lists])}) > {_MOST_BYTES_OF_LISTS}",
    }
    conditions = ", ".join(f"coalesce({condition}, false)" for condition in counted.values())
    (answers,) = con.execute(f"SELECT {conditions} FROM {rows}").fetchall()
    for flaw, is_so in zip(counted, answers, strict=True):
        if is_so:
            raise damaged(catalog, name, "configs", flaw)
    found = con.execute(f"SELECT parameters FROM {rows} ORDER BY config ASC").fetchall()
    return tuple({name: _value(text, types.get(name, "")) for name, text in (row[0] or {}).items()} for row in found)


def _value(text: str | None, kind: str) -> Value:
    if text is None or kind == "VARCHAR":
        return text
    if kind == "BOOLEAN":
        return text == "true"
    try:
        if kind in ("DOUBLE", "FLOAT"):
            return float(text)
        # Python's literal parser would need 500 times the memory of a long text.
        return _whole_numbers(text) if text.startswith("[") else int(text)
    except ValueError:
        return text


def _whole_numbers(text: str) -> tuple[int, ...]:
    inside = text[1:].removesuffix("]").strip()
    return tuple(map(int, inside.split(","))) if inside else ()


def show_models_sql(con: duckdb.DuckDBPyConnection) -> str:
    """Return a SELECT of all models in the attached databases, with the same columns when there are none.

    ``best`` and ``median`` are over the groups' best trials: on held-out rows if the model has any, without groups that
    have none; ``failed`` counts trials. Narrow terminals leave out columns from the middle.
    """
    found = databases_with_models(con)
    parts = [*map(_models_of, found), *map(_several_of, found)]
    # A first branch without rows fixes names and types.
    empty = ", ".join(f"NULL::{kind} AS {name}" for name, kind in _SHOWN.items())
    return f"FROM ({' UNION ALL '.join([f'SELECT {empty} WHERE false', *parts])}) ORDER BY database ASC, schema ASC, model ASC"


#: Most models shown per database: a file may list any number.
_MOST_SHOWN = 100_000
#: The name of a stored learner as in USING.
_SHOWN_LEARNER = f"regexp_replace(m.learner, '^{OVER_LAGS}', '')"
_SHOWN = {
    "model": "VARCHAR",
    "target": "VARCHAR",
    "groups": "BIGINT",
    "learner": "VARCHAR",
    "configs": "BIGINT",
    "trials": "BIGINT",
    "seconds": "DOUBLE",
    "trained_at": "TIMESTAMP",
    "database": "VARCHAR",
    "schema": "VARCHAR",
    "failed": "BIGINT",
    "metric": "VARCHAR",
    "best": "DOUBLE",
    "median": "DOUBLE",
}


def _models_of(catalog: str) -> str:
    def count(name: str, where: str = "true") -> str:
        return f"(SELECT count(*) FROM {table(catalog, name)} AS x WHERE x.model = m.model AND {where})"

    values = (
        "SELECT t.model, CASE WHEN max(len(t.valid)) OVER (PARTITION BY t.model) > 0 THEN t.valid[d.place]"
        " ELSE t.train[d.place] END AS value"
        f" FROM {table(catalog, 'trials')} AS t JOIN (SELECT model, list_position(metrics, metric) AS place"
        f" FROM {table(catalog, 'models')}) AS d ON d.model = t.model WHERE t.is_best"
    )
    summary = (
        f"SELECT model, min(value) AS low, max(value) AS high, median(value) AS middle FROM ({values}) GROUP BY model"
    )
    failed = count("trials", "x.status IN ('failed', 'kept')")
    best = "CASE WHEN m.greater_is_better THEN v.high ELSE v.low END"
    return (
        f"SELECT m.model_name, m.target_name, {count('groups')}, {_SHOWN_LEARNER}, {count('configs')},"
        f" {count('trials')}, m.seconds, date_trunc('second', m.trained_at),"
        f" {literal(catalog)}, m.schema_name, {failed}, m.metric, {best}, v.middle"
        f" FROM (FROM {table(catalog, 'models')} LIMIT {_MOST_SHOWN}) AS m LEFT JOIN ({summary}) AS v ON v.model = m.model"
    )


def _several_of(catalog: str) -> str:
    """Return the query of the models of several learners, with the sums and the best of their learners' models."""
    best = "CASE WHEN any_value(m.greater_is_better) THEN max(s.best) ELSE min(s.best) END"
    sums = "sum(s.configs)::BIGINT, sum(s.trials)::BIGINT, sum(s.seconds), max(s.trained_at)"
    names = ", ".join(_SHOWN)
    own = f"(SELECT *, unnest(learners) AS learner FROM {table(catalog, 'combinations')} LIMIT {_MOST_SHOWN})"
    value = "t.valid[list_position(m.metrics, m.metric)]"
    judged = (
        f"SELECT c.schema_name, c.model_name, if(any_value(m.greater_is_better), max({value}), min({value})) AS value"
        f" FROM {own} AS c JOIN {table(catalog, 'models')} AS m"
        " ON m.schema_name = c.schema_name AND m.model_name = c.model_name || '__' || c.learner"
        f" JOIN {table(catalog, 'trials')} AS t ON t.model = m.model AND t.is_best"
        f" JOIN {table(catalog, 'groups')} AS g ON g.model = t.model AND g.group_id = t.group_id"
        " GROUP BY c.schema_name, c.model_name, g.level, g.keys"
    )
    middle = f"SELECT schema_name, model_name, median(value) AS middle FROM ({judged}) GROUP BY ALL"
    return (
        f"SELECT c.model_name, any_value(s.target), max(s.groups), array_to_string(any_value(c.learners), ', '), {sums},"
        f" {literal(catalog)}, c.schema_name, sum(s.failed)::BIGINT, any_value(s.metric), {best}, any_value(v.middle)"
        f" FROM {own} AS c LEFT JOIN ({middle}) AS v ON v.schema_name = c.schema_name AND v.model_name = c.model_name"
        f" JOIN ({_models_of(catalog)}) AS s({names}) ON s.schema = c.schema_name AND s.model = c.model_name || '__' || c.learner"
        f" JOIN {table(catalog, 'models')} AS m ON m.schema_name = s.schema AND m.model_name = s.model"
        " GROUP BY c.model_name, c.schema_name"
    )


def describe_sql(model: StoredModel) -> str:
    """Return a SELECT (property, value) that describes a model: what it learned, from what, how, with what result."""
    definition, catalog = model.definition, model.location.catalog
    where = f"WHERE model = '{model.id}'::UUID"

    def one(name: str, expression: str) -> str:
        return f"(SELECT CAST({expression} AS VARCHAR) FROM {table(catalog, name)} {where})"

    items = [f"{entry.item.name} ({_how(entry)})" for entry in definition.items]
    properties = [
        ("model", literal(str(model.location))),
        ("learner", literal(definition.shown_learner)),
        ("task", literal(definition.label.name)),
        *([("target", literal(_as_written(definition)))] if definition.label.is_given else []),
        *([("label", literal(_ZERO_OR_ONE))] if _is_zero_or_one(definition) else []),
        *([("classes", literal(_listed(definition.classes)))] if definition.classes else []),
        *([("positive class", literal(definition.positive_class))] if definition.positive_class else []),
        *([("weight", literal(definition.weight_sql))] if definition.weight_sql else []),
        ("features", literal(", ".join(items))),
        ("group by", literal(_keys(definition.keys) or None)),
        *([("series by", literal(_keys(definition.series)))] if definition.series else []),
        *([("frequency", literal(_frequency(definition)))] if "season_length" in definition.configs[0] else []),
        ("hyperparameters", literal(", ".join(f"{c.name} {c.type}" for c in definition.hyperparameters) or None)),
        ("metric", literal(definition.metric)),
        ("on missing group", literal(definition.missing_group)),
        *([("on null label", literal(definition.null_label))] if definition.label.is_given else []),
        ("on group failure", literal(definition.group_failure)),
        ("refit", literal(str(definition.refit).lower())),
        ("prediction", literal(model.form.described)),
        ("groups", one("groups", "count(*)")),
        ("configs", one("configs", "count(*)")),
        ("trials", one("trials", "count(*)")),
        ("failed trials", one("trials", "count(*) FILTER (status IN ('failed', 'kept'))")),
        ("operator", one("models", "any_value(operator)")),
        ("executor", one("models", "any_value(executor || ', workers: ' || workers)")),
        ("seconds", one("models", "round(any_value(seconds), 3)")),
        ("trained at", one("models", "any_value(trained_at)")),
        ("version", _version(model)),
        ("statement", literal(definition.statement)),
    ]
    lines = ", ".join(f"({place}, {literal(name)}, {value})" for place, (name, value) in enumerate(properties))
    return f"SELECT property, value FROM (VALUES {lines}) AS t(place, property, value) ORDER BY place ASC"


def _version(model: StoredModel) -> str:
    """Return the SQL of the number of a model's version, and of all that can be used."""
    rows = usable_rows(model.definition, model.id, model.location.catalog)
    current = f"max(h.version) FILTER (h.model = '{model.id}'::UUID)"
    return f"(SELECT {current} || ' of ' || string_agg(h.version, ', ' ORDER BY h.version) {rows})"


def describe_several_sql(combination: Combination, members: Sequence[StoredModel]) -> str:
    """Return a SELECT (property, value) that describes a model of several learners."""
    definition = members[0].definition
    properties = [
        ("model", str(combination.location)),
        ("learners", ", ".join(combination.learners)),
        ("models", ", ".join(each.location.name for each in members)),
        ("task", definition.label.name),
        ("target", _as_written(definition)),
        ("group by", _keys(definition.keys) or None),
        ("metric", definition.metric),
        ("statement", combination.statement),
    ]
    lines = ", ".join(f"({literal(name)}, {literal(value)})" for name, value in properties)
    return f"SELECT property, value FROM (VALUES {lines}) AS t(property, value)"


def _frequency(definition: ModelDefinition) -> str:
    """Return the steps of a series and of its season in words."""
    season = definition.configs[0]["season_length"]
    seasons = "no season" if season == 1 else f"season of {season} steps"
    return f"{Frequency.of(definition.items[0].item.options).words}, {seasons}"


def _keys(keys: Iterable[KeyColumn]) -> str:
    return ", ".join(f"{key.name} {key.type}" for key in keys)


_ZERO_OR_ONE = "whole numbers that are 0 and 1 alone are two classes; WITH (task = 'regression') takes them for numbers"


def _is_zero_or_one(definition: ModelDefinition) -> bool:
    """Whether the label is of whole numbers, all of them 0 or 1, and was taken for two classes where it could be a number."""
    if set(definition.classes) != {"0", "1"} or not is_whole(definition.label_type or ""):
        return False
    learner = definition.learner
    return registry.is_known(learner) and registry.learner(learner).declaration.regresses


def _as_written(definition: ModelDefinition) -> str | None:
    """Return ``sql AS name``, or the name alone where it is the column's own; None without a label."""
    sql, name = definition.target_sql, definition.target_name
    if sql is None or name is None:
        return None
    return name if sql in (name, identifier(name)) else f"{sql} AS {name}"


_LISTED, _CHARACTERS = 20, 60


def _listed(texts: Sequence[str]) -> str:
    """Return the first texts, long ones cut, and how many there are when not all are listed."""
    cut = [text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…" for text in texts[:_LISTED]]
    return ", ".join(cut) + (f", … ({len(texts)} in all)" if len(texts) > _LISTED else "")


def _how(entry: ItemColumn) -> str:
    parts: list[str] = [] if encoder_of(entry.item).plain else [encoder_of(entry.item).shown]
    if entry.item.impute is not None:
        parts.insert(0, f"impute {entry.item.impute}")
    parts += [
        f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in entry.item.options
    ]
    return ", ".join(parts) or entry.item.kind
