"""DuckDB's memory limit while rows are read: low for a while, shared by those who read at once, and put back as it was."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import grouplearn
from grouplearn.errors import TrainingError
from grouplearn.extract import database_memory
from grouplearn.extract.database_memory import database_within

GB = 10**9
TRAIN = "TRAIN MODEL {} USING linear_regression PREDICT y FEATURES (x) FROM t WITH (memory_limit = '{}')"


def limit(con: duckdb.DuckDBPyConnection | grouplearn.Connection) -> str:
    return str(con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])


@pytest.fixture
def con(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(tmp_path / "d.duckdb")
    connection.execute("SET threads = 2")
    return connection


@pytest.mark.parametrize("before", [None, "8GB", "7654321 KB", "1234 MiB", "-1"])
def test_the_limit_is_put_back_as_it_was_however_often(con: duckdb.DuckDBPyConnection, before: str | None) -> None:
    if before is not None:
        con.execute(f"SET memory_limit = '{before}'")
    shown = limit(con)
    for _ in range(3):
        with database_within(con, GB, {}):
            assert limit(con) == "286.1 MiB"
        assert limit(con) == shown


def test_statements_that_overlap(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The lowest counts while it lasts, whoever began first; other connections to the file are of the same instance."""
    shown = limit(con)
    other = duckdb.connect(tmp_path / "d.duckdb")
    first, second = database_within(con, 2 * GB, {}), database_within(other, GB, {})
    first.__enter__()
    assert limit(con) == "572.2 MiB"
    second.__enter__()
    assert limit(con) == "286.1 MiB"
    first.__exit__(None, None, None)
    assert limit(con) == "286.1 MiB"
    second.__exit__(None, None, None)
    assert limit(con) == shown
    first, second = database_within(con, 2 * GB, {}), database_within(other, GB, {})
    first.__enter__()
    second.__enter__()
    second.__exit__(None, None, None)
    assert limit(con) == "572.2 MiB"
    first.__exit__(None, None, None)
    assert limit(con) == shown


def test_instances_in_memory_know_nothing_of_each_other() -> None:
    one, other = (duckdb.connect(config={"threads": 2}) for _ in range(2))
    settings: tuple[dict[str, int], ...] = ({}, {})
    shown = limit(one)
    with database_within(one, GB, settings[0]), database_within(one.cursor(), 2 * GB, settings[0]):
        assert limit(one) == "286.1 MiB"
        with database_within(other, 2 * GB, settings[1]):
            assert limit(other) == "572.2 MiB"
        assert (limit(one), limit(other)) == ("286.1 MiB", shown)
    assert limit(one) == shown


def test_a_lower_limit_of_the_user_stays(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("SET memory_limit = '200 MiB'")
    with database_within(con, GB, {}):
        assert limit(con) == "200.0 MiB"
    assert limit(con) == "200.0 MiB"


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_limit_below_a_table_in_memory(tmp_path: Path, place: str) -> None:
    name = ":memory:" if place == "memory" else tmp_path / "d.duckdb"
    with grouplearn.connect(name, config={"threads": 2}, progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT random() AS x, random() AS y, random() AS z FROM range(600000)")
        shown = limit(con)
        assert len(con.execute(TRAIN.format("m", "20MB")).fetchall()) == 1
        assert limit(con) == shown


def test_too_little_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_memory, "THREAD_BYTES", 0)
    con = grouplearn.connect(tmp_path / "d.duckdb", progress=False)
    con.execute("CREATE TABLE t AS SELECT hash(i)::VARCHAR AS g, random() AS x, random() AS y FROM range(200000) r(i)")
    with con, pytest.raises(TrainingError) as caught:
        con.execute(TRAIN.format("m", "2MB").replace("FROM t", "FROM t GROUP BY g"))
    assert str(caught.value) == (
        "DuckDB did not have enough memory to read the rows, so nothing was trained\n\n"
        "Hint: Give it more with a higher memory_limit, or let fewer threads share it: SET threads = 1."
    )


def test_too_little_room_in_the_temporary_directory_is_told(tmp_path: Path) -> None:
    con = grouplearn.connect(tmp_path / "d.duckdb", config={"threads": 2}, progress=False)
    con.execute("CREATE TABLE t AS SELECT i % 3000 AS g, random() AS x, random() AS y FROM range(2000000) r(i)")
    con.execute("SET max_temp_directory_size = '1MB'")
    with con, pytest.raises(TrainingError) as caught:
        con.execute(TRAIN.format("m", "20MB").replace("FROM t", "FROM t GROUP BY g"))
    assert str(caught.value) == (
        "DuckDB did not have enough room in its temporary directory to sort the rows, so nothing was trained\n\n"
        "Hint: Give it more with a higher max_temp_directory_size, or a temp_directory on a disk that has room. With a higher"
        " memory_limit it needs less."
    )
