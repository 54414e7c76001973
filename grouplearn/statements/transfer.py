"""EXPORT MODEL and IMPORT MODEL on a connection."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import Location
from grouplearn.data.files.run_directory import size
from grouplearn.errors import DataError, Error, MissingDependency, ModelExists, NotTrusted
from grouplearn.exchange import native
from grouplearn.exchange.dialect_files import Dialect
from grouplearn.exchange.directory_reader import CannotExchange, NoSuchForm, located
from grouplearn.exchange.exporting import FORMATS, export
from grouplearn.exchange.onnx.graph import OnnxMissing
from grouplearn.messages import did_you_mean
from grouplearn.models.dialects.databases import DATABASES, SqlglotMissing
from grouplearn.parser.statements import ExportModel, ImportModel, Sql
from grouplearn.prediction import prediction
from grouplearn.statements import result_sql
from grouplearn.statements.context import StatementContext
from grouplearn.store import copying, objects
from grouplearn.store.left_over import hint_for_occupied_place

#: ``s3://bucket/m``, ``https://...``.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def export_model(statement: ExportModel, checker: SqlChecker, at: StatementContext) -> str:
    """Write the directory, and return its size; what is written is one model, whatever other connections train meanwhile."""
    with at.databases.transaction():
        return _exported(statement, checker, at)


def _exported(statement: ExportModel, checker: SqlChecker, at: StatementContext) -> str:
    con, databases = at.connection, at.databases
    kind, where = (statement.format.value, statement.format.span) if statement.format else ("native", None)
    if kind not in FORMATS:
        hint = did_you_mean(kind, FORMATS) or f"The formats are {', '.join(FORMATS)}."
        raise checker.error(f'"{kind}" is not a format of EXPORT MODEL', where, hint)
    model = databases.model(statement.name, checker)
    dialect = _dialect(statement, kind, checker)
    if dialect is None and (reason := FORMATS[kind].lacking(model)) is not None:
        message = f'model "{model.definition.name}" ({model.definition.shown_learner}) has no {kind} form: {reason}'
        raise checker.error(message, where, _other_formats(model, kind))
    if FORMATS[kind].evaluated:
        prediction.predictor_for(con).guard.admit(con, model.definition)
    path = _path(checker, statement.directory)
    checker.outside.refuse(path.parent, checker.text, statement.directory.span)  # it is first written there
    try:
        written = export(con, model, kind, path, overwrite=statement.overwrite, dialect=dialect)
    except NoSuchForm as error:
        where = statement.dialect.span if statement.dialect else where
        raise checker.error(str(error), where, error.hint or _other_formats(model, kind)) from None
    except CannotExchange as error:
        raise checker.error(str(error), statement.directory.span, error.hint) from None
    except OnnxMissing as error:
        raise MissingDependency(str(error), text=checker.text, span=where, hint=error.hint) from None
    told = f"model {statement.name.name} is exported: {written.files} files, {size(written.size)}"
    return result_sql.notice(f"{told}, in {path}")


def _dialect(statement: ExportModel, kind: str, checker: SqlChecker) -> Dialect | None:
    """Return the other database, None for DuckDB."""
    if (given := statement.dialect) is None:
        if statement.source is not None:
            hint = "For example (FORMAT sql, DIALECT 'postgres', SOURCE 'shop.orders')."
            raise checker.error("SOURCE is for a DIALECT", statement.source.span, hint)
        return None
    if kind != "sql":
        raise checker.error("DIALECT is for FORMAT sql", given.span, "Write (FORMAT sql, DIALECT ...).")
    if given.value == "duckdb" and statement.source is None:
        return None
    if given.value not in DATABASES:
        hint = did_you_mean(given.value, DATABASES) or f"The dialects are {', '.join(DATABASES)}."
        raise checker.error(f'"{given.value}" is not a DIALECT of EXPORT MODEL', given.span, hint)
    source = None if statement.source is None else checker.constant(statement.source)
    if statement.source is not None and not isinstance(source, str):
        raise checker.error("SOURCE is the name of a table in single quotes", statement.source.span)
    try:
        return Dialect.of(DATABASES[given.value], source)
    except CannotExchange as error:
        raise checker.error(str(error), statement.source.span if statement.source else None, error.hint) from None
    except SqlglotMissing as error:
        raise MissingDependency(str(error), text=checker.text, span=given.span, hint=error.hint) from None


def _other_formats(model: StoredModel, kind: str) -> str:
    """Return a hint with the formats, but this one, that a model has a form in."""
    others = (name for name, each in FORMATS.items() if name != kind and each.lacking(model) is None)
    return f"It can be exported as {', '.join(others)}."


def import_model(statement: ImportModel, checker: SqlChecker, at: StatementContext) -> str:
    """Store the model of a directory under a new name."""
    con, databases = at.connection, at.databases
    catalog, schema = databases.of(statement.name, checker)
    name = statement.name.name
    place = Location(catalog, schema, name)
    if statement.replace:
        databases.refuse_member(place, statement.name.span, checker)
        databases.refuse_several(statement.name, checker)
    conflict = objects.exists(con, catalog, schema, name, replace=statement.replace)
    if conflict is not None and conflict.is_model and statement.if_not_exists:
        return result_sql.notice(f"model {name} exists already; nothing was imported")
    if conflict is not None:
        raise _exists(statement, conflict, checker, con, place)
    databases.refuse_namesake(statement.name.span, checker)
    databases.refuse_read_only(catalog, statement.name.span, checker, "a model cannot be stored in it")
    path = _path(checker, statement.directory)
    checker.outside.refuse(path, checker.text, statement.directory.span)
    try:
        rows = native.read(path)
    except CannotExchange as error:
        raise checker.error(str(error), statement.directory.span, error.hint) from None
    seen_only_here = databases.in_transaction()

    def store_it() -> StoredModel:
        conflict = objects.exists(con, catalog, schema, name, replace=statement.replace)
        if conflict is not None:  # created since the directory was read
            raise _exists(statement, conflict, checker, con, place)
        return copying.write_rows(con, place, rows, replace=statement.replace)

    try:
        model = databases.write(catalog, store_it, statement.name.span, checker)
        if seen_only_here:
            prediction.remember_stored(con, model)
    except NotTrusted as error:
        message, where = f'directory "{path}" cannot be imported: {error.message}', statement.directory.span
        raise NotTrusted(message, text=checker.text, span=where, hint=error.hint) from None
    except DataError as error:
        raise checker.error(f'directory "{path}" cannot be imported: {error}', statement.directory.span) from None
    count = rows["groups"].num_rows
    return result_sql.notice(f"model {name} is imported: {count} group{'' if count == 1 else 's'}")


def _exists(
    statement: ImportModel,
    conflict: objects.NameTaken,
    checker: SqlChecker,
    con: duckdb.DuckDBPyConnection,
    place: Location,
) -> Error:
    written = checker.text[statement.name.span.start : statement.name.span.end]
    hint = f"Write IMPORT OR REPLACE MODEL {written} to replace it."
    hint = hint if conflict.is_model else hint_for_occupied_place(con, place, written)
    return ModelExists(conflict.message, text=checker.text, span=statement.name.span, hint=hint)


def _path(checker: SqlChecker, directory: Sql) -> Path:
    value = checker.constant(directory)
    if not isinstance(value, str):
        kind = checker.describe("SELECT (", directory, ")")[0].type
        raise checker.error(f"a directory is a text, not a value of type {kind}", directory.span)
    if not value.strip():
        raise checker.error("the name of the directory is empty", directory.span)
    if _ADDRESS.match(value):
        message = f'a model is exchanged with a directory of this machine, and "{value}" is an address'
        hint = "EXPORT to a directory and copy its files to where they should be; copy them from there before IMPORT."
        raise checker.error(message, directory.span, hint)
    if "\0" in value:
        raise checker.error("a name of a directory cannot have the character 0", directory.span)
    try:
        return located(value)
    except CannotExchange as error:
        raise checker.error(str(error), directory.span, error.hint) from None
