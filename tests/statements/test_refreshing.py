"""REFRESH MODEL: models go on exactly from what is stored, and nothing is lost where a refresh fails or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from pyarrow import csv

import grouplearn
from grouplearn.errors import DataError
from grouplearn.train.results.ledger import Ledger

TABLE = """
CREATE TABLE t AS SELECT CASE WHEN i % 3 > 0 THEN 'a' || i % 3 END AS g, i, i % 7 = 0 AS later, hash(i, 1) % 1000 / 100 AS x,
  hash(i, 2) % 1000 / 10 AS z, 'k' || hash(i, 3) % 4 AS kind, 'w' || hash(i, 5) % 300 AS word, 1 + hash(i, 6) % 3 AS w,
  x / 3 + z / 50 + hash(i, 4) % 100 / 100 AS y
FROM range(3000) AS r(i)
"""
#: Learners of one pass with the statement's clauses, and the query of what their models consist of.
EXACT = {
    "linear": ("linear_regression PREDICT y FEATURES (x, z, onehot(kind))", "", "weights"),
    "lasso": ("linear_regression PREDICT y FEATURES (x, z)", "WITH (l1 = 3, l2 = 1, weight = w)", "weights"),
    "wide": (
        "linear_regression PREDICT y FEATURES (x, hash(word, 4000))",
        "WITH (l2 = 1, keep_state = true)",
        "weights",
    ),
    "folds": ("linear_regression PREDICT y FEATURES (x, z)", "OVER GRID (l2 IN (3)) VALIDATE FOLDS 4", "weights"),
    "pca": ("pca FEATURES (x, z, w)", "WITH (weight = w)", "components"),
}


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=None) as connection:
        connection.execute(TABLE)
        connection.execute("CREATE TABLE old AS FROM t WHERE NOT later; CREATE TABLE fresh AS FROM t WHERE later")
        yield connection


def values(con: grouplearn.Connection, model: str, view: str) -> np.ndarray:
    """Return the numbers that a model consists of, the last column of the view but for errors, in the order of the others."""
    errors = "standard_error, statistic, p_value, lower, upper, note"
    shown = f"* EXCLUDE ({errors})" if "note" in con.execute(f"FROM {model}_{view}").df().columns else "*"
    return np.array([row[-1] for row in con.execute(f"SELECT {shown} FROM {model}_{view} ORDER BY ALL").fetchall()])


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("rows", ["many groups", "one group", "several times"])
def test_sums_go_on_to_the_models_of_all_rows(con: grouplearn.Connection, kind: str, rows: str) -> None:
    (learner, clauses, view), keys = EXACT[kind], "" if rows == "one group" else "GROUP BY g"
    for name, table in (("m", "old"), ("whole", "t")):
        con.execute(f"TRAIN MODEL {name} USING {learner} FROM {table} {keys} {clauses}")
    for part in range(3) if rows == "several times" else (None,):
        where = "" if part is None else f"WHERE i % 3 = {part} OR (i % 11 = 3 AND i % 3 = {part})"
        found = con.execute(f"REFRESH MODEL m FROM fresh {where}").fetchall()
        assert "updated" in {value for row in found for value in row}
    before, after = values(con, "whole", view), values(con, "m", view)
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9 * np.abs(before).max())
    counted = [con.execute(f"SELECT sum(n_rows) FROM {name} WHERE is_best").fetchall() for name in ("m", "whole")]
    assert counted[0] == counted[1]


def test_the_next_refresh_goes_on_from_the_last(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM old GROUP BY g")
    con.execute("REFRESH MODEL m FROM fresh")
    con.execute("REFRESH MODEL m FROM fresh")
    con.execute("CREATE TABLE twice AS FROM t UNION ALL FROM fresh")
    con.execute("TRAIN MODEL whole USING linear_regression PREDICT y FEATURES (x, z) FROM twice GROUP BY g")
    np.testing.assert_allclose(values(con, "m", "weights"), values(con, "whole", "weights"), rtol=1e-9)


@pytest.mark.parametrize("source", ["a stream", "a generator", "a pipe"])
def test_rows_that_can_be_read_once_refresh_to_the_models_of_all(
    con: grouplearn.Connection, source: str, tmp_path: Path
) -> None:
    statement = "linear_regression PREDICT y FEATURES (x, z) FROM {} GROUP BY g VALIDATE NONE"
    con.execute(f"TRAIN MODEL whole USING {statement.format('t')}")
    rows = con.sql("FROM old").to_arrow_table().to_reader(100)
    con.execute(f"TRAIN MODEL m USING {statement.format('rows')}")
    table = con.sql("FROM fresh").to_arrow_table()
    if source == "a pipe":
        os.mkfifo(tmp_path / "pipe")
        csv.write_csv(table, tmp_path / "fresh.csv")
        content = (tmp_path / "fresh.csv").read_bytes()
        threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content)).start()
        con.execute(f"REFRESH MODEL m FROM read_csv('{tmp_path}/pipe')")
    else:
        parts = (table.slice(first, 50) for first in range(0, table.num_rows, 50))
        rows = table.to_reader(50) if source == "a stream" else parts  # noqa: F841  (named in the statement)
        con.execute("REFRESH MODEL m FROM rows")
    np.testing.assert_allclose(values(con, "m", "weights"), values(con, "whole", "weights"), rtol=1e-9)
    assert con.execute("SELECT sum(n_rows) FROM m").fetchall() == [(3000,)]


def test_what_predicts_is_the_refreshed_model(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING gbdt PREDICT y FEATURES (x, z) FROM old GROUP BY g WITH (num_iterations = 20)")
    asked = "SELECT prediction, predict_value('m', p) FROM (SELECT * FROM m_predict(t)) AS p ORDER BY i"
    before = np.array(con.execute(asked).fetchall())
    con.execute("REFRESH MODEL m FROM (SELECT * REPLACE (y + 5 AS y) FROM fresh)")
    after = np.array(con.execute(asked).fetchall())
    np.testing.assert_allclose(after[:, 0], after[:, 1], rtol=1e-6)
    assert (after - before).mean() > 0.5


def test_a_threshold_stays_where_no_new_row_is_held_out(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE marked AS SELECT *, y + hash(i, 9) % 300 / 100 > 4.5 AS big FROM t")
    con.execute(
        "TRAIN MODEL m USING logistic_regression PREDICT big FEATURES (x, z) FROM marked GROUP BY g"
        " OPTIMIZE recall_at_precision(0.9) WITH (solver = 'sgd', epochs = 3)"
    )
    asked = "SELECT g, valid_threshold_at_precision_90 FROM m WHERE is_best ORDER BY g"
    before = con.execute(asked).fetchall()
    con.execute("REFRESH MODEL m FROM (FROM marked WHERE i < 3)")
    assert con.execute(asked).fetchall() == before
    assert all(threshold is not None and threshold != 0.5 for _, threshold in before)


def test_networks_predict_labels_of_before_after_labels_of_another_size(con: grouplearn.Connection) -> None:
    """The new labels' mean and deviation must not rescale what the network has learned."""
    con.execute("CREATE TABLE low AS SELECT * FROM t WHERE x < 5; CREATE TABLE high AS SELECT * FROM t WHERE x > 9")
    con.execute("TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t WITH (epochs = 30)")
    error = "SELECT sqrt(avg((prediction - y) ** 2)) FROM m_predict(low)"
    ((before,),) = con.execute(error).fetchall()
    con.execute("REFRESH MODEL m FROM high WITH (epochs = 1)")
    ((after,),) = con.execute(error).fetchall()
    assert after < 1.3 * before


