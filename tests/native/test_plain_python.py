"""Plain ``duckdb.connect()`` with the extension loaded: this Python's DuckDB in process, and DuckDB 1.5 in its own."""

import importlib.metadata
import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest
from native_builds import built

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE.parent / "slt").glob("*.slt"))
VERSION = importlib.metadata.version("duckdb")
TRAIN = "TRAIN OR REPLACE MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE"


def run_scripts(python: str, version: str) -> None:
    command = [python, str(HERE / "slt_in_plain_duckdb.py"), str(built(version)), *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_script_gives_what_it_gives_on_our_own_connection() -> None:
    run_scripts(sys.executable, VERSION)


@pytest.mark.skipif("GROUPLEARN_DUCKDB_1" not in os.environ, reason="GROUPLEARN_DUCKDB_1 is a python with DuckDB 1.5")
def test_every_script_in_duckdb_1() -> None:
    python = os.environ["GROUPLEARN_DUCKDB_1"]
    version = subprocess.run([python, "-c", "import duckdb; print(duckdb.__version__)"], capture_output=True, text=True)
    run_scripts(python, version.stdout.strip())


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    opened = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    opened.execute(f"LOAD '{built(VERSION)}'")
    opened.execute("CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)")
    with opened:
        yield opened


def test_relations_and_data_frames(connection: duckdb.DuckDBPyConnection) -> None:
    frame = connection.sql("FROM t").df()
    connection.register("frame", frame)
    relation = connection.sql(TRAIN.format(name="m").replace("FROM t", "FROM frame"))
    assert len(frame) == relation.aggregate("sum(n_rows)").fetchall()[0][0] == 300
    assert relation.fetchall() == relation.fetchall()
    assert connection.sql("SELECT count(*) FROM duckdb_views() WHERE view_name = 'm'").fetchall() == [(1,)]


def test_nothing_is_trained_by_asking_what_a_statement_is(connection: duckdb.DuckDBPyConnection) -> None:
    assert len(connection.extract_statements(TRAIN.format(name="m"))) == 2
    assert connection.sql("SELECT count(*) FROM duckdb_views() WHERE view_name = 'm'").fetchall() == [(0,)]


def test_threads_with_cursors_of_their_own(connection: duckdb.DuckDBPyConnection) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connection.cursor() as cursor:
                for _ in range(3):
                    assert len(cursor.execute(f"ATTACH IF NOT EXISTS ':memory:' AS d{number}").fetchall()) == 0
                    rows = cursor.execute(TRAIN.format(name=f"d{number}.main.m")).fetchall()
                    assert [row[1] for row in rows] == [100, 100, 100]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_loaded_by_name_where_duckdb_looks() -> None:
    folder = built(VERSION).parents[2]
    config = {"allow_unsigned_extensions": "true", "extension_directory": str(folder)}
    with duckdb.connect(config=config) as connection:
        connection.execute("LOAD grouplearn")
        assert len(connection.execute("SHOW LEARNERS").fetchall()) > 3


def test_every_type_arrives_as_it_is(connection: duckdb.DuckDBPyConnection) -> None:
    """The row goes to the process and back for its key, whatever types its other columns have."""
    connection.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE TABLE all_types AS SELECT *, 1 AS g, 2.0 AS x, 3.0 AS y,"
        " 'happy'::mood AS feeling, 3::HUGEINT AS huge, INTERVAL 3 DAY AS span, [1, NULL] AS list, MAP {'a': 1} AS map,"
        " {'a': [1], 'b': NULL} AS struct, 1.25::DECIMAL(30, 2) AS decimal, TIMESTAMPTZ '2020-01-01' AS at,"
        " gen_random_uuid() AS id, 'ab'::BLOB AS blob, TIME '12:00' AS time, DATE '2020-01-01' AS day, NULL AS nothing"
        " FROM range(50) AS r(i)"
    )
    connection.execute(TRAIN.format(name="m").replace("FROM t", "FROM all_types"))
    found = connection.execute("SELECT DISTINCT round(predict_value('m', a), 6) FROM all_types AS a").fetchall()
    assert found == [(3.0,)]
