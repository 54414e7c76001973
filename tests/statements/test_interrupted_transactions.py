"""An interrupt of a BEGIN, COMMIT or ROLLBACK of ours: afterwards the connection is in no transaction of ours."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import duckdb
import pytest
from helpers.thorough import THOROUGH

import grouplearn
from grouplearn.errors import ModelExists
from grouplearn.frontends.python import dbapi, interrupts
from grouplearn.frontends.python.dbapi import wrap
from grouplearn.statements import databases, session

TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t"


class CtrlC(RuntimeError):
    """What DuckDB makes of it; raised with a real one."""


CTRL_C: list[Callable[[], BaseException]] = [
    lambda: duckdb.InterruptException("INTERRUPT Error: Interrupted!"),
    lambda: CtrlC("Query interrupted"),
    KeyboardInterrupt,
]


def told(error: Callable[[], BaseException]) -> type[BaseException]:
    """Return what the user sees of it: DuckDB makes a RuntimeError of Ctrl-C, and we undo that."""
    return KeyboardInterrupt if isinstance(error(), RuntimeError) else type(error())


class Interrupted:
    """A connection on which some statements are interrupted, before or after they have run; 'aborted' as DuckDB does it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.errors: dict[str, list[BaseException]] = {}
        self.when = "before"
        self.skipped = 0

    def execute(self, query: Any, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        word = query.split()[0] if isinstance(query, str) and query.split() else ""
        error = self._error(word)
        if error is None:
            return self._connection.execute(query, parameters)
        if self.when != "before":
            self._connection.execute(query, parameters)
        if self.when == "aborted":
            with pytest.raises(duckdb.CatalogException):
                self._connection.execute("SELECT * FROM nowhere.nothing")
        if isinstance(error, CtrlC):
            os.kill(os.getpid(), signal.SIGINT)
        raise error

    def _error(self, word: str) -> BaseException | None:
        waiting = self.errors.get(word)
        if not waiting:
            return None
        if word == "COMMIT" and self.skipped:
            self.skipped -= 1
            return None
        return waiting.pop(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
def native() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def con(native: duckdb.DuckDBPyConnection) -> grouplearn.Connection:
    con = wrap(native, progress=None)
    con.execute("CREATE TABLE t AS SELECT i AS x, 2.0 * i AS y FROM range(20) AS r(i)")
    con.execute(TRAIN)
    return con


@pytest.fixture
def interrupted(con: grouplearn.Connection, native: duckdb.DuckDBPyConnection) -> Interrupted:
    databases = con._session._databases  # type: ignore[attr-defined]
    databases._connection = Interrupted(native)
    return databases._connection  # type: ignore[no-any-return]


def identity(con: grouplearn.Connection) -> Any:
    return con.execute("SELECT model FROM grouplearn.models WHERE model_name = 'm'").fetchall()


def is_free(native: duckdb.DuckDBPyConnection) -> bool:
    """Whether no transaction is open: outside of one each statement has its own."""
    first, second = (native.execute("SELECT txid_current()").fetchall() for _ in range(2))
    return first != second


@pytest.mark.examples(3)
@pytest.mark.parametrize("error", CTRL_C)
@pytest.mark.parametrize("when", ["before", "after", "aborted"])
def test_of_begin(
    con: grouplearn.Connection,
    native: duckdb.DuckDBPyConnection,
    interrupted: Interrupted,
    error: Callable[[], BaseException],
    when: str,
) -> None:
    before = identity(con)
    interrupted.errors, interrupted.when = {"BEGIN": [error()]}, when
    with pytest.raises(told(error)):
        con.execute(TRAIN)
    assert is_free(native)
    assert identity(con) == before
    con.execute(TRAIN)
    assert identity(con) != before


@pytest.mark.examples(2)
@pytest.mark.parametrize("error", CTRL_C)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("skipped", [0, 1])
def test_of_commit(
    con: grouplearn.Connection,
    native: duckdb.DuckDBPyConnection,
    interrupted: Interrupted,
    error: Callable[[], BaseException],
    when: str,
    skipped: int,
) -> None:
    before = identity(con)
    interrupted.errors, interrupted.when, interrupted.skipped = {"COMMIT": [error()]}, when, skipped
    with pytest.raises(told(error)):
        con.execute(TRAIN)
    assert is_free(native)
    stored = skipped == 1 and when == "after"  # the last one of two
    assert (identity(con) != before) == stored
    con.execute(TRAIN)
    assert is_free(native)


@pytest.mark.examples(3)
@pytest.mark.parametrize("error", CTRL_C)
@pytest.mark.parametrize("when", ["before", "after"])
def test_of_rollback_too(
    con: grouplearn.Connection,
    native: duckdb.DuckDBPyConnection,
    interrupted: Interrupted,
    error: Callable[[], BaseException],
    when: str,
) -> None:
    interrupted.errors, interrupted.when = {"COMMIT": [KeyboardInterrupt()], "ROLLBACK": [error(), error()]}, when
    with pytest.raises(KeyboardInterrupt):
        con.execute(TRAIN)
    assert is_free(native)
    con.execute(TRAIN)


@pytest.mark.parametrize("error", CTRL_C)
def test_of_the_rollback_after_another_error_is_not_forgotten(
    con: grouplearn.Connection,
    native: duckdb.DuckDBPyConnection,
    interrupted: Interrupted,
    error: Callable[[], BaseException],
) -> None:
    interrupted.errors = {"ROLLBACK": [error()]}
    with pytest.raises(told(error)):
        con.execute("TRAIN MODEL n USING linear_regression PREDICT y FEATURES (nothing) FROM t")
    assert is_free(native)


class Pressing:
    """Presses Ctrl-C at one line of what handles statements, and again at another; ``lines`` counts them."""

    def __init__(self, *presses: int) -> None:
        self._presses, self.lines = presses, 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Pressing | None:
        if event == "call":
            return self if frame.f_code.co_filename in HANDLING else None
        if event == "line":
            self.lines += 1
            if self.lines in self._presses:
                os.kill(os.getpid(), signal.SIGINT)
        return self


HANDLING = {module.__file__ for module in (databases, dbapi, interrupts, session)}


@pytest.mark.parametrize("statement", [TRAIN, "EVALUATE MODEL m ON t"])
def test_two_presses_at_any_two_lines_leave_no_transaction_and_no_traceback(
    con: grouplearn.Connection, native: duckdb.DuckDBPyConnection, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[object] = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    before = signal.getsignal(signal.SIGINT)

    def run(*presses: int) -> int:
        pressing = Pressing(*presses)
        sys.settrace(pressing)
        try:
            con.execute(statement).fetchall()
        finally:
            sys.settrace(None)
        return pressing.lines

    lines = run()
    for first in range(1, lines, 1 if THOROUGH else 37):
        for later in (1, 5, 25):
            with pytest.raises((KeyboardInterrupt, duckdb.Error)):
                run(first, first + later)
            assert is_free(native), (first, later)
            assert signal.getsignal(signal.SIGINT) is before
            assert signal.set_wakeup_fd(-1) == -1
    assert broken == []


def test_the_users_transaction_stays(con: grouplearn.Connection, native: duckdb.DuckDBPyConnection) -> None:
    con.execute("BEGIN")
    con.execute("CREATE TABLE kept AS SELECT 1")
    with pytest.raises(ModelExists):  # which does not abort it
        con.execute(TRAIN.replace("OR REPLACE ", ""))
    assert not is_free(native)
    con.execute("COMMIT")
    assert con.execute("FROM kept").fetchall() == [(1,)]
