"""m_held_out: predictions by models that did not learn from the rows, whose metrics are those of the model table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.dying_runs import answer, dies
from sklearn.linear_model import LogisticRegression, Ridge

import grouplearn

TABLE = (
    "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, hash(i) % 1000 / 100 AS a, hash(i, 2) % 1000 / 100 AS b,"
    " 2 * a - b + hash(i, 1) % 10 AS y, y > 8 AS z, ['u', 'v', 'w'][1 + floor(a / 4)::INTEGER] AS c, 1 + i % 2 AS w"
    " FROM range(240) r(i)"
)
LEARNERS = [
    ("linear_regression", "y", ""),
    ("linear_svm", "z", ""),
    ("logistic_regression", "c", ""),
    ("gbdt", "z", ", num_iterations = 4"),
    ("gbdt", "c", ", num_iterations = 4"),
    ("random_forest", "y", ", num_iterations = 4"),
    ("mlp", "c", ", epochs = 2"),
]
VALIDATE = (
    "",
    "VALIDATE FOLDS 3",
    "VALIDATE SAMPLE 20%",
    "VALIDATE WHERE id % 5 = 0 REFIT",
    "VALIDATE ROLLING 2 BY id HORIZON 4",
)
LOSS = {
    "y": ("sqrt(avg((label - prediction) ** 2))", "rmse"),
    "z": ("avg((label = prediction)::INTEGER)", "accuracy"),
    "c": ("avg(-ln(probabilities[label]))", "log_loss"),
}


def fetched(con: Any, statement: str) -> list[Any]:
    return con.execute(statement).fetchall()


@pytest.mark.parametrize(("learner", "target", "options"), LEARNERS)
def test_the_metrics_are_those_of_the_model_table(learner: str, target: str, options: str) -> None:
    loss, metric = LOSS[target]
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        for validate in VALIDATE:
            levels = "g" if "ROLLING" in validate else "ROLLUP (g)"
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {target} FEATURES (zscore(a), b) FROM t GROUP BY {levels}"
                f" {validate} WITH (keep_held_out = true, key = id{options})"
            )
            of_fold = f"SELECT g, model_level, fold, {loss} AS value FROM m_held_out GROUP BY ALL"
            means = f"SELECT g, model_level, avg(value) FROM ({of_fold}) GROUP BY ALL ORDER BY ALL"
            expected = fetched(con, f"SELECT g, model_level, valid_{metric} FROM m ORDER BY ALL")
            found = fetched(con, means)
            assert [row[:2] for row in found] == [row[:2] for row in expected]
            np.testing.assert_allclose([row[2] for row in found], [row[2] for row in expected], rtol=1e-12)
            twice = "SELECT count(*) FROM (SELECT g, model_level, id FROM m_held_out GROUP BY ALL HAVING count(*) > 1)"
            assert fetched(con, twice) == [(0,)]
            joined = f"SELECT count(*), count(*) FILTER (t.{target} <> label) FROM m_held_out JOIN t USING (id)"
            assert fetched(con, joined) == [(fetched(con, "SELECT count(*) FROM m_held_out")[0][0], 0)]


@pytest.mark.parametrize(("learner", "target"), [("linear_regression", "y"), ("logistic_regression", "z")])
def test_scikit_learn_predicts_the_same_for_each_fold(learner: str, target: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute(
            f"TRAIN MODEL m USING {learner} PREDICT {target} FEATURES (a, b) FROM t VALIDATE FOLDS 4"
            " WITH (keep_held_out = true, key = id, weight = w, l2 = 2, tolerance = 1e-10)"
            if learner == "logistic_regression"
            else f"TRAIN MODEL m USING {learner} PREDICT {target} FEATURES (a, b) FROM t VALIDATE FOLDS 4"
            " WITH (keep_held_out = true, key = id, weight = w, l2 = 2)"
        )
        shown = "probability" if target == "z" else "prediction"
        rows = fetched(con, f"SELECT a, b, w, fold, label, {shown} FROM m_held_out JOIN t USING (id)")
    x, w, fold, y, ours = (np.array([row[part] for row in rows], float) for part in (slice(0, 2), 2, 3, 4, 5))
    for number in range(4):
        held, others = fold == number, fold != number
        if target == "y":
            theirs = Ridge(alpha=2).fit(x[others], y[others], w[others]).predict(x[held])
        else:
            model = LogisticRegression(C=0.5, tol=1e-10, max_iter=1000).fit(x[others], y[others], w[others])
            theirs = model.predict_proba(x[held])[:, 1]
        np.testing.assert_allclose(ours[held], theirs, rtol=1e-5)


def test_models_are_the_same_whether_predictions_are_kept_or_not() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        train = "USING gbdt PREDICT z FEATURES (a, onehot(c)) FROM t GROUP BY g VALIDATE FOLDS 3 WITH (num_iterations = 4{})"
        con.execute("TRAIN MODEL plain " + train.format(""))
        con.execute("TRAIN MODEL kept " + train.format(", keep_held_out = true, key = {'id': id, 'c': c}"))
        models = [fetched(con, f"SELECT * EXCLUDE (seconds) FROM {name} ORDER BY ALL") for name in ("plain", "kept")]
        assert models[0] == models[1]
        predicted = [fetched(con, f"SELECT id, probability FROM {name}_predict(t)") for name in ("plain", "kept")]
        assert predicted[0] == predicted[1]
        assert fetched(con, "SELECT count(*) FROM kept_held_out JOIN t ON key = {'id': id, 'c': c}") == [(240,)]


def test_rows_in_files_and_a_resumed_run_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.duckdb"
    train = (
        "TRAIN MODEL {name} USING gbdt PREDICT z FEATURES (a, b) FROM t GROUP BY g VALIDATE FOLDS 3"
        " WITH (num_iterations = 4, keep_held_out = true, key = id, {more})"
    )
    answer(path, TABLE, train.format(name="whole", more="durable = false"))
    dies(path, monkeypatch, train.format(name="m", more="durable = true"), 14)  # in the folds of the best
    answer(path, "RESUME MODEL m")
    expected = answer(path, "SELECT * FROM whole_held_out ORDER BY id")
    assert answer(path, "SELECT * FROM m_held_out ORDER BY id") == expected
    answer(path, train.format(name="small", more="memory_limit = '1MB'"))
    assert answer(path, "SELECT * FROM small_held_out ORDER BY id") == expected


def test_a_stranger_s_rows_are_checked_before_they_are_imported(tmp_path: Path) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t WITH (keep_held_out = true, key = id)"
        )
        expected = fetched(con, "FROM m_held_out ORDER BY id")
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'sound'}'")
        con.execute(f"IMPORT OR REPLACE MODEL m FROM '{tmp_path / 'sound'}'")
        assert fetched(con, "FROM m_held_out ORDER BY id") == expected
        con.execute("UPDATE grouplearn.held_out SET keys = [list_prepend('no number', keys[1][2:])]")
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'odd'}'")
        with pytest.raises(grouplearn.Error, match='the key "id" of a held-out row is not of its type'):
            con.execute(f"IMPORT MODEL n FROM '{tmp_path / 'odd'}'")
