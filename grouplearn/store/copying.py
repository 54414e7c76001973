"""Reads a model's catalog rows as Arrow tables, and writes them under a new identity."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as with_changed
from typing import Any

import duckdb
import pyarrow as pa

from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.models import load_by_id
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import TABLES, Location, ensure_schema, table
from grouplearn.errors import NotTrusted, data_error
from grouplearn.prediction.group_models import load_groups
from grouplearn.prediction.prediction import predictor_for
from grouplearn.store import objects, versions
from grouplearn.store import writer as store
from grouplearn.store.versions import Event

#: DuckDB's errors for invalid values; those for a full disk, for example, are not among them.
_MISFITS = (duckdb.ProgrammingError, duckdb.DataError, duckdb.IntegrityError, duckdb.NotSupportedError)


def read_rows(con: duckdb.DuckDBPyConnection, model: StoredModel, name: str) -> Any:
    """Return a model's rows in one catalog table, without its identity, in the order in which they were written."""
    source = table(model.location.catalog, name)
    query = f"SELECT * EXCLUDE (model) FROM {source} WHERE model = '{model.id}'::UUID ORDER BY rowid ASC"
    return con.sql(query).to_arrow_table()


def write_rows(
    con: duckdb.DuckDBPyConnection, location: Location, rows: Mapping[str, Any], *, replace: bool
) -> StoredModel:
    """Store a model from the rows of all catalog tables, with its views and its macro; return it.

    The caller holds the transaction, and has made sure that the place is free. Raises DataError for rows that do not fit.
    """
    if rows["models"].num_rows != 1:
        raise data_error("there is not one model in it")
    ensure_schema(con, location.catalog)
    before = identity_at(con, location.catalog, location.schema, location.name) if replace else None
    model = str(uuid.uuid4())
    try:
        stored = _written(con, location, rows, model)
    except BaseException as error:
        with suppress(duckdb.Error):  # they are in the user's transaction, and gone if that was aborted
            versions.delete(con, location.catalog, model)
        if not isinstance(error, NotTrusted) and isinstance(
            error, (*_MISFITS, pa.ArrowException, LookupError, TypeError, ValueError)
        ):
            raise data_error(f"its tables are not those of a model: {str(error).splitlines()[0]}") from None
        raise
    if before is not None:
        objects.drop_objects(con, before)
        store.replaced(con, before, location, stored.definition.keep_versions)
    objects.create_objects(con, location, stored.definition, model, stored.form)
    versions.record(con, stored, Event("IMPORT"))
    return stored


def _written(con: duckdb.DuckDBPyConnection, location: Location, rows: Mapping[str, Any], model: str) -> StoredModel:
    """Write the rows of a model, and return it as it is read from them."""
    for name in TABLES:
        _refuse_missing_columns(con, table(location.catalog, name), name, rows[name].column_names)
        store.insert(con, location.catalog, model, [(name, _named(rows[name], name, location))])
    stored = refuse_unsound(con, location.catalog, model)
    # Its macro evaluates the expressions unchecked, in a database that the user trusts.
    predictor_for(con).guard.admit(con, with_changed(stored.definition, catalog=location.catalog))
    return stored


def refuse_unsound(con: duckdb.DuckDBPyConnection, catalog: str, model: str) -> StoredModel:
    """Return a model whose rows were just written and come from outside; raises DataError if they are invalid."""
    stored = load_by_id(con, catalog, model)
    if stored is None:
        raise LookupError("models has no row that was stored")
    refuse_invalid_rows(con, stored, TABLES)
    load_groups(con, stored)  # a model must be able to predict
    return stored


def _refuse_missing_columns(con: duckdb.DuckDBPyConnection, target: str, name: str, columns: Sequence[str]) -> None:
    wanted = [row[0] for row in con.execute(f"DESCRIBE {target}").fetchall()]
    missing = [column for column in wanted if column not in (*columns, "model")]
    if missing:
        raise LookupError(f"{name} has no column {missing[0]}")


def _named(rows: Any, name: str, location: Location) -> Any:
    """Return the rows with the model's current place."""
    if name != "models":
        return rows
    for column, value in (("schema_name", location.schema), ("model_name", location.name)):
        rows = rows.set_column(rows.column_names.index(column), column, pa.array([value] * rows.num_rows))
    return rows
