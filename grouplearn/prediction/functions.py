"""Registers the functions of the package ``grouplearn.udfs`` on a connection: every module's ``register``, every SQL file."""

from __future__ import annotations

import contextlib
import importlib
from importlib import resources

import duckdb

from grouplearn import versions
from grouplearn.catalog import predicting_connections
from grouplearn.catalog.lookup.sessions import set_variables
from grouplearn.sqltext import string


def register_all(connection: duckdb.DuckDBPyConnection) -> None:
    """Register our SQL functions on ``connection``; repeated calls change nothing.

    A connection that ``serves_predict`` has them from the native extension.
    """
    if getattr(connection, "serves_predict", False):
        return
    files = sorted(resources.files("grouplearn.udfs").iterdir(), key=lambda entry: entry.name)
    for entry in files:
        if entry.name.endswith(".py") and entry.name != "__init__.py":
            importlib.import_module(f"grouplearn.udfs.{entry.name.removesuffix('.py')}").register(connection)
    for entry in files:
        if entry.name.endswith(".sql"):
            connection.execute(entry.read_text(encoding="utf-8"))
    # DuckDB's version is computed in the macro, so that it is the reader's.
    said = f"system.main.concat({string(versions.described())}, ', DuckDB ', system.main.version())"
    connection.execute(f"CREATE OR REPLACE TEMP MACRO grouplearn_version() AS {said}")


def notice(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Take note of SQL that has run on ``connection``."""
    predicting_connections.entry_of(connection).sessions.notice(connection, text)


def expect_variables(connection: duckdb.DuckDBPyConnection, text: str = "") -> None:
    """Tell ``predict`` the connection's variables, and those that a text will set."""
    if getattr(connection, "serves_predict", False):
        return
    predicting_connections.entry_of(connection).sessions.expect(set_variables(text))
    with contextlib.suppress(duckdb.TransactionException):  # until ROLLBACK nothing runs; then this is tried again
        importlib.import_module("grouplearn.udfs.predict").define(connection)


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Release everything held for ``connection``, before it is closed."""
    predicting_connections.release(connection)
