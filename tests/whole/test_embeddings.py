"""Features that are arrays, such as embeddings, in linear models: the model of their values as columns, by every road."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from helpers.thorough import covering
from sklearn.linear_model import LogisticRegression

import grouplearn
from grouplearn.errors import BindError
from grouplearn.train.rows import chosen

#: In some rows the array is NULL, or a value of it is NULL, NaN or infinite; group 3 has few rows, and its values less of use.
TABLE = """
CREATE TABLE t AS SELECT least(i % 7, 3)::INTEGER AS g, i AS id, u, 'k' || hash(i + 9) % 5 AS word,
    e, e::DOUBLE[] AS l, e::FLOAT[4] AS f, e[1] AS e1, e[2] AS e2, e[3] AS e3, e[4] AS e4,
    u + e[2] - e[3] * 2 + hash(i + 5) % 100 / 40 > 1.5 AS yes, hash(i + 8) % 4 AS number,
    CASE hash(i + 6) % 4 + (u > 0.5)::INTEGER WHEN 0 THEN 'low' WHEN 1 THEN 'mid' ELSE 'high' END AS class
FROM (SELECT i, hash(i) % 1000 / 1000 AS u, CASE i % 40
        WHEN 0 THEN NULL WHEN 1 THEN [1, NULL, 3, 4] WHEN 2 THEN [1, 'NaN'::DOUBLE, 3, 4]
        WHEN 3 THEN [1, 2, 'inf'::DOUBLE, 4]
        ELSE [hash(i, 1) % 8 / 8, hash(i, 2) % 16 / 16, hash(i, 3) % 4 / 4, least(i % 7, 3)] END::DOUBLE[4] AS e
      FROM range({rows}) AS r(i))
