"""Turns one of our statements into a plain SELECT whose rows are its result.

Handlers are imported with the first statement: opening a connection must take at most a fifth of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import duckdb

from grouplearn.catalog.predicting_connections import Settings, entry_of, look_again, may_change_names
from grouplearn.errors import Error
from grouplearn.prediction import functions

if TYPE_CHECKING:
    from grouplearn.extract.streams.stream import Stream
    from grouplearn.parser.clauses.parameter_values import Parameters
    from grouplearn.parser.statements import Nested, OurStatement, PlanFormat, Sql
    from grouplearn.statements.databases import Databases
    from grouplearn.train.job import Progress


class Session:
    """Our statements on one DuckDB connection: what they share, and how each is interrupted; ``dispatch`` runs them.

    The database is touched only by SQL on that connection, so temporary tables, uncommitted rows, transactions and the
    search path are the user's own.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        progress: Progress | None = None,
        settings: Settings | None = None,
        interrupted: threading.Event | None = None,
    ) -> None:
        self._connection = connection
        self._progress = progress
        #: Shared by the cursors of one connection: some clients open a cursor per statement.
        self._settings = Settings() if settings is None else settings
        self._cancelled = interrupted or threading.Event()
        #: The default format of EXPLAIN TRAIN.
        self.plan_format: PlanFormat = "text"
        #: Variables of the user's program that the next statement may read, once.
        self.streams: Sequence[Stream] = ()
        #: Whether answers go to a terminal as they are.
        self.for_people = False
        functions.register_all(connection)
        entry_of(connection).settings = self._settings
        #: Whether a statement is being carried out, by any thread.
        self.is_busy = False
        #: Whether a durable run may have kept its directory until a user's transaction is committed.
        self.leaves_run = False
        self._databases: Databases | None = None

    def _opened(self) -> Databases:
        """Return the databases, found with the first statement.

        Not a cached property: Python 3.11 gives those a lock, and a fork during the imports here would leave it locked.
        """
        from grouplearn.prediction.prediction import predictor_for
        from grouplearn.statements.databases import Databases

        if self._databases is None:
            self._databases = Databases(self._connection, predictor_for(self._connection).guard)
        return self._databases

    def answer(self, statement: OurStatement, text: str, parameters: Parameters = None) -> str:
        """Carry out ``statement`` (parsed from ``text``) and return a SELECT whose rows are its result.

        A DuckDB statement that contains ours is returned with queries in their places.
        """
        from grouplearn.statements.dispatch import joined

        return joined(self._carried_out(statement, text, parameters))

    def answers(self, statement: Nested, text: str, parameters: Parameters = None) -> list[str]:
        """Return the result of ``answer``, followed by the queries in the places of our statements."""
        from grouplearn.statements.dispatch import joined

        pieces = self._carried_out(statement, text, parameters)
        return [joined(pieces), *(piece for piece in pieces if isinstance(piece, str))]

    def read_again(self, statement: OurStatement, text: str) -> str:
        """Return the TRAIN of the model whose FROM a REFRESH or RETRY, parsed from ``text``, reads again; no text for others."""
        from grouplearn.parser.statements import ExplainRefresh, RefreshModel, RetryFailed

        again = statement.refresh if isinstance(statement, ExplainRefresh) else statement
        if not isinstance(again, RefreshModel | RetryFailed) or (isinstance(again, RefreshModel) and again.source):
            return ""
        from grouplearn.bind.sql.checker import SqlChecker

        try:
            return self._opened().model(again.name, SqlChecker(self._connection, text)).definition.statement
        except duckdb.InterruptException:
            raise
        except Error:  # of the name, as the statement will say
            return ""

    def _carried_out(self, statement: OurStatement, text: str, parameters: Parameters) -> Sequence[str | Sql]:
        before, self.is_busy = self.is_busy, True  # before the imports, which may take seconds
        try:
            from grouplearn.statements.context import StatementContext
            from grouplearn.statements.dispatch import carry_out

            at = StatementContext(
                connection=self._connection,
                databases=self._opened(),
                settings=self._settings,
                progress=self._progress,
                cancelled=self._cancelled.is_set,
                plan_format=self.plan_format,
                leaves=self._leave_run,
                for_people=self.for_people,
                streams=self.streams,
            )
            return carry_out(statement, text, parameters, at)
        finally:
            self.is_busy = before

    def _leave_run(self) -> None:
        self.leaves_run = True

    def settle(self) -> None:
        """Remove the directories of durable runs whose transactions have been committed since."""
        if self.leaves_run:
            with self._connection.cursor() as other:
                tidy_attached(other)

    def notice(self, text: str) -> None:
        """Note that SQL has run on the connection, which may have changed what names mean."""
        if may_change_names(text):
            functions.notice(self._connection, text)
            look_again(text)

    def expect_variables(self, text: str = "") -> None:
        """Tell ``predict`` the connection's variables, and those that SQL will set."""
        functions.expect_variables(self._connection, text)

    def listen(self) -> None:
        """Begin to accept interrupts: from now on they are for the next statement, even before it begins."""
        self._cancelled.clear()
        if self._databases is not None:
            self._databases.has_stored = False

    def has_stored(self) -> bool:
        """Return whether the statement's changes are committed, although it may still be interrupted."""
        return self._databases is not None and self._databases.has_stored

    def interrupt(self) -> None:
        """Ask a running TRAIN to stop; it raises Cancelled within 2 s. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Release what the session registered on the connection."""
        with suppress(duckdb.Error):  # the connection may already be closed
            self.settle()
        functions.release(self._connection)


def tidy_attached(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove the directories of durable runs whose models are committed in a database that the connection has attached."""
    from grouplearn.catalog.lookup.attached import attachments_of
    from grouplearn.statements.workflow.finishing import tidy

    tidy(connection, lambda: attachments_of(connection))
