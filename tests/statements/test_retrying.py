"""RETRY FAILED MODEL: what failed is trained as a fresh TRAIN would, what did not fail stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import grouplearn
from grouplearn.errors import BindError
from grouplearn.extract import extract as extracting
from grouplearn.plan import packing
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.results import ledger
from grouplearn.train.results.ledger import Ledger

ROWS = 3000
#: A missing label fails its group.
FAILS = "ON NULL LABEL ERROR"
#: Groups are the pairs of a and b, both of which may be NULL; a label of b = 2 is missing at first.
TABLE = f"""
CREATE TABLE t AS SELECT CASE WHEN i % 3 > 0 THEN 'a' || i % 3 END AS a, nullif(hash(i) % 4, 0) AS b,
  hash(i, 1) % 1000 / 100 AS x, hash(i, 2) % 1000 / 10 AS z, 'k' || hash(i, 3) % 4 AS kind,
  CASE WHEN b = 2 AND hash(i, 9) % 50 = 0 THEN NULL ELSE x / 3 + z / 50 + hash(i, 4) % 100 / 100 END AS y
FROM range({ROWS}) AS r(i)
"""
REPAIR = "UPDATE t SET y = 1.5 WHERE y IS NULL"
FEATURES = "FEATURES (x, zscore(z), onehot(kind))"
STATEMENTS = {
    "linear": f"linear_regression PREDICT y {FEATURES} FROM t GROUP BY a, b OVER GRID (l1 IN (0, 2), l2 IN (0, 10))",
    "logistic": f"logistic_regression PREDICT y > 2 {FEATURES} FROM t WHERE x < 9 GROUP BY a, b OVER GRID (l2 IN (1, 2))",
    "wide": "linear_regression PREDICT y FEATURES (x, hash(kind, 100000), hash([a, kind], 5000) AS h) FROM t GROUP BY a, b "
    "OVER GRID (l1 IN (0, 2)) WITH (l2 = 10, solver = 'coordinate_descent')",
    "folds": f"linear_regression PREDICT y {FEATURES} FROM t GROUP BY a, b OVER GRID (l2 IN (0, 10)) VALIDATE FOLDS 3",
    "rollup": f"gbdt PREDICT y {FEATURES} FROM t GROUP BY ROLLUP (a, b) OVER GRID (num_leaves IN (4, 9)) "
    "KEEP BEST 1 WITH (num_iterations = 4)",
    "mlp": f"mlp PREDICT y {FEATURES} FROM t GROUP BY a, b OVER GRID (hidden_layers IN ([3], [4])) WITH (epochs = 2)",
    "split": f"mlp PREDICT y {FEATURES} FROM t GROUP BY b WITH (epochs = 2, operator = 'gap', workers = 2)",
    "large": f"logistic_regression PREDICT y > 2 {FEATURES} FROM (FROM t, range(20)) GROUP BY b VALIDATE SAMPLE 20%",
}
#: Small groups of these are solved together, in stacks of the groups that are trained: a stack decides about rounding, and a
#: solver that takes steps stops within its tolerance.
SOLVED_TOGETHER = ("linear", "logistic", "folds")
MODELS = """
SELECT g.* EXCLUDE (model, group_id), t.config, t.* EXCLUDE (model, group_id, config, seconds, train, valid),
  t.train, t.valid, art.weights, art.intercept, art.places, art.nonzeros, art.sha256
