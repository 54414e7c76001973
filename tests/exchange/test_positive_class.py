"""Of two classes the positive one is the one that DuckDB orders last by the label's type, on every path to a probability."""

import itertools
import json
from pathlib import Path

import duckdb
import numpy as np
import onnxruntime
import pytest
from helpers.thorough import THOROUGH

import grouplearn

#: Labels of two values each, of which the alphabet has another order than the type; the greater one comes second.
LABELS = {
    "ENUM": "(['spam', 'ham'])[1 + hit::INTEGER]::ENUM('spam', 'ham')",
    "INTEGER": "[9, 10][1 + hit::INTEGER]",
    "DECIMAL": "[-1.5, -10.5][2 - hit::INTEGER]",
    "DATE": "[DATE '9999-12-31', DATE '10000-01-01'][1 + hit::INTEGER]",
    "VARCHAR": "(['Z', 'a'])[1 + hit::INTEGER]",
    "BLOB": "CASE WHEN hit THEN encode('é') ELSE 'z'::BLOB END",
}


LEARNERS = ("logistic_regression", "gbdt")


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("kind", "learner"),
    [*itertools.product(LABELS, LEARNERS)] if THOROUGH else [*zip(LABELS, itertools.cycle(LEARNERS), strict=False)],
)
def test_the_positive_class_is_the_last_one_everywhere(kind: str, learner: str, tmp_path: Path) -> None:
    rows = (
        "CREATE TABLE t AS SELECT i, sin(i) AS x, (sin(i) > 0.2) <> (i % 9 = 0) AS hit,"
        f" {LABELS[kind]} AS y FROM range(300) AS r(i)"
    )
    with grouplearn.connect(progress=None) as con:
        con.execute(rows)
        con.execute(
            f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (x) FROM t VALIDATE NONE WITH (task = 'classification')"
        )
        last = con.execute("SELECT max(y)::VARCHAR FROM t WHERE hit").fetchall()[0][0]
        assert con.execute("SELECT count(*) FROM t WHERE (y > (SELECT min(y) FROM t)) = hit").fetchall() == [(300,)]
        described = dict(con.execute("DESCRIBE MODEL m").fetchall())
        assert described["positive class"] == last
        # rows of the positive class have the higher probabilities, by the macro, the functions and the struct
        by_macro = con.execute("SELECT hit, probability, prediction = y FROM m_predict(t) ORDER BY i").fetchall()
        hits = np.array([row[0] for row in by_macro])
        probability = np.array([row[1] for row in by_macro])
        assert probability[hits].mean() > 0.55 > 0.45 > probability[~hits].mean()
        assert sum(row[2] for row in by_macro) > 250
        functions = con.execute(
            f"SELECT p.probability, p.probabilities['{last}'], q FROM"
            " (SELECT i, predict('m', t) AS p, predict_probability('m', t) AS q FROM t) ORDER BY i"
        ).fetchall()
        np.testing.assert_allclose(np.array(functions, float), np.column_stack([probability] * 3), atol=1e-12)
        # metrics are of it
        said, right = probability > 0.5, (probability > 0.5) & hits
        f1, recall = 2 * right.sum() / (said.sum() + hits.sum()), right.sum() / hits.sum()
        con.execute("EVALUATE MODEL m ON t")
        judged = dict(zip([column[0] for column in con.description or []], con.fetchall()[0], strict=True))
        assert (judged["f1"], judged["recall"]) == pytest.approx((f1, recall))
        assert con.execute("SELECT train_f1 FROM m").fetchall()[0][0] == pytest.approx(f1)
        for form in ("onnx", "sql", "native"):
            con.execute(f"EXPORT MODEL m TO '{tmp_path / form}' (FORMAT {form})").fetchall()
        expected = con.execute("SELECT i, prediction, probability FROM m_predict(t) ORDER BY i").fetchall()
        con.execute(f"IMPORT MODEL again FROM '{tmp_path / 'native'}'").fetchall()
        assert con.execute("SELECT i, prediction, probability FROM again_predict(t) ORDER BY i").fetchall() == expected
        x = con.execute("SELECT x FROM t ORDER BY i").fetchnumpy()["x"]
    index = json.loads((tmp_path / "onnx" / "index.json").read_text())
    assert index["classes"][1] == last
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / index["groups"][0]["file"])
    prediction, found = session.run(None, {index["inputs"][0]["name"]: x[:, None]})
    np.testing.assert_allclose(found.ravel(), probability, atol=1e-5)
    assert [text == last for text in prediction.ravel()] == said.tolist()
    with duckdb.connect() as plain:
        plain.execute(rows)
        plain.execute((tmp_path / "sql" / "model.sql").read_text())
        again = plain.execute("SELECT i, prediction, probability FROM m_predict(t) ORDER BY i").fetchall()
        assert [row[:2] for row in again] == [row[:2] for row in expected]
        np.testing.assert_allclose([row[2] for row in again], probability, atol=1e-12)
