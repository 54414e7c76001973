"""REFRESH MODEL: trains the groups of a stored model further, with new rows or where their rows have changed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from grouplearn.bind.bind import options_of
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.run.options import bind_refresh_options
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import models
from grouplearn.catalog.records import StoredModel
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.extract.database_memory import database_within
from grouplearn.learners import registry
from grouplearn.learners.contract.refreshing import source_of
from grouplearn.parser.statements import RefreshModel
from grouplearn.prediction import prediction
from grouplearn.statements import resume
from grouplearn.statements.again.next_version import store_next_version
from grouplearn.statements.again.refreshed import answer
from grouplearn.statements.again.rows import RowsToRefresh
from grouplearn.statements.again.stored import StoredStatement
from grouplearn.statements.context import StatementContext
from grouplearn.statements.resume import RunStart
from grouplearn.statements.workflow import planning, refitting, training
from grouplearn.statements.workflow.finishing import finish
from grouplearn.statements.workflow.scheduled import RunControls
from grouplearn.statements.workflow.streams import readable
from grouplearn.store import refreshing
from grouplearn.store import retrying as kept
from grouplearn.store.refreshing import Refreshed


def refresh(statement: RefreshModel, checker: SqlChecker, at: StatementContext) -> str:
    """Train a model further and return a SELECT of what became of its groups."""
    began, shown = time.time(), at.databases.in_transaction()
    with at.databases.transaction(storing=True):
        rows = rows_to_refresh(statement, checker, at)
    model, location = rows.model, rows.model.location
    with RunDirectory.beside(at.databases.file(location.catalog), checker.outside.refusal) as directory:
        with at.databases.transaction(), _readable(rows, checker, at) as rows:
            judge, bound = rows.bound()
            limit = bound.options.placement.memory_limit
            with database_within(at.connection, limit, at.settings):
                planned = rows.planned(judge, bound)
                physical = planned.physical
                if planned.numbers:
                    file = at.databases.file(location.catalog)
                    directory.durable = resume.is_durable(physical, file, checker, directory.closed)
                    job, run = rows.read(planned, directory, 0 if directory.durable else limit)
        if not planned.numbers:
            return _untrained(rows, planned.left)
        choice = planning.choose(physical, at.cancelled)
        settled = planning.settled(physical, choice)
        beginning = RunStart(began, model.id, at.cancelled)
        ledger = resume.kept(settled, choice, job, model.definition, beginning, directory, run)
        with resume.resumable(model.definition, ledger):
            refit = refitting.without_holdout(job) if physical.bound.refit else None
            work = training.begun(settled, choice, job, at.cancelled, began, refit)
            outcome = training.run(work, RunControls(at.progress, at.cancelled, ledger=ledger))

        def store_it() -> StoredModel:
            if models.load_by_id(at.connection, location.catalog, model.id) is None:
                message = f'model "{location.name}" was trained anew or dropped meanwhile, so nothing was stored'
                raise rows.stored.refusal(message, "REFRESH MODEL once more.")
            stored = store_next_version(at.connection, model, run, job, outcome, directory.identity)
            if shown:
                prediction.remember_stored(at.connection, stored)
            return stored

        stored = at.databases.write(location.catalog, store_it, statement.name.span, checker)
        finish(directory, at.databases)
        if directory.durable:
            at.leaves()
    return answer(stored, trained=True)


def _untrained(rows: RowsToRefresh, left: Sequence[Refreshed]) -> str:
    """Return a SELECT of groups none of which was trained."""
    at, model = rows.at, rows.model

    def store_it() -> None:
        refreshing.write_refreshed(at.connection, model, left)

    if left:
        at.databases.write(model.location.catalog, store_it, rows.stored.span, rows.stored.checker)
    return answer(model, trained=bool(left))


@contextmanager
def _readable(rows: RowsToRefresh, checker: SqlChecker, at: StatementContext) -> Iterator[RowsToRefresh]:
    """Give rows that can be read many times in the block: those of sources that can be read once are kept meanwhile."""

    def bound_by(statement: RefreshModel) -> BoundTrain:
        return replace(rows, statement=statement).bound()[1]

    def limit() -> int | None:
        own = options_of(checker, rows.stored.parsed(), at.settings).placement.memory_limit
        return rows.given.get("memory_limit") or own

    with readable(rows.statement, checker, at, bound_by, limit) as source:
        yield replace(rows, statement=source.statement)


def rows_to_refresh(statement: RefreshModel, checker: SqlChecker, at: StatementContext) -> RowsToRefresh:
    """Return the rows that a REFRESH reads; raise if the model cannot be refreshed by them. The caller holds a transaction."""
    stored = StoredStatement.to_change(statement.name, checker, at)
    model = stored.model
    learner = registry.way(model.definition.learner, model.definition.configs)
    given = bind_refresh_options(checker, learner, statement.options)
    record, groups = kept.record(at.connection, model), refreshing.known_groups(at.connection, model)
    rows = RowsToRefresh(statement, given, stored, record, groups, source_of(learner), stored.watermark())
    rows.refuse_unable()
    return rows
