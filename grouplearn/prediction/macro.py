"""The body of a model's macro: plain SQL if the model has an SQL form, else the function ``predict``.

Trees take ten times as long in plain SQL as in the function, so that their macro has both, and calls the function on a
connection that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.predicting_connections import EXPLANATION, PREDICTION
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.models.definition import ROW
from grouplearn.models.forms.explained import VALUES, explained_by_function, long_rows, values_sql
from grouplearn.models.forms.form import function_select
from grouplearn.models.forms.routed import (
    CatalogTables,
    Extra,
    ModelTables,
    PredictedRows,
    database_parameter,
    evaluated_row,
    label_sql,
    threshold_parameter,
)
from grouplearn.models.metrics.metric import TARGET
from grouplearn.models.outputs.output import PERMUTATION, PLACE, SOURCE, Endpoint
from grouplearn.prediction.permutation import permutation_sql
from grouplearn.sqltext import identifier, literal, qualified

#: The function that predicts evaluated rows; a connection without our functions lacks it.
_FUNCTION = "grouplearn_predictions"
#: The one that explains them.
_EXPLAINING = "grouplearn_explain"
_CALLED, _PLAIN = "__grouplearn_called", "__grouplearn_plain"


def macro_sql(model: StoredModel, name: str, endpoint: Endpoint, database: str | None) -> tuple[str, str]:
    """Return the statement that creates a macro of a model under a qualified name: the part before its query, and the query.

    A macro's names are looked up in the reader's default database; unqualified names let the model survive renaming or
    copying the file. ``database`` is where its tables are looked up by default, if that has models; None for the default
    database.
    """
    parameters, relation = parameters_of(model.definition, endpoint)
    parameters.append(f"{database_parameter(model.definition)} := NULL")
    head = f"CREATE MACRO {name}({', '.join(parameters)}) AS TABLE "
    return head, endpoint_query(model, endpoint, database, Rows(relation))


@dataclass(frozen=True, slots=True)
class Rows:
    """What an endpoint is asked for: the rows of a relation, and the groups of a table, in which ``{}`` are all."""

    relation: str
    groups: str = "{}"


def endpoint_query(model: StoredModel, endpoint: Endpoint, database: str | None, rows: Rows) -> str:
    """Return the query of an endpoint's macro; ``database`` as in ``macro_sql``."""
    definition, form, relation = model.definition, model.form, rows.relation
    if endpoint == PERMUTATION:
        return _permuted(model, database, rows)
    if endpoint.explains:
        return _explained(model, endpoint, database, rows)
    place = database_prefix(definition, database)
    tables = _tables(place, rows)
    own = ModelTables(definition, model.id, tables)
    if form.reason and endpoint.predicts:  # the function finds its tables by itself
        given = _given(definition)
        call = f"predict({given} ELSE '' END || {literal(model.id)}, {ROW})"
        called = function_select(definition, call, relation, beside(endpoint, definition))
        predicted = _called_or_plain(called, _refused(definition, form.reason, endpoint, relation), "predict")
        return answered(endpoint, own, predicted)
    if not endpoint.predicts:
        return answered(endpoint, own, relation)
    extras = beside(endpoint, definition)
    plain = form.select(PredictedRows(definition, model.id, tables, relation, extras))
    if not form.is_slow:
        return answered(endpoint, own, plain)
    call = f"{_FUNCTION}({place} || {literal(model.id)}, {evaluated_row(definition)})"
    either = _called_or_plain(function_select(definition, call, relation, extras), plain, _FUNCTION)
    return answered(endpoint, own, either)


def _tables(place: str, rows: Rows) -> CatalogTables:
    """Return what finds the catalog tables in the database of which ``place`` is the SQL."""

    def tables(table_name: str) -> str:
        found = f"query_table({place} || {literal(qualified(SCHEMA, table_name))})"
        return rows.groups.format(found) if table_name == "groups" else found

    return tables


def _explained(model: StoredModel, endpoint: Endpoint, database: str | None, rows: Rows) -> str:
    """Return the query of what each item adds to the score of each row."""
    definition, place = model.definition, database_prefix(model.definition, database)
    extras = beside(endpoint, definition)
    explained = PredictedRows(definition, model.id, _tables(place, rows), rows.relation, extras)
    if (plain := model.form.explained(explained)) is not None:
        return plain
    call = f"{_EXPLAINING}({place} || {literal(model.id)}, {evaluated_row(definition)})"
    error = _error(definition, "explains", "only linear models are explained in SQL")
    calls = (call, f"CAST({error} AS {EXPLANATION})")
    called, refused = (explained_by_function(definition, each, rows.relation, extras) for each in calls)
    either = _called_or_plain(called, refused, _EXPLAINING)
    return long_rows(explained, either, range(len(definition.items)))


def _permuted(model: StoredModel, database: str | None, rows: Rows) -> str:
    """Return the query of how much the optimised metric needs each item."""
    place, form = database_prefix(model.definition, database), model.form
    tables = _tables(place, rows)

    def predicted(definition: ModelDefinition, relation: str, extras: Sequence[Extra]) -> str:
        if form.reason:
            error = _error(definition, "predicts", form.reason)
            plain = function_select(definition, f"CAST({error} AS {PREDICTION})", relation, extras)
        else:
            plain = form.select(PredictedRows(definition, model.id, tables, relation, extras))
            if not form.is_slow:
                return plain
        call = f"{_FUNCTION}({place} || {literal(model.id)}, {evaluated_row(definition)})"
        return _called_or_plain(function_select(definition, call, relation, extras), plain, _FUNCTION)

    return permutation_sql(ModelTables(model.definition, model.id, tables), rows.relation, predicted)


