"""m_explain against scikit-learn and brute force, for learners without a method of their own, and in plain DuckDB."""

import itertools
from collections.abc import Iterator
from math import factorial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import grouplearn

CREATE = (
    "CREATE TABLE t AS SELECT i AS id, i % 2 AS g, hash(i, 1) % 1000 / 1000.0 AS a, hash(i, 2) % 1000 / 500.0 AS b,"
    " CASE WHEN i % 11 > 0 THEN 'k' || hash(i, 3) % 3 END AS k, a * 2 - b + (hash(i, 3) % 3) * 0.5 AS y, y > 1 AS late"
    " FROM range(600) AS r(i)"
)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    with grouplearn.connect(str(tmp_path / "shop.duckdb"), progress=None) as opened:
        opened.execute(CREATE)
        yield opened


def contributions(con: Any, model: str, rows: str = "t") -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    query = f"SELECT id, feature, contribution FROM {model}_explain({rows}, top := NULL)"
    for row, feature, contribution in con.execute(query).fetchall():
        found.setdefault(row, {})[feature] = contribution
    return found


def test_logistic_regression_against_scikit_learn(con: Any) -> None:
    con.execute("TRAIN MODEL m USING logistic_regression PREDICT late FEATURES (a, b) FROM t GROUP BY g VALIDATE NONE")
    found = contributions(con, "m")
    for group in range(2):
        rows = con.execute(f"SELECT id, a, b, late FROM t WHERE g = {group}").fetchall()
        ids, x, y = [row[0] for row in rows], np.array([row[1:3] for row in rows]), [row[3] for row in rows]
        weights = con.execute(
            f"SELECT weight FROM m_weights WHERE g = {group} AND feature IN ('a', 'b') ORDER BY feature"
        )
        own = np.array(weights.fetchall())[:, 0]
        reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, y).coef_[0]
        expected = (x - x.mean(axis=0)) * own
        seen = np.array([[found[each]["a"], found[each]["b"]] for each in ids])
        np.testing.assert_allclose(seen, expected, atol=1e-9)
        assert np.sign(reference).tolist() == np.sign(own).tolist()


def test_a_network_against_all_subsets(con: Any) -> None:
    con.execute(
        "TRAIN MODEL m USING mlp PREDICT y FEATURES (a, zscore(b), onehot(k)) FROM t GROUP BY g VALIDATE NONE WITH (epochs = 5)"
    )
    found = contributions(con, "m")
    row = con.execute("SELECT a, b, k FROM t WHERE id = 2").fetchall()[0]
    mean = con.execute("SELECT avg(a), avg(b) FROM t WHERE g = 0").fetchall()[0]
    shares = con.execute(
        "SELECT (k IS NOT DISTINCT FROM c)::INT, (SELECT avg(coalesce(k = c, false)::INT) FROM t WHERE g = 0)"
        " FROM (SELECT k FROM t WHERE id = 2), unnest(['k0', 'k1', 'k2']) AS u(c) ORDER BY c"
    ).fetchall()
    assert row[2] is not None
    layers = con.execute(
        "SELECT weights, bias, activation FROM grouplearn.layers WHERE group_id = 0 ORDER BY layer"
    ).fetchall()
    center, scale = con.execute("SELECT centers[2], scales[2] FROM grouplearn.groups WHERE group_id = 0").fetchall()[0]

    def score(known: frozenset[int]) -> float:
        numbers = [row[0] if 0 in known else mean[0], ((row[1] if 1 in known else mean[1]) - center) / scale]
        x = np.array([*numbers, *(own if 2 in known else share for own, share in shares)])
        for place, (weights, bias, activation) in enumerate(layers):
            x = np.array(weights) @ x + np.array(bias)
            if place < len(layers) - 1:
                assert activation == "relu"
                x = np.maximum(x, 0)
        return float(x[0])

    sets = [frozenset(each) for size in range(4) for each in itertools.combinations(range(3), size)]
    for place, feature in enumerate(("a", "b", "k")):
        total = sum(
            factorial(len(each)) * factorial(2 - len(each)) / 6 * (score(each | {place}) - score(each))
            for each in sets
            if place not in each
        )
        assert found[2][feature] == pytest.approx(total, abs=1e-9)


def test_many_features_are_sampled_and_still_add_up(con: Any) -> None:
    features = ", ".join(f"a * {number} + b AS f{number}" for number in range(12))
    con.execute(f"TRAIN MODEL m USING mlp PREDICT late FEATURES ({features}) FROM t VALIDATE NONE WITH (epochs = 2)")
    query = (
        "SELECT any_value(method), max(abs(score - baseline - total)), max(abs(score - ln(probability / (1 - probability)))) FROM"
        " (SELECT id, any_value(method) AS method, any_value(score) AS score, any_value(baseline) AS baseline,"
        " sum(contribution) AS total FROM m_explain(t) GROUP BY id) JOIN m_predict('t') USING (id)"
    )
    method, gap, off = con.execute(query).fetchall()[0]
    assert method == "sampled shapley"
    assert max(gap, off) < 1e-9
    assert contributions(con, "m") == contributions(con, "m")
    alone = con.execute("SELECT * FROM t WHERE id = 3").df()
    con.register("alone", alone)
    assert contributions(con, "m", "alone")[3] == pytest.approx(contributions(con, "m")[3], abs=1e-12)


def test_plain_duckdb_explains_linear_models_alone(con: Any, tmp_path: Path) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a, zscore(b), k) FROM t GROUP BY ROLLUP (g)")
    con.execute("TRAIN MODEL trees USING gbdt PREDICT y FEATURES (a, b, k) FROM t WITH (num_iterations = 3)")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT sql)")
    expected = con.execute("SELECT id, feature, contribution FROM m_explain(t)").fetchall()
    permuted = con.execute("SELECT g, feature, round(importance, 9) FROM m_permutation_importance(t)").fetchall()
    con.close()
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as plain:
        assert plain.execute("SELECT id, feature, contribution FROM m_explain(t)").fetchall() == expected
        assert (
            plain.execute("SELECT g, feature, round(importance, 9) FROM m_permutation_importance(t)").fetchall()
            == permuted
        )
        assert plain.execute("SELECT count(*) FROM trees_permutation_importance(t)").fetchall() == [(3,)]
        with pytest.raises(duckdb.Error, match="explains by grouplearn alone"):
            plain.execute("FROM trees_explain(t)")
    with duckdb.connect() as plain:
        plain.execute(CREATE)
        plain.execute((tmp_path / "out" / "model.sql").read_text(encoding="utf-8"))
        assert plain.execute("SELECT id, feature, contribution FROM m_explain(t)").fetchall() == expected


def test_trees_with_linear_leaves_are_explained_by_their_scores(con: Any) -> None:
    con.execute(
        "TRAIN MODEL m USING gbdt PREDICT y FEATURES (a, b) FROM t WITH (linear_tree = true, num_iterations = 5)"
    )
    query = (
        "SELECT any_value(method), max(abs(score - baseline - total)), max(abs(score - prediction)) FROM (SELECT id,"
        " any_value(method) AS method, any_value(score) AS score, any_value(baseline) AS baseline,"
        " any_value(prediction) AS prediction, sum(contribution) AS total FROM m_explain(t) GROUP BY id)"
    )
    method, gap, off = con.execute(query).fetchall()[0]
    assert method == "shapley"
    assert max(gap, off) < 1e-9
