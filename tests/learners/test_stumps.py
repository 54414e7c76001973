"""Trees of a forest without a split say what scores begin with: LightGBM leaves them near 0, which the average is pulled to."""

from __future__ import annotations

import re

import numpy as np
import pytest

import grouplearn
from grouplearn import Connection
from grouplearn.learners.trees.lightgbm import stumps

lightgbm = pytest.importorskip("lightgbm")

FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.632, "verbose": -1, "num_threads": 1}


@pytest.fixture
def con() -> Connection:
    con = grouplearn.connect(progress=False)
    con.execute(
        "CREATE TABLE t AS SELECT i % 20 AS g, i, hash(i) % 1000 / 100.0 AS x, 1000.0 + hash(i, 1) % 100 AS y, 7.0::DOUBLE AS k,"
        " 1 + hash(i, 7) % 3 AS w, (i // 20) % 4 < 3 AS c, ['p', 'q', 'p', 'r'][1 + (i // 20) % 4] AS m FROM range(160) AS r(i)"
    )
    return con


def test_a_group_too_small_for_a_split_is_predicted_its_mean(con: Connection) -> None:
    """8 rows, of which 5 are drawn for a tree whose leaves have 5 at least."""
    con.execute(
        "TRAIN MODEL f USING random_forest PREDICT y FEATURES (x) FROM t GROUP BY g WITH (weight = w)"
    ).fetchall()
    wrong = con.execute(
        "SELECT max(abs(prediction - mean)) FROM f_predict(t) JOIN"
        " (SELECT g, sum(w * y) / sum(w) AS mean FROM t GROUP BY g) AS means USING (g)"
    ).fetchall()
    assert wrong[0][0] < 1e-3  # labels and weights are held in single precision
    assert con.execute("SELECT max(abs(train_r2)) FROM f").fetchall()[0][0] < 0.2


def test_classes_are_predicted_their_shares(con: Connection) -> None:
    con.execute("TRAIN MODEL f USING random_forest PREDICT c FEATURES (x) FROM t GROUP BY g").fetchall()
    assert con.execute(
        "SELECT max(abs(probability - 0.75)) < 1e-6, bool_and(prediction) FROM f_predict(t)"
    ).fetchall() == [(True, True)]
    con.execute("TRAIN MODEL s USING random_forest PREDICT m FEATURES (x) FROM t GROUP BY g").fetchall()
    shares = con.execute(
        "SELECT DISTINCT map_values(map_from_entries(map_entries(probabilities))) FROM s_predict(t)"
    ).fetchall()
    assert np.allclose([share for (share,) in shares], [0.5, 0.25, 0.25])


@pytest.mark.parametrize("learner", ["random_forest", "gbdt"])
def test_a_label_of_one_value_is_predicted_that(con: Connection, learner: str) -> None:
    forest = "boosting = 'rf', bagging_freq = 1, bagging_fraction = 0.6" if learner == "gbdt" else "num_iterations = 30"
    con.execute(f"TRAIN MODEL f USING {learner} PREDICT k FEATURES (x) FROM t WITH ({forest})").fetchall()
    assert con.execute("SELECT max(abs(prediction - 7)) < 1e-9 FROM f_predict(t)").fetchall() == [(True,)]


def test_macro_function_and_metrics_agree_and_a_curve_ends_where_the_model_is(con: Connection) -> None:
    con.execute(
        "TRAIN MODEL f USING random_forest PREDICT y FEATURES (x) FROM t GROUP BY i % 7 AS g VALIDATE SAMPLE 30%"
        " OVER GRID (num_iterations IN (5, 20)) WITH (seed = 1)"
    ).fetchall()
    rows = "SELECT *, i % 7 AS g FROM (SELECT * EXCLUDE g FROM t)"
    con.execute(f"CREATE TABLE u AS {rows}")
    assert (
        con.execute("SELECT max(abs(prediction - predict_value('f', u))) FROM f_predict(u) AS u").fetchall()[0][0]
        < 1e-9
    )
    ends = con.execute(
        "SELECT max(abs(f.valid_rmse - c.valid_rmse)), count(*) FROM f JOIN f_curves AS c"
        " ON f.g = c.g AND f.num_iterations = c.num_iterations AND f.epochs = c.epoch"
    ).fetchall()
    assert ends[0][0] < 1e-9
    assert ends[0][1] == 14
    assert con.execute("SELECT max(valid_rmse) < 100 FROM f_curves").fetchall() == [(True,)]


@pytest.mark.parametrize("objective", ["regression", "binary", "multiclass", "poisson", "regression_l1"])
def test_only_trees_of_one_leaf_change(objective: str) -> None:
    """The average over LightGBM's own trees, those of one leaf with what its boosting begins with."""
    rng = np.random.default_rng(3)
    x, n = rng.normal(size=(34, 2)), 34
    y = {"binary": (np.arange(n) % 3 > 0), "multiclass": np.arange(n) % 3}.get(objective, 5 + rng.random(n)) * 1.0
    outputs = 3 if objective == "multiclass" else 1
    own = {**FOREST, "objective": objective, "min_data_in_leaf": 11, **({"num_class": 3} if outputs == 3 else {})}
    forest = lightgbm.train(own, lightgbm.Dataset(x, y, free_raw_data=False), 12)
    one = {**own, "boosting": "gbdt", "min_gain_to_split": 1e300, "bagging_freq": 0, "bagging_fraction": 1.0}
    begins = stumps.beginnings(lightgbm.train(one, lightgbm.Dataset(x, y), 1).model_to_string())
    before = forest.model_to_string()
    alone = [leaves == "1" for leaves in re.findall(r"^num_leaves=(\d+)$", before, re.MULTILINE)]
    assert 0 < sum(alone) < len(alone)
    changed = lightgbm.Booster(model_str=stumps.with_beginnings(before, begins))
    scores = np.zeros((n, outputs))
    for tree, single in enumerate(alone):
        part = forest.predict(x, raw_score=True, start_iteration=tree // outputs, num_iteration=1).reshape(n, outputs)
        output = tree % outputs
        scores[:, output] += float(begins[output]) if single else part[:, output]
    assert np.allclose(changed.predict(x, raw_score=True).reshape(n, outputs), scores, rtol=1e-12)  # which are sums
    if objective == "regression":
        assert np.allclose(changed.predict(x), scores[:, 0] / 12, rtol=1e-12)


def test_a_forest_of_splits_is_lightgbms_own_text() -> None:
    x = np.arange(400.0).reshape(200, 2)
    text = lightgbm.train({**FOREST, "objective": "regression"}, lightgbm.Dataset(x, x[:, 0]), 3).model_to_string()
    assert not stumps.has_some(text)
    assert stumps.with_beginnings(text, ["1"]) == text
