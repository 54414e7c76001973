"""Plain ``duckdb.connect()`` with the extension loaded: this Python's DuckDB in process, and DuckDB 1.5 in one of its own."""

import datetime
import decimal
import importlib.metadata
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from helpers.overlay import overlay
from native_builds import built

HERE = Path(__file__).parent
#: But one that takes as long as all others together, and whose errors the tests of the stock shell see on the line, too.
SCRIPTS = sorted(path for path in (HERE.parent / "slt").glob("*.slt") if path.stem != "damaged")
VERSION = importlib.metadata.version("duckdb")
#: The DuckDB of the newest shell that PyPI has.
DUCKDB_1 = "1.5.6"
TRAIN = "TRAIN OR REPLACE MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE"


def run_scripts(version: str, environment: dict[str, str], scripts: list[Path]) -> None:
    command = [sys.executable, str(HERE / "slt_in_plain_duckdb.py"), str(built(version)), *map(str, scripts)]
    environment["GROUPLEARN_PYTHON"] = sys.executable
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def some(first: int, step: int) -> list[Path]:
    """Return every so many scripts, as they take minutes; all where every shell is asked for."""
    return SCRIPTS if os.environ.get("GROUPLEARN_CLI_VERSIONS") == "all" else SCRIPTS[first::step]


def test_scripts_give_what_they_give_on_our_own_connection() -> None:
    run_scripts(VERSION, dict(os.environ), some(0, 19))


@pytest.mark.thorough
def test_scripts_in_duckdb_1() -> None:
    run_scripts(DUCKDB_1, overlay(f"duckdb-{DUCKDB_1}", f"duckdb=={DUCKDB_1}"), some(2, 27))


@pytest.fixture(scope="module")
def loaded() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as opened:
        opened.execute(f"LOAD '{built(VERSION)}'")
        yield opened


