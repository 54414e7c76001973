"""Durable runs inside the user's transactions: the directory stays until the model is committed, however that comes about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.dying_runs import dies
from helpers.small_files import three_groups

import grouplearn
from grouplearn.data.files.run_directory import runs_of
from grouplearn.statements.workflow import durable

TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g WITH (durable = true)"
SHOWN = "SELECT run, status, units_done FROM (SHOW RUNS)"
WEIGHTS = "FROM m_weights ORDER BY ALL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return three_groups(tmp_path, rows=300)


@pytest.fixture
def con(path: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(path, progress=False) as connection:
        yield connection


def statuses(con: grouplearn.Connection) -> list[str]:
    return [row[2] for row in con.execute("SHOW RUNS").fetchall()]


COMMITS: dict[str, Callable[[grouplearn.Connection], Any]] = {
    "statement": lambda con: con.execute("COMMIT"),
    "words": lambda con: con.execute("SELECT 1; END TRANSACTION; SELECT 2"),
    "among ours": lambda con: con.execute("COMMIT; SHOW MODELS"),
    "relation": lambda con: con.sql("COMMIT"),
    "method": lambda con: con.commit(),
    "unseen": lambda con: (con.native.execute("COMMIT"), con.execute("SHOW MODELS")),
    "unseen, then dropped": lambda con: (con.native.execute("COMMIT"), con.execute("DROP MODEL m")),
    "unseen, then closed": lambda con: (con.native.execute("COMMIT"), con.close()),
}


@pytest.mark.examples(3)
@pytest.mark.parametrize("commit", COMMITS)
def test_the_directory_goes_when_the_model_is_committed(con: grouplearn.Connection, path: Path, commit: str) -> None:
    con.begin()
    con.execute(TRAIN)
    assert statuses(con) == ["uncommitted"]
    assert len(list(durable.runs(str(path)))) == 1
    COMMITS[commit](con)
    assert not runs_of(str(path)).exists()


def test_what_is_rolled_back_is_resumed_without_training(con: grouplearn.Connection, path: Path) -> None:
    con.begin()
    con.execute(TRAIN)
    weights = con.execute(WEIGHTS).fetchall()
    con.rollback()
    assert statuses(con) == ["unfinished"]
    con.begin()
    assert len(con.execute("RESUME MODEL m").fetchall()) == 3
    assert con.execute(WEIGHTS).fetchall() == weights
    assert len(con.execute("RESUME MODEL m").fetchall()) == 3, "the model is there, and the transaction is open"
    assert statuses(con) == ["uncommitted"]
    con.execute("ROLLBACK")
    assert statuses(con) == ["unfinished"]
    con.execute("RESUME MODEL m")
    assert con.execute(WEIGHTS).fetchall() == weights
    assert not runs_of(str(path)).exists()


def test_another_connection_does_not_take_it_away(con: grouplearn.Connection, path: Path) -> None:
    con.begin()
    con.execute(TRAIN)
    assert statuses(con.cursor()) == ["unfinished"]
    assert runs_of(str(path)).exists()
    con.commit()
    assert statuses(con.cursor()) == []


def test_a_transaction_that_an_error_aborted(con: grouplearn.Connection, path: Path) -> None:
    con.execute("CREATE TABLE p (x INTEGER PRIMARY KEY)")
    con.begin()
    con.execute(TRAIN)
    for statement in ("INSERT INTO p VALUES (1), (1)", "SHOW MODELS"):
        with pytest.raises(grouplearn.Error):
            con.execute(statement)
    con.rollback()
    assert statuses(con) == ["unfinished"]


def test_a_process_that_died_between_storing_and_tidying(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("grouplearn.statements.train.finish", lambda *_: None)
        patch.setattr("grouplearn.statements.session.tidy_attached", lambda *_: None)
        with grouplearn.connect(path, progress=False) as con:
            con.execute(TRAIN)
            assert runs_of(str(path)).exists()
    with grouplearn.connect(path, read_only=True, progress=False) as con:
        con.execute("SHOW MODELS")
    with grouplearn.connect(path, progress=False) as con:
        con.execute("SHOW MODELS")
        assert not runs_of(str(path)).exists()


def test_runs_of_an_attached_database(con: grouplearn.Connection, path: Path) -> None:
    other = path.with_name("other.duckdb")
    con.execute(f"ATTACH '{other}' AS other")
    con.begin()
    con.execute(TRAIN.replace("MODEL m", "MODEL other.m"))
    assert runs_of(str(other)).exists()
    con.commit()
    assert not runs_of(str(other)).exists()


def test_a_run_that_died_keeps_its_directory_through_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(path, monkeypatch, TRAIN, 0)
    with grouplearn.connect(path, progress=False) as con:
        con.execute("BEGIN; TRAIN MODEL n USING linear_regression PREDICT y FEATURES (x) FROM t; COMMIT")
        assert statuses(con) == ["unfinished"]
        con.execute("RESUME MODEL m")
        assert statuses(con) == []
