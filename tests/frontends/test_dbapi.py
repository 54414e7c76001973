from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.promptness import STOPS_WITHIN_SECONDS

import grouplearn
from grouplearn.errors import NotSupportedError, ParseError
from grouplearn.frontends.python.dbapi import Connection

TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FROM {source}"


def test_importing_the_package_loads_no_library() -> None:
    heavy = ["ray", "torch", "lightgbm", "pandas", "matplotlib", "IPython", "rich", "prompt_toolkit", "duckdb", "numpy"]
    code = f"""
import sys
import grouplearn
grouplearn.apilevel
print([name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_opening_a_connection_loads_nothing_that_trains() -> None:
    later = ["pyarrow", "scipy", "safetensors", "torch", "lightgbm", "ray", "grouplearn.learners.registry"]
    code = f"""
import sys
import grouplearn
con = grouplearn.connect()
con.execute("SELECT 1").fetchall()
print([name for name in {later!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("rows", [1, 100_000])
def test_errors_of_functions_are_told_in_their_own_words(rows: int) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(f"CREATE TABLE t AS SELECT i AS x FROM range({rows}) AS r(i)")
        for call in ("predict", "predict_value"):
            with pytest.raises(duckdb.ProgrammingError) as told:
                con.execute(f"SELECT {call}('nosuch', t) FROM t").fetchall()
            assert str(told.value) == 'model "nosuch" does not exist\nThere is no model yet.'
        con.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x)"
            " FROM (SELECT x, x AS y, x % 2 AS g FROM range(20) AS r(x)) GROUP BY g ON MISSING GROUP ERROR"
        )
        for call in ("predict", "predict_value"):
            with pytest.raises(duckdb.InvalidInputException) as told:
                con.execute(f"SELECT {call}('m', {{'g': 7, 'x': x}}) FROM t").fetchall()
            assert str(told.value) == 'Invalid Input Error: model "m" has no model for group g = 7'
        con.create_function("broken", lambda x: 1 // (x - x), [duckdb.type("BIGINT")], duckdb.type("BIGINT"))
        with pytest.raises(duckdb.InvalidInputException, match=r"^Invalid Input Error: Python exception occurred"):
            con.execute("SELECT broken(x), predict('nosuch', t) FROM t").fetchall()


def test_module_has_the_pep_249_attributes() -> None:
    assert (grouplearn.apilevel, grouplearn.threadsafety, grouplearn.paramstyle) == ("2.0", 1, "qmark")
    assert issubclass(grouplearn.ProgrammingError, grouplearn.DatabaseError)
    assert issubclass(grouplearn.DatabaseError, grouplearn.Error)
    assert issubclass(grouplearn.InterfaceError, grouplearn.Error)
    assert grouplearn.Error is duckdb.Error
    assert grouplearn.__version__[0].isdigit()
    assert all(hasattr(grouplearn, name) for name in grouplearn.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = grouplearn.nothing


def test_duckdbs_own_methods_keep_working(con: Connection) -> None:
    assert con.execute("FROM t WHERE x = ?", [1]).fetchall() == [(1, 2)]
    assert con.execute("FROM t WHERE x = $x", {"x": 3}).fetchone() == (3, 4)
    assert con.execute("FROM t").df().to_dict("list") == {"x": [1, 3], "y": [2, 4]}
    assert (
        con.execute("FROM t")
        .pl()
        .equals(pl.DataFrame({"x": [1, 3], "y": [2, 4]}, schema_overrides={"x": pl.Int32, "y": pl.Int32}))
    )
    assert con.execute("FROM t").arrow().column_names == ["x", "y"]
    assert con.execute("FROM t").fetchnumpy()["x"].tolist() == [1, 3]
    assert con.sql("FROM t").fetchall() == con.query("FROM t").fetchall() == con.from_query("FROM t").fetchall()
    con.register("seen", pa.table({"a": [1]}))
    assert con.sql("FROM seen").fetchall() == [(1,)]
    con.create_function("twice", lambda x: 2 * x, ["BIGINT"], "BIGINT")
    assert con.execute("SELECT twice(4)").fetchall() == [(8,)]
    con.executemany("INSERT INTO t VALUES (?, ?)", [[5, 6], [7, 8]])
    assert con.execute("SELECT count(*) FROM t").fetchone() == (4,)
    assert con.execute("DELETE FROM t WHERE x > 4").rowcount == 2
    assert con.execute("SELECT 1 AS one").description[0][0] == "one"
    assert con.table("t").columns == ["x", "y"]


def test_what_a_statement_of_duckdbs_answers_is_duckdbs_answer(con: Connection) -> None:
    """We look whether a transaction lasts where macros come and go, and leave no trace of that."""
    with duckdb.connect() as plain:
        for statement in (
            "CREATE TEMP MACRO z(a) AS a + 1",
            "DROP MACRO z",
            "CREATE MACRO z(a) AS a",
            "DROP MACRO IF EXISTS z",
        ):
            ours, theirs = con.execute(statement), plain.execute(statement)
            assert [each[0] for each in ours.description] == [each[0] for each in theirs.description]
            assert ours.df().shape == theirs.df().shape


@pytest.mark.parametrize("send", ["execute", "sql", "query", "from_query"])
def test_our_statement_works_through_each_method(con: Connection, send: str) -> None:
    result = getattr(con, send)(TRAIN.format(source="t"))
    assert result.fetchall() == [(2,)]
    assert con.execute("FROM m").fetchall() == [(1, 2), (3, 4)]


def test_execute_of_ours_returns_the_connection_and_sql_a_relation(con: Connection, session: Any) -> None:
    assert con.execute("SHOW MODELS") is con
    assert con.df().to_dict("list") == {"said": ["answer"]}
    relation = con.sql("SHOW MODELS")
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    assert relation.fetchall() == relation.fetchall() == [("answer",)]
    assert len(session.asked) == 2


def test_statements_around_ours_run_in_order_and_reach_duckdb_as_written(con: Connection) -> None:
    text = (
        "CREATE TABLE a AS SELECT 1 AS x; INSERT INTO a VALUES (2) ;\n"
        + TRAIN.format(source="a")
        + "; SELECT sum(x), ' ;' FROM m -- end"
    )
    assert con.execute(text).fetchall() == [(3, " ;")]
    assert con.sql("SELECT 1; SHOW MODELS").fetchall() == [("answer",)]
    assert con.sql("SHOW MODELS; SELECT 7").fetchall() == [(7,)]


def test_text_without_ours_is_not_even_split(con: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr("grouplearn.parser.parse.parse", fail)
    con.execute("SELECT 'training', modeled FROM (SELECT 1 AS modeled); SELECT 2")
    with pytest.raises(AssertionError, match="parsed"):
        con.execute("SELECT model FROM (SELECT 1 AS model)")


def test_a_column_named_like_our_words_is_duckdbs(con: Connection, session: Any) -> None:
    query = "  /* train */ SELECT model, train FROM (SELECT 1 AS model, ? AS train) -- model\n"
    assert con.execute(query, [2]).fetchall() == [(1, 2)]
    assert con.sql(query, params=[2]).fetchall() == [(1, 2)]
    assert session.asked == []


def test_parameters_belong_to_the_last_statement(con: Connection, session: Any) -> None:
    con.execute(TRAIN.format(source="t WHERE x > ?"), [2])
    assert session.asked[-1][2] == [2]
    con.execute("SHOW MODELS; SELECT ?", [5])
    assert con.fetchall() == [(5,)]
    with pytest.raises(NotSupportedError, match="only supported in the last statement"):
        con.execute(TRAIN.format(source="t WHERE x > ?") + "; SELECT ?", [5])
    con.executemany("EVALUATE MODEL m ON t WHERE x > ?", [[1], [2]])
    assert [asked[2] for asked in session.asked[-2:]] == [[1], [2]]


def test_our_syntax_error_is_a_programming_error_and_nothing_ran(con: Connection) -> None:
    with pytest.raises(ParseError) as error:
        con.execute("DROP TABLE t; TRAIN MODEL m USINGG x")
    assert isinstance(error.value, grouplearn.ProgrammingError)
    assert "^" in str(error.value)
    assert con.execute("SELECT count(*) FROM t").fetchone() == (2,)


@pytest.mark.parametrize("text", ["SELECT '\ud800'", "SHOW MODELS; SELECT '\ud800'", "SHOW MODELS LIKE '\udfff'"])
def test_half_of_a_surrogate_pair_is_an_error_at_its_place(con: Connection, text: str) -> None:
    for run in (con.execute, con.sql, con.executemany):
        with pytest.raises(ParseError, match=r"is half of a surrogate pair, and no character\n\nLINE 1: (.|\n)*\^"):
            run(text)


def test_unfinished_results_are_treated_as_duckdb_treats_them(con: Connection) -> None:
    assert con.execute("FROM t").fetchone() == (1, 2)
    assert con.execute("SHOW MODELS").fetchall() == [("answer",)]
    con.execute("FROM t")
    with pytest.raises(duckdb.Error, match="unfinished result"):
        con.sql("SHOW MODELS")


def test_an_unread_answer_does_not_keep_the_connection_busy(con: Connection) -> None:
    con.execute(TRAIN.format(source="t"))
    assert con.sql("SELECT count(*) FROM m").fetchall() == [(2,)]
    con.execute("SHOW MODELS")
    assert con.table("m").fetchall() == [(1, 2), (3, 4)]
    assert con.execute("SHOW MODELS").fetchone() == ("answer",)
    con.sql("EVALUATE MODEL m ON t")


def test_transactions(con: Connection, session: Any) -> None:
    assert con.begin() is con
    con.execute(TRAIN.format(source="t"))
    con.rollback()
    assert session.noticed[-1:] == ["ROLLBACK"]
    with pytest.raises(duckdb.CatalogException):
        con.execute("FROM m")
    con.begin().execute(TRAIN.format(source="t"))
    con.commit()
    assert con.execute("SELECT count(*) FROM m").fetchone() == (2,)


def test_cursors_are_connections_with_their_own_session(con: Connection, session: Any) -> None:
    cursor = con.cursor()
    assert isinstance(cursor, Connection)
    assert cursor.execute(TRAIN.format(source="t")).fetchall() == [(2,)]
    assert session.asked == []
    assert con.duplicate().execute("SELECT count(*) FROM m").fetchone() == (2,)


def test_a_closed_connection_raises_errors(con: Connection, session: Any) -> None:
    con.close()
    assert session.closed
    for query in ("SELECT 1", "SHOW MODELS"):
        with pytest.raises(grouplearn.Error, match="closed"):
            con.execute(query)
        with pytest.raises(grouplearn.Error, match="closed"):
            con.sql(query)


module_frame = pd.DataFrame({"x": [9], "y": [9]})


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_python_variables_are_found(con: Connection, make: object) -> None:
    local = make({"x": [1, 2, 3], "y": [0, 1, 0]})  # type: ignore[operator]
    assert len(local) == 3
    assert con.execute("SELECT count(*) FROM local").fetchall() == [(3,)]
    assert con.sql("SELECT count(*) FROM local").fetchall() == [(3,)]
    assert con.query("FROM module_frame").fetchall() == [(9, 9)]
    assert con.execute(TRAIN.format(source="local")).fetchall() == [(3,)]
    assert con.sql("EVALUATE MODEL m ON local; SELECT count(*) FROM local").fetchall() == [(3,)]
    con.execute("DROP TABLE m")
    assert con.execute(TRAIN.format(source='"module_frame"')).fetchall() == [(1,)]
    assert "local" not in {name for (name,) in con.execute("SELECT view_name FROM duckdb_views()").fetchall()}


def test_a_table_wins_over_a_variable_and_a_column_is_no_table(con: Connection) -> None:
    t = pd.DataFrame({"x": [0]})
    y = np.array([1.0])
    assert len(t) == len(y) == 1
    assert con.execute(TRAIN.format(source="t")).fetchall() == [(2,)]


def test_a_table_that_nobody_finds_without_its_schema_hides_no_variable(con: Connection) -> None:
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [0, 1, 0]})
    con.execute("CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.FRAME AS SELECT 1 AS x, 1 AS y")
    assert con.execute("SELECT count(*) FROM frame").fetchall() == [(len(frame),)]
    assert con.execute(TRAIN.format(source="frame")).fetchall() == [(len(frame),)]
    con.execute("DROP TABLE m; SET search_path = 'main,elsewhere'")
    assert con.execute("SELECT count(*) FROM frame").fetchall() == [(1,)]
    assert con.execute(TRAIN.format(source="frame")).fetchall() == [(1,)]


def test_a_variable_that_cannot_be_read_may_have_the_name_of_a_column(con: Connection) -> None:
    with grouplearn.connect(progress=None) as other:
        x = other.sql("SELECT 42 AS a")
    y = [np.zeros((2, 2, 2))]
    assert x is not None
    assert y is not None
    assert con.execute(TRAIN.format(source="t")).fetchall() == [(2,)]


def test_arrays_of_numpy_are_found_as_in_duckdb(con: Connection) -> None:
    columns = {"x": np.arange(4.0), "y": np.arange(4) % 2}
    assert len(columns) == 2
    assert con.execute("SELECT count(*) FROM columns").fetchall() == [(4,)]
    assert con.execute(TRAIN.format(source="columns")).fetchall() == [(4,)]


def test_outer_frames_are_searched_when_duckdb_is_told_so(con: Connection) -> None:
    frame = pd.DataFrame({"x": [1], "y": [1]})
    assert len(frame) == 1

    with pytest.raises(duckdb.CatalogException):
        train_from_elsewhere(con)
    con.execute("SET python_scan_all_frames = true")
    assert train_from_elsewhere(con) == [(1,)]


def train_from_elsewhere(con: Connection) -> object:
    return con.execute(TRAIN.format(source="frame")).fetchall()


def test_interrupt_stops_training_from_another_thread(con: Connection, session: Any) -> None:
    session.wait = True
    threading.Timer(0.2, con.interrupt).start()
    began = time.monotonic()
    with pytest.raises(grouplearn.Cancelled):
        con.execute(TRAIN.format(source="t"))
    assert time.monotonic() - began < STOPS_WITHIN_SECONDS


@pytest.fixture
def control_c() -> Iterator[Any]:
    """The handler of a shell's foreground; a background job's tests begin with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_control_c_stops_training_and_is_a_keyboard_interrupt(con: Connection, session: Any, control_c: Any) -> None:
    session.wait = True

    def press() -> None:
        session.waiting.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt) as stopped:
        con.execute(TRAIN.format(source="t"))
    assert isinstance(stopped.value.__cause__, grouplearn.Cancelled)
    assert signal.getsignal(signal.SIGINT) is control_c
    session.wait = False
    assert con.execute(TRAIN.format(source="t")).fetchall() == [(2,)]


def test_pep_249_cursors() -> None:
    with grouplearn.connect(progress=None) as connection:
        cursor = connection.cursor()
        assert cursor.description is None
        assert cursor.arraysize == 1
        cursor.setinputsizes([10])
        cursor.setoutputsize(10, 0)
        cursor.execute("FROM range(9)")
        assert [column[0] for column in cursor.description or ()] == ["range"]
        assert cursor.fetchmany() == [(0,)]
        cursor.arraysize = 3
        assert cursor.fetchmany() == [(1,), (2,), (3,)]
        assert cursor.fetchmany(4) == [(4,), (5,), (6,), (7,)]
        assert cursor.fetchmany(size=5) == [(8,)]
        assert cursor.fetchmany() == []
        assert connection.description is None


def test_completion_finds_what_is_duckdbs() -> None:
    with grouplearn.connect(progress=None) as connection:
        assert {"execute", "df", "fetchall", "register", "create_function", "arraysize"} <= set(dir(connection))


def test_progress_is_checked_when_the_connection_is_made() -> None:
    with pytest.raises(grouplearn.InterfaceError, match="progress is 'auto', None, False or a Progress, not 'yes'"):
        grouplearn.connect(progress="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow", "relation"])
def test_a_model_is_trained_from_a_variable(kind: str) -> None:
    with grouplearn.connect(progress=None) as connection:
        made = connection.sql("SELECT i % 2 AS g, i AS x, 3.0 * i AS y FROM range(40) AS r(i)")
        assert made is not None
        rows = {  # noqa: F841  (found by its name)
            "pandas": made.df,
            "polars": made.pl,
            "lazy": lambda: made.pl().lazy(),
            "arrow": made.to_arrow_table,
            "relation": lambda: made,
        }[kind]()
        connection.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM rows GROUP BY g")
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL").fetchall()
        assert views == [
            (f"m{suffix}",)
            for suffix in ("", "_curves", "_features", "_history", "_importance", "_schedule", "_versions", "_weights")
        ]


def test_of_two_that_train_the_same_model_at_once_one_wins() -> None:
    train = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"
    with grouplearn.connect(progress=None) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 20 AS g, i AS x, 3.0 * i AS y FROM range(4000) AS r(i)")
        connection.execute(train.replace("MODEL m", "MODEL first"))
        ended: list[object] = []
        start = threading.Barrier(2)

        def work(cursor: grouplearn.Connection) -> None:
            start.wait()
            try:
                ended.append(len(cursor.execute(train).fetchall()))
            except grouplearn.Error as error:
                ended.append(error)

        workers = [threading.Thread(target=work, args=(connection.cursor(),)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert ended.count(20) == 1
        counts = "SELECT count(*) FROM grouplearn.models UNION ALL SELECT count(*) FROM grouplearn.trials"
        assert connection.execute(counts).fetchall() == [(2,), (80,)]


def test_pep_249_types_and_constructors() -> None:
    with grouplearn.connect() as con:
        kinds = [entry[1] for entry in con.execute("SELECT 1, 'a', DATE '2024-01-01', 'b'::BLOB").description or []]
        values = [grouplearn.Date(2024, 1, 2), grouplearn.Timestamp(2024, 1, 2, 3, 4, 5), grouplearn.Binary(b"x")]
        assert con.execute("SELECT ?, ?, ?", values).fetchone() == tuple(values)
    expected = [grouplearn.NUMBER, grouplearn.STRING, grouplearn.DATETIME, grouplearn.BINARY]
    assert [each == kind for each, kind in zip(expected, kinds, strict=True)] == [True] * 4
    assert kinds[0] != grouplearn.STRING
    moment = grouplearn.TimestampFromTicks(86400 * 366)
    assert (grouplearn.DateFromTicks(86400 * 366), grouplearn.TimeFromTicks(86400 * 366)) == (
        moment.date(),
        moment.time(),
    )


def test_a_file_can_be_made_for_an_older_duckdb(tmp_path: Any) -> None:
    with grouplearn.connect(tmp_path / "old.duckdb", progress=False, storage_version="v1.5.0") as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i AS y FROM range(9) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM t")
        made = con.execute(
            "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = 'old'"
        ).fetchall()
    assert made[0][0].startswith("v1.5.0")


@pytest.mark.examples(3)
@pytest.mark.parametrize("read", ["fetchall", "df", "arrow"])
@pytest.mark.parametrize(
    "statement", ["TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FROM t", "SHOW MODELS"]
)
def test_an_answer_can_be_read_after_commit(statement: str, read: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, 2.0 * i AS y FROM range(9) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM t")
        con.begin().execute(statement).commit()
        names = [name for name, *_ in con.description or ()]
        assert "Success" not in names
        assert len(getattr(con, read)()) == 1
        con.begin().execute(statement).fetchall()
        con.commit()
        assert con.fetchall() == []  # read before
        con.begin().execute("CREATE TABLE shown AS SELECT * FROM (SHOW MODELS)").commit()  # and this is not run again
        assert con.execute("SELECT count(*) FROM shown").fetchall() == [(1,)]


def test_methods_of_duckdbs_that_return_the_connection_return_ours() -> None:
    frame = pd.DataFrame({"x": range(9), "y": range(9)})
    with grouplearn.connect(progress=None) as con:
        assert con.register("v", frame) is con
        assert con.create_function("same", lambda x: x, [int], int) is con
        assert con.remove_function("same") is con
        assert con.execute("CREATE TABLE t (x BIGINT, y BIGINT)").append("t", frame) is con
        assert con.checkpoint() is con
        assert len(con.register("w", frame).execute(TRAIN.format(source="w")).fetchall()) == 1
        assert con.unregister("v") is con


def test_a_text_may_make_a_temporary_macro_and_go_on_with_a_query() -> None:
    with grouplearn.connect(progress=None) as con:
        assert con.execute("CREATE TEMP MACRO next(x) AS x + 1; SELECT next(41)").fetchall() == [(42,)]
        con.execute("CREATE TABLE t AS SELECT i AS x, 2.0 * i AS y FROM range(9) AS r(i)")
        con.execute("TRAIN MODEL trees USING gbdt PREDICT y FEATURES (next(x)) FROM t")
        assert len(con.execute("SELECT predict('trees', t) FROM t").fetchall()) == 9
        assert con.execute("DROP MACRO next; SELECT 42").fetchall() == [(42,)]