"""
LABELS = {
    "linear_regression": "number",
    "logistic_regression": "yes",
    "linear_svm": "class",
    "poisson_regression": "number",
}
WAYS = {
    "": "",
    "coordinate_descent": "WITH (solver = 'coordinate_descent')",
    "sgd": "WITH (solver = 'sgd', epochs = 3)",
}
RESTS = ("", "VALIDATE SAMPLE 20%", "VALIDATE FOLDS 3")


@pytest.fixture
def con() -> Iterator[Any]:
    with grouplearn.connect(progress=None) as found:
        found.execute(TABLE.format(rows=420))
        yield found


def weights(con: Any, statement: str) -> tuple[list[Any], np.ndarray]:
    """Train model m; return groups and names of its weights, and the weights."""
    con.execute(f"TRAIN OR REPLACE MODEL m {statement}").fetchall()
    rows = con.execute(
        "SELECT g, replace(replace(feature, '[', ''), ']', '') AS name, weight FROM m_weights"
        " ORDER BY g NULLS LAST, name, weight"
    ).fetchall()
    return [(group, name) for group, name, _ in rows], np.array([weight for *_, weight in rows], float)


@pytest.mark.examples(2)
@pytest.mark.parametrize(("learner", "way", "rest"), covering(LABELS, WAYS, RESTS))
def test_an_array_has_the_weights_of_its_values_as_columns(con: Any, learner: str, way: str, rest: str) -> None:
    about = f"USING {learner} PREDICT {LABELS[learner]} FEATURES ({{}}, onehot(word), u) FROM t GROUP BY g {rest} {WAYS[way]}"
    names, expected = weights(con, about.format("e1, e2, e3, e4"))
    for array in ("e", "l", "f"):
        found = weights(con, about.format(f"{array} AS e"))
        assert found[0] == names
        # Rows are hashed in another order: sums, and the batches of sgd, are others.
        np.testing.assert_allclose(found[1], expected, rtol=1e-3, atol=1e-3 if way != "sgd" else 0.5)


@pytest.mark.parametrize("learner", ["logistic_regression", "gbdt"])
def test_an_array_beside_a_category_of_many_values_is_kept_without_zeros(
    con: Any, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    monkeypatch.setattr(chosen, "DENSE_BYTES", 1000)  # 630 dense columns of these rows are too many
    con.execute("CREATE TABLE wide AS SELECT *, id // 2 AS place FROM t")
    metrics = []
    for array in ("e", "e1, e2, e3, e4"):
        features = f"{array}, onehot(place), onehot(id)"
        con.execute(f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT yes FEATURES ({features}) FROM wide")
        metrics.append(con.execute("SELECT train_log_loss FROM m").fetchone()[0])
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-4)


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", LABELS)
def test_macro_function_and_table_agree_and_rows_with_a_missing_value_have_no_prediction(
    con: Any, learner: str
) -> None:
    con.execute(
        f"TRAIN MODEL m USING {learner} PREDICT {LABELS[learner]} FEATURES (u, e, onehot(word), f AS last) FROM t"
        " GROUP BY ROLLUP (g)"
    )
    rows = con.execute(
        "SELECT m.e1 + m.e2 + m.e3 + m.e4 AS whole, m.prediction::VARCHAR, p.prediction::VARCHAR"
        " FROM (SELECT id, predict('m', t) AS p FROM t) JOIN m_predict('t') AS m USING (id) ORDER BY id"
    ).fetchall()
    assert len(rows) == 420
    for whole, macro, function in rows:
        assert (macro is None) == (function is None) == (whole is None or not np.isfinite(whole))
        if macro is not None and LABELS[learner] == "number":
            assert float(macro) == pytest.approx(float(function), rel=1e-12)
        else:
            assert macro == function
    used = con.execute(
        "SELECT sum(n_rows), sum(n_skipped) FROM grouplearn.groups SEMI JOIN grouplearn.models USING (model) WHERE level = 0"
    ).fetchone()
    assert used == (420, sum(whole is None or not np.isfinite(whole) for whole, *_ in rows))


def test_an_embedding_has_the_model_of_scikit_learn(con: Any) -> None:
    con.execute(
        "CREATE TABLE texts AS SELECT i % 2 AS g, i AS id, [hash(i, j) % 1000 / 500 - 1 FOR j IN range(300)]::FLOAT[300] AS e,"
        " e[1] + e[2] - e[300] + hash(i) % 100 / 100 > 0.5 AS yes FROM range(800) AS r(i)"
    )
    con.execute("TRAIN MODEL m USING logistic_regression PREDICT yes FEATURES (e) FROM texts GROUP BY g WITH (l2 = 10)")
    for group in (0, 1):
        x, y, p = (
            con.execute(f"SELECT e, yes, probability FROM m_predict(texts) WHERE g = {group} ORDER BY id")
            .fetchnumpy()
            .values()
        )
        x = np.stack(x).astype(float)
        theirs = LogisticRegression(C=0.1, tol=1e-10, max_iter=5000).fit(x, y)
        np.testing.assert_allclose(p, theirs.predict_proba(x)[:, 1], atol=1e-4)


def test_a_model_of_arrays_moves(con: Any, tmp_path: Path) -> None:
    con.execute("TRAIN MODEL m USING logistic_regression PREDICT class FEATURES (e, onehot(word)) FROM t GROUP BY g")
    asked = "SELECT id, prediction, probabilities FROM m_predict(t) ORDER BY id"
    expected = con.execute(asked).fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'native'}'")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'sql'}' (FORMAT sql)")
    con.execute("DROP MODEL m")
    con.execute(f"IMPORT MODEL m FROM '{tmp_path / 'native'}'")
    assert con.execute(asked).fetchall() == expected
    with duckdb.connect() as plain:
        plain.execute(TABLE.format(rows=420))
        for script in sorted((tmp_path / "sql").glob("*.sql")):
            plain.execute(script.read_text().replace("{folder}", str(tmp_path / "sql")))
        assert plain.execute(asked).fetchall() == expected


def test_lists_that_are_not_of_one_length_are_pointed_to_multihot(con: Any) -> None:
    con.execute("CREATE TABLE baskets AS SELECT [1, 2, 3][: 1 + i % 3] AS products, i AS y FROM range(30) AS r(i)")
    with pytest.raises(BindError) as caught:
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (products) FROM baskets")
    assert caught.value.message == 'feature "products" has 10 arrays of 1 values and 20 of another length'
    assert "multihot(x)" in str(caught.value.hint)
