"""The statements that train a model further, or are about runs: RESUME, RETRY FAILED and REFRESH MODEL, DROP RUN."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.scan import fragment
from grouplearn.parser.lexer.tokens import Kind
from grouplearn.parser.statements import DropRun, Option, QualifiedName, RefreshModel, ResumeModel, RetryFailed
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


_REFRESH = frozenset({"FROM", "WHERE", "SINCE", "WITH", "ON WORSE"})


def parse_refresh(cursor: Cursor) -> RefreshModel:
    """``REFRESH MODEL name [FROM source] [WHERE predicate] [SINCE time] [ON WORSE KEEP] [WITH (...)]``, clauses in any order."""
    cursor.expect("REFRESH", "MODEL")
    name = cursor.model_name()
    found: dict[str, Any] = {}
    while cursor.peek().kind is not Kind.END:
        token = cursor.peek()
        field, parse = _clause_of_refresh(cursor)
        if field in found:
            cursor.fail(f"the clause {token.word} is given twice", token, f"Keep one {token.word}.")
        found[field] = parse(cursor)
    if "where" in found and "source" not in found:
        hint = "REFRESH MODEL m FROM t WHERE ... gives new rows; without FROM all rows of the model's own FROM are compared."
        cursor.fail("WHERE stands after FROM", found["where"].span, hint)
    return RefreshModel(name, **found)


def _clause_of_refresh(cursor: Cursor) -> tuple[str, Callable[[Cursor], Any]]:
    """Read the words that begin a clause, and return its field and what reads the rest."""
    for word, field in (("FROM", "source"), ("WHERE", "where"), ("SINCE", "since")):
        if cursor.accept(word):
            return field, partial(fragment, clause=word, stops=_REFRESH)
    if cursor.accept("WITH"):
        return "options", lambda own: parse_options(own, "WITH", "For example WITH (epochs = 1).")
    if cursor.accept("ON"):
        cursor.expect("WORSE", "KEEP", hint="ON WORSE KEEP keeps the model of a group that a refresh would make worse.")
        return "keeps_better", lambda _: True
    return cursor.unexpected("FROM, WHERE, SINCE, ON WORSE KEEP or WITH", cursor.suggest(cursor.peek(), _FIRST_WORDS))


_FIRST_WORDS = ("FROM", "WHERE", "SINCE", "WITH")


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
