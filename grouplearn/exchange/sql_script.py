"""Format ``sql``: a script that makes a model's tables and macro in any DuckDB, with nothing installed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import duckdb

from grouplearn.amounts import on_one_line
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.schema import table
from grouplearn.exchange.best import best_of
from grouplearn.exchange.plain_expressions import with_plain_expressions
from grouplearn.models.forms.drift import endpoints_of
from grouplearn.models.forms.routed import CatalogTables, ModelTables, PredictedRows
from grouplearn.models.outputs.output import PERMUTATION, Endpoint
from grouplearn.prediction.macro import answered, beside, parameters_of
from grouplearn.prediction.permutation import permutation_sql
from grouplearn.sqltext import identifier, literal, qualified

#: Rows per INSERT.
_BATCH = 500
#: The columns and rows of catalog tables that prediction needs.
_READ = {
    "models": ("model, model_name, learner, task, target_name, label_type, classes, statement, trained_at", "true"),
    "groups": (
        "model, group_id, level, keys, n_rows, best, classes, features, starts, fills, centers, scales, categories,"
        " category_values, calibration",
        "best IS NOT NULL",
    ),
    "trials": ("model, group_id, config, is_best, train, valid", "is_best"),
    "artifacts": (
        "model, group_id, config, weights, intercept{wide}",
        "(group_id, config) IN (SELECT (group_id, best) FROM {groups})",
    ),
}


def files(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[tuple[str, bytes]]:
    """Yield the script ``model.sql``: a schema ``<model>_model`` with the tables, and the macro ``<model>_predict``."""
    best_of(con, model)  # raises if nothing can predict, or an artifact is damaged
    refuse_invalid_rows(con, model, ("models", "groups", "profiles", *model.form.tables))
    yield "model.sql", "".join(_script(con, model)).encode()


def _script(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[str]:
    definition, name = with_plain_expressions(con, model.definition), model.location.name
    place = qualified(f"{name}_model")
    title, learner = on_one_line(name), on_one_line(definition.shown_learner)
    yield f"-- Model {title} ({learner}) for DuckDB 1.3 and later, made by grouplearn.\n"
    tables = partial(qualified, f"{name}_model")
    queries = {each: _query(model, definition, each, tables) for each in endpoints_of(definition.output)}
    queries = {endpoint: query for endpoint, query in queries.items() if query is not None}
    for endpoint in queries:
        yield f"-- After this script: FROM {on_one_line(identifier(name + endpoint.suffix))}({endpoint.call});\n"
    yield f"BEGIN TRANSACTION;\nCREATE SCHEMA {place};\n"
    trials = ["trials"] if definition.threshold_metric else []
    for part in dict.fromkeys(("models", "groups", "profiles", *model.form.tables, *trials)):
        yield from _table(con, model, part, place)
    for endpoint, query in queries.items():
        parameters = ", ".join(parameters_of(definition, endpoint)[0])
        yield f"CREATE MACRO {identifier(name + endpoint.suffix)}({parameters}) AS TABLE {query};\n"
    yield "COMMIT;\n"


def _query(model: StoredModel, definition: ModelDefinition, endpoint: Endpoint, tables: CatalogTables) -> str | None:
    """Return the query of an endpoint; None if it needs our functions."""
    relation = parameters_of(definition, endpoint)[1]
    rows = PredictedRows(definition, model.id, tables, relation, beside(endpoint, definition))
    if endpoint == PERMUTATION:
        own = ModelTables(definition, model.id, tables)
        return permutation_sql(
            own,
            relation,
            lambda shuffled, mixed, extras: model.form.select(PredictedRows(shuffled, model.id, tables, mixed, extras)),
        )
    if endpoint.explains:
        return model.form.explained(rows)
    predicted = model.form.select(rows) if endpoint.predicts else relation
    return answered(endpoint, ModelTables(definition, model.id, tables), predicted)


def _table(con: duckdb.DuckDBPyConnection, model: StoredModel, part: str, place: str) -> Iterator[str]:
    columns, where = _READ.get(part, ("*", "true"))
    columns = columns.format(wide=", places, nonzeros" if model.definition.is_wide else "")
    catalog, own = model.location.catalog, f"model = '{model.id}'::UUID"
    chosen = where.format(groups=f"{table(catalog, 'groups')} WHERE {own}")
    query = f"SELECT {columns} FROM {table(catalog, part)} WHERE {own} AND {chosen} ORDER BY rowid ASC"
    types = con.execute(f"DESCRIBE {query}").fetchall()
    target = f"{place}.{identifier(part)}"
    yield f"CREATE TABLE {target} ({', '.join(f'{identifier(row[0])} {row[1]}' for row in types)});\n"
    # DuckDB writes numbers so that they are read back exactly; text and lists of text become literals.
    shown = [
        f"CAST({identifier(row[0])} AS VARCHAR)" if "VARCHAR" not in row[1] else identifier(row[0]) for row in types
    ]
    rows = con.execute(f"SELECT {', '.join(shown)} FROM ({query})").fetchall()
    for start in range(0, len(rows), _BATCH):
        lines = ",\n".join(map(_row, rows[start : start + _BATCH]))
        yield f"INSERT INTO {target} VALUES\n{lines};\n"


def _row(values: tuple[Any, ...]) -> str:
    return f"({', '.join(map(literal, values))})"
