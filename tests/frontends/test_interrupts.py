from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS
from helpers.thorough import every_other

import grouplearn
from grouplearn import statements
from grouplearn.errors import Cancelled
from grouplearn.frontends.python import interrupts
from grouplearn.frontends.python.interrupts import Interruption, interruptible
from grouplearn.statements import dispatch

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"
TRAIN = (
    "TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM (SELECT i % 3 AS g, i AS x, i % 2 = 0 AS y FROM range(900) AS r(i)) "
    "GROUP BY g WITH (epochs = 10000000, executor = 'local')"  # longer than anyone waits, however fast the machine
)


@contextlib.contextmanager
def control_c(after: float) -> Iterator[None]:
    """Press Ctrl-C after so many seconds, unless the block has ended by then."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def test_a_query_that_keeps_the_main_thread_busy_stops() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("SELECT 1").fetchall()  # DuckDB forgets an interrupt that comes before a query has begun
        began = time.monotonic()
        with control_c(1.0), pytest.raises(KeyboardInterrupt), interruptible(con.interrupt, at_once=True):
            con.execute(ENDLESS)
        assert time.monotonic() - began < 1.0 + STOPS_WITHIN_SECONDS
        assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_python_code_is_left_at_once_and_everything_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None, at_once=True), control_c(0.1):
        time.sleep(30)
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("after", [0.0, 0.02, 0.05])
def test_control_c_between_blocks_stops_the_statement_and_not_the_next(after: float) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2 AS y FROM range(100) AS r(i)")
        train = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t"
        con.execute(train)
        with contextlib.suppress(KeyboardInterrupt), control_c(after):
            for _ in range(20):
                con.execute(train).fetchall()
        assert con.execute(train).fetchall() != []
        assert con.execute("SELECT count(prediction) FROM m_predict(t)").fetchall() == [(100,)]


def test_other_errors_and_other_threads_are_left_alone() -> None:
    with pytest.raises(RuntimeError, match="mine"), interruptible(lambda: None, at_once=False):
        raise RuntimeError("mine")
    done = []

    def elsewhere() -> None:
        with interruptible(lambda: None, at_once=False):
            done.append(1)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done == [1]


def test_control_c_stops_train_within_two_seconds_and_leaves_nothing() -> None:
    with grouplearn.connect(progress=None) as con:
        tables = "SELECT count(*) FROM duckdb_tables() UNION ALL SELECT count(*) FROM duckdb_views() WHERE NOT internal"
        before = con.execute(tables).fetchall()
        began = time.monotonic()
        with control_c(0.5), pytest.raises(KeyboardInterrupt):
            con.execute(TRAIN)
        assert time.monotonic() - began < 0.5 + STOPS_WITHIN_SECONDS
        assert con.execute(tables).fetchall() == before


def test_control_c_while_what_carries_statements_out_is_loaded_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Pressed:
        """Presses Ctrl-C where a module is imported for the first time."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name == "grouplearn.statements.dispatch" and self in sys.meta_path:
                sys.meta_path.remove(self)
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)

    monkeypatch.setattr(statements, "dispatch", dispatch)  # put back afterwards
    monkeypatch.delitem(sys.modules, "grouplearn.statements.dispatch")
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    with grouplearn.connect(progress=None) as con:
        with pytest.raises(KeyboardInterrupt):
            con.execute("TRAIN MODEL m USING linear_regression PREDICT x AS y FROM (SELECT 1 AS x, 2 AS z)")
        assert con.execute("SHOW MODELS").fetchall() == []
        con.interrupt()  # of nothing: what comes next does not stop
        con.execute("TRAIN MODEL m USING linear_regression PREDICT x AS y FROM (SELECT unnest([1, 2]) AS x, 2 AS z)")


def _fetched(con: grouplearn.Connection, query: str) -> None:
    con.execute(query).fetchall()


def _fetched_later(con: grouplearn.Connection, query: str) -> None:
    answer = con.execute(query)
    answer.fetchmany(1)
    answer.arrow()


def _displayed(con: grouplearn.Connection, query: str) -> None:
    with interruptible(con.interrupt, at_once=True):  # as the shell and notebooks do
        relation = con.sql(query)
        assert relation is not None
        relation.fetchall()


@pytest.mark.examples(3)
@pytest.mark.parametrize("run", [_fetched, _fetched_later, _displayed])
@pytest.mark.parametrize(
    "query", ["EVALUATE MODEL trees ON big", "EVALUATE MODEL line ON big", "SELECT predict('trees', big) AS p FROM big"]
)
def test_control_c_stops_what_predicts_as_it_stops_train(
    run: Callable[[grouplearn.Connection, str], None], query: str
) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(1000) AS r(i)")
        con.execute("TRAIN MODEL trees USING gbdt PREDICT y FEATURES (x) FROM t")
        con.execute("TRAIN MODEL line USING linear_regression PREDICT y FEATURES (x) FROM t")
        con.execute("CREATE VIEW big AS SELECT t.* FROM t, range(100000)")
        began = time.monotonic()
        with control_c(0.5), pytest.raises(KeyboardInterrupt):
            run(con, query)
        assert time.monotonic() - began < 0.5 + STOPS_WITHIN_SECONDS
        assert con.execute("SELECT 1").fetchall() == [(1,)]


