"""Areas under curves of trees over rows of which many are the same: one number, whichever way a model predicts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.thorough import enough
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import grouplearn

GROUPS, ROWS = 12, 80
LEARNERS = {
    "a forest": "random_forest WITH (min_data_in_leaf = 1, num_iterations = 3)",
    "a longer forest": "random_forest WITH (min_data_in_leaf = 2, num_iterations = 12)",
    "boosting = rf": "gbdt WITH (boosting = 'rf', bagging_freq = 1, bagging_fraction = 0.6, num_iterations = 4)",
    "boosting": "gbdt WITH (min_data_in_leaf = 5, num_iterations = 3)",
    "dart": "gbdt WITH (boosting = 'dart', min_data_in_leaf = 1, num_iterations = 5)",
    "one against the rest": "random_forest WITH (objective = 'multiclassova', num_iterations = 3)",
}


def fill(con: grouplearn.Connection, seed: int, classes: int) -> None:
    random, n = np.random.default_rng(seed), GROUPS * ROWS
    group, place = np.divmod(np.arange(n), ROWS)
    numbers = {name: random.integers(0, 2 + group % 3) for name in "abc"}
    labels = [f"c{each}" for each in random.integers(0, classes, n)]
    rows = pa.table({"id": np.arange(n), "g": group, **numbers, "y": labels, "h": place % 3 == 0})
    con.register("rows", rows)
    con.execute("CREATE OR REPLACE TABLE t AS FROM rows")


def area(rows: list[tuple[str, list[float]]], classes: int) -> float:
    """Return the area under the curve as its definition has it."""
    labels, shares = np.array([int(label[1:]) for label, _ in rows]), np.array([share for _, share in rows])
    if classes == 2:
        return float(roc_auc_score(labels == 1, shares[:, 1]))
    return float(np.mean([roc_auc_score(labels == k, shares[:, k]) for k in range(classes)]))


@pytest.mark.examples(2)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", LEARNERS)
def test_every_way_to_predict_ranks_alike(name: str, classes: int) -> None:
    if classes == 2 and name == "one against the rest":
        pytest.skip("it is for three classes or more")
    learner, _, options = LEARNERS[name].partition(" ")

    @settings(max_examples=enough(20, 2), deadline=None)
    @given(seed=st.integers(0, 2**20))
    def check(seed: int) -> None:
        with grouplearn.connect(progress=False) as con:
            fill(con, seed, classes)
            con.execute(
                f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (a, b, c) FROM t GROUP BY g VALIDATE WHERE h"
                f" OPTIMIZE auc {options}"
            )
            shares = "map_values({}probabilities)" if classes > 2 else "[1 - {0}probability, {0}probability]"
            ways = (
                f"SELECT g, y, {shares.format('')} FROM m_predict(t) WHERE h = {{}} ORDER BY id",
                f"SELECT g, y, {shares.format('p.')} FROM (SELECT *, predict('m', t) AS p FROM t) WHERE h = {{}}",
            )
            for held, column in ((True, "valid_auc"), (False, "train_auc")):
                noted = dict(con.execute(f"SELECT g, {column} FROM m").fetchall())
                measured = dict(con.sql(f"EVALUATE MODEL m ON t WHERE h = {held}").project("g, auc").fetchall())
                assert noted == pytest.approx(measured, abs=1e-12)
                for way in ways:
                    found: dict[int, list[tuple[str, list[float]]]] = {}
                    for group, label, share in con.execute(way.format(held)).fetchall():
                        found.setdefault(group, []).append((label, share))
                    areas = {group: area(rows, classes) for group, rows in found.items()}
                    # Shares of three classes may be tied although no score is, of one row in many.
                    off = int(classes > 2)
                    assert sum(abs(areas[group] - measured[group]) > 1e-12 for group in measured) <= off, way

    check()


@pytest.mark.parametrize("learner", ["random_forest", "gbdt"])
def test_the_macro_adds_leaves_as_predict_does(learner: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, hash(i) % 97 AS a, hash(i, 1) % 11 AS b, hash(i, 2) % 1013 / 7 AS y"
            " FROM range(900) AS r(i)"
        )
        con.execute(
            f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (a, b) FROM t GROUP BY g WITH (num_iterations = 30)"
        )
        differ = con.execute(
            "SELECT count(*), count(*) FILTER (found <> m.prediction) FROM m_predict(t) AS m"
            " JOIN (SELECT id, predict_value('m', t) AS found FROM t) USING (id)"
        ).fetchone()
    assert differ == (900, 0)


@pytest.mark.examples(2)
@pytest.mark.parametrize("groups", ["id % 3", "id // 30"], ids=["large", "small"])
@pytest.mark.parametrize("metric", ["auc", "pr_auc"])
def test_the_curve_of_a_forest_ends_at_the_metric_of_its_model(metric: str, groups: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS id, hash(i) % 10000 / 5000.0 - 1 AS x, hash(i * 7 + 1) % 10000 / 5000.0 - 1 AS z,"
            " hash(i * 3) % 10000 / 10000.0 < 1 / (1 + exp(-2 * x + z * z)) AS y FROM range(1500) AS r(i)"
        )
        con.execute(
            f"TRAIN MODEL m USING random_forest PREDICT y FEATURES (x, z) FROM t GROUP BY {groups} AS g"
            f" VALIDATE WHERE id % 4 = 0 OPTIMIZE {metric} WITH (early_stopping = 5)"
        ).fetchall()
        far = con.execute(
            f"SELECT count(*), count(*) FILTER (abs(m.valid_{metric} - c.valid_{metric}) > 1e-12) FROM m"
            " JOIN m_curves c ON c.g = m.g AND c.epoch = m.epochs"
        ).fetchall()
    assert far[0][0] >= 3
    assert far[0][1] == 0
