"""The statements about durable runs: RESUME MODEL, DROP RUN."""

from __future__ import annotations

from grouplearn.parser.cursor import Cursor
from grouplearn.parser.statements import DropRun, ResumeModel
from grouplearn.parser.train import parse_options


def parse_resume(cursor: Cursor) -> ResumeModel:
    """``RESUME MODEL name [WITH (workers = n, executor = '...')]``."""
    cursor.expect("RESUME", "MODEL")
    name = cursor.qualified_name("a model name")
    options = parse_options(cursor, "WITH", "For example WITH (workers = 2).") if cursor.accept("WITH") else ()
    cursor.expect_end("WITH or the end of the statement" if not options else "the end of the statement")
    return ResumeModel(name, options)


def parse_drop_run(cursor: Cursor) -> DropRun:
    """``DROP RUN [IF EXISTS] 'id'``."""
    cursor.expect("DROP", "RUN")
    if_exists = cursor.accept("IF", "EXISTS")
    low, high = cursor.index, len(cursor.tokens) - 1
    if low == high:
        cursor.unexpected("the id of a run in quotes", "SHOW RUNS lists them.")
    return DropRun(cursor.sql(low, high), if_exists)