@pytest.fixture
def connection(loaded: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    """The shared connection, whose process takes seconds to start, in a database of the test's own."""
    loaded.execute("ATTACH ':memory:' AS here; USE here")
    loaded.execute("CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)")
    yield loaded
    loaded.execute("USE memory")
    others = "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'"
    for (name,) in loaded.execute(others).fetchall():
        loaded.execute(f"DETACH {name}")


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


@pytest.mark.parametrize(("written", "values"), [("?", [3]), ("$1", [3]), ("$least", {"least": 3})])
def test_parameters(connection: duckdb.DuckDBPyConnection, written: str, values: object) -> None:
    """A second TRAIN would fail: the model is there."""
    text = TRAIN.format(name="m").replace("OR REPLACE ", "").replace("FROM t", f"FROM t WHERE x >= {written}")
    assert [row[1] for row in connection.execute(text, values).fetchall()] == [98, 98, 98]
    assert connection.execute("SELECT count(*) FROM m WHERE n_rows = ?", [98]).fetchall() == [(3,)]


def test_parameters_of_every_type_and_place(connection: duckdb.DuckDBPyConnection) -> None:
    text = (
        "CREATE TABLE n (a INTEGER); TRAIN MODEL m USING linear_regression PREDICT y + ? AS z FEATURES (x) FROM"
        " (SELECT *, DATE '2020-01-01' + i::INTEGER AS day FROM t, range(1) AS r(i)) WHERE day <= ? AND list_contains(?, g)"
        " AND ? IS NULL AND x < ? AND 'it''s' = ? VALIDATE NONE WITH (seed = ?)"
    )
    values = [1, datetime.date(2020, 1, 1), [0, 2], None, decimal.Decimal("100.5"), "it's", 3]
    assert connection.execute(text, values).fetchall()[0][0] == 134
    assert connection.sql("FROM n").fetchall() == []


@pytest.mark.parametrize(
    ("written", "values", "told"),
    [("?", [], "Values were not provided"), ("?", [1, 2], "excess parameters"), ("? + nothing", [1], "nothing")],
)
def test_wrong_parameters(connection: duckdb.DuckDBPyConnection, written: str, values: list[int], told: str) -> None:
    with pytest.raises(duckdb.Error, match=told):
        connection.execute(TRAIN.format(name="m").replace("FROM t", f"FROM t WHERE x >= {written}"), values)
    assert connection.execute("SHOW MODELS").fetchall() == []


def test_a_prepared_statement_trains_when_it_is_executed(connection: duckdb.DuckDBPyConnection) -> None:
    (statement,) = connection.extract_statements(
        TRAIN.format(name="m").replace("FROM t", "FROM t WHERE x >= $least").replace("OR REPLACE ", "")
    )
    assert statement.named_parameters == {"least"}
    assert connection.execute("SHOW MODELS").fetchall() == []
    assert len(connection.execute(statement, {"least": 3}).fetchall()) == 3


def test_parameters_in_a_transaction(connection: duckdb.DuckDBPyConnection) -> None:
    text = TRAIN.format(name="m").replace("FROM t", "FROM mine WHERE x >= ?")
    connection.execute("BEGIN; CREATE TEMP TABLE mine AS FROM t LIMIT 30")
    assert len(connection.execute(text, [0]).fetchall()) == 3
    assert connection.execute("SELECT count(*) FROM m_predict(mine)").fetchall() == [(30,)]
    connection.execute("ROLLBACK")
    assert connection.execute("SHOW MODELS").fetchall() == []


def test_threads_with_cursors_of_their_own(connection: duckdb.DuckDBPyConnection) -> None:
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with connection.cursor() as cursor:
                for _ in range(3):
                    assert len(cursor.execute(f"ATTACH IF NOT EXISTS ':memory:' AS d{number}").fetchall()) == 0
                    rows = cursor.execute(
                        TRAIN.format(name=f"d{number}.main.m").replace("FROM t", "FROM here.t")
                    ).fetchall()
                    assert [row[1] for row in rows] == [100, 100, 100]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_no_core_is_burnt_while_other_threads_have_all_the_work(connection: duckdb.DuckDBPyConnection) -> None:
    """The other thread naps over its rows; this one, which waits for it, takes no time of a core."""
    here, nap_s, napping = threading.get_ident(), 2.0, threading.Event()

    def slow(values: pa.Array) -> pa.Array:
        if napping.is_set():
            return values
        if threading.get_ident() == here:
            napping.wait(1)
        else:
            napping.set()
            time.sleep(nap_s)
        return values

    connection.create_function("slow", slow, ["DOUBLE"], "DOUBLE", type="arrow")
    connection.execute(
        "SET threads = 2; CREATE TABLE t3 AS SELECT i % 3 AS g, i * 0.5 AS x, i + 1.5 AS y FROM range(400000) r(i)"
    )
    text = TRAIN.format(name="m").replace("FROM t", "FROM t3 WHERE slow(x) < ?")
    began = time.process_time()
    connection.execute(text, [50])  # with parameters a statement is carried out by the thread that executes it
    assert napping.is_set()
    assert time.process_time() - began < nap_s / 2


INTERRUPTED = """
import duckdb, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
connection.execute(f"LOAD '{sys.argv[1]}'")
connection.execute(sys.argv[2])
connection.execute(sys.argv[3])
for _ in range(3):
    pressing = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    pressing.start()
    try:
        try:
            connection.execute(sys.argv[4]).fetchall()
        except duckdb.Error:
            time.sleep(10)  # the signal is raised again for Python where it is Python's thread that works for us
    except (RuntimeError, KeyboardInterrupt) as error:
        print("interrupted", type(error).__name__)
    pressing.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert connection.execute("SELECT 42").fetchall() == [(42,)]
"""


def test_control_c_is_heard_whichever_thread_works_for_us() -> None:
    """Now and then it is one of the database's: Python's client cancels the query then, and waits for it without a word."""
    text = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
    long = (
        TRAIN.format(name="n").replace("linear_regression", "logistic_regression").replace("PREDICT y", "PREDICT g > 0")
    )
    long += " WITH (epochs = 1000000000, tolerance = 0, learning_rate = 1e-9)"
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        INTERRUPTED,
        str(built(VERSION)),
        text,
        TRAIN.format(name="m"),
        long,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("interrupted") == 3


FORKS = """
import duckdb, os, sys, time
def trained(connection):
    connection.execute(f"LOAD '{sys.argv[1]}'")
    connection.execute(sys.argv[2])
    return len(connection.execute(sys.argv[3]).fetchall())
config = {"allow_unsigned_extensions": "true"}
parents = duckdb.connect(config=config)
assert trained(parents) == 3
child = os.fork()
if not child:
    os._exit(trained(duckdb.connect(config=config)) - 3)
assert os.waitpid(child, 0) == (child, 0)
assert len(parents.execute("SHOW MODELS").fetchall()) == 1
print("both")
"""


def test_a_fork_starts_a_process_of_its_own_and_leaves_its_parents() -> None:
    text = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(built(VERSION)), text, TRAIN.format(name="m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("both\n")  # after DuckDB's bar where this takes seconds


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


def test_what_is_near_to_a_statement_of_ours_says_so_if_duckdb_cannot_parse_it(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    for statement in ("DROP MODLE m", "SELECT 1; DROP MODLE m", "SHOW MODELS; DROP MODLE m"):
        with pytest.raises(
            duckdb.ParserException, match=r'expected MODEL, not "MODLE"[^$]*\n\nHint: Did you mean DROP MODEL\?$'
        ):
            connection.execute(statement)
    connection.execute("CREATE TABLE modle AS SELECT 1 AS a")
    assert connection.execute("DESCRIBE modle").fetchall()[0][0] == "a"
    with pytest.raises(duckdb.ParserException, match='syntax error at or near "TABEL"'):
        connection.execute("DROP TABEL modle")
