"""The body of a model's macro: in SQL alone where the model has such a form, else through the function ``predict``."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.catalog.predict_layers import layers_select
from grouplearn.catalog.predict_sql import GROUP, Extra, linear_select
from grouplearn.catalog.predict_trees import trees_select
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.sql_forms import SqlForm
from grouplearn.learners.base import Task
from grouplearn.plan.definition import ROW
from grouplearn.sqltext import identifier


def function_select(definition: ModelDefinition, model: str, relation: str, extras: Sequence[Extra] = ()) -> str:
    """Return the SELECT that predicts through the function ``predict``, for learners whose maths is not SQL."""
    columns = ", ".join([ROW, *(f"({extra.sql}\n) AS {identifier(extra.name)}" for extra in extras)])
    inner = f"SELECT {columns}, predict('{model}', {ROW}) AS __grouplearn_p FROM {relation} AS {ROW}"
    answer = "__grouplearn_p."
    kind = "DOUBLE" if definition.task is Task.REGRESSION else definition.label_type
    if definition.label_length:
        value = f"CAST({answer}predicted AS {definition.label_type})"
        return f"SELECT {ROW}.*, {value} AS prediction, {answer}model_level AS model_level FROM ({inner})"
    value = f"{answer}value" if definition.task is Task.REGRESSION else f"CAST({answer}prediction AS {kind})"
    group = f"{answer}group_id AS {GROUP}"
    head = [group, *(identifier(extra.name) for extra in extras)] if extras else [f"{ROW}.*"]
    shown = {Task.REGRESSION: [], Task.BINARY: ["probability"], Task.MULTICLASS: ["probabilities"]}[definition.task]
    columns = ", ".join([*head, f"{value} AS prediction", *(f"{answer}{name} AS {name}" for name in shown)])
    return f"SELECT {columns}, {answer}model_level AS model_level FROM ({inner})"


def predict_select(
    definition: ModelDefinition,
    model: str,
    relation: str,
    catalog_tables: str,
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


def macro_parameter(definition: ModelDefinition) -> str:
    """Return the name of the macro's parameter: ``src``, with underscores until no fragment of the model mentions it.

    DuckDB replaces every column of that name in the macro's body by the argument.
    """
    texts = [key.sql for key in definition.keys] + [entry.sql for entry in definition.items]
    mentioned = "\n".join(texts).casefold()
    name = "src"
    while name in mentioned:
        name += "_"
    return name
