"""PEP 249 exceptions: DuckDB's own tree, plus ours, each able to point at the place in the statement.

A message follows one order: what is wrong, where (``LINE n`` and a caret under the whole token),
what is allowed, a hint.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from duckdb import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InternalError,
    NotSupportedError,
    OperationalError,
    OutOfMemoryException,
    PermissionException,
    ProgrammingError,
    Warning,
)

from grouplearn.visible import visible, visible_lines

__all__ = [
    "AccessRefused",
    "BindError",
    "Cancelled",
    "ConflictError",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "MissingDependency",
    "ModelExists",
    "NotSupportedError",
    "NotSupportedHere",
    "NotTrusted",
    "OperationalError",
    "OutOfMemory",
    "ParseError",
    "ProgrammingError",
    "ReadOnlyError",
    "Span",
    "TrainingError",
    "Warning",
    "WrongValue",
    "data_error",
    "did_you_mean",
    "render",
]


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of character offsets ``[start, end)`` into the text of one statement."""

    start: int
    end: int


def render(message: str, text: str | None, span: Span | None, hint: str | None = None) -> str:
    """Return ``message``, the line of ``text`` that holds ``span`` with carets under the whole token, and the hint.

    A span over several lines is underlined to the end of its first line. Long lines are cut around the token. Characters that
    are hidden, or that a terminal obeys, are made visible: names and values may hold any.
    """
    parts = [visible_lines(message)]
    if text is not None and span is not None:
        parts.append("\n".join(_source_lines(text, span)))
    if hint:
        parts.append(f"Hint: {visible_lines(hint)}")
    return "\n\n".join(parts)


_LINE_WIDTH = 120


def _source_lines(text: str, span: Span) -> tuple[str, str]:
    line_start = text.rfind("\n", 0, span.start) + 1
    line_end = text.find("\n", span.start)
    line_end = len(text) if line_end < 0 else line_end
    number = text.count("\n", 0, span.start) + 1
    line = text[line_start:line_end].removesuffix("\r").replace("\t", " ")
    column = span.start - line_start
    width = max(1, min(span.end, line_end) - span.start)
    if len(line) > _LINE_WIDTH:
        cut = max(0, column - _LINE_WIDTH // 3)
        line = ("..." if cut else "") + line[cut : cut + _LINE_WIDTH]
        column = column - cut + (3 if cut else 0)
        width = max(1, min(width, len(line) - column))
    before, token = f"LINE {number}: {visible(line[:column])}", visible(line[column : column + width])
    after = visible(line[column + width :])
    return before + token + after, " " * sum(map(cells, before)) + "^" * max(1, sum(map(cells, token)))


def cells(character: str) -> int:
    """Return the columns that a character takes in a terminal: wide ones two, combining ones and controls none."""
    if character.isascii():
        return int(character.isprintable())
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def did_you_mean(name: str, allowed: Iterable[str], written: Mapping[str, str] | None = None) -> str | None:
    """Return ``Did you mean "x"?`` for the closest allowed name, as it is ``written``, or None when nothing is close."""
    by_folded = {candidate.casefold(): candidate for candidate in allowed}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    if not close:
        return None
    found = by_folded[close[0]]
    shown = (written or {}).get(found, found)
    return f"Did you mean {shown}?" if '"' in shown else f'Did you mean "{shown}"?'


class WrongValue(ValueError):
    """A value that is not allowed where it stands; the hint names one that it may be meant to be."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def data_error(message: str) -> DataError:
    """Return DuckDB's DataError with what is hidden in its names and values made visible, as in the errors below."""
    return DataError(visible_lines(message))


class InterfaceError(Error):
    """The interface was misused: a closed connection or cursor, say."""


class _Located(Exception):
    """Mixin: an error that knows its message, the statement text, the span in it and a hint."""

    def __init__(
        self, message: str, *, text: str | None = None, span: Span | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.text = text
        self.span = span
        self.hint = hint
        super().__init__(render(message, text, span, hint))

    def located(self, text: str) -> Any:
        """Return the same error, its span read against ``text``."""
        return type(self)(self.message, text=text, span=self.span, hint=self.hint)


class ParseError(_Located, ProgrammingError):
    """The statement is ours but does not follow the grammar."""


class BindError(_Located, ProgrammingError):
    """A name, option, value or column in the statement is unknown or not allowed there."""


class NotSupportedHere(_Located, NotSupportedError):
    """The statement is part of the language, but this version does not implement it."""


class ModelExists(_Located, ProgrammingError):
    """A model (or another object) of that name exists and OR REPLACE was not given."""


class ReadOnlyError(_Located, OperationalError):
    """The database is attached read-only; nothing was trained."""


class AccessRefused(_Located, PermissionException):
    """DuckDB's settings do not let the statement use a directory, a cluster or a data frame: ``enable_external_access``."""


class ConflictError(_Located, OperationalError):
    """Another connection changed the same models at the same time; nothing was stored."""


class OtherVersion(_Located, NotSupportedError):
    """The database has models of another version of grouplearn, whose tables this one does not read."""


class NotTrusted(_Located, ProgrammingError):
    """The database has something in place of what we make, or an expression of a model does what it may not do unasked."""


class MissingDependency(_Located, NotSupportedError):
    """An optional package is not installed; the hint holds the exact install command."""


def not_installed(what: str, packages: str, extra: str) -> MissingDependency:
    """Return the error that ``what`` needs packages which are not installed, with the extra of ours that installs them."""
    return MissingDependency(
        f"{what} needs {packages}, which is not installed", hint=f'pip install "grouplearn[{extra}]"'
    )


class TrainingError(_Located, OperationalError):
    """The run as a whole failed; a failing group alone never raises."""


class OutOfMemory(_Located, OutOfMemoryException):
    """The process has no memory left; the database is unchanged."""


class Cancelled(_Located, OperationalError):
    """The user interrupted the statement; the database is unchanged."""