def test_one_step_of_gradient_descent_goes_on_where_training_was(con: grouplearn.Connection) -> None:
    """Five epochs on the same rows are three epochs and two more: the learning rate and the averages go on."""
    statement = "linear_regression PREDICT y FEATURES (zscore(x), zscore(z)) FROM old VALIDATE NONE"
    con.execute(f"TRAIN MODEL m USING {statement} WITH (solver = 'sgd', epochs = 3, l2 = 1)")
    con.execute("REFRESH MODEL m FROM old WITH (epochs = 40)")
    con.execute(f"TRAIN MODEL exact USING {statement} WITH (l2 = 0.5)")  # the rows count twice, and the penalty once
    np.testing.assert_allclose(values(con, "m", "weights"), values(con, "exact", "weights"), rtol=0.02)


@pytest.mark.parametrize(("way", "options"), [("add", "num_iterations = 7"), ("leaves", "refit_decay_rate = 0.6")])
def test_trees_go_on_as_in_lightgbm(con: grouplearn.Connection, way: str, options: str) -> None:
    con.execute("TRAIN MODEL m USING gbdt PREDICT y FEATURES (x, z) FROM old VALIDATE NONE WITH (num_iterations = 20)")
    ((text,),) = con.execute("SELECT content FROM grouplearn.artifacts").fetchall()
    con.execute(f"REFRESH MODEL m FROM fresh WITH (refresh = '{way}', {options})")
    x = np.array(con.execute("SELECT x, z FROM fresh").fetchall())
    y = np.array(con.execute("SELECT y FROM fresh").fetchall())[:, 0]
    old = lightgbm.Booster(model_str=bytes(text).decode())
    parameters = {
        "objective": "regression",
        "verbose": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
    }
    if way == "add":
        new = lightgbm.train(parameters, lightgbm.Dataset(x, y), num_boost_round=7, init_model=old)
    else:
        new = old.refit(x, y, decay_rate=0.6, verbose=-1, num_threads=1)
    found = np.array(con.execute("SELECT prediction FROM m_predict(fresh) AS p").fetchall())[:, 0]
    np.testing.assert_allclose(found, new.predict(x), rtol=1e-6)


