"""``close()`` while a statement runs: DuckDB refuses it, and so it is for statements of ours."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.catalog.checks.trust import Guard
from grouplearn.frontends.python.dbapi import Connection
from grouplearn.statements.databases import Databases

TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(tmp_path / "shop.duckdb", progress=False) as opened:
        opened.execute("CREATE TABLE t AS SELECT i % 5 AS g, i % 11 AS x, i AS y FROM range(500) AS r(i)")
        opened.execute(TRAIN).fetchall()
        yield opened


def held_while(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[], Any],
    act: Callable[[], None],
    at: tuple[type, str] = (Guard, "refuse_hidden"),
) -> list[BaseException | None]:
    """Call ``act`` while a statement of ours that another thread runs waits in the midst; return how it ended."""
    reached, go_on = threading.Event(), threading.Event()
    check = getattr(*at)

    def wait(*arguments: Any, **options: Any) -> None:
        reached.set()
        assert go_on.wait(30)
        check(*arguments, **options)

    ended: list[BaseException | None] = []

    def watched() -> None:
        try:
            run()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    monkeypatch.setattr(*at, wait)
    thread = threading.Thread(target=watched)
    thread.start()
    try:
        assert reached.wait(30)
        act()
    finally:
        go_on.set()
        thread.join()
    monkeypatch.setattr(*at, check)
    return ended


def refuses(con: Connection) -> None:
    with pytest.raises(duckdb.ResourceInUseException, match="connection is busy with another call") as refused:
        con.close()
    assert isinstance(refused.value, grouplearn.Error)
    assert "interrupt()" in str(refused.value)


STATEMENTS = {
    "TRAIN": TRAIN,
    "EVALUATE": "EVALUATE MODEL m ON t",
    "EXPORT": "EXPORT MODEL m TO '{folder}/m' (OVERWRITE)",
}


@pytest.mark.examples(3)
@pytest.mark.parametrize("by", ["execute", "sql"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_connection_that_runs_a_statement_of_ours_is_not_closed(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, by: str
) -> None:
    text = STATEMENTS[statement].format(folder=tmp_path)
    ended = held_while(monkeypatch, lambda: getattr(con, by)(text), lambda: refuses(con))
    assert ended == [None]
    assert len(con.execute("SELECT predict_value('m', t) FROM t").fetchall()) == 500


@pytest.mark.parametrize("opened", ["cursor", "duplicate"])
def test_its_parent_is_not_closed_either(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    between = getattr(con, opened)()
    cursor = getattr(between, opened)()
    assert held_while(monkeypatch, lambda: cursor.execute(TRAIN), lambda: refuses(con)) == [None]
    other = con.cursor()
    assert held_while(monkeypatch, lambda: cursor.execute(TRAIN), other.close) == [None]
    assert len(cursor.execute("FROM m").fetchall()) == 5


def test_a_statement_that_has_only_begun_is_seen(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = held_while(monkeypatch, lambda: con.cursor().execute(TRAIN), lambda: refuses(con), (Databases, "__init__"))
    assert begun == [None]


def test_a_statement_that_is_interrupted_lets_close(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ended,) = held_while(monkeypatch, lambda: con.execute(TRAIN), con.interrupt)
    assert isinstance(ended, grouplearn.Error)
    con.close()
    with pytest.raises(duckdb.ConnectionException):
        con.execute("SELECT 1")


def test_a_query_of_duckdb_that_runs_refuses_and_leaves_predict_as_it_was(con: grouplearn.Connection) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(x: int) -> int:
        reached.set()
        go_on.wait(30)
        return x

    con.create_function("slow", slow, [int], int)
    # A thread of DuckDB's may run slow() before execute() locks the connection: close() would then wait instead of refusing.
    con.execute("SET threads = 1")
    # Its rows are made in one call: between execute() and fetchall() the connection could be closed.
    sums = "CREATE TABLE sums AS SELECT sum(slow(x)) FROM t WHERE y = 3"
    thread = threading.Thread(target=lambda: con.execute(sums))
    thread.start()
    assert reached.wait(30)
    with pytest.raises(duckdb.ResourceInUseException):
        con.close()
    go_on.set()
    thread.join()
    assert len(con.execute("SELECT predict_value('m', t) FROM t").fetchall()) == 500
