"""What DuckDB's settings say of files and clusters holds for our statements, at the moment when they begin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn.bind.sql.external_access import ExternalAccess
from grouplearn.data.files.run_directory import runs_of
from grouplearn.errors import AccessRefused
from grouplearn.extract import extract
from grouplearn.plan import calibration
from grouplearn.plan.cost.coefficients import UNKNOWN
from grouplearn.plan.explain.measured import Measured
from grouplearn.statements import resume as resuming

TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(tmp_path / "shop.duckdb", progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS g, i * 1.0 AS x, i * 2.0 AS y FROM range(200) AS r(i)")
        yield connection


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are more than fit."""
    monkeypatch.setattr(extract, "memory_limit", lambda given=None: 0)


@pytest.fixture
def left(tmp_path: Path) -> list[Path]:
    """What dead processes left: a run that can be resumed (by its manifest), and one that cannot."""
    parent = runs_of(str(tmp_path / "shop.duckdb"))
    names = ("durable-123e4567-e89b-42d3-a456-426614174000", "run-123e4567-e89b-42d3-a456-426614174001")
    for name in names:
        (parent / name).mkdir(parents=True, mode=0o700)
        (parent / name / "pid").touch()
        (parent / name / "manifest").touch()
    parent.chmod(0o700)
    return [parent / name for name in names]


def close(con: grouplearn.Connection, how: str = "SET enable_external_access = false") -> None:
    con.execute(how)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("SET enable_external_access = false", "enable_external_access is false"),
        ("SET disabled_filesystems = 'LocalFileSystem'", "LocalFileSystem is among the disabled_filesystems"),
    ],
)
def test_rows_that_do_not_fit_are_not_put_into_files(
    con: grouplearn.Connection, tmp_path: Path, how: str, why: str
) -> None:
    close(con, how)
    with pytest.raises(grouplearn.TrainingError) as caught:
        con.execute(TRAIN)
    assert str(caught.value) == (
        f"the rows do not fit in memory, and no directory for them could be made: [Errno 1] {why}: "
        f"'{tmp_path}/shop.duckdb.grouplearn'\n\nHint: make that place writable, or raise the memory limit"
    )
    assert not runs_of(str(tmp_path / "shop.duckdb")).exists()


@pytest.mark.usefixtures("no_memory")
def test_rows_go_where_duckdb_may_write(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(f"SET allowed_directories = ['{tmp_path}/shop.duckdb.grouplearn']")
    close(con)
    assert len(con.execute(TRAIN).fetchall()) == 2


def test_a_run_is_durable_only_where_it_may_be(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(con)
    monkeypatch.setattr(resuming, "DURABLE_SECONDS", 0.0)  # a long one is, without being asked to
    assert len(con.execute(TRAIN).fetchall()) == 2
    with pytest.raises(AccessRefused) as caught:
        con.execute(f"{TRAIN} WITH (durable = true)")
    message = str(caught.value)
    assert message.startswith(
        f'directory "{tmp_path}/shop.duckdb.grouplearn" may not be used: enable_external_access is false\n\nLINE 1: '
    )
    assert message.splitlines()[3].index("^") == message.splitlines()[2].index("true)")
    assert not runs_of(str(tmp_path / "shop.duckdb")).exists()


@pytest.mark.parametrize("statement", ["SHOW RUNS", "RESUME MODEL m", "DROP RUN '123e4567'"])
def test_runs_are_not_looked_for(con: grouplearn.Connection, left: list[Path], statement: str) -> None:
    close(con)
    with pytest.raises(AccessRefused, match=r"shop\.duckdb\.grouplearn\" may not be used: enable_external_access is"):
        con.execute(statement)
    assert all(path.is_dir() for path in left)


def test_nothing_is_cleared_beside_the_database(con: grouplearn.Connection, left: list[Path]) -> None:
    durable, passing = left
    close(con)
    con.execute(TRAIN)
    assert passing.is_dir()
    with grouplearn.connect(progress=False) as other:
        assert other.execute("SHOW RUNS").fetchall() == []
        other.execute("SET enable_external_access = false")
        assert other.execute("SHOW RUNS").fetchall() == [], "a database in memory has none"
    assert durable.is_dir()


def test_while_access_is_open_they_are(con: grouplearn.Connection, left: list[Path]) -> None:
    durable, passing = left
    con.execute(TRAIN)
    assert not passing.exists()
    assert [row[2] for row in con.execute("SHOW RUNS").fetchall()] == ["damaged"]
    con.execute("DROP RUN '123e4567'")
    assert not durable.parent.exists()


def test_a_cluster_that_was_set_before_is_not_gone_to(con: grouplearn.Connection) -> None:
    con.execute("SET grouplearn_address = '127.0.0.1:1'")
    con.execute("SET grouplearn_executor = 'ray'")
    close(con)
    with pytest.raises(AccessRefused, match=r"^executor = 'ray' is outside of the database, and may not be used"):
        con.execute(TRAIN)
    con.execute("RESET grouplearn_executor")
    assert len(con.execute(TRAIN).fetchall()) == 2
    plan = "\n".join(row[0] for row in con.execute(f"EXPLAIN {TRAIN}").fetchall())
    assert "local: other processes may not be used: enable_external_access is false" in plan


@pytest.mark.parametrize("hidden", [False, True])
def test_what_connect_is_told_holds_and_a_macro_of_the_database_does_not_speak_for_duckdb(
    tmp_path: Path, hidden: bool
) -> None:
    with duckdb.connect(tmp_path / "shop.duckdb") as hostile:
        hostile.execute("CREATE TABLE t AS SELECT range * 1.0 AS x, range * 2.0 AS y, 1 AS g FROM range(20)")
        if hidden:
            hostile.execute("CREATE MACRO current_setting(name) AS name = 'enable_external_access'")
    settings = {"enable_external_access": "false", "lock_configuration": "true"}
    with grouplearn.connect(tmp_path / "shop.duckdb", config=settings, progress=False) as con:
        if hidden:
            with pytest.raises(grouplearn.NotTrusted, match="hides DuckDB's own"):
                con.execute(TRAIN)
            return
        con.execute(TRAIN)
        with pytest.raises(AccessRefused):
            con.execute(f"EXPORT MODEL m TO '{tmp_path}/out'")
        with pytest.raises(grouplearn.BindError, match=r"^Cannot change configuration option"):
            con.execute("SET grouplearn_seed = 5")
    assert not (tmp_path / "out").exists()


def test_a_transaction_goes_on_after_a_statement_that_was_kept_from_files(
    con: grouplearn.Connection, tmp_path: Path
) -> None:
    con.execute(TRAIN)
    close(con)
    con.execute("BEGIN")
    con.execute("CREATE TABLE mine AS SELECT 1 AS one")
    with pytest.raises(AccessRefused):
        con.execute(f"EXPORT MODEL m TO '{tmp_path}/out'")
    con.execute("COMMIT")
    assert con.execute("FROM mine").fetchall() == [(1,)]


@pytest.mark.parametrize("how", ["SET enable_external_access = false", "SET python_enable_replacements = false"])
def test_data_frames_are_outside_of_the_database(con: grouplearn.Connection, how: str) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "y": [2.0, 4.0, 6.0, 8.0], "g": [1, 1, 1, 1]})
    statement = TRAIN.replace("FROM t", "FROM frame")
    assert len(con.execute(statement).fetchall()) == len(frame) - 3
    close(con, how)
    for query in ("FROM frame", statement):
        with pytest.raises(grouplearn.Error, match="Table with name frame does not exist"):
            con.execute(query)


