"""TRAIN of rows that can be read once: what can be checked is checked before they are read, and then they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.extract.database_memory import database_within
from grouplearn.extract.streams.keeping import OneTimeSources, Readable, Reading, kept, stood_in
from grouplearn.parser.statements import RefreshModel, TrainModel
from grouplearn.statements.context import StatementContext

#: Values of whole numbers that stand for those of a stream: none, and those of two classes.
_STAND_INS = ("range(0)", "range(2)")


@contextmanager
def readable(
    statement: Reading,
    checker: SqlChecker,
    at: StatementContext,
    bound_by: Callable[[Reading], object],
    limit: Callable[[], int | None],
    why: str | None = None,
) -> Iterator[Readable[Reading]]:
    """Give a statement that reads its sources as often as it needs in the block; ``bound_by`` binds it.

    Sources that can be read once are read into temporary tables within ``limit`` bytes of memory, streams after the
    statement was bound without their rows. ``why`` is the reason for a note, where it needs one.
    """
    sources = OneTimeSources.of(statement, checker, at.streams)
    if not sources:
        yield Readable(statement, statement)
        return
    if not sources.files:
        _check(statement, checker, sources, bound_by)
    with database_within(at.connection, limit(), at.settings), kept(statement, checker, sources, why) as found:
        yield found


def refuse(statement: TrainModel | RefreshModel, checker: SqlChecker, at: StatementContext) -> None:
    """Raise BindError for a statement that would read a source that can be read once, and not train."""
    verb = "TRAIN" if isinstance(statement, TrainModel) else "REFRESH"
    sources = OneTimeSources.of(statement, checker, at.streams)
    if sources:
        message = f"{sources.shown} can be read once, and after EXPLAIN {verb} there would be nothing left to train on"
        hint = f"{verb} reads it once and keeps its rows meanwhile. To see the plan first, keep them in a table."
        raise checker.error(message, sources.span(statement), hint)


def _check(
    statement: Reading, checker: SqlChecker, sources: OneTimeSources, bound_by: Callable[[Reading], object]
) -> None:
    """Raise the error of a statement that cannot be bound whatever rows its streams have."""
    found: duckdb.Error | None = None
    for numbers in _STAND_INS:
        try:
            with stood_in(checker, sources.streams, numbers):
                bound_by(statement)
        except duckdb.Error as error:  # the second may be that the first has aborted the transaction
            found = found or error
        else:
            return
    assert found is not None  # noqa: S101  (each has failed)
    raise found
