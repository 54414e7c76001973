"""Removes the directory of a durable run: after its model is committed, not when it is stored.

A TRAIN inside the user's transaction may be rolled back, and then only the directory remains.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import duckdb

from grouplearn.bind.sql.external_access import ExternalAccess
from grouplearn.catalog.lookup.attached import Attachments
from grouplearn.catalog.schema import has_schema, table
from grouplearn.data.files.own_files import NotOwn
from grouplearn.data.files.run_directory import MANIFEST, RunDirectory, durable_runs, identity_of, runs_of
from grouplearn.errors import Error
from grouplearn.statements.databases import Databases


def finish(directory: RunDirectory, databases: Databases) -> None:
    """Remove the directory of a run whose model is stored, unless a user's transaction must commit it first."""
    if not (directory.durable and databases.in_transaction()):
        directory.remove()


def tidy(connection: duckdb.DuckDBPyConnection, attachments: Callable[[], Attachments]) -> None:
    """Remove the directories of runs whose models are committed in an attached database."""
    outside = ExternalAccess(connection)
    with suppress(duckdb.Error):  # an aborted transaction cannot be queried
        for each in attachments().attached:
            if each.path is None or each.read_only:
                continue
            runs = _finished(runs_of(each.path))
            if runs and outside.refusal(runs_of(each.path)) is None:
                _tidy(connection, each.name, runs)


def _finished(parent: Path) -> list[Path]:
    """Return the runs in ``parent`` that have begun to train; none if it is not a directory of this user alone."""
    with suppress(NotOwn):
        return [path for path in durable_runs(parent) if (path / MANIFEST).exists()]
    return []


def _tidy(connection: duckdb.DuckDBPyConnection, catalog: str, runs: list[Path]) -> None:
    with connection.cursor() as other:  # sees only what is committed
        committed = [path for path in runs if is_stored(other, catalog, path)]
    for path in committed:
        with suppress(OSError):  # another process is removing it, too
            RunDirectory.reopened(path).remove()


def is_stored(connection: duckdb.DuckDBPyConnection, catalog: str, run: Path) -> bool:
    """Return whether the connection sees the model of the run in directory ``run``."""
    with suppress(Error):
        if has_schema(connection, catalog):
            names = ("models", "past_models")  # it may be replaced already
            every = " UNION ALL ".join(f"SELECT model FROM {table(catalog, name)}" for name in names)
            query = f"SELECT 1 FROM ({every}) WHERE model = $1::UUID"
            return bool(connection.execute(query, [identity_of(run)]).fetchall())
    return False
