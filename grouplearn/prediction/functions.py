"""Registers what the package ``grouplearn.udfs`` holds on a connection: every module's ``register``, every SQL file."""

from __future__ import annotations

import contextlib
import importlib
from importlib import resources

import duckdb

from grouplearn import versions
from grouplearn.catalog import asking
from grouplearn.catalog.sessions import set_variables
from grouplearn.sqltext import string


def register_all(connection: duckdb.DuckDBPyConnection) -> None:
    """Register our SQL functions on ``connection``; doing so again changes nothing.

    A connection that ``serves_predict`` has them already: they are the native extension's there.
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
    # DuckDB says its own version, which is that of whoever reads the macro.
    said = f"system.main.concat({string(versions.described())}, ', DuckDB ', system.main.version())"
    connection.execute(f"CREATE OR REPLACE TEMP MACRO grouplearn_version() AS {said}")


def notice(connection: duckdb.DuckDBPyConnection, text: str) -> None:
    """Take note of SQL that has run on ``connection``."""
    asking.asking_for(connection).sessions.notice(connection, text)


def expect_variables(connection: duckdb.DuckDBPyConnection, text: str = "") -> None:
    """Let ``predict`` know the variables of the connection, and those that a text is about to set."""
    if getattr(connection, "serves_predict", False):
        return
    asking.asking_for(connection).sessions.expect(set_variables(text))
    with contextlib.suppress(duckdb.TransactionException):  # until ROLLBACK nothing runs, and then this is tried again
        importlib.import_module("grouplearn.udfs.predict").define(connection)


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Let go of everything held for ``connection``; call it before the connection is closed."""
    asking.release(connection)
