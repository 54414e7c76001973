"""PEP 249 exceptions: DuckDB's own tree, plus ours, each able to point at a position in the statement."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
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

from grouplearn import failures
from grouplearn.messages import Span, render
from grouplearn.visible import visible_lines

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
    "TrainingError",
    "Warning",
    "data_error",
]


def data_error(message: str) -> DataError:
    """Return DuckDB's DataError with hidden characters in its names and values made visible, as in the errors below."""
    return DataError(visible_lines(message))


class InterfaceError(Error):
    """The interface was misused, such as by a closed connection or cursor."""


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
    """The database has something in place of our tables, or an expression of a model does something that needs trust."""


class MissingDependency(_Located, NotSupportedError):
    """An optional package is not installed; the hint holds the exact install command."""


def not_installed(what: str, packages: str, extra: str) -> Error:
    """Return the error that ``what`` needs packages that are not installed, with our extra that installs them."""
    return of(failures.not_installed(what, packages, extra))


class TrainingError(_Located, OperationalError):
    """The run as a whole failed; a failing group alone never raises."""


class OutOfMemory(_Located, OutOfMemoryException):
    """The process has no memory left; the database is unchanged."""


class Cancelled(_Located, OperationalError):
    """The user interrupted the statement; the database is unchanged."""


#: Failures of layers that know no database, and the errors above as which users see them.
_KINDS: Mapping[type[failures.Failure], type[Error]] = MappingProxyType(
    {
        failures.TrainingFailed: TrainingError,
        failures.StatementInterrupted: Cancelled,
        failures.NotInstalled: MissingDependency,
        failures.WrongData: DataError,
        failures.Failure: OperationalError,
    }
)


def of(failure: failures.Failure) -> Error:
    """Return such a failure as the error that DB-API users expect."""
    kind = next(_KINDS[each] for each in type(failure).__mro__ if each in _KINDS)
    return kind(failure.message, hint=failure.hint) if issubclass(kind, _Located) else kind(str(failure))


@contextmanager
def as_database_errors() -> Iterator[None]:
    """Raise failures in the body as DB-API errors."""
    try:
        yield
    except failures.Failure as failure:
        raise of(failure).with_traceback(failure.__traceback__) from failure.__cause__
