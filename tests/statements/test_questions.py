"""What a small TRAIN asks DuckDB and the machine: each question takes a part of its time, and none is answered from before."""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.catalog.checks import fragments
from grouplearn.catalog.schema import seen_once, views_of
from grouplearn.errors import ModelExists
from grouplearn.store import objects
from grouplearn.store import writer as store

TRAIN = "TRAIN {}MODEL {} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"
#: Texts that a TRAIN of a few rows may send, each of which takes DuckDB from 0.2 ms.
MOST_TEXTS = 40
#: Beginnings of questions of what may have changed meanwhile, which is asked once in each of our two transactions.
ONCE_IN_EACH = (
    "SELECT database_name, schema_name, table_name, sql",
    "SELECT version FROM",
    "SELECT model::VARCHAR",
    'EXPLAIN DROP MACRO "memory"."main"."m_predict"',
    'EXPLAIN DROP MACRO "memory"."main"."m_explain"',
    'EXPLAIN DROP MACRO "memory"."main"."m_permutation_importance"',
    'EXPLAIN DROP MACRO "memory"."main"."m_calibration"',
    'EXPLAIN DROP MACRO "memory"."main"."m_drift"',
)


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i * 2.0 + g AS y FROM range(300) AS r(i)")
        connection.execute("ATTACH ':memory:' AS other")
        connection.execute(TRAIN.format("", "before"))
        yield connection


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that connections execute from now on."""
    found: list[str] = []
    execute = duckdb.DuckDBPyConnection.execute

    def noted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        found.append(str(query))
        return execute(self, query, *arguments, **options)

    monkeypatch.setattr(duckdb.DuckDBPyConnection, "execute", noted)
    return found


def beginning(texts: list[str], text: str) -> int:
    return sum(each.startswith(text) for each in texts)


def test_a_small_train_asks_little_and_nothing_twice(con: grouplearn.Connection, texts: list[str]) -> None:
    con.execute(TRAIN.format("", "m"))
    assert len(texts) <= MOST_TEXTS, texts
    assert {text: beginning(texts, text) for text in ONCE_IN_EACH} == dict.fromkeys(ONCE_IN_EACH, 2)
    again = [
        text
        for text, times in Counter(texts).items()
        if times > 1 and not text.startswith((*ONCE_IN_EACH, "BEGIN", "COMMIT"))
    ]
    assert [
        text for text in again if "duckdb_databases" not in text
    ] == []  # what is attached is asked again before storing
    assert not any("configs" in text for text in texts[-1:])  # the answer has no hyperparameter


@pytest.mark.parametrize("begun", [False, True])
def test_views_of_random_rows_are_found_among_those_that_were_listed(
    con: grouplearn.Connection, texts: list[str], begun: bool
) -> None:
    con.execute(
        f"{'BEGIN; ' if begun else ''}CREATE VIEW drawn AS SELECT *, random() AS z FROM t; CREATE VIEW same AS FROM t"
    )
    texts.clear()
    with pytest.raises(grouplearn.BindError, match=r'view "drawn" calls random\(\)'):
        con.execute(TRAIN.format("", "m").replace("FROM t", "FROM drawn"))
    con.execute(f"{'ROLLBACK; BEGIN; ' if begun else ''}CREATE OR REPLACE VIEW drawn AS FROM t")
    con.execute(TRAIN.format("", "m").replace("FROM t", "FROM drawn"))
    assert beginning(texts, "SELECT view_name FROM duckdb_views() WHERE NOT internal") == 0
    assert con.execute("SELECT count(*) FROM m").fetchall() == [(3,)]


def test_only_the_users_own_transaction_is_asked_when_it_began(con: grouplearn.Connection, texts: list[str]) -> None:
    asked = "SELECT system.main.epoch_us(system.main.transaction_timestamp())"
    con.execute(TRAIN.format("", "m"))
    con.execute(TRAIN.format("OR REPLACE ", "m"))
    assert beginning(texts, asked) == 0
    con.begin()
    con.execute(TRAIN.format("OR REPLACE ", "m"))
    assert beginning(texts, asked) == 2  # one model was dropped, and one stored
    assert con.execute("SELECT count(predict('m', t).value) FROM t").fetchall() == [(300,)]
    con.execute("DROP MODEL m")
    with pytest.raises(grouplearn.Error, match="m"):
        con.execute("SELECT predict('m', t).value FROM t").fetchall()
    con.rollback()
    assert con.execute("SELECT count(predict('m', t).value) FROM t").fetchall() == [(300,)]


def test_texts_of_a_model_are_asked_about_once_for_all_its_views(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, digest = [], fragments._digest
    monkeypatch.setattr(fragments, "_digest", lambda definition: asked.append(definition.name) or digest(definition))
    con.execute(TRAIN.format("", "m"))
    assert len(asked) <= 5  # there are five views and a macro


class Meanwhile:
    """Progress that runs SQL on a connection while groups are trained."""

    def __init__(self, sql: str) -> None:
        self.sql, self.connection = sql, None

    def started(self, _: Any) -> None:
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.execute(self.sql)

    def unit_done(self, _: Any) -> None: ...

    def epochs_done(self, *_: Any) -> None: ...

    def units_lost(self, _: Any) -> None: ...

    def ended(self) -> None: ...


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("made", "what"),
    [
        ("CREATE VIEW m_curves AS SELECT 1 AS a", 'view "m_curves"'),
        ("CREATE TABLE m_weights (a INTEGER)", 'table "m_weights"'),
        ("CREATE MACRO m_predict(a) AS TABLE SELECT a", 'macro "m_predict"'),
        (TRAIN.format("", "m"), 'model "m"'),
    ],
)
def test_what_another_connection_makes_during_training_is_seen(made: str, what: str) -> None:
    meanwhile = Meanwhile(made)
    with grouplearn.connect(progress=meanwhile) as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute(TRAIN.format("", "before"))
        meanwhile.connection = con.cursor()
        with pytest.raises(ModelExists, match=f"{what} already exists"):
            con.execute(TRAIN.format("", "m"))


def test_a_default_database_that_changes_during_training_is_seen() -> None:
    meanwhile = Meanwhile("USE other")
    with grouplearn.connect(progress=meanwhile) as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute("ATTACH ':memory:' AS other")
        meanwhile.connection = con
        con.execute(TRAIN.format("", "m")).fetchall()
        assert con.execute("SELECT current_database()").fetchall() == [("other",)]
        # Its macro reads the model's tables where they are.
        assert con.execute("SELECT count(prediction) FROM memory.m_predict(memory.t)").fetchall() == [(60,)]


def test_each_transaction_asks_for_its_default_database(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE other.t AS FROM t")
    for statement in ("USE other", "USE memory", "USE other"):
        con.execute(statement)
        con.execute(TRAIN.format("OR REPLACE ", "m"))
        assert con.execute("SELECT count(prediction) FROM m_predict(t)").fetchall() == [(300,)]
        con.execute(TRAIN.format("OR REPLACE ", "memory.far"))
        assert con.execute("SELECT count(prediction) FROM memory.far_predict(t)").fetchall() == [(300,)]


def test_views_that_the_user_makes_and_drops_in_a_transaction_are_seen(con: grouplearn.Connection) -> None:
    con.execute("BEGIN; CREATE VIEW m_importance AS SELECT 1 AS a")
    with pytest.raises(ModelExists, match='view "m_importance" already exists'):
        con.execute(TRAIN.format("", "m"))
    con.execute("ROLLBACK; BEGIN; CREATE VIEW m_importance AS SELECT 1 AS a; DROP VIEW m_importance")
    con.execute(TRAIN.format("", "m"))
    con.execute("DROP VIEW m_curves; CREATE VIEW m_curves AS SELECT 1 AS a")
    with pytest.raises(ModelExists, match='view "m_curves" already exists'):
        con.execute(TRAIN.format("OR REPLACE ", "m"))


def test_views_that_we_drop_in_a_transaction_are_read_again(con: grouplearn.Connection) -> None:
    native = con.native
    native.begin()
    with seen_once(native, storing=True):
        found = objects.exists(native, "memory", "main", "before")
        assert found is not None
        assert found.is_model
        assert "before_curves" in {name for _, _, name, *_ in views_of(native)}
        store.drop(native, "memory", "main", "before")
        assert "before_curves" not in {name for _, _, name, *_ in views_of(native)}
        assert objects.exists(native, "memory", "main", "before") is None
    native.rollback()


@pytest.mark.parametrize(("rows", "threads"), [(300, 0), (5000, 1)])
def test_few_rows_are_taken_without_a_thread(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, rows: int, threads: int
) -> None:
    names, start = [], threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: names.append(self.name) or start(self))
    con.execute(f"CREATE TABLE many AS SELECT i % 3 AS g, i AS x, i * 2.0 + g AS y FROM range({rows}) AS r(i)")
    con.execute(TRAIN.format("", "m").replace("FROM t", "FROM many") + " VALIDATE NONE")
    always = {"grouplearn-interrupt", "grouplearn-ahead"}
    assert len([name for name in names if name not in always]) == threads, names
    assert con.execute("SELECT sum(n_train) FROM m").fetchall() == [(rows,)]


def test_ray_is_not_looked_for_where_there_is_little_to_do(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, find_spec = [], importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: asked.append(name) or find_spec(name, *more))
    con.execute(TRAIN.format("", "m"))
    assert "ray" not in asked
    con.execute(
        "EXPLAIN TRAIN MODEL large USING gbdt PREDICT y FEATURES (x) FROM (FROM t, range(3000)) GROUP BY g"
        " OVER GRID (learning_rate IN (0.1, 0.2, 0.3, 0.4), num_iterations IN (500, 1000, 2000)) WITH (workers = 4)"
    )
    assert "ray" in asked
