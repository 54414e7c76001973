"""A model that predicts gives way to no run without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

import grouplearn
from grouplearn import Connection

ROWS = "CREATE OR REPLACE TABLE t AS SELECT i % 3 AS g, i * 1.0 AS x, {label} AS y FROM range(60) AS r(i)"
TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g {}"
PREDICTED = "SELECT count(prediction) FROM m_predict(t)"


@pytest.fixture
def con(tmp_path: Path) -> Connection:
    con = grouplearn.connect(tmp_path / "d.duckdb", progress=False)
    con.execute(ROWS.format(label="i * 2.0"))
    con.execute(TRAIN.format("")).fetchall()
    return con


@pytest.mark.parametrize("options", ["", "WITH (min_rows = 1000)", "OVER GRID (l2 IN (0, 1)) VALIDATE FOLDS 2"])
def test_where_every_trial_fails_the_model_stays(con: Connection, options: str) -> None:
    if "min_rows" not in options:
        con.execute(ROWS.format(label="NULL::DOUBLE"))
    with pytest.raises(grouplearn.Error, match='every trial failed, and model "m" stays as it was: the ') as error:
        con.execute(TRAIN.format(options))
    assert "LINE 1" in str(error.value)
    assert con.execute(PREDICTED).fetchall() == [(60,)]
    assert con.execute("SELECT count(*) FROM grouplearn.models").fetchall() == [(1,)]


def test_the_reason_that_most_trials_have_is_told_and_that_there_are_others(con: Connection) -> None:
    con.execute("UPDATE t SET y = NULL; DELETE FROM t WHERE g = 0 AND x > 0")
    with pytest.raises(grouplearn.Error, match="the label is NULL in each of the 20 rows, and for other reasons"):
        con.execute(TRAIN.format(""))


def test_reasons_that_differ_in_numbers_of_rows_are_one(con: Connection) -> None:
    con.execute("UPDATE t SET y = NULL; DELETE FROM t WHERE g = 0 AND x > 30")
    with pytest.raises(grouplearn.Error, match=r"the label is NULL in each of the [0-9]+ rows\n\nLINE 1"):
        con.execute(TRAIN.format(""))
    con.execute(f"DROP MODEL m; {TRAIN.format('')}")
    page = con.model("m").report()
    assert page.count("the label is NULL in each of the") == 1


def test_a_model_of_some_groups_replaces_one_and_so_does_one_of_none_a_model_of_none(con: Connection) -> None:
    con.execute("UPDATE t SET y = NULL WHERE g > 0")
    con.execute(TRAIN.format("")).fetchall()
    assert con.execute(PREDICTED).fetchall() == [(60,)], "groups that fail keep their models"
    con.execute("DROP MODEL m; UPDATE t SET y = NULL")
    for _ in range(2):
        assert {row[0] for row in con.execute(TRAIN.format("")).fetchall()} == {0, 1, 2}
    assert con.execute(PREDICTED).fetchall() == [(0,)]


def test_a_run_that_is_kept_is_resumed_to_the_same_end_or_dropped(con: Connection) -> None:
    for statement in (TRAIN.format("WITH (min_rows = 1000, durable = true)"), "RESUME MODEL m"):
        with pytest.raises(grouplearn.Error, match='model "m" stays as it was'):
            con.execute(statement)
    ((run,),) = con.execute("SELECT run FROM (SHOW RUNS)").fetchall()
    con.execute(f"DROP RUN '{run}'")
    assert con.execute(PREDICTED).fetchall() == [(60,)]
