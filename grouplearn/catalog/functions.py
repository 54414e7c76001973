"""Registers what the package ``grouplearn.udfs`` holds on a connection: every module's ``register``, every SQL file."""

from __future__ import annotations

import importlib
from importlib import resources

import duckdb

from grouplearn.catalog import prediction


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


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Let go of everything held for ``connection``; call it before the connection is closed."""
    prediction.release(connection)