@pytest.fixture
def hidden() -> Iterator[grouplearn.Connection]:
    """A connection with calls of predict behind a view, a macro and a prepared statement."""
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i * 2.0 AS y FROM range(1000) AS r(i)")
        con.execute("TRAIN MODEL trees USING gbdt PREDICT y FEATURES (x) FROM t")
        con.execute("CREATE VIEW v AS SELECT predict_value('trees', t) AS z FROM t, range(1000000)")
        con.execute("CREATE MACRO applied(row) AS predict_value('trees', row); PREPARE p AS SELECT sum(z) FROM v")
        yield con


HIDDEN = [
    "SELECT sum(z) FROM v",
    "SELECT z FROM v WHERE z < -1",
    "SELECT sum(applied(t)) FROM t, range(1000000)",
    "EXECUTE p",
]


@pytest.mark.examples(3)
@pytest.mark.parametrize("query", HIDDEN)
def test_control_c_is_one_exception_also_behind_views_macros_and_prepared_statements(
    hidden: grouplearn.Connection, query: str
) -> None:
    began = time.monotonic()
    with control_c(0.5), pytest.raises(KeyboardInterrupt):
        hidden.execute(query).fetchall()
    assert time.monotonic() - began < 0.5 + STOPS_WITHIN_SECONDS
    assert hidden.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("query", "read"), every_other(itertools.product([*HIDDEN, "SELECT z FROM v"], ["fetchone", "fetchall", "df"]))
)
def test_errors_are_in_their_own_words_also_behind_views_macros_and_prepared_statements(
    hidden: grouplearn.Connection, query: str, read: str
) -> None:
    hidden.execute("DROP MODEL trees")
    with pytest.raises(duckdb.InvalidInputException, match=r'^model "trees" does not exist'):
        getattr(hidden.execute(query), read)()


@pytest.mark.parametrize(
    "error",
    [
        "Query interrupted",
        "Invalid Input Error: Python exception occurred while executing the UDF: KeyboardInterrupt: ",
    ],
)
def test_control_c_while_one_row_is_fetched_is_a_keyboard_interrupt(error: str) -> None:
    class Stopping:
        def fetchone(self) -> None:
            raise (RuntimeError if error[0] == "Q" else duckdb.InvalidInputException)(error)

    with grouplearn.connect(progress=None) as con:
        native, con._duckdb = con._duckdb, Stopping()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            con.fetchone()
        con._duckdb = native


def test_a_query_of_duckdbs_that_keeps_the_main_thread_busy_stops() -> None:
    with grouplearn.connect(progress=None) as con:
        began = time.monotonic()
        with control_c(0.5), pytest.raises(KeyboardInterrupt):
            con.execute(ENDLESS)
        assert time.monotonic() - began < 0.5 + STOPS_WITHIN_SECONDS


def test_a_second_press_is_the_first_ones_until_the_statement_had_time_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = []

    def block() -> None:
        with interruptible(lambda: None, at_once=False):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            passed.append("together")
            monkeypatch.setattr(interrupts, "_PATIENCE", 0.0)
            os.kill(os.getpid(), signal.SIGINT)
            passed.append("later")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert passed == ["together"]


def test_others_hear_signals_that_arrive_meanwhile() -> None:
    def block() -> None:
        with interruptible(lambda: None, at_once=False):
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGINT)

    ours, theirs = socket.socketpair()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    with ours, theirs:
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno())
        try:
            with pytest.raises(KeyboardInterrupt):
                block()
            ours.settimeout(10)
            heard = b""
            while len(heard) < 2:
                heard += ours.recv(64)
            assert set(heard) == {signal.SIGUSR1, signal.SIGINT}
        finally:
            assert signal.set_wakeup_fd(-1) == theirs.fileno()
            signal.signal(signal.SIGUSR1, before)


FORKED = """
import os, signal, threading, time, grouplearn
grouplearn.connect().execute("SELECT 1")
if not (child := os.fork()):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        grouplearn.connect(config={"threads": 2}).execute("SELECT count(*) FROM range(100000000000) a, range(1000) b")
    except KeyboardInterrupt:
        os._exit(7)
for _ in range(100):
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        raise SystemExit(os.waitstatus_to_exitcode(status) != 7)
    time.sleep(0.1)
os.kill(child, signal.SIGKILL)
raise SystemExit("does not stop")
"""


def test_a_forked_process_hears_control_c() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


