"""Splits a text into our statements and DuckDB's, and judges by its words what it may do."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from grouplearn.errors import NotSupportedError, ParseError
from grouplearn.messages import Span
from grouplearn.sqltext import plain

if TYPE_CHECKING:
    from grouplearn.parser.statements import OurStatement

    Piece = str | OurStatement

# Every statement of ours has one of these words; a text without them goes to DuckDB unread.
_MAY_BE_OURS = re.compile(
    r"\b(?:train|models?|learners?|evaluate|calibrat(?:e|ion)|runs?|functions|grouplearn_\w*)\b", re.IGNORECASE
)

_SURROGATE = re.compile("[\ud800-\udfff]")

MAY_COMMIT = re.compile(r"\b(?:commit|end)\b", re.IGNORECASE)
# After this word predict() must know the names of variables before they are set, as the text may go on with it; ROLLBACK
# may undo them.
MAY_SET_VARIABLE = re.compile(r"\bvariable\b", re.IGNORECASE)
MAY_ROLL_BACK = re.compile(r"\b(?:rollback|abort)\b", re.IGNORECASE)

# Fetching one row of such a text may take long.
MAY_PREDICT = re.compile(r"predict|grouplearn", re.IGNORECASE)


def sendable(query: Any) -> Any:
    """Return a text as a plain str: subclasses may behave differently when cut and joined.

    Raises ParseError for half of a surrogate pair, for which DuckDB says only ``std::bad_cast``.
    """
    if not isinstance(query, str):
        return query
    text = plain(query)
    wrong = None if text.isascii() else _SURROGATE.search(text)
    if wrong is not None:
        message = f'"{wrong[0]}" is half of a surrogate pair, and no character'
        raise ParseError(message, text=text, span=Span(*wrong.span()))
    return text


def pieces_of(query: Any) -> list[Piece]:
    """Split a text into our statements and, between them, DuckDB's SQL exactly as written.

    The list is empty if nothing in it is ours: then the query goes to DuckDB unchanged.
    """
    if not isinstance(query, str) or _MAY_BE_OURS.search(query) is None:
        return []
    from grouplearn.parser.parse import parse
    from grouplearn.parser.statements import Passthrough

    pieces: list[Piece] = []
    for theirs, group in itertools.groupby(parse(query), lambda statement: isinstance(statement, Passthrough)):
        statements: list[Any] = list(group)
        if theirs:
            pieces.append(query[statements[0].span.start : statements[-1].span.end])
        else:
            pieces.extend(statements)
    return [] if all(isinstance(piece, str) for piece in pieces) else pieces


def ends_in_answer(pieces: list[Piece]) -> bool:
    """Whether the last statement is ours; a query that contains one is the user's."""
    from grouplearn.parser.statements import Nested

    return bool(pieces) and not isinstance(pieces[-1], str | Nested)


def refuse_parameters(statement: OurStatement) -> None:
    """Raise NotSupportedError for a statement that has parameters."""
    from grouplearn.parser.clauses.parameter_values import parameter_names

    if parameter_names(statement):
        raise NotSupportedError(
            "Parameters are only supported in the last statement of a text; split it into separate execute() calls"
        )
