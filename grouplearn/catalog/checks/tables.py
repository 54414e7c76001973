"""Whether the tables of schema ``grouplearn`` are ours, as a database may come from anybody.

A view in place of a table, a generated column, a default, a CHECK, an index over an expression or a trigger would run SQL
of the file's author when we read or write the table; a column of another type may contain anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import duckdb

from grouplearn.bind.sql.builtins import pristine_database
from grouplearn.errors import NotTrusted
from grouplearn.sqltext import folded, identifier

SCHEMA = "grouplearn"
#: The version of the tables; a database's is in ``grouplearn.schema_version``. Other versions are not read.
VERSION = 19
#: DuckDB ignores the case of names, but lists them as written.
_OF_OURS = f"system.main.lower(schema_name) = '{SCHEMA}'"
#: Allowed constraints. A foreign key refers to another table, and CHECK and the others evaluate an expression.
_PLAIN = {"NOT NULL", "PRIMARY KEY"}
_HINT = (
    "Models are read from tables as TRAIN makes them. If the database came from elsewhere, do not trust it; if it is yours,"
    " undo what was done to the table, or DROP SCHEMA grouplearn CASCADE and train again."
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table as DuckDB lists it: its definition as SQL, and how many indexes it has."""

    sql: str
    indexes: int


_COMMENT = re.compile(r"^COMMENT ON (.*?) IS .*?;$", re.MULTILINE)
#: Definitions that are written differently and mean the same as ours, one set per version of DuckDB.
_READ: set[frozenset[tuple[str, Table]]] = set()


#: Database, schema, name, definition and number of indexes of every table there is.
Listed = tuple[tuple[str, str, str, str, int], ...]
#: Says of a listed view that it is not DuckDB's own.
USERS = -1
#: Database, schema, name and comment of every view there is, and ``USERS`` or less.
Views = tuple[tuple[str, str, str, str, int], ...]

# No macro can hide anything in the queries, and filtering here takes two thirds of the time.
_TABLES = "SELECT database_name, schema_name, table_name, sql, index_count FROM system.main.duckdb_tables()"
_VIEWS = (
    "SELECT database_name, schema_name, view_name, coalesce(comment, ''), CASE WHEN internal THEN -2 ELSE -1 END"
    " FROM system.main.duckdb_views()"
)


def listed(con: duckdb.DuckDBPyConnection) -> Listed:
    """Return all tables."""
    return tuple(con.execute(_TABLES).fetchall())


def views_listed(con: duckdb.DuckDBPyConnection) -> Views:
    """Return all views."""
    return tuple(con.execute(_VIEWS).fetchall())


def listed_with_views(con: duckdb.DuckDBPyConnection) -> tuple[Listed, Views]:
    """Return all tables and all views, by one query: two take DuckDB a third longer."""
    rows = con.execute(f"{_TABLES} UNION ALL {_VIEWS}").fetchall()
    return tuple(row for row in rows if row[-1] >= 0), tuple(row for row in rows if row[-1] < 0)


def tables_in(tables: Listed) -> dict[str, dict[str, Table]]:
    """Return those of schema ``grouplearn`` by database and name."""
    found: dict[str, dict[str, Table]] = {}
    for database, schema, name, sql, indexes in tables:
        if folded(schema) == SCHEMA:
            found.setdefault(database, {})[folded(name)] = Table(sql, indexes)
    return found


@lru_cache
def creation() -> str:
    """Return the SQL that makes the tables, with their comments and their version."""
    folder = resources.files("grouplearn.sql.catalog")
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    texts = [entry.read_text(encoding="utf-8") for entry in files]
    number = f"INSERT INTO {SCHEMA}.schema_version VALUES ({VERSION});"
    return "\n".join([f"CREATE SCHEMA IF NOT EXISTS {SCHEMA};", *texts, number])


def refuse_foreign(
    con: duckdb.DuckDBPyConnection,
    catalog: str,
    found: Mapping[str, Table],
    only: tuple[str, ...] | None = None,
) -> None:
    """Raise NotTrusted unless the tables of a database, or ``only`` these, are ours."""
    wanted = _ours()
    names = only or tuple(wanted.tables)
    for name in names:
        if name not in found:
            raise _refusal(catalog, name, "is no table")
    unlike = [name for name in names if found[name] != wanted.tables[name]]
    read = frozenset((name, found[name]) for name in unlike)
    if unlike and read not in _READ:  # made by a DuckDB that formats definitions differently, or not by us
        _compare(con, catalog, found, wanted, unlike)
        _READ.add(read)


