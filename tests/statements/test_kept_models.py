"""ON GROUP FAILURE KEEP: a group that fails keeps its model, of every learner, after a restart and in a retry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import torch
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn import Connection
from grouplearn.errors import TrainingError
from grouplearn.train.results import ledger

ROWS = (
    "CREATE TABLE t AS SELECT i % 4 AS g, (i * 7919 % 1000) / 100.0 AS x, 'w' || (i * 31 % 17) AS w, (i % 97) * 1.0 AS z,"
    " (i * 7919 % 1000) / 100.0 + i % 5 AS y FROM range(800) AS r(i)"
)
#: One row of group 1 is left, too few for a model.
FEWER = "CREATE OR REPLACE TABLE t AS FROM t WHERE g <> 1 UNION ALL FROM (FROM t WHERE g = 1 LIMIT 1)"
LEARNERS = {
    "wide": "linear_regression PREDICT y FEATURES (x, hash(w, 4096)) FROM t GROUP BY g OVER GRID (l2 IN (1, 2))",
    "lists": "linear_regression PREDICT y FEATURES (x, multihot([w, w || 'a'])) FROM t GROUP BY g",
    "rollup": "linear_regression PREDICT y FEATURES (zscore(x, z)) FROM t GROUP BY ROLLUP (g)",
    "classes": "logistic_regression PREDICT floor(y / 5)::INTEGER AS c FEATURES (zscore(x), onehot(w)) FROM t GROUP BY g"
    " VALIDATE FOLDS 2",
    "sgd": "logistic_regression PREDICT y > 7 AS big FEATURES (zscore(x)) FROM t GROUP BY g WITH (solver = 'sgd', epochs = 3)",
    "trees": "gbdt PREDICT y FEATURES (x, onehot(w)) FROM t GROUP BY g OVER GRID (num_leaves IN (4, 8))"
    " WITH (num_iterations = 3)",
    "layers": "mlp PREDICT y FEATURES (zscore(x, z)) FROM t GROUP BY g OVER GRID (l2 IN (0, 1)) WITH (epochs = 3)",
    "vectors": "kmeans FEATURES (zscore(x, z)) FROM t GROUP BY g OVER GRID (k IN (2, 3))",
    "search": "mlp PREDICT y FEATURES (zscore(x, z)) FROM t GROUP BY g OVER ASHA (l2 BETWEEN 0.001 AND 1 LOG) WITH (epochs = 4)",
    "network": "line PREDICT y FEATURES (zscore(x, z)) FROM t GROUP BY g WITH (epochs = 2)",
}
TRAIN = "TRAIN OR REPLACE MODEL m USING {}"
RIDGE = TRAIN.format("linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g {}")
LOST = "SELECT count(*) FROM (FROM before EXCEPT ALL (FROM {}_predict(t)))"
OF_GROUP = "WHERE g = 1 AND is_best"


def one_layer(problem: Any, _: Any) -> torch.nn.Module:
    return torch.nn.Linear(problem.n_features, problem.n_outputs)


@pytest.fixture
def line() -> Iterator[None]:
    grouplearn.register("line", one_layer)
    yield
    grouplearn.unregister("line")


@pytest.fixture
def con() -> Connection:
    con = grouplearn.connect(progress=False)
    con.execute(ROWS)
    return con


def told(con: Connection, sql: str) -> list[dict[str, Any]]:
    answered = con.execute(sql)
    names = [column[0] for column in answered.description]
    return [dict(zip(names, row, strict=True)) for row in answered.fetchall()]


def group_1(con: Connection, sql: str) -> dict[str, Any]:
    return next(row for row in told(con, sql) if row["g"] == 1)


def fails(con: Connection) -> None:
    """Keep the predictions of the rows that will be left of group 1, and leave these alone."""
    con.execute(FEWER)
    con.execute("CREATE OR REPLACE TABLE before AS FROM m_predict(t) WHERE g = 1")


def parts(con: Connection) -> list[list[Any]]:
    """Return what is known of the best trial of group 1."""
    return [
        con.execute(f"SELECT * EXCLUDE (status, error) FROM m {OF_GROUP}").fetchall(),
        con.execute(f"FROM m_importance {OF_GROUP} ORDER BY ALL").fetchall(),
        con.execute(
            f"SELECT c.* FROM m_curves AS c SEMI JOIN (FROM m {OF_GROUP}) AS b USING (g) ORDER BY ALL"
        ).fetchall()
        if len(con.execute("FROM m WHERE g = 1").fetchall()) == 1
        else [],
    ]


@pytest.mark.examples(3)
@pytest.mark.usefixtures("line")
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_group_that_fails_keeps_the_model_of_any_learner(con: Connection, tmp_path: Path, learner: str) -> None:
    con.execute(TRAIN.format(LEARNERS[learner])).fetchall()
    known = parts(con)
    fails(con)
    found = group_1(con, TRAIN.format(LEARNERS[learner]))
    assert (found["status"], found["error"]) == ("kept", "the group has 1 row, fewer than min_rows = 2")
    assert found["note"].startswith("kept its model of ")
    assert parts(con) == known
    assert con.execute(LOST.format("m")).fetchall() == [(0,)]
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}'; IMPORT MODEL n FROM '{tmp_path / 'm'}'")
    assert con.execute(LOST.format("n")).fetchall() == [(0,)]
    if learner != "search":
        assert group_1(con, "RETRY FAILED MODEL m")["status"] == "kept"
        assert con.execute(LOST.format("m")).fetchall() == [(0,)]


def test_the_classes_of_a_model_that_is_kept_may_have_other_numbers(con: Connection) -> None:
    label = "PREDICT c FEATURES (x) FROM (SELECT *, ['b', 'c', 'd'][1 + floor(y / 5)::INTEGER] AS c FROM t) GROUP BY g"
    train = TRAIN.format(f"logistic_regression {label}")
    con.execute(train).fetchall()
    fails(con)
    con.execute("CREATE OR REPLACE VIEW more AS SELECT *, ['b', 'c', 'd'][1 + floor(y / 5)::INTEGER] AS c FROM t")
    more = train.replace(
        "FROM (SELECT", "FROM (SELECT * FROM more UNION ALL SELECT g, x, w, z, y, 'a' FROM t WHERE g = 0) --"
    )
    more = more.split(" --")[0] + " GROUP BY g"
    assert group_1(con, more)["status"] == "kept"
    lost = (
        "SELECT count(*) FROM (SELECT x, prediction FROM before EXCEPT ALL SELECT x, prediction FROM m_predict(more))"
    )
    assert con.execute(lost).fetchall() == [(0,)]
    con.execute("DELETE FROM t WHERE y < 5 AND g <> 1")
    assert group_1(con, more)["note"].endswith(" is not kept: a class that it knows is gone")


def test_a_model_with_another_link_is_not_kept_beside_those_that_have_none(con: Connection) -> None:
    trees = TRAIN.format(
        "gbdt PREDICT y + 1 AS y FEATURES (x) FROM t GROUP BY g WITH (num_iterations = 2, objective = '{}')"
    )
    con.execute(trees.format("poisson")).fetchall()
    fails(con)
    assert "is not kept: its hyperparameters predict in another way" in group_1(con, trees.format("regression"))["note"]


def test_in_a_transaction_that_is_rolled_back(con: Connection) -> None:
    con.execute(RIDGE.format("")).fetchall()
    con.execute("BEGIN")
    fails(con)
    assert group_1(con, RIDGE.format(""))["status"] == "kept"
    assert con.execute(LOST.format("m")).fetchall() == [(0,)]
    con.execute("ROLLBACK")
    assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]


def test_plain_duckdb_predicts_by_a_model_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.duckdb"
    answer(path, ROWS, TRAIN.format(LEARNERS["trees"]), FEWER)
    answer(path, "CREATE TABLE before AS FROM m_predict(t) WHERE g = 1", TRAIN.format(LEARNERS["trees"]))
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("SELECT status FROM m WHERE is_best ORDER BY g").fetchall()[1] == ("kept",)
        lost = (
            "SELECT max(abs(a.prediction - b.prediction)) < 1e-9 FROM before AS a JOIN m_predict(t) AS b USING (g, x)"
        )
        assert plain.execute(lost).fetchall() == [(True,)]


def test_a_trial_whose_time_was_up_is_retried_where_a_model_was_kept(con: Connection) -> None:
    con.execute(RIDGE.format("OVER GRID (l2 IN (0, 1)) VALIDATE SAMPLE 20%")).fetchall()
    con.execute("CREATE TABLE rows AS FROM t WHERE g = 1")
    fails(con)
    con.execute(RIDGE.format("OVER GRID (l2 IN (0, 1)) VALIDATE SAMPLE 20%")).fetchall()
    con.execute("UPDATE grouplearn.trials SET status = 'stopped', epochs = 0 WHERE status = 'failed'")
    con.execute("DELETE FROM t WHERE g = 1; INSERT INTO t FROM rows")
    assert group_1(con, "RETRY FAILED MODEL m")["status"] == "done"
    assert con.execute("SELECT status, count(*) FROM m GROUP BY ALL").fetchall() == [("done", 8)]


def test_a_retry_under_error_fails_and_leaves_the_model(con: Connection) -> None:
    con.execute(RIDGE.format("")).fetchall()
    fails(con)
    con.execute(RIDGE.format("")).fetchall()
    con.execute("UPDATE grouplearn.models SET group_failure = 'error'")
    with pytest.raises(
        TrainingError, match='1 of 1 groups failed, and model "m" stays as it was\ng = 1: the group has 1 row'
    ):
        con.execute("RETRY FAILED MODEL m")
    assert con.execute(LOST.format("m")).fetchall() == [(0,)]


@pytest.mark.parametrize("clause", ["", "ON GROUP FAILURE ERROR"])
def test_a_run_that_died_ends_as_the_statement_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clause: str
) -> None:
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    path, train = (
        tmp_path / "d.duckdb",
        TRAIN.format(LEARNERS["trees"].replace("WITH (", f"{clause} WITH (durable = true, ")),
    )
    answer(path, ROWS, train, FEWER)
    answer(path, "CREATE TABLE before AS FROM m_predict(t) WHERE g = 1")
    dies(path, monkeypatch, train, 1)
    if clause:
        with pytest.raises(TrainingError, match='1 of 4 groups failed, and model "m" stays as it was'):
            answer(path, "RESUME MODEL m")
    else:
        (kept,) = [row for row in answer(path, "RESUME MODEL m") if "kept" in row]
        assert kept[0] == 1
        assert kept[-1].startswith("kept its model of ")
    assert answer(path, LOST.format("m")) == [(0,)]


def test_another_connection_and_groups_that_are_gone(con: Connection) -> None:
    con.execute(RIDGE.format("")).fetchall()
    fails(con)
    with con.cursor() as other:
        assert group_1(other, RIDGE.format(""))["status"] == "kept"
    con.execute("DELETE FROM t WHERE g IN (1, 2)")
    assert {row["g"] for row in told(con, RIDGE.format(""))} == {0, 3}