def test_a_report_is_written_where_copy_may_write(con: grouplearn.Connection, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    con.execute(TRAIN)
    con.execute(f"SET allowed_directories = ['{tmp_path}/open']")
    close(con)
    model = con.model("m")
    assert model.report().startswith("<!doctype html>")
    model.report(tmp_path / "open" / "m.html")
    with pytest.raises(AccessRefused, match="may not be used: enable_external_access is false"):
        model.report(tmp_path / "m.html")
    with pytest.raises(duckdb.PermissionException):
        con.sql("FROM t").to_csv(str(tmp_path / "t.csv"))
    assert not (tmp_path / "m.html").exists()


def test_calibrations_are_neither_read_nor_written(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPLEARN_CALIBRATE_RUNS", "on")
    monkeypatch.setattr(calibration, "asked_for", lambda *_: 2.0)
    con.execute(TRAIN)
    before = calibration.path().read_text()
    assert json.loads(before)["learners"]["linear_regression"]["runs"] == [2.0]
    close(con)
    con.execute(TRAIN)
    assert calibration.path().read_text() == before
    calibration.path().write_text("not JSON")
    con.execute(TRAIN)
    con.execute(f"EXPLAIN ANALYZE {TRAIN}")
    nothing: Any = None
    measured = Measured(nothing, nothing, UNKNOWN, 1.5, "kept", ())
    kept = calibration.keep_correction("linear_regression", measured, ExternalAccess(con.native))
    assert kept.verdict == "kept: no, enable_external_access is false"
    for statement in ("CALIBRATE LEARNER linear_regression", "RESET CALIBRATION"):
        with pytest.raises(AccessRefused, match="may not be used: enable_external_access is false"):
            con.execute(statement)
    assert calibration.path().read_text() == "not JSON"


def test_settings_are_those_of_the_moment(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(TRAIN)
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/one'")
    cursor: Any = con.cursor()
    close(con)
    with pytest.raises(AccessRefused):
        cursor.execute(f"EXPORT MODEL m TO '{tmp_path}/two'")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["one"]


def test_a_run_goes_on_in_this_process_where_its_directory_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.duckdb"
    answer(path, "CREATE TABLE t AS SELECT i % 4 AS g, i * 1.0 AS x, sin(i) AS y FROM range(400) AS r(i)")
    dies(path, monkeypatch, f"{TRAIN} WITH (durable = true, executor = 'local')", 0)
    closed = (f"SET allowed_directories = ['{runs_of(str(path))}']", "SET enable_external_access = false")
    with pytest.raises(AccessRefused, match=r"^executor = 'ray' is outside of the database"):
        answer(path, *closed, "RESUME MODEL m WITH (executor = 'ray')")
    with pytest.raises(AccessRefused, match=r"^executor = 'ray' is outside of the database"):
        answer(path, "SET grouplearn_executor = 'ray'", *closed, "RESUME MODEL m")
    assert len(answer(path, *closed, "RESUME MODEL m")) == 4
    assert not runs_of(str(path)).exists()
