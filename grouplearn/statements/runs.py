"""SHOW RUNS and DROP RUN: the durable runs of a database that are not finished."""

from __future__ import annotations

import datetime
from typing import Any

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.files.own_files import NotOwn
from grouplearn.data.files.run_directory import durable_runs, remove_run, runs_of
from grouplearn.errors import TrainingError
from grouplearn.messages import Span, did_you_mean
from grouplearn.parser.statements import DropRun
from grouplearn.statements import result_sql
from grouplearn.statements.context import StatementContext
from grouplearn.statements.workflow import durable
from grouplearn.statements.workflow.durable import UnfinishedRun, UnreadableRun
from grouplearn.statements.workflow.finishing import is_stored
from grouplearn.train.results import ledger

_RUN_COLUMNS = {
    "run": "VARCHAR",
    "model": "VARCHAR",
    "status": "VARCHAR",
    "units_done": "BIGINT",
    "units": "BIGINT",
    "trained_seconds": "DOUBLE",
    "began": "TIMESTAMP",
    "bytes": "BIGINT",
}


def looked_in(database: str | None, checker: SqlChecker, span: Span | None) -> str | None:
    """Return the path of a database's file, if it has one; raise if its runs may not be read, or others may change them."""
    if database is None:
        return None
    place = runs_of(database)
    checker.outside.refuse(place, checker.text, span)
    try:
        durable_runs(place)
    except NotOwn as error:
        message = f"the runs of this database are not looked for: {error.strerror}\nDirectory: {place}"
        hint = "Runs are in a directory that is yours, and that only you may write to (chmod 700)."
        raise TrainingError(message, text=checker.text, span=span, hint=hint) from None
    return database


def show(at: StatementContext, checker: SqlChecker) -> str:
    """Return a SELECT of the durable runs of a database whose models are not committed."""
    ((catalog,),) = at.databases.rows("SELECT system.main.current_database()")
    database = looked_in(at.databases.file(catalog), checker, None)
    if database is None:
        return result_sql.typed(_RUN_COLUMNS, [])
    rows = [_row(run, is_stored(at.connection, catalog, run.path)) for run in durable.runs(database)]
    return result_sql.typed(_RUN_COLUMNS, [*map(_unreadable_row, durable.unreadable(database)), *rows])


def _unreadable_row(run: UnreadableRun) -> tuple[Any, ...]:
    return (run.id, None, run.reason, None, None, None, _utc(run.began), run.n_bytes)


def _row(run: UnfinishedRun, stored: bool) -> tuple[Any, ...]:
    found, definition = ledger.read(run.path), run.manifest.definition
    return (
        run.id,
        definition.name,
        "running" if run.alive else "uncommitted" if stored else "unfinished",
        sum(len(segment.results) for segment in found),
        None if run.manifest.search else len(run.manifest.units),
        max((segment.seconds for segment in found), default=0.0),
        _utc(run.manifest.began),
        run.n_bytes,
    )


def drop(statement: DropRun, database: str | None, checker: SqlChecker) -> str:
    """Remove an unfinished run; raise if there is none with that id, or a process is working on it."""
    wanted = checker.constant(statement.run)
    if wanted is None:
        raise checker.error("the id of a run is NULL", statement.run.span, "SHOW RUNS lists them.")
    database = looked_in(database, checker, statement.run.span)
    found: list[UnfinishedRun | UnreadableRun] = (
        [*durable.unreadable(database), *durable.runs(database)] if database else []
    )
    known = {run.id: run for run in found}
    run = known.get(str(wanted))
    if run is None:
        if statement.if_exists:
            return result_sql.notice(f"there is no run {wanted}; nothing was dropped")
        listed = f"\nRuns: {', '.join(known)}" if known else "\nThere is no unfinished run."
        raise checker.error(
            f"unknown run '{wanted}'{listed}", statement.run.span, did_you_mean(str(wanted), list(known))
        )
    if run.alive:
        raise checker.error(f"a process works on run '{run.id}'", statement.run.span, "Stop it first.")
    remove_run(run.path)
    what = f" of model {run.manifest.definition.name}" if isinstance(run, UnfinishedRun) else ""
    return result_sql.notice(f"run {run.id}{what} is dropped")


def _utc(began: float) -> str:
    return datetime.datetime.fromtimestamp(began, datetime.UTC).replace(tzinfo=None).isoformat(" ", "seconds")