class Pressed:
    """A connection on which Ctrl-C is pressed as a query begins with some words, as often as ``left`` says."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, words: str, error: BaseException) -> None:
        self._connection, self._words, self._error, self.left = connection, words, error, 0

    def execute(self, query: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        self._press(query)
        return self._connection.execute(query, parameters)

    def sql(self, query: str, **options: Any) -> Any:
        self._press(query)
        return self._connection.sql(query, **options)

    def _press(self, query: str) -> None:
        if self.left and query.startswith(self._words):
            self.left -= 1
            if isinstance(self._error, RuntimeError):  # as which DuckDB raises it
                os.kill(os.getpid(), signal.SIGINT)
            raise self._error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _pressed(con: grouplearn.Connection, words: str, error: BaseException) -> Pressed:
    pressed = Pressed(con.native, words, error)
    con._duckdb = pressed  # type: ignore[assignment]
    return pressed


LINE = "TRAIN MODEL line USING linear_regression PREDICT y FEATURES (x) FROM (SELECT i AS x, 2.0 * i AS y FROM range(9) AS r(i))"
INTERRUPTED = duckdb.InterruptException("INTERRUPT Error: Interrupted!")
STORED = "after the statement had taken effect"


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("execute", "SELECT system.main.current_setting('python_scan_all_frames')"),
        ("sql", "SELECT system.main.current_setting('python_scan_all_frames')"),
        ("sql", "SELECT 1"),
    ],
)
def test_control_c_as_a_statement_begins_is_a_keyboard_interrupt(method: str, words: str) -> None:
    with grouplearn.connect(progress=None) as con:
        run = getattr(con, method)
        _pressed(con, words, RuntimeError("Query interrupted")).left = 1
        with pytest.raises(KeyboardInterrupt):
            run(LINE)
        assert con.execute("SHOW MODELS").fetchall() == []


@pytest.mark.parametrize(("error", "raised"), [(INTERRUPTED, Cancelled), (KeyboardInterrupt(), KeyboardInterrupt)])
def test_an_interrupt_once_the_model_is_stored_says_so(error: BaseException, raised: type[BaseException]) -> None:
    with grouplearn.connect(progress=None) as con:
        pressed = _pressed(con, "", error)
        answer = con._session.answer

        def answered(*given: Any) -> str:
            query = answer(*given)
            pressed.left = 1
            return query

        con._session.answer = answered  # type: ignore[method-assign]
        with pytest.raises(raised, match=STORED):
            con.execute(LINE)
        with pytest.raises(type(error)) as stopped:  # SHOW MODELS stores nothing
            con.execute("SHOW MODELS")
        assert STORED not in str(stopped.value)
        con.execute("BEGIN")
        with pytest.raises(type(error)) as stopped:  # and what is not committed is not stored
            con.execute(LINE.replace("MODEL line", "MODEL other"))
        assert STORED not in str(stopped.value)
        con.execute("ROLLBACK")
        con._session.answer = answer  # type: ignore[method-assign]
        assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["line"]


class Counting(Pressed):
    """A connection on which somebody interrupts, once, before the ``left``-th query begins."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, interrupt: Callable[[], None]) -> None:
        super().__init__(connection, "", INTERRUPTED)
        self._interrupt = interrupt

    def _press(self, query: str) -> None:
        self.left -= 1
        if self.left == 0:
            self._interrupt()


EVALUATE = "EVALUATE MODEL line ON big"


def test_an_interrupt_between_any_two_queries_of_a_statement_stops_it() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(LINE)
        for name, rows in (("small", 9), ("big", 10**10)):
            con.execute(f"CREATE VIEW {name} AS SELECT i AS x, 2.0 * i AS y FROM range({rows}) AS r(i)")
        pressed = Counting(con.native, con.interrupt)
        con._duckdb = con._session._connection = pressed  # type: ignore[assignment, attr-defined]
        con._session._databases = None  # type: ignore[attr-defined]  # found anew
        con.execute(EVALUATE.replace("big", "small"))  # what is asked once for all is asked now
        pressed.left = 1 << 20
        con.execute(EVALUATE.replace("big", "small"))
        asked = (1 << 20) - pressed.left - 2  # COMMIT and the answer come after the query that takes long
        assert asked > 10
        for query in range(1, asked + 1):
            pressed.left = query
            began = time.monotonic()
            too_late = threading.Timer(STOPS_WITHIN_SECONDS, con.native.interrupt)
            too_late.start()
            with pytest.raises(duckdb.Error, match=r"(?i)interrupted"):
                con.execute(EVALUATE)
            too_late.cancel()
            assert time.monotonic() - began < STOPS_WITHIN_SECONDS
            assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_an_interrupt_is_of_the_statement_that_runs_and_of_none_after_it() -> None:
    interrupted = []
    interruption = Interruption(lambda: interrupted.append(1))
    with interruption.running():
        interruption()
        time.sleep(0.3)
    times = len(interrupted)
    assert times > 1
    time.sleep(0.3)
    assert len(interrupted) == times
    interruption()
    time.sleep(0.3)
    assert len(interrupted) == times + 1


def test_control_c_that_nothing_notices_is_a_keyboard_interrupt_all_the_same() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None, at_once=False):
        os.kill(os.getpid(), signal.SIGINT)
