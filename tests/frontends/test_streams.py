"""Rows that can be read once: readers, results, generators, pipes. TRAIN reads them once, and learns as from a table."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import grouplearn
from grouplearn import Connection

TRAIN = "TRAIN OR REPLACE MODEL m USING gbdt PREDICT y FEATURES (x, z) FROM rows GROUP BY g WITH (num_iterations = 3)"
NOTE = "rows can be read once: its 240 rows were kept in a temporary table meanwhile"


@pytest.fixture
def con() -> Iterator[Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


def table(n: int = 240) -> pa.Table:
    x = np.arange(float(n))
    return pa.table({"g": np.arange(n) % 3, "x": x, "z": np.cos(x), "y": 2 * x + np.sin(x)})


def metrics(con: Connection, rows: Any, sql: str = TRAIN) -> list[tuple[Any, ...]]:
    """Train on ``rows`` and return the result without its notes."""
    found = con.execute(sql).df().drop(columns=["note", "error"], errors="ignore")
    return [*found.itertuples(index=False, name=None)]


def error_of(con: Connection, rows: Any, sql: str = TRAIN) -> str:
    with pytest.raises(grouplearn.Error) as caught:
        con.execute(sql)
    return str(caught.value)


def _halves() -> list[pa.Table]:
    return [table().slice(0, 100), table().slice(100)]


STREAMS: dict[str, Callable[[], Any]] = {
    "reader": lambda: table().to_reader(),
    "batches": lambda: iter(table().to_batches(max_chunksize=50)),
    "tables": lambda: iter(_halves()),
    "pandas": lambda: (each.to_pandas() for each in _halves()),
    "polars": lambda: (pl.from_arrow(each) for each in _halves()),
    "other order of columns": lambda: iter([_halves()[0], _halves()[1].select(["y", "x", "g", "z"])]),
    "narrower types": lambda: iter([_halves()[0], _halves()[1].set_column(0, "g", _halves()[1]["g"].cast(pa.int8()))]),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_trains_what_its_rows_in_a_table_train(con: Connection, kind: str) -> None:
    expected, rows = metrics(con, table()), STREAMS[kind]()
    assert metrics(con, rows) == expected
    assert next(iter(rows), None) is None
    assert con.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall() == []


def test_the_note_says_that_rows_were_kept(con: Connection) -> None:
    rows = table().to_reader()
    assert NOTE in con.execute(TRAIN).fetchall()[0][-1]
    assert rows.read_all().num_rows == 0


def test_the_result_of_another_connection(con: Connection) -> None:
    con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i % 7 AS z, 2.0 * i AS y FROM range(90) AS r(i)")
    expected = metrics(con, None, TRAIN.replace("rows", "t"))
    rows = con.cursor().execute("FROM t")
    assert metrics(con, rows) == expected


def test_the_result_of_the_same_connection_is_refused(con: Connection) -> None:
    rows = con.execute("SELECT 1 AS g")
    assert "it is the connection that trains, whose next statement drops the result" in error_of(con, rows)


JOINED = (
    "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x, bonus) FROM (SELECT r.*, s.bonus FROM shops AS s "
    "JOIN rows AS r USING (g)) WHERE x > 10 AND g IN (SELECT g FROM rows WHERE x > 230) GROUP BY g"
)


def test_joined_with_tables_and_in_subqueries(con: Connection) -> None:
    con.execute("CREATE TABLE shops AS SELECT i AS g, 0.5 * i AS bonus FROM range(3) AS r(i)")
    rows: Any = table()
    expected = metrics(con, rows, JOINED)
    rows = table().to_reader()
    assert metrics(con, rows, JOINED) == expected
    rows = iter(_halves())
    assert metrics(
        con, rows, JOINED.replace("shops AS s JOIN rows AS r USING (g)", "shops AS s, rows AS r WHERE r.g = s.g")
    ) == (expected)


def test_several_learners_read_a_stream_once(con: Connection) -> None:
    sql = "TRAIN OR REPLACE MODEL m USING gbdt, linear_regression PREDICT y FEATURES (x, z) FROM rows"
    rows: Any = table()
    expected = metrics(con, rows, sql)
    rows = table().to_reader()
    assert metrics(con, rows, sql) == expected


def test_a_table_of_the_name_comes_first(con: Connection) -> None:
    con.execute("CREATE TABLE rows AS SELECT 1 AS g, i AS x, i AS z, i AS y FROM range(50) AS r(i)")
    rows = table().to_reader()
    assert metrics(con, rows)[0][2] == 50
    assert rows.read_all().num_rows == 240


def test_a_common_table_expression_of_the_name_comes_first(con: Connection) -> None:
    con.execute("CREATE TABLE t AS SELECT 1 AS g, i AS x, i AS z, i AS y FROM range(50) AS r(i)")
    rows = table().to_reader()
    metrics(con, rows, TRAIN.replace("FROM rows", "FROM (WITH kept AS (FROM t) SELECT kept.* FROM kept) AS rows"))
    assert rows.read_all().num_rows == 240


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (f"{TRAIN[:-1]}, epoch = 3)", 'unknown option "epoch"'),
        (TRAIN.replace("x, z", "x, w"), 'Referenced column "w" not found in FROM clause!'),
        (TRAIN.replace("gbdt", "gdbt"), 'unknown learner "gdbt"'),
        (f"{TRAIN} OPTIMIZE mrr", 'unknown metric "mrr"'),
        (
            f"EXPLAIN {TRAIN}",
            '"rows" can be read once, and after EXPLAIN TRAIN there would be nothing left to train on',
        ),
        ("EVALUATE MODEL m ON rows", '"rows" is a stream that can be read only once, and rows are read more than once'),
    ],
)
def test_a_mistake_is_found_before_a_row_is_read(con: Connection, sql: str, message: str) -> None:
    rows: Any = table()
    con.execute(TRAIN)
    rows = table().to_reader()
    assert error_of(con, rows, sql).startswith(message)
    assert rows.read_all().num_rows == 240


def test_whole_numbers_may_be_two_classes(con: Connection) -> None:
    rows = pa.table({"x": np.arange(90.0), "late": np.arange(90) % 2}).to_reader()
    sql = "TRAIN MODEL m USING gbdt PREDICT late FEATURES (x) FROM rows OPTIMIZE auc"
    assert metrics(con, rows, sql)[0][-1] == "done"


def test_explain_analyze_trains(con: Connection) -> None:
    rows = table().to_reader()
    plan = con.execute(f"EXPLAIN ANALYZE {TRAIN}").fetchall()
    assert any("Scan: rows" in line for (line,) in plan)
    assert rows.read_all().num_rows == 0


def _failing() -> Iterator[pa.Table]:
    yield table(30)
    raise ValueError("the server is away")


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (_failing, "failed after 30 rows: ValueError: the server is away"),
        (
            lambda: iter([table(30), table(20).drop(["x"])]),
            'failed after 30 rows: data frame 2 lacks column "x" of the first',
        ),
        (
            lambda: iter([table(30), table(20).append_column("w", pa.array(range(20)))]),
            'failed after 30 rows: data frame 2 has a column "w" more than the first',
        ),
        (
            lambda: iter([table(30), table(20).set_column(1, "x", pa.array(["a"] * 20))]),
            "failed after 30 rows: data frame 2 has values that the first one's types do not hold: Failed to parse string: 'a'",
        ),
        (lambda: iter([]), "failed after 0 rows: there is no first data frame"),
        (lambda: iter([1]), "failed after 0 rows: item 1 has type int, and is no data frame"),
    ],
)
def test_what_goes_wrong_while_a_stream_is_read_is_the_error(con: Connection, frames: Any, why: str) -> None:
    rows = frames()
    found = error_of(con, rows)
    assert found.startswith(f'reading "rows" {why}')
    assert f"\n\nLINE 1: {TRAIN}\n{' ' * (8 + TRAIN.index('rows'))}^^^^" in found
    assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchall() == [(0,)]


def test_in_a_transaction(con: Connection) -> None:
    con.begin()
    rows = table().to_reader()
    con.execute(TRAIN)
    con.rollback()
    assert con.execute("SHOW MODELS").fetchall() == []
    con.begin()
    rows = table().to_reader()
    con.execute(TRAIN)
    con.commit()
    assert len(con.execute("SHOW MODELS").fetchall()) == 1
    assert rows.read_all().num_rows == 0


def test_columns_of_every_type_are_kept_as_they_are(con: Connection) -> None:
    frame = pd.DataFrame({"y": np.arange(40.0), "c": pd.Categorical(["a", "b"] * 20), "b": [True, False] * 20})
    sql = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (c, b) FROM rows"
    rows: Any = frame
    expected = metrics(con, rows, sql)
    rows = iter([frame])
    assert metrics(con, rows, sql) == expected


# --- files


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "rows.csv"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as file:
            table().to_pandas().to_csv(file, index=False)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield path
    writer.join(timeout=10)
    assert not writer.is_alive()


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('{}')",
        "'{}'",
        "(SELECT r.* FROM read_csv(['{}'], header = true) AS r)",
        "(SELECT read_csv.* FROM read_csv('{}') JOIN range(1) ON true)",
    ],
)
def test_a_pipe_with_a_name_is_read_once(con: Connection, pipe: Path, tmp_path: Path, source: str) -> None:
    (tmp_path / "same.csv").write_text(table().to_pandas().to_csv(index=False), encoding="utf-8")
    expected = metrics(con, None, TRAIN.replace("rows", source.format(tmp_path / "same.csv")))
    assert metrics(con, None, TRAIN.replace("rows", source.format(pipe))) == expected
    (statement,) = con.execute("SELECT statement FROM grouplearn.models").fetchall()[0]
    assert str(pipe) in statement


@pytest.mark.parametrize("path", ["/dev/stdin", "/dev/fd/3", "/proc/self/fd/3"])
def test_standard_input_is_not_opened_to_explain(con: Connection, path: str) -> None:
    sql = f"EXPLAIN TRAIN MODEL m USING gbdt PREDICT y FROM read_csv('{path}', header = true)"
    assert error_of(con, None, sql) == (
        f"read_csv('{path}', header = true) can be read once, and after EXPLAIN TRAIN there would be nothing left to train on\n\n"
        f"LINE 1: {sql}\n{' ' * (8 + sql.index('read_csv'))}{'^' * len(sql[sql.index('read_csv') :])}\n\n"
        "Hint: TRAIN reads it once and keeps its rows meanwhile. To see the plan first, keep them in a table."
    )


def test_options_are_checked_before_a_file_is_opened(con: Connection) -> None:
    sql = "TRAIN MODEL m USING gbdt PREDICT y FROM read_csv('/dev/stdin') WITH (epoch = 3)"
    assert error_of(con, None, sql).startswith('unknown option "epoch"')


def test_retry_does_not_wait_for_rows_that_are_gone(con: Connection, pipe: Path) -> None:
    source = f"(SELECT * REPLACE (CASE WHEN g > 0 THEN y END AS y) FROM read_csv('{pipe}'))"
    con.execute(TRAIN.replace("rows", source))
    assert error_of(con, None, "RETRY FAILED MODEL m").startswith(
        'FROM of model "m" could be read once, and its rows are gone'
    )
