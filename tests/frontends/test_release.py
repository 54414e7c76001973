"""A connection that nobody holds frees its file and its transaction at once, without the garbage collector, as DuckDB's does."""

import gc
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import matplotlib
import pytest
from matplotlib import pyplot

import grouplearn
from grouplearn.frontends.progress import TerminalProgress

matplotlib.use("agg")

TABLE = "CREATE TABLE t AS SELECT i % 5 AS g, i % 11 AS x, i AS y FROM range(500) r(i)"
TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x * 2 AS z) FROM t GROUP BY g"
TREES = "TRAIN OR REPLACE MODEL m USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY g WITH (num_iterations = 3)"


@pytest.fixture(autouse=True, scope="module")
def frozen() -> Iterator[None]:
    """Leave to the collector what these tests make: all that was imported takes it longer than a training."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fails(con: grouplearn.Connection, text: str) -> None:
    with pytest.raises(grouplearn.Error):
        con.execute(text)


def draw(con: grouplearn.Connection) -> None:
    con.model("m").plot.curves()
    pyplot.close("all")


def take_frame(con: grouplearn.Connection) -> None:
    rows = con.execute("FROM t").df()
    con.execute(TRAIN.replace("FROM t", "FROM rows")).fetchall()
    assert len(rows) == 500


USES: dict[str, Callable[[grouplearn.Connection], object]] = {
    "a training": lambda con: con.execute(TABLE.replace("TABLE", "OR REPLACE TABLE")).execute(TRAIN).fetchall(),
    "an unread answer": lambda con: con.execute(TRAIN),
    "an unread prediction": lambda con: con.execute("SELECT predict_value('m', t) FROM t"),
    "predictions of trees": lambda con: con.execute(TREES).execute("FROM m_predict(t)").fetchall(),
    "a reader": lambda con: con.execute(TRAIN).fetch_record_batch(),
    "a relation": lambda con: con.sql(TRAIN).fetchall(),
    "an error of ours": lambda con: fails(con, "TRAIN MODEL n USING nothing FROM t"),
    "an error of predict": lambda con: fails(con, "SELECT predict('nothing', t) FROM t"),
    "an error of DuckDB's": lambda con: fails(con, "FROM nothing"),
    "a cursor with an unread answer": lambda con: con.cursor().execute(TRAIN),
    "a duplicate": lambda con: con.duplicate().execute(TRAIN),
    "an open transaction": lambda con: con.execute("BEGIN").execute(TRAIN),
    "a model": lambda con: con.model("m").trials.fetchall(),
    "a report": lambda con: con.model("m").report(),
    "a plot": draw,
    "EVALUATE": lambda con: con.execute("EVALUATE MODEL m ON t"),
    "EXPLAIN ANALYZE": lambda con: con.execute(f"EXPLAIN ANALYZE {TRAIN}"),
    "a data frame": take_frame,
    "a function of the user's": lambda con: con.create_function("half", lambda x: x // 2, [int], int),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a table and a model."""
    path = tmp_path_factory.mktemp("shop") / "shop.duckdb"
    with grouplearn.connect(path, progress=None) as con:
        con.execute(TABLE).execute(TRAIN).fetchall()
    return path


@pytest.mark.parametrize("use", USES)
def test_a_connection_is_gone_with_its_last_name(shop: Path, tmp_path: Path, use: str) -> None:
    shutil.copy(shop, tmp_path)
    con = grouplearn.connect(tmp_path / "shop.duckdb", progress=TerminalProgress())
    USES[use](con)
    native = weakref.ref(con.native)
    del con
    assert native() is None
    # DuckDB says so if the database is still open.
    duckdb.connect(tmp_path / "shop.duckdb", read_only=True).close()


def test_another_process_opens_the_file_of_a_function_that_has_ended(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.duckdb")

    def job() -> None:
        con = grouplearn.connect(path)
        con.execute(TABLE).execute(TRAIN).fetchall()

    job()
    code = f"import duckdb; print(duckdb.connect({path!r}).execute('SELECT count(*) FROM t').fetchall())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[(500,)]", done.stderr


def test_the_unread_answer_of_a_cursor_that_is_gone_lets_checkpoint_run(tmp_path: Path) -> None:
    con = grouplearn.connect(tmp_path / "shop.duckdb")
    con.execute(TABLE)
    thread = threading.Thread(target=lambda: con.cursor().execute(TRAIN))
    thread.start()
    thread.join()
    con.execute("CHECKPOINT")


def test_what_is_read_of_a_connection_outlives_its_name(tmp_path: Path) -> None:
    def made() -> grouplearn.Connection:
        con = grouplearn.connect(tmp_path / "shop.duckdb")
        con.execute("DROP TABLE IF EXISTS t").execute(TABLE).execute(TRAIN).fetchall()
        return con

    assert len(made().sql("SELECT predict_value('m', t) AS p FROM t WHERE p IS NOT NULL").fetchall()) == 500
    assert len(made().sql(TRAIN).fetchall()) == 5
    assert len(made().model("m").trials.fetchall()) == 5
    assert "<html" in made().model("m").report()
