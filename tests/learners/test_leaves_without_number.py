"""LightGBM makes a leaf that is no number where bagging leaves a tree no rows, and where linear leaves have infinite features.

A tree without rows has one leaf, and says the mean of its group, as one without a split.
"""

from __future__ import annotations

import numpy as np
import pytest

import grouplearn
from grouplearn.learners.contract.control import Diverged
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.models.label import NUMBER
from grouplearn.models.state import State


@pytest.mark.examples(3)
@pytest.mark.parametrize("label", ["a % 4 + a", "a % 2 > 0", "'c' || a % 3"])
@pytest.mark.parametrize(
    ("learner", "options"),
    [("random_forest", ""), ("gbdt", "WITH (boosting = 'rf', bagging_fraction = 0.632, bagging_freq = 1)")],
)
def test_groups_of_two_rows_are_trained_or_fail_with_a_reason(learner: str, options: str, label: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i AS a, i // 2 AS g FROM range(60) AS r(i)")
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT {label} AS y FEATURES (a) FROM t GROUP BY g {options}")
        found = con.execute("SELECT g, status, error FROM m").fetchall()
        assert len(found) == 30
        assert "done" in {status for _, status, _ in found}
        assert all("the label is" in why for _, _, why in found if why is not None)
        done = sorted(g for g, status, _ in found if status == "done")
        for query in (
            "SELECT g, p.prediction FROM (SELECT g, predict('m', t) AS p FROM t)",
            "SELECT g, prediction FROM m_predict(t)",
        ):
            rows = con.execute(query).fetchall()
            assert sorted({g for g, prediction in rows if prediction is not None}) == done
            assert not any(isinstance(each, float) and np.isnan(each) for _, each in rows)


def test_a_forest_of_such_a_leaf_is_no_model() -> None:
    text = b"tree\nTree=0\nnum_leaves=1\nleaf_value=%s\n\nend of trees\n"
    learner, problem = Gbdt(), Problem(NUMBER, 1, 0)
    for number in (b"nan", b"-nan", b"0.5 inf", b"0.5\nleaf_const=nan", b"0.5\nleaf_coeff=1 -inf"):
        state = State({"model_0": np.frombuffer(text % number, np.uint8)}, np.ones(1, bool))
        with pytest.raises(Diverged, match="no number"):
            learner.finalize(problem, [{}], state, 0)
    state = State({"model_0": np.frombuffer(text % b"0.5", np.uint8)}, np.ones(1, bool))
    assert learner.finalize(problem, [{}], state, 0).text == text % b"0.5"


@pytest.mark.parametrize("objective", ["regression", "quantile", "poisson"])
def test_linear_leaves_of_infinite_features_are_trained_or_fail_with_a_reason(objective: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, CASE WHEN i % 50 = 7 THEN 'inf'::DOUBLE ELSE hash(i) % 1000 / 1000 END AS x,"
            " hash(i * 3) % 1000 / 1000 AS z, hash(i) % 1000 / 500 + hash(i * 7) % 100 / 100 AS y FROM range(600) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING gbdt PREDICT y FEATURES (x, z) FROM t GROUP BY g"
            f" WITH (linear_tree = true, num_iterations = 5, objective = '{objective}')"
        )
        found = con.execute("SELECT status, error FROM m").fetchall()
        assert ("failed", True) in {(status, "linear_tree" in (why or "")) for status, why in found}
        predicted = con.execute(
            "SELECT g, count(prediction), bool_and(isfinite(prediction)) FROM m_predict(t) GROUP BY g"
        )
        assert {count for _, count, _ in predicted.fetchall()} <= {0, 300}
