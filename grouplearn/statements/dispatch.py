"""Carries out a statement: binds its parameters, checks it, and calls its handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.memory import ran_out, rare_collections
from grouplearn.errors import OutOfMemory, as_database_errors
from grouplearn.interrupting import cancellable
from grouplearn.parser.clauses.parameter_values import Parameters, bind_parameters
from grouplearn.parser.statements import Nested, OurStatement, SetOption, Sql
from grouplearn.prediction import functions
from grouplearn.prediction.prediction import predictor_for
from grouplearn.statements.context import StatementContext
from grouplearn.statements.handlers import HANDLERS
from grouplearn.statements.workflow.finishing import tidy

#: First words of DuckDB's statements that return rows, and of those that may change something: these are explained, not
#: run, to find out what is wrong with them.
_QUERIES = ("FROM", "SELECT")
_CHANGES = ("WITH", "CREATE", "INSERT", "COPY", "UPDATE", "DELETE", "MERGE")


def carry_out(statement: OurStatement, text: str, parameters: Parameters, at: StatementContext) -> Sequence[str | Sql]:
    """Return the pieces of a query whose rows are the result of ``statement``, parsed from ``text``."""
    try:
        with as_database_errors(), cancellable(at.cancelled), rare_collections(), at.databases.statement():
            if not isinstance(statement, SetOption):
                guard = predictor_for(at.connection).guard
                guard.refuse_hidden(at.connection, at.databases.attachments())
            tidy(at.connection, at.databases.attachments)
            if "getvariable" in text.casefold():
                functions.expect_variables(at.connection, "")
            bound, checker = bind_parameters(statement, parameters, text), SqlChecker(at.connection, text)
            own = bound if isinstance(bound, Nested) else None
            pieces = [_answer(bound, checker, at)] if own is None else _pieces(own, checker, at)
            if at.cancelled():  # DuckDB notices no interrupt between two queries
                raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
            return pieces
    except (MemoryError, RuntimeError, OSError) as error:
        if not ran_out(error):
            raise
        hint = "SET threads and SET memory_limit leave more to others than DuckDB."
        raise OutOfMemory("the process ran out of memory; nothing was stored", hint=hint) from None


def _answer(statement: Any, checker: SqlChecker, at: StatementContext) -> str:
    if isinstance(statement, Nested):
        return joined(_pieces(statement, checker, at))
    return HANDLERS[type(statement)](statement, checker, at)


def _pieces(statement: Nested, checker: SqlChecker, at: StatementContext) -> list[str | Sql]:
    """Return the statement with queries in place of ours; DuckDB's errors point to the user's text."""
    pieces = [part if isinstance(part, Sql) else f"{_answer(part, checker, at)}\n" for part in statement.parts]
    begun = joined(pieces).lstrip("( \n").upper()
    if begun.startswith(_QUERIES):
        checker.describe(*pieces)
    elif begun.startswith(_CHANGES):
        checker.rows("EXPLAIN", *pieces)
    return pieces


def joined(pieces: Sequence[str | Sql]) -> str:
    """Return the pieces as one string."""
    return "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
