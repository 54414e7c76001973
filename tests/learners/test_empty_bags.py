"""Bagging of a few rows may leave a tree none, of which LightGBM makes a leaf that is no number."""

from __future__ import annotations

import numpy as np
import pytest

import grouplearn
from grouplearn.learners.base import Diverged, Problem, State, Task
from grouplearn.learners.gbdt import Gbdt


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
        assert {"done"} < {status for _, status, _ in found}
        assert all("leaf that is no number" in why or "the label is" in why for _, _, why in found if why is not None)
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
    learner, problem = Gbdt(), Problem(Task.REGRESSION, 1, 0)
    for number in (b"nan", b"-nan", b"0.5 inf"):
        state = State({"model_0": np.frombuffer(text % number, np.uint8)}, np.ones(1, bool))
        with pytest.raises(Diverged, match="no number"):
            learner.finalize(problem, [{}], state, 0)
    state = State({"model_0": np.frombuffer(text % b"0.5", np.uint8)}, np.ones(1, bool))
    assert learner.finalize(problem, [{}], state, 0).text == text % b"0.5"
