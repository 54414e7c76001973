"""The shell without its keyboard: statements on one connection, and their results shown."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb

from grouplearn.errors import Error
from grouplearn.frontends.python.call_errors import shortened_errors
from grouplearn.frontends.python.dbapi import Connection
from grouplearn.frontends.python.interrupts import interruptible
from grouplearn.frontends.python.pieces import ends_in_answer, pieces_of
from grouplearn.frontends.python.scope import Scope
from grouplearn.frontends.shell import output
from grouplearn.visible import visible_lines

_EXPLAIN = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*explain\b", re.IGNORECASE | re.DOTALL)

_LINE = re.compile(r"\n\nLINE (\d+):")

Open = Callable[[str, bool], Connection]


class Failed(Exception):
    """A statement or dot command failed and its message was printed."""


class StatementStopped(Failed):
    """The user stopped a statement."""


class Leave(Exception):  # control flow, like SystemExit
    """``.exit``: the shell ends with ``code``."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Console:
    """One open database and how its results are shown. ``open_database(path, read_only)`` makes connections."""

    open_database: Open
    path: str = ":memory:"
    read_only: bool = False
    layout: output.OutputFormat = field(default_factory=output.OutputFormat)
    timer: bool = False
    echo: bool = False
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = self.open_database(self.path, self.read_only)

    def open(self, path: str) -> None:
        """Open another database and close the current one, which stays if the new one cannot be opened."""
        # A file cannot be opened twice, so the same path is closed first.
        if self.path not in (":memory:", "") and os.path.abspath(path) == os.path.abspath(self.path):
            self.connection.close()
        opened = self.open_database(path, self.read_only)
        self.connection.close()
        self.path, self.connection = path, opened

    def close(self) -> None:
        """Close the database."""
        self.connection.close()

    def run(self, text: str) -> None:
        """Run the statements of a text in order; raise Failed at the first error."""
        with self.reported():
            for statement in statements(text):
                self._run_statement(statement)

    def _run_statement(self, text: str) -> None:
        if self.echo:
            from grouplearn.frontends.shell.colours import coloured

            print(f"{coloured(visible_lines(text))}\n", flush=True)
        began, before = time.perf_counter(), os.times()
        try:
            with shortened_errors(), interruptible(self.connection.interrupt, at_once=True):
                self._show(text)
        finally:
            if self.timer:
                real, after = time.perf_counter() - began, os.times()
                user, system = after.user - before.user, after.system - before.system
                print(f"Run Time (s): real {real:.3f} user {user:.6f} sys {system:.6f}")

    def _show(self, text: str) -> None:
        relation = relation_of(self.connection, text, None, Scope({}, {}))
        if relation is not None and not is_report(relation):
            self.show(relation, text)

    def show(self, relation: duckdb.DuckDBPyRelation, statement: str) -> None:
        """Print a statement's rows in the current mode, as wide as the terminal; in a box our numbers are rounded."""
        layout = self.layout
        if layout.max_width is None and sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
            layout = output.OutputFormat(layout.mode, layout.max_rows, width)
        is_plan = _EXPLAIN.match(statement) is not None
        ours = layout.mode in output.BOXES and is_answer(statement)
        if ours:
            relation = output.for_people(relation)
        if ours and layout.mode == "duckbox" and not is_plan:
            output.print_answer(relation, layout)
        else:
            output.print_relation(relation, layout, is_plan)

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Print an error of a block, and raise Failed."""
        try:
            yield
        except BrokenPipeError:
            raise
        except (Error, OSError, ValueError, KeyboardInterrupt) as error:
            sys.stdout.flush()
            interrupted = isinstance(error, KeyboardInterrupt)
            print(interruption(error) if interrupted else explained(error), file=sys.stderr)
            raise (StatementStopped if interrupted else Failed) from None


def relation_of(connection: Connection, text: str, parameters: Any, scope: Scope) -> duckdb.DuckDBPyRelation | None:
    """Return :meth:`Connection.relation`; errors have the line and caret that DuckDB omits for relations."""
    try:
        return connection.relation(text, parameters, scope)
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        raise _located(connection, text, error, parameters) from None


def _located(connection: Connection, text: str, error: duckdb.Error, parameters: Any) -> duckdb.Error:
    if _LINE.search(str(error)) is None:
        try:
            connection.execute(f"EXPLAIN\n{text}", parameters)  # binds without running
        except duckdb.Error as again:
            if str(again).startswith(str(error)):  # not an error of EXPLAIN itself
                return type(error)(_LINE.sub(lambda line: f"\n\nLINE {int(line[1]) - 1}:", str(again)))
    return error


def interruption(error: BaseException) -> str:
    """Return the message for an interrupt: longer if it came too late to undo anything."""
    text = str(error)
    return text[:1].upper() + text[1:] or "Interrupted"


def explained(error: BaseException) -> str:
    """Return an error's message for people: about the file, not the system call or codec; names may contain anything."""
    return visible_lines(_message(error))


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f'Cannot read "{error.filename}": {error.strerror}'
    if isinstance(error, UnicodeDecodeError):
        return f"The script is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start}"
    return str(error)


def is_answer(text: str) -> bool:
    """Whether the last statement is ours; a query that contains one is the user's."""
    return ends_in_answer(pieces_of(text)[-1:])


def is_report(relation: duckdb.DuckDBPyRelation) -> bool:
    """Whether the relation only says that a command worked, which shells do not print."""
    names, kinds = relation.columns, [str(kind) for kind in relation.types]
    if (names, kinds) not in ((["Count"], ["BIGINT"]), (["Success"], ["BOOLEAN"])):
        return False
    return relation.type != "QUERY_RELATION"


def statements(text: str) -> Iterator[str]:
    """Cut a text after each semicolon that ends a statement; the last piece may lack one."""
    from grouplearn.parser.lexer.statement_split import split

    for piece in split(text):
        if found := text[piece.start : piece.end].strip():
            yield found