def test_a_state_is_kept_where_it_is_small(con: grouplearn.Connection) -> None:
    states = "grouplearn.states JOIN grouplearn.models USING (model)"
    counted = f"SELECT count(*) FROM {states} WHERE model_name = '{{}}'"
    large = "mlp PREDICT y FEATURES (x) FROM old WITH (epochs = 1, hidden_layers = [200, 200]{})"
    for name, options, kept in (
        ("small", "", 0),
        ("large", ", keep_state = true", 1),
        ("none", ", keep_state = false", 0),
    ):
        con.execute(f"TRAIN MODEL {name}_ USING {large.format(options)}")
        assert con.execute(counted.format(f"{name}_")).fetchall()[0][0] == kept
    con.execute("TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM old WITH (epochs = 1, hidden_layers = [8])")
    assert con.execute(counted.format("m")).fetchall()[0][0] == 1


def test_a_damaged_state_is_not_used(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM old")
    con.execute("UPDATE grouplearn.states SET content = content || '\\x00'::BLOB")
    with pytest.raises(DataError, match="the state of group 0 is not what was written"):
        con.execute("REFRESH MODEL m FROM fresh")


def test_rollback_undoes_a_refresh(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM old")
    before = values(con, "m", "weights")
    con.execute("BEGIN")
    con.execute("REFRESH MODEL m FROM fresh")
    assert (values(con, "m", "weights") != before).any()
    con.execute("ROLLBACK")
    assert (values(con, "m", "weights") == before).all()
    assert con.execute("SELECT count(*) FROM m_versions").fetchall() == [(1,)]


def test_workers_of_ray_refresh_to_the_same_bits(con: grouplearn.Connection) -> None:
    for learner in ("linear_regression", "mlp"):
        for name in ("m", "r"):
            con.execute(
                f"TRAIN OR REPLACE MODEL {name} USING {learner} PREDICT y FEATURES (x, z) FROM old GROUP BY g VALIDATE NONE"
            )
        con.execute("REFRESH MODEL m FROM fresh")
        con.execute("REFRESH MODEL r FROM fresh WITH (executor = 'ray', workers = 2)")
        digests = "SELECT group_id, sha256 FROM grouplearn.artifacts JOIN grouplearn.models USING (model) WHERE model_name = '{}'"
        assert sorted(con.execute(digests.format("m")).fetchall()) == sorted(
            con.execute(digests.format("r")).fetchall()
        )


_KILLED = """
import sys, grouplearn
with grouplearn.connect(sys.argv[1], progress=None) as con:
    con.execute("REFRESH MODEL m FROM fresh WITH (durable = true, epochs = 300, workers = 1)").fetchall()
"""


def test_a_killed_refresh_is_resumed(tmp_path: Path) -> None:
    path = str(tmp_path / "killed.duckdb")
    with grouplearn.connect(path, progress=None) as con:
        con.execute(TABLE)
        con.execute("CREATE TABLE old AS FROM t WHERE NOT later; CREATE TABLE fresh AS FROM t WHERE later")
        for name in ("m", "calm"):
            con.execute(
                f"TRAIN MODEL {name} USING mlp PREDICT y FEATURES (x, z) FROM old GROUP BY i % 8 AS g WITH (epochs = 2)"
            )
    process = subprocess.Popen([sys.executable, "-c", _KILLED, path])
    runs = tmp_path / "killed.duckdb.grouplearn"
    deadline = time.monotonic() + 60
    while not [*tmp_path.rglob("*.segment")] and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with grouplearn.connect(path, progress=None) as con:
        assert con.execute("SELECT count(*), max(version) FROM m_versions").fetchall() == [(1, 1)]
        found = con.execute("RESUME MODEL m").fetchall()
        assert {row[1] for row in found} == {"updated"}
        con.execute("REFRESH MODEL calm FROM fresh WITH (epochs = 300)")
        digests = "SELECT group_id, sha256 FROM grouplearn.artifacts JOIN grouplearn.models USING (model) WHERE model_name = '{}'"
        assert sorted(con.execute(digests.format("m")).fetchall()) == sorted(
            con.execute(digests.format("calm")).fetchall()
        )
        assert con.execute("SHOW RUNS").fetchall() == []
    assert not runs.exists() or not [*runs.iterdir()]


def test_late_hyperparameters_are_applied_to_the_state(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x, z) FROM old GROUP BY g")
    con.execute(
        "TRAIN MODEL other USING linear_regression PREDICT y FEATURES (x, z) FROM old GROUP BY g WITH (l1 = 2, l2 = 7)"
    )
    con.execute("DROP TABLE old")
    con.execute("ALTER MODEL m ADD TRIAL (l1 = 2, l2 = 7)")
    asked = "SELECT weight FROM {} WHERE l2 = 7 ORDER BY g, feature"
    found = [np.array(con.execute(asked.format(f"{name}_weights")).fetchall()) for name in ("m", "other")]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)
    assert con.execute("SELECT l1, l2, count(*) FROM m WHERE is_best GROUP BY ALL").fetchall() == [(2.0, 7.0, 3)]
    con.execute("REFRESH MODEL m FROM fresh")  # the state is still there


def test_a_model_begins_with_the_state_of_another(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL a USING linear_regression PREDICT y FEATURES (x, z) FROM old GROUP BY g")
    con.execute(
        "TRAIN MODEL b USING linear_regression PREDICT y FEATURES (x, z) FROM fresh GROUP BY g OVER GRID (l2 IN (0, 4)) "
        "KEEP ALL VALIDATE NONE WITH (initialize_from = 'a')"
    )
    con.execute(
        "TRAIN MODEL c USING linear_regression PREDICT y FEATURES (x, z) FROM t GROUP BY g OVER GRID (l2 IN (0, 4)) "
        "KEEP ALL VALIDATE NONE"
    )
    np.testing.assert_allclose(values(con, "b", "weights"), values(con, "c", "weights"), rtol=1e-9)


@pytest.mark.parametrize("statement", ["TRAIN", "REFRESH"])
def test_a_resumed_run_knows_the_latest_times_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    def dies(self: Ledger, result: Any) -> None:
        raise KeyboardInterrupt

    train = (
        "TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM {} GROUP BY g WITH (watermark = i, num_iterations = 2{})"
    )
    run = {
        "TRAIN": train.format("t", ", durable = true"),
        "REFRESH": "REFRESH MODEL m FROM t SINCE i WITH (durable = true)",
    }
    with grouplearn.connect(tmp_path / "d.duckdb", progress=False) as con:
        con.execute(TABLE)
        if statement == "REFRESH":
            con.execute(train.format("(FROM t WHERE i < 2000 OR g IS NULL)", ""))
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add", dies)
            with pytest.raises(grouplearn.Error):
                con.execute(run[statement])
        con.execute("RESUME MODEL m")
        latest = "SELECT value FROM grouplearn.watermarks JOIN grouplearn.models USING (model) ORDER BY ALL"
        assert con.execute(latest).fetchall() == [("2997",), ("2998",), ("2999",)]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_data_frame_is_found_as_in_train(con: grouplearn.Connection, kind: str) -> None:
    of = {"pandas": "to_df", "polars": "pl", "arrow": "to_arrow_table"}[kind]
    frame = getattr(con.sql("FROM t WHERE i < 2990"), of)()
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM frame GROUP BY g WITH (watermark = i)"
    )
    frame = getattr(con.sql("SELECT * REPLACE (CASE WHEN i > 2990 THEN y END AS y) FROM t"), of)()
    assert "go on" in str(con.execute("EXPLAIN REFRESH MODEL m SINCE i").fetchall())
    assert {row[1:3] for row in con.execute("REFRESH MODEL m SINCE i").fetchall()} == {("updated", 3), ("updated", 4)}
    del frame
    with pytest.raises(grouplearn.Error, match="Table with name frame does not exist"):
        con.execute("REFRESH MODEL m")
    frame = getattr(con.sql("FROM t WHERE i % 3 > 0 AND i < 1000"), of)()  # noqa: F841  (named in the statement of the model)
    assert [row[1] for row in con.sql("REFRESH MODEL m").fetchall()] == ["updated", "updated", "unchanged"]


def test_groups_that_failed_are_trained_on_a_data_frame(con: grouplearn.Connection) -> None:
    frame = con.sql("SELECT * REPLACE (CASE WHEN g = 'a1' THEN NULL ELSE y END AS y) FROM t").to_df()
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM frame GROUP BY g")
    frame = con.sql("FROM t").to_df()  # noqa: F841  (named in the statement of the model)
    assert [(row[0], row[-2]) for row in con.execute("RETRY FAILED MODEL m").fetchall()] == [("a1", "done")]


CLICKS = """
CREATE OR REPLACE TABLE clicks AS
SELECT i, if(i < 20_000, 3, i % 3) AS shop, a, b, (u < 1 / (1 + exp(b - 3 * a)))::INT AS yes,
  floor(exp(a + b / 5) * (0.5 + u))::INT AS visits, CASE WHEN a + b * u > 1 THEN 'x' WHEN a > u THEN 'y' ELSE 'z' END AS kind
FROM (SELECT i, hash(3 * i) % 1000 / 500 - 1 AS a, hash(3 * i + 1) % 1000 / 100 - 5 AS b, hash(3 * i + 2) % 1000 / 1000 AS u
  FROM range(23_000) AS t(i))
"""


@pytest.mark.parametrize(
    ("learner", "label"),
    [
        ("logistic_regression", "yes"),
        ("logistic_regression", "kind"),
        ("poisson_regression", "visits"),
        ("linear_svm", "kind"),
    ],
)
def test_groups_that_are_trained_anew_start_from_their_weights(learner: str, label: str) -> None:
    """One group is larger than a block, and trains epoch by epoch; the others train together."""
    statement = (
        f"TRAIN MODEL {{}} USING {learner} PREDICT {label} FEATURES (a, b) FROM clicks GROUP BY shop VALIDATE NONE"
        " WITH (l2 = 0.1, tolerance = 1e-9)"
    )
    with grouplearn.connect(progress=False) as con:
        con.execute(CLICKS)
        con.execute(statement.format("warm"))
        con.execute("DELETE FROM clicks WHERE i % 500 < 5")
        plan = "\n".join(line for (line,) in con.execute("EXPLAIN REFRESH MODEL warm").fetchall())
        assert "4 groups are trained anew, warm from their weights, as their rows have changed" in plan
        con.execute("REFRESH MODEL warm")
        con.execute(statement.format("cold"))
        epochs = con.execute("SELECT warm.epochs, cold.epochs FROM warm JOIN cold USING (shop)").fetchall()
        assert all(warm < cold for warm, cold in epochs)
        np.testing.assert_allclose(values(con, "warm", "weights"), values(con, "cold", "weights"), rtol=1e-3, atol=1e-4)


def test_weights_that_lead_nowhere_are_forgotten() -> None:
    """The rows have changed so that the old weights predict numbers that overflow: the group trains as by TRAIN."""
    statement = "TRAIN MODEL {} USING poisson_regression PREDICT visits FEATURES (a, b) FROM clicks GROUP BY shop"
    with grouplearn.connect(progress=False) as con:
        con.execute(CLICKS)
        con.execute(statement.format("warm"))
        con.execute("UPDATE clicks SET a = a * 1000000")
        assert {row[1] for row in con.execute("REFRESH MODEL warm").fetchall()} == {"updated"}
        con.execute(statement.format("cold"))
        np.testing.assert_allclose(values(con, "warm", "weights"), values(con, "cold", "weights"), rtol=1e-4, atol=1e-8)
