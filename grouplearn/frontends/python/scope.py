"""The caller's Python variables, so that ``FROM df`` finds a data frame through our wrapper as through DuckDB.

DuckDB looks for variables in the calling frame, which would be ours: ``Scope.call`` evaluates the call in a frame of the user's
variables. ``register`` is no substitute: a relation (``con.sql("FROM df")``) reads its frame later, when the name would be gone
again; a name that stays registered hides what the variable is next; and each query of DuckDB's would be searched for names first.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import duckdb

from grouplearn.bind.sql.external_access import ExternalAccess, setting
from grouplearn.errors import Error
from grouplearn.frontends.python import frame_errors
from grouplearn.sqltext import folded

if TYPE_CHECKING:
    from grouplearn.extract.streams.stream import Stream

_CALL = compile("__grouplearn_call__(*__grouplearn_args__, **__grouplearn_options__)", "<grouplearn>", "eval")
#: Modules that run a notebook's SQL cells, whose data frames are the cell's variables.
_SQL_CELLS = "marimo._sql."
_WORD = re.compile(r'"((?:[^"]|"")+)"|(\w+)')
#: A table after FROM, JOIN or ON.
_READ = re.compile(rf"\b(?:from|join|on)\b(?=[\s(]*(?:{_WORD.pattern}))", re.IGNORECASE)


class Variables(Mapping[str, Any]):
    """The local variables of a frame, read only when one of them is asked for.

    Until Python 3.13 a function that has once been read keeps what it then held, whatever it deletes, to its end.
    """

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> Any:
        code = self._frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if is_function and name not in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
            raise KeyError(name)
        return self._frame.f_locals[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame.f_locals)

    def __len__(self) -> int:
        return len(self._frame.f_locals)


@dataclass(frozen=True, slots=True)
class Scope:
    """Variables in scope at one place in the user's program."""

    globals: dict[str, Any]
    locals: Mapping[str, Any]
    frame: FrameType | None = None

    @classmethod
    def of_caller(cls) -> Scope:
        """Return the scope from which the calling function was called, skipping marimo's own frames."""
        frame: FrameType = sys._getframe(2)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_SQL_CELLS):
            frame = frame.f_back
        return cls(frame.f_globals, Variables(frame), frame)

    def with_outer_frames(self) -> Scope:
        """Return a scope that also has the variables of all calling functions (``SET python_scan_all_frames``)."""
        layers: list[Any] = [self.locals]
        frame = self.frame
        while frame is not None:
            layers += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
        return Scope(self.globals, ChainMap(*layers), self.frame)

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a DuckDB method so that it sees these variables; they are read only where it looks for a table among them."""
        own = {"__grouplearn_call__": function, "__grouplearn_args__": arguments, "__grouplearn_options__": options}
        layers: list[Any] = [own, self.locals]
        return eval(_CALL, self.globals, ChainMap(*layers))  # noqa: S307, the expression is a constant

    def find(self, name: str) -> Any:
        """Return the variable, or None."""
        return self.locals.get(name, self.globals.get(name))


@contextlib.contextmanager
def frames_registered(
    connection: duckdb.DuckDBPyConnection, text: str, scope: Scope, also: str = ""
) -> Iterator[tuple[Stream, ...]]:
    """Make the data frames named in ``text`` readable by any statement on the connection while the block runs.

    A table or view of the same name takes precedence; as in DuckDB, settings may forbid external data. Variables that can be
    read once are given to the block instead. ``also`` is further SQL that is read: the statement of a stored model.
    """
    frames = _frames(connection, f"{text}\n{also}", scope)
    streams = tuple(
        _stream_of(name, value, text, connection) for name, value in frames.items() if frame_errors.is_one_time(value)
    )
    registered: dict[str, Any] = {}
    sample = 0
    try:
        for name, value in frames.items():
            # Objects that cannot be read may have the name of a column, such as a closed connection's relation.
            with contextlib.suppress(Exception):
                if not frame_errors.is_one_time(value):
                    connection.register(name, value)
                    registered[name] = value
        sample = setting(connection, "pandas_analyze_sample") if registered else 0
        yield streams
    except Error as error:
        better = frame_errors.explained(error, text, registered, scope.find, sample)
        if better is None:
            raise
        raise better from None
    finally:
        for name in registered:
            # After a failed statement in a transaction the view is already gone, or will be after the ROLLBACK.
            with contextlib.suppress(duckdb.Error):
                connection.unregister(name)


def _frames(connection: duckdb.DuckDBPyConnection, text: str, scope: Scope) -> dict[str, Any]:
    """Return the variables that ``text`` may name as tables."""
    read = {quoted.replace('""', '"') or word for quoted, word in _READ.findall(text)}
    frames = {name: value for name in _words(text) if _is_read(value := scope.find(name), name in read)}
    if not frames or not _replaced(connection):
        return {}
    tables = _tables(connection)
    return {name: value for name, value in frames.items() if folded(name) not in tables}


def _words(text: str) -> set[str]:
    return {quoted.replace('""', '"') or word for quoted, word in _WORD.findall(text)}


def _stream_of(name: str, value: object, text: str, connection: duckdb.DuckDBPyConnection) -> Stream:
    from grouplearn.frontends.python.streams import stream_of  # which imports pyarrow

    return stream_of(name, value, text, connection)


def _is_read(value: object, is_table: bool) -> bool:
    """Whether a statement may read the rows of a value; ``is_table`` if its name stands where tables do."""
    return _is_frame(value, is_table) or frame_errors.is_one_time(value)


def _is_frame(value: object, is_read: bool) -> bool:
    """Whether DuckDB can scan it: data frames, Arrow tables and streams, relations, NumPy arrays.

    A column of a frame, which often has its name, and of which DuckDB makes a copy, only where the statement reads it as a table.
    """
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package in ("pandas", "polars", "pyarrow", "duckdb"):
        # Ask the class: reading a lazy frame's columns would plan its query.
        is_table = any(hasattr(kind, each) for each in ("columns", "schema", "projected_schema"))
        return is_table or (
            is_read and any(hasattr(kind, each) for each in ("__arrow_c_stream__", "__arrow_c_array__", "to_frame"))
        )  # a Series of pandas 2 has only the last
    if isinstance(value, dict | list | tuple):  # of columns
        columns = value.values() if isinstance(value, dict) else value
        return bool(value) and all(_is_array(column) for column in columns)
    return _is_array(value) or (not isinstance(value, type) and hasattr(value, "__arrow_c_stream__"))


def _is_array(value: object) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _replaced(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether DuckDB resolves table names to Python variables."""
    return ExternalAccess(connection).closed is None and bool(setting(connection, "python_enable_replacements"))


def _tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the folded names of tables and views that DuckDB finds unqualified."""
    from grouplearn.catalog.lookup import search_path
    from grouplearn.catalog.lookup.attached import attachments_of

    places = {*search_path.here(attachments_of(connection))}
    shown = connection.execute("SELECT database, schema, name FROM (SHOW ALL TABLES)").fetchall()
    return {folded(name) for database, schema, name in shown if (folded(database), folded(schema)) in places}
