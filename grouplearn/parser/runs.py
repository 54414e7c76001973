"""The statements about unfinished or incomplete runs: RESUME MODEL, RETRY FAILED MODEL, DROP RUN."""

from __future__ import annotations

from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.statements import DropRun, Option, QualifiedName, ResumeModel, RetryFailed
from grouplearn.parser.train import parse_options


def parse_resume(cursor: Cursor) -> ResumeModel:
    """``RESUME [OR REPLACE] MODEL name [WITH (workers = n, executor = '...')]``."""
    cursor.expect("RESUME")
    replace = cursor.accept("OR", "REPLACE")
    cursor.expect("MODEL")
    return ResumeModel(*_parse_model_with(cursor, "For example WITH (workers = 2)."), replace)


def parse_retry(cursor: Cursor) -> RetryFailed:
    """``RETRY FAILED MODEL name [WITH (min_rows = n, ...)]``."""
    cursor.expect("RETRY", "FAILED", "MODEL")
    return RetryFailed(*_parse_model_with(cursor, "For example WITH (min_rows = 1)."))


def _parse_model_with(cursor: Cursor, example: str) -> tuple[QualifiedName, tuple[Option, ...]]:
    """Read ``name [WITH (option = value, ...)]`` to the end of the statement."""
    name = cursor.model_name()
    options = parse_options(cursor, "WITH", example) if cursor.accept("WITH") else ()
    cursor.expect_end("WITH or the end of the statement" if not options else "the end of the statement")
    return name, options


def parse_drop_run(cursor: Cursor) -> DropRun:
    """``DROP RUN [IF EXISTS] 'id'``."""
    cursor.expect("DROP", "RUN")
    if_exists = cursor.accept("IF", "EXISTS")
    low, high = cursor.index, len(cursor.tokens) - 1
    if low == high:
        cursor.unexpected("the id of a run in quotes", "SHOW RUNS lists them.")
    return DropRun(cursor.sql(low, high), if_exists)