FROM grouplearn.groups AS g JOIN grouplearn.models USING (model) JOIN grouplearn.trials AS t USING (model, group_id)
LEFT JOIN grouplearn.artifacts AS art USING (model, group_id, config) ORDER BY g.level, g.keys, t.config
"""


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(TABLE)
        yield connection


def rows(con: grouplearn.Connection, statement: str) -> list[Any]:
    return con.execute(statement).fetchall()


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_retried_trials_are_those_of_a_fresh_train(con: grouplearn.Connection, kind: str) -> None:
    train = f"TRAIN OR REPLACE MODEL m USING {STATEMENTS[kind]} {FAILS}"
    con.execute(train)
    good = [row for row in rows(con, MODELS) if row[-1] is not None]
    failed = rows(con, "SELECT count(*) FROM grouplearn.groups WHERE best IS NULL")[0][0]
    assert failed
    con.execute(REPAIR)
    assert len(rows(con, "RETRY FAILED MODEL m")) == failed
    retried = rows(con, MODELS)
    assert rows(con, "FROM grouplearn.errors") == []
    assert all(row in retried for row in good)
    curves = rows(con, "SELECT count(*) FROM m_curves")
    con.execute(train)
    fresh = rows(con, MODELS)
    if kind in SOLVED_TOGETHER:
        assert numbers(fresh) == [pytest.approx(each, rel=1e-6, abs=1e-9) for each in numbers(retried)]
    else:
        assert fresh == retried
    assert rows(con, "SELECT count(*) FROM m_curves") == curves


def numbers(models: list[Any]) -> list[list[float]]:
    """Return metrics and weights, trial by trial."""
    return [[*(value for column in row[-5:-1] for value in column or ())] for row in models]


def test_only_the_rows_of_failed_groups_are_read(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    con.execute(f"TRAIN MODEL m USING {STATEMENTS['linear']} {FAILS}")
    con.execute(REPAIR)
    read: list[int] = []
    finish = extracting.SortedRows.finish

    def noted(self: Any, *given: Any) -> None:
        read.append(self.n_read)
        finish(self, *given)

    monkeypatch.setattr(extracting.SortedRows, "finish", noted)
    con.execute("RETRY FAILED MODEL m")
    assert read == [rows(con, "SELECT count(*) FROM t WHERE b = 2")[0][0]]


def test_an_encoder_of_all_rows_stays_as_it_is(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (zscore(x, z, scope := 'all')) FROM t GROUP BY b "
        f"{FAILS}"
    )
    con.execute("UPDATE t SET y = 1.5, z = z * 100 WHERE y IS NULL")
    con.execute("RETRY FAILED MODEL m")
    assert len(rows(con, "SELECT DISTINCT centers, scales FROM grouplearn.groups")) == 1
    assert rows(con, "SELECT DISTINCT status FROM m") == [("done",)]


def diverging(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING mlp PREDICT y FEATURES (zscore(x)) FROM t WHERE y IS NOT NULL GROUP BY b "
        "OVER GRID (learning_rate IN (1e300, 0.01)) VALIDATE SAMPLE 10% KEEP BEST 1 WITH (epochs = 2, optimizer = 'sgd')"
    )
    assert rows(con, "SELECT learning_rate, status FROM m GROUP BY ALL ORDER BY ALL") == [
        (0.01, "done"),
        (1e300, "failed"),
    ]


def test_done_trials_of_a_group_stay_when_others_fail_again(con: grouplearn.Connection) -> None:
    diverging(con)
    before = rows(con, MODELS)
    found = rows(con, "RETRY FAILED MODEL m WITH (epochs = 1, workers = 1)")
    assert [row[1] for row in found] == [0.01] * 4, "the best trial of each group"
    assert rows(con, MODELS) == before
    assert rows(con, "SELECT count(*), count(config) FROM grouplearn.errors") == [(4, 4)]


def test_a_group_whose_encoders_changed_says_so(con: grouplearn.Connection) -> None:
    diverging(con)
    con.execute("UPDATE t SET x = 5 WHERE b = 1 AND x < 5")
    found = rows(con, "RETRY FAILED MODEL m")
    assert len(found) == 4
    reasons = dict(rows(con, "SELECT b, error FROM m WHERE status = 'failed'"))
    changed = [b for b, reason in reasons.items() if reason.startswith("the group's rows have changed")]
    assert changed == [1]


def test_predict_knows_the_retried_model_before_and_after_commit(con: grouplearn.Connection) -> None:
    con.execute(f"TRAIN MODEL m USING {STATEMENTS['rollup']} {FAILS}")
    predicted = "SELECT count(predict('m', t)) FROM t WHERE b = 2"
    missing = rows(con, "SELECT count(*) FROM m_predict(t) WHERE prediction IS NULL")
    con.execute(f"BEGIN; {REPAIR}; RETRY FAILED MODEL m")
    inside = rows(con, "SELECT prediction, model_level FROM m_predict(t) ORDER BY ALL")
    assert {level for _, level in inside} == {"a, b"}
    assert rows(con, predicted) == rows(con, "SELECT count(*) FROM t WHERE b = 2")
    con.execute("ROLLBACK")
    assert rows(con, "SELECT count(*) FROM m_predict(t) WHERE prediction IS NULL") == missing
    con.execute(f"{REPAIR}; RETRY FAILED MODEL m")
    after = rows(con, "SELECT prediction, model_level FROM m_predict(t) ORDER BY ALL")
    assert [value for value, _ in after] == pytest.approx([value for value, _ in inside], rel=1e-12)  # sums in SQL
    assert {level for _, level in after} == {"a, b"}


def test_what_decides_the_models_stays(con: grouplearn.Connection) -> None:
    con.execute(
        f"TRAIN MODEL m USING mlp PREDICT y {FEATURES} FROM t GROUP BY b {FAILS} "
        "WITH (epochs = 1, operator = 'mop', workers = 2)"
    )
    con.execute(REPAIR)
    with pytest.raises(BindError, match="its models depend on the order in which they see the rows") as caught:
        con.execute("RETRY FAILED MODEL m WITH (workers = 3)")
    assert caught.value.span is not None
    con.execute("RETRY FAILED MODEL m")
    assert rows(con, "SELECT DISTINCT status FROM m") == [("done",)]


def test_units_are_cut() -> None:
    whole = Unit(4, 0, (0, 1), cost=6.0, others=(1, 2))
    parts = cut([whole], {0: {0, 1}, 1: {1}, 2: {0, 1}})
    assert [(each.id, each.groups, each.configs) for each in parts] == [(4, (0, 2), (0, 1)), (5, (1,), (1,))]
    assert sum(each.cost for each in parts) == pytest.approx(5.0)
    assert cut([whole], {3: {0}}) == ()


def test_failed_units_of_an_unfinished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that failed for want of memory, say, is trained again; the others are not."""
    monkeypatch.setattr(ledger, "FLUSH_SECONDS", 0.0)
    file = tmp_path / "d.duckdb"
    with duckdb.connect(str(file)) as plain:
        plain.execute(TABLE)
        plain.execute(REPAIR)
    train = f"TRAIN MODEL m USING gbdt PREDICT y {FEATURES} FROM t GROUP BY b VALIDATE NONE {FAILS} "
    train += "WITH (num_iterations = 3, durable = true)"
    trained: list[int] = []
    add = Ledger.add
    monkeypatch.setattr(packing, "MOST_BOOSTED_VALUES", 0)  # each group is a unit

    def dies(self: Ledger, result: Any) -> None:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(result.unit.id)
        add(self, result)

    with grouplearn.connect(file, progress=False) as con:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add", dies)
            patch.setattr("grouplearn.learners.trees.gbdt._check", fails_once())
            with pytest.raises(grouplearn.Error):
                con.execute(train)
        monkeypatch.setattr(Ledger, "add", lambda self, result: (trained.append(result.unit.id), add(self, result)))
        trained.clear()
        assert len(rows(con, "RETRY FAILED MODEL m")) == 4
        assert len(trained) == 2, "the one that failed, and the one that was not begun"
        assert rows(con, "SELECT DISTINCT status FROM m") == [("done",)]


def fails_once() -> Any:
    from grouplearn.learners.trees import gbdt

    check, calls = gbdt._check, []

    def checks(*given: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError
        check(*given)

    return checks
