"""DuckDB's own ADBC driver with our extension loaded: TRAIN in, Arrow out."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_duckdb
import polars as pl
import pytest
from adbc_driver_manager import dbapi

from grouplearn.frontends.native.build import BuildError, build

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"


@pytest.fixture
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("GROUPLEARN_PYTHON", sys.executable)
    try:
        extension = build(importlib.metadata.version("duckdb"))
    except BuildError as error:
        pytest.skip(f"the extension cannot be built here: {error}")
    options = {"path": str(tmp_path / "shop.duckdb"), "allow_unsigned_extensions": "true"}
    driver = adbc_driver_duckdb.driver_path()
    with dbapi.connect(driver=driver, entrypoint="duckdb_adbc_init", db_kwargs=options) as connection:
        with connection.cursor() as cursor:
            cursor.execute(f"LOAD '{extension}'")
            cursor.execute(TABLE)
        connection.commit()
        yield connection


def rows(con: Any, query: str, parameters: Any = None) -> list[dict[str, Any]]:
    with con.cursor() as cursor:
        return cursor.execute(query, parameters).fetch_arrow_table().to_pylist()


def test_train_answers_in_arrow_and_predicts(con: Any) -> None:
    assert [(row["g"], row["l2"], row["status"]) for row in rows(con, TRAIN)] == [(g, 0.0, "done") for g in range(3)]
    assert rows(con, "SELECT count(*) AS n FROM m") == [{"n": 6}]
    (judged,) = rows(con, "SELECT count(*) AS n, max(abs(y - prediction)) AS miss FROM m_predict(t)")
    assert (judged["n"], judged["miss"] < 1e-9) == (300, True)
    assert [row["model"] for row in rows(con, "SHOW MODELS")] == ["m"]


def test_parameters_are_values_and_train_once(con: Any) -> None:
    best = rows(con, TRAIN.replace("FROM t", "FROM t WHERE x >= ?"), [3.0])
    assert [row["n_rows"] for row in best] == [98, 98, 98]


def test_a_rollback_undoes_a_training(con: Any) -> None:
    rows(con, TRAIN)
    con.rollback()
    assert rows(con, "SHOW MODELS") == []


def test_polars_reads_a_training(con: Any) -> None:
    assert pl.read_database(TRAIN, con)["status"].to_list() == ["done"] * 3


def test_an_error_keeps_its_caret(con: Any) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=r"\^{16}") as error:
        rows(con, TRAIN.replace("linear_regression", "linear_regresion"))
    assert 'Did you mean "linear_regression"?' in str(error.value)


def test_a_training_with_parameters_is_cancelled_and_leaves_the_connection(con: Any) -> None:
    endless = "TRAIN MODEL slow USING mlp PREDICT y FEATURES (x) FROM t WHERE x >= ? WITH (epochs = 10000000, executor = 'local')"
    with con.cursor() as cursor:
        timer = threading.Timer(1.5, cursor.adbc_cancel)
        timer.start()
        with pytest.raises(dbapi.OperationalError, match="CANCELLED"):
            cursor.execute(endless, [0.0])
    con.rollback()
    assert rows(con, "SHOW MODELS") == []
