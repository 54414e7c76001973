"""The body of a model's macro: in SQL alone where the model has such a form, else through the function ``predict``."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.bind.definition import ROW
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.sql_forms import SqlForm
from grouplearn.learners.contract.problem import Task
from grouplearn.prediction.forms.layers import layers_select
from grouplearn.prediction.forms.linear import linear_select
from grouplearn.prediction.forms.routed import (
    GROUP,
    SHOWN,
    CatalogTables,
    Extra,
    binary_class,
    database_parameter,
    free_parameter,
    has_threshold,
    threshold_parameter,
    threshold_sql,
)
from grouplearn.prediction.forms.trees import trees_select
from grouplearn.sqltext import identifier, literal, qualified


def function_select(definition: ModelDefinition, model: str, relation: str, extras: Sequence[Extra] = ()) -> str:
    """Return the SELECT that predicts through the function ``predict``, for learners whose maths is not SQL.

    ``model`` is what ``predict`` takes: an identity, which may be qualified by a database.
    """
    columns = ", ".join([f"{ROW}.*", *(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras)])
    inner = f"SELECT {columns}, predict({literal(model)}, {ROW}) AS __grouplearn_p FROM {relation} AS {ROW}"
    answer = "__grouplearn_p."
    kind = "DOUBLE" if definition.task is Task.REGRESSION else definition.label_type
    if definition.label_length:
        value = f"CAST({answer}predicted AS {definition.label_type})"
        return f"SELECT {SHOWN}, {value} AS prediction, {answer}model_level AS model_level FROM ({inner})"
    value = f"{answer}value" if definition.task is Task.REGRESSION else f"CAST({answer}prediction AS {kind})"
    if has_threshold(definition):
        value = binary_class(f"{answer}probability", definition, threshold_sql(definition, extras))
    group = f"{answer}group_id AS {GROUP}"
    head = [group, *(identifier(extra.name) for extra in extras)] if extras else [SHOWN]
    shown = {Task.REGRESSION: [], Task.BINARY: ["probability"], Task.MULTICLASS: ["probabilities"]}[definition.task]
    columns = ", ".join([*head, f"{value} AS prediction", *(f"{answer}{name} AS {name}" for name in shown)])
    return f"SELECT {columns}, {answer}model_level AS model_level FROM ({inner})"


def predict_select(
    definition: ModelDefinition,
    model: str,
    relation: str,
    catalog_tables: CatalogTables,
    form: SqlForm,
    extras: Sequence[Extra] = (),
) -> str:
    """Return the SELECT that predicts the rows of ``relation``, in SQL alone where the model has such a form."""
    match form.kind:
        case "linear":
            return linear_select(definition, model, relation, catalog_tables, extras)
        case "trees":
            return trees_select(definition, model, relation, catalog_tables, form, extras)
        case "layers":
            return layers_select(definition, model, relation, catalog_tables, form.depth, extras)
    return function_select(definition, model, relation, extras)


def macro_sql(
    definition: ModelDefinition, model: str, name: str, form: SqlForm, database: str | None
) -> tuple[str, str]:
    """Return the statement that creates a model's macro under a qualified name: all before its query, and the query.

    A macro's names are looked up in the reader's default database. Left unqualified there, the model survives a renamed or
    copied file. ``database`` is where its tables are looked for without being told, as long as that has models; None for the
    default database.
    """
    source, place = macro_parameter(definition), database_parameter(definition)
    known = "" if database is None else f" WHEN {_has_models(database)} THEN {literal(identifier(database) + '.')}"

    def tables(table_name: str) -> str:
        told = f"""CASE WHEN {place} IS NOT NULL THEN '"' || replace({place}, '"', '""') || '".'{known} ELSE '' END"""
        return f"query_table({told} || {literal(qualified(SCHEMA, table_name))})"

    select = predict_select(definition, model, f"query_table({source})", tables, form)
    parameters = [source, *threshold_default(definition), f"{place} := NULL"]
    return f"CREATE MACRO {name}({', '.join(parameters)}) AS TABLE ", select


def _has_models(database: str) -> str:
    """Return SQL that is true where a database of that name is attached and has models.

    An argument of ``query_table`` can ask no query, and a name that is not there is an error; to plan a text is none.
    """
    planned = f"json_serialize_plan({literal('FROM ' + qualified(database, SCHEMA, 'models'))})"
    return f"json_extract_string({planned}, '$.error') = 'false'"


def threshold_default(definition: ModelDefinition) -> list[str]:
    """Return the macro's parameter for the threshold, with its default, if it has one."""
    return [f"{threshold_parameter(definition)} := 0.5"] if has_threshold(definition) else []


def macro_comment(definition: ModelDefinition) -> str:
    """Return what the macro's comment says."""
    text = "Rows with prediction and model_level, by the best trial of each group"
    if has_threshold(definition):
        of = f"{definition.target_name} = {definition.positive_class}"
        text += f"; probability is that of {of}, which is predicted above threshold"
    return f"{text}. Where the rows have a column of the name prediction, that of the model is prediction_1."


def macro_parameter(definition: ModelDefinition) -> str:
    """Return the name of the macro's parameter for the rows."""
    return free_parameter(definition, "src")
