"""Which model ``predict`` takes in a view of another database, by each way to run a query and read its rows."""

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import grouplearn

ROWS = 150_000
VIEW = "SELECT p FROM shop.v"
REFUSED = 'model "m" may be memory.m or shop.m'


@pytest.fixture
def con():
    """The default database has a model that predicts 1, the other one a model of the same name that predicts 2."""
    with grouplearn.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT i % 2 AS v FROM range({ROWS}) AS r(i); ATTACH ':memory:' AS shop")
        for model, value in ("m", 1), ("shop.m", 2):
            con.execute(
                f"TRAIN MODEL {model} USING linear_regression PREDICT {value} AS y FEATURES (v)"
                " FROM (FROM t LIMIT 30) VALIDATE NONE"
            ).fetchall()
        con.execute("CREATE VIEW shop.v AS SELECT round(predict_value('m', t)) AS p FROM memory.t")
        yield con


def one_by_one(con: grouplearn.Connection) -> list[Any]:
    rows = []
    while (row := con.fetchone()) is not None:
        rows.append(row[0])
    return rows


READS: list[Callable[[grouplearn.Connection], Any]] = [
    one_by_one,
    lambda con: [row[0] for row in con.fetchall()],
    lambda con: [row[0] for row in con.fetchmany(ROWS)],
    lambda con: con.df()["p"],
    lambda con: con.arrow()["p"].to_pylist(),
]


@pytest.mark.examples(3)
@pytest.mark.parametrize("read", READS)
def test_each_way_to_read_takes_the_model_of_the_view(con, read) -> None:
    values = read(con.execute(VIEW))
    assert (len(values), set(values)) == (ROWS, {2})


def test_a_cursor_and_a_parameter(con) -> None:
    with con.cursor() as cursor:
        assert cursor.execute(f"{VIEW} LIMIT ?", [1]).fetchall() == [(2,)]
        assert cursor.execute("SELECT round(predict_value('m', t)) FROM t LIMIT $n", {"n": 1}).fetchall() == [(1,)]


def test_a_query_of_a_name_is_that_of_the_session_beside_such_views(con) -> None:
    assert con.execute("SELECT DISTINCT round(predict_value('m', t)) FROM t").fetchall() == [(1,)]
    assert con.execute("-- of both\nSELECT DISTINCT round(predict_value('m', t)) FROM t;").fetchall() == [(1,)]


def test_a_relation_runs_when_it_is_read_so_that_its_query_is_not_the_last_one(con) -> None:
    relation = con.sql(VIEW)
    con.execute("SELECT predict_value('memory.m', t) FROM t LIMIT 1").fetchall()
    for run in relation.fetchall, lambda: con.execute(VIEW).fetchall():
        with pytest.raises(duckdb.Error, match=REFUSED):
            run()


def test_the_connection_below_does_not_tell_its_query(con) -> None:
    con.execute("SELECT predict_value('m', t) FROM t LIMIT 1").fetchall()
    below = con.native
    with pytest.raises(duckdb.Error, match=REFUSED):
        below.execute(VIEW).fetchall()
    con.execute("SELECT predict_value('memory.m', t) FROM t LIMIT 1").fetchall()
    with pytest.raises(duckdb.Error, match=REFUSED):
        below.execute(VIEW).fetchall()


def test_statements_together_are_refused_where_one_would_be_taken_for_the_other(con) -> None:
    with pytest.raises(duckdb.Error, match=REFUSED):
        con.execute(f"SELECT predict_value('m', t) FROM t LIMIT 1; {VIEW}").fetchall()


def test_a_query_that_is_not_read_to_its_end_says_nothing_of_the_next(con) -> None:
    con.execute("BEGIN")
    try:
        assert con.execute("SELECT round(predict_value('m', t)) FROM t").fetchone() == (1,)
        assert con.execute(VIEW).fetchone() == (2,)
        assert con.execute("SELECT round(predict_value('m', t)) FROM t").fetchone() == (1,)
    finally:
        con.execute("ROLLBACK")