def database_prefix(definition: ModelDefinition, database: str | None) -> str:
    """Return the SQL of what stands before the names of catalog tables; ``database`` as in ``macro_sql``."""
    known = "" if database is None else f" WHEN {_has_models(database)} THEN {literal(identifier(database) + '.')}"
    return f"{_given(definition)}{known} ELSE '' END"


def _given(definition: ModelDefinition) -> str:
    """Return the beginning of a CASE of the macro's parameter for the database."""
    place = database_parameter(definition)
    return f"""CASE WHEN {place} IS NOT NULL THEN '"' || replace({place}, '"', '""') || '".'"""


def answered(endpoint: Endpoint, model: ModelTables, predicted: str) -> str:
    """Return the query of an endpoint, made of the query of predictions."""
    return predicted if endpoint.select is None else endpoint.select(model, predicted)


def beside(endpoint: Endpoint, definition: ModelDefinition) -> Sequence[Extra]:
    """Return what the query of an endpoint reads beside predictions: each row as one value, its place and its label."""
    if endpoint.explains:
        return *_placed_row(), Extra(VALUES, values_sql(definition))
    if endpoint.select is None:
        return ()
    return *_placed_row(), Extra(TARGET, label_sql(definition))


def _placed_row() -> tuple[Extra, Extra]:
    """Return a row as one value, and its place."""
    return Extra(SOURCE, ROW), Extra(PLACE, "row_number() OVER ()")


def _refused(definition: ModelDefinition, reason: str, endpoint: Endpoint, relation: str) -> str:
    """Return a query of the same columns that raises an error: without our functions such a model has no prediction."""
    error = _error(definition, "predicts", reason)
    return function_select(definition, f"CAST({error} AS {PREDICTION})", relation, beside(endpoint, definition))


def _error(definition: ModelDefinition, does: str, reason: str) -> str:
    """Return SQL that raises: without our functions a model does not do this."""
    lacks = f"model {definition.name} {does} by grouplearn alone, as {reason}"
    remedy = f"In Python, grouplearn.connect(file) {does}; in the duckdb shell, LOAD grouplearn comes first."
    return "error(" + literal(f"{lacks}\n\nHint: {remedy}") + ")"


def _called_or_plain(called: str, plain: str, function: str) -> str:
    """Return the query ``called`` where the function is there, else ``plain``; DuckDB plans only the one that is read."""
    planned = _is_planned(f"SELECT {function}(NULL, NULL)")
    chosen = f"CASE WHEN {planned} THEN {literal(_CALLED)} ELSE {literal(_PLAIN)} END"
    return f"WITH {_CALLED} AS ({called}), {_PLAIN} AS ({plain}) FROM query_table({chosen})"


def _has_models(database: str) -> str:
    """Return SQL that is true if a database of that name is attached and has models."""
    return _is_planned("FROM " + qualified(database, SCHEMA, "models"))


def _is_planned(query: str) -> str:
    """Return SQL that is true if everything that a query names is there.

    An argument of ``query_table`` cannot be a query, and an unknown name is an error; planning a query given as text is not.
    """
    return f"json_extract_string(json_serialize_plan({literal(query)}), '$.error') = 'false'"


def parameters_of(definition: ModelDefinition, endpoint: Endpoint) -> tuple[list[str], str]:
    """Return the parameters of an endpoint's macro with their defaults, and the relation of the rows that are predicted."""
    # Without rows the query has no fragment of the model.
    reads = endpoint.predicts or endpoint.reads
    free = definition.free_parameter if reads else str
    names = [free(name) if default is None else f"{free(name)} := {default}" for name, default in endpoint.parameters]
    if not reads:
        return names, ""
    usual = "NULL" if definition.threshold_metric else "0.5"
    thresholds = endpoint.predicts and not endpoint.judges and definition.output.has_threshold
    threshold = [f"{threshold_parameter(definition)} := {usual}"] if thresholds else []
    return [*names, *threshold], f"query_table({names[0]})"


def macro_comment(definition: ModelDefinition, endpoint: Endpoint) -> str:
    """Return the macro's comment."""
    if endpoint.reads or endpoint.judges:
        return endpoint.comment
    shown = " and ".join(definition.output.shown)
    if not endpoint.predicts:
        return f"{endpoint.comment}{shown}, by the best trial of each group."
    text = f"{endpoint.comment}{shown} and model_level, by the best trial of each group"
    if definition.output.has_threshold:
        of = f"{definition.target_name} = {definition.positive_class}"
        text += f"; probability is the probability of {of}, which is predicted above {threshold_parameter(definition)}"
        text += f" (by default {definition.threshold_metric} of the group)" if definition.threshold_metric else ""
    first = definition.output.shown[0]
    return f"{text}. If the rows have a column {first}, the column of the model is {first}_1."