def refuse_views(con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> None:
    """Raise NotTrusted where a view stands in place of the table of models, in one database or in any."""
    query = "SELECT database_name, schema_name, view_name FROM system.main.duckdb_views()"
    for database, schema, name in con.execute(query).fetchall():
        ours = (folded(schema), folded(name)) == (SCHEMA, "models")
        if ours and (catalog is None or folded(database) == folded(catalog)):
            raise _refusal(database, name, "is a view")


def refuse_triggers(con: duckdb.DuckDBPyConnection, catalog: str) -> None:
    """Raise NotTrusted if a trigger would run its author's SQL when rows are stored."""
    if _version(con).startswith(("0.", "1.")):  # these have no triggers
        return
    query = "SELECT database_name, schema_name, table_name, trigger_name FROM system.main.duckdb_triggers()"
    for database, schema, name, trigger in con.execute(query).fetchall():  # few: filtering here takes half the time
        if folded(database) == folded(catalog) and folded(schema) == SCHEMA:
            raise _refusal(catalog, name, f"has a trigger {identifier(trigger)}")


def _version(con: duckdb.DuckDBPyConnection) -> str:
    """Return the version of DuckDB, this process's or the connected shell's."""
    if not getattr(con, "serves_predict", False):
        return duckdb.__version__
    return str(con.execute("SELECT library_version FROM system.main.pragma_version()").fetchall()[0][0]).lstrip("v")


@dataclass(frozen=True, slots=True)
class _Ours:
    """Our tables, and the types of their columns by table and column."""

    tables: dict[str, Table]
    columns: dict[str, dict[str, str]]


@lru_cache
def _ours() -> _Ours:
    """Return how this process's DuckDB describes tables that it makes itself."""
    with pristine_database() as con:
        con.execute("BEGIN TRANSACTION")  # never committed
        con.execute(_COMMENT.sub("", creation()))  # comments take half the time and are not compared
        ((_, tables),) = tables_in(listed(con)).items()
        columns: dict[str, dict[str, str]] = {}
        for _, table, column, kind, _ in _columns(con):
            columns.setdefault(table, {})[column] = kind
    return _Ours(tables, columns)


def _columns(con: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    query = (
        "SELECT database_name, table_name, column_name, data_type, column_default"
        f" FROM system.main.duckdb_columns() WHERE {_OF_OURS} AND NOT internal"
    )
    # Some versions of DuckDB quote field names where others do not.
    rows = con.execute(query).fetchall()
    return [(row[0], folded(row[1]), row[2], row[3].replace('"', ""), *row[4:]) for row in rows]


def _compare(
    con: duckdb.DuckDBPyConnection, catalog: str, found: Mapping[str, Table], wanted: _Ours, names: list[str]
) -> None:
    own = folded(catalog)
    columns: dict[str, dict[str, str]] = {name: {} for name in names}
    for database, table, column, kind, default in _columns(con):
        if folded(database) != own or table not in columns:
            continue
        columns[table][column] = kind
        if default is not None:
            raise _refusal(catalog, table, f"has a column {identifier(column)} with an expression: {default}")
    query = (
        "SELECT database_name, table_name, constraint_type, constraint_text FROM system.main.duckdb_constraints()"
        f" WHERE {_OF_OURS}"
    )
    keys = dict.fromkeys(names, 0)
    for database, name, kind, text in con.execute(query).fetchall():
        if folded(database) == own and (table := folded(name)) in columns:
            if kind not in _PLAIN:
                raise _refusal(catalog, table, f"has a constraint: {text}")
            keys[table] += kind == "PRIMARY KEY"
    for table in names:
        _compare_columns(catalog, table, columns[table], wanted.columns[table])
        if found[table].indexes > keys[table]:  # a table without its key must not have another index
            raise _refusal(catalog, table, "has an index that is not ours")


def _compare_columns(catalog: str, table: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise NotTrusted for other columns or types; NULLs are harmless and checked with the values."""
    for column in (*wanted, *found):
        name = identifier(column)
        if column not in wanted:
            raise _refusal(catalog, table, f"has a column {name}, which is not ours")
        if column not in found:
            raise _refusal(catalog, table, f"has no column {name}")
        if found[column] != wanted[column]:
            raise _refusal(catalog, table, f"has a column {name} of type {found[column]}, and ours is {wanted[column]}")


def _refusal(catalog: str, table: str, flaw: str) -> NotTrusted:
    message = f'the models in database "{catalog}" are not read: {SCHEMA}.{table} {flaw}'
    return NotTrusted(message, hint=_HINT)
