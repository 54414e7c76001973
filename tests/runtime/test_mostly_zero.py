"""Large groups of many categories are learned from without their zeros: the same models as of dense rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import grouplearn
from grouplearn.data import encoders

TABLE = """
CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 1000 / 500 - 1 AS x, hash(i + 5) % 1000 / 10 + 1000 AS z,
    'c' || hash(i + 3) % 150 AS c, 1 + hash(i + 9) % 3 AS w, hash(i + 11) % 10000 / 10000 AS u FROM range(10000) AS r(i);
CREATE TABLE s AS SELECT *, u < 1 / (1 + exp(-x - hash(c) % 100 / 50 + 1)) AS yes,
    x + 0.01 * z + hash(c) % 100 / 50 + u AS amount,
    CASE WHEN u < 0.3 THEN 'a' WHEN u < 0.5 + 0.2 * x THEN 'b' ELSE 'd' END AS kind, floor(4 * u * (x + 1)) AS n FROM t;
"""
LABELS = {
    "yes": "logistic_regression",
    "kind": "logistic_regression",
    "amount": "linear_regression",
    "n": "poisson_regression",
}
#: Both ways end where less than a share of the objective is left to gain: weights of rare categories hardly count in it.
CLOSE = {"weights": 1e-3, "metrics": 1e-5, "predicted": 1e-3}


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each design that is made is CSR, as training goes on."""
    seen: list[bool] = []
    encode = encoders.encode

    def watched(*given: Any) -> Any:
        design = encode(*given)
        seen.append(not isinstance(design, np.ndarray))
        return design

    monkeypatch.setattr(encoders, "encode", watched)
    return seen


def trained(label: str, category: str, rest: str = "", where: str = "true") -> dict[str, list[tuple[Any, ...]]]:
    """Return weights, metrics and predictions of group 1."""
    with grouplearn.connect(progress=None) as con:
        con.execute(TABLE)
        con.execute(f"CREATE TABLE source AS FROM s WHERE {where}")
        con.execute(
            f"TRAIN MODEL m USING {LABELS[label]} PREDICT {label} AS y FEATURES (x, zscore(z), {category}) FROM source "
            f"GROUP BY g OVER GRID (l2 IN (0.5, 5)) {rest}"
        )
        answer = "predict_value('m', source)" if label in ("amount", "n") else "predict('m', source).probability"
        return {
            name: con.execute(f"SELECT {columns} WHERE g = 1 ORDER BY ALL").fetchall()
            for name, columns in {
                "weights": "* FROM m_weights",
                "metrics": "COLUMNS('train_.*|valid_.*|status|l2') FROM m",
                "predicted": f"x, z, c, {answer} AS p FROM source",
            }.items()
        }


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("label", "category", "rest"),
    [
        *[(label, "onehot(c)", "") for label in LABELS],
        ("yes", "onehot(c, scope := 'all')", ""),
        ("amount", "onehot(c, scope := 'all')", "VALIDATE SAMPLE 20 %"),
        ("yes", "hash(c, 400)", "VALIDATE FOLDS 3"),
        ("amount", "onehot(c)", "VALIDATE FOLDS 3"),
        ("n", "onehot(c)", "WITH (weight = w)"),
        ("kind", "onehot(c)", "WITH (class_weight = 'balanced')"),
        ("yes", "onehot(c)", "WITH (early_stopping = 20)"),
    ],
)
def test_the_models_are_those_of_dense_rows(
    label: str, category: str, rest: str, sparse: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = trained(label, category, rest)
    assert any(sparse)
    monkeypatch.setattr(encoders, "_NARROW", 10**6)
    sparse.clear()
    expected = trained(label, category, rest)
    assert not any(sparse)
    for name, rows in expected.items():
        assert len(found[name]) == len(rows) > 0
        for one, other in zip(zip(*found[name], strict=True), zip(*rows, strict=True), strict=True):
            if isinstance(one[0], float):
                np.testing.assert_allclose(np.array(one), np.array(other), rtol=CLOSE[name], atol=CLOSE[name])
            else:
                assert one == other


@pytest.mark.examples(1)
@pytest.mark.parametrize("label", ["yes", "amount"])
def test_a_group_has_the_same_bits_alone_and_among_others(label: str, sparse: list[bool]) -> None:
    alone = trained(label, "onehot(c)", where="g = 1")
    assert any(sparse)
    assert alone == trained(label, "onehot(c)")
    assert alone == trained(label, "onehot(c)", "WITH (workers = 1)")


@pytest.mark.examples(1)
@pytest.mark.parametrize("learner", ["linear_regression", "logistic_regression"])
def test_many_numbers_are_kept_as_they_are(learner: str, sparse: list[bool]) -> None:
    """More columns than a design of categories may have, of which a row sets all: zeros would be saved nowhere."""
    count, n = 600, 900
    columns = ", ".join(
        f"(hash(i * {count} + {number}) % 1000 / 500 - 1)::FLOAT AS x{number}" for number in range(count)
    )
    features = ", ".join(f"x{number}" for number in range(count))
    label = "x1 > x2" if learner == "logistic_regression" else "x1 - x2 + x3"
    with grouplearn.connect(progress=None) as con:
        con.execute(f"CREATE TABLE t AS SELECT 'c' || i % 700 AS c, {columns} FROM range({n}) AS r(i)")
        con.execute(f"TRAIN MODEL m USING {learner} PREDICT {label} AS y FEATURES ({features}) FROM t WITH (l2 = 3)")
        assert sparse == [False] * len(sparse)
        assert sparse
        weights = dict(con.execute("SELECT feature, weight FROM m_weights").fetchall())
        rows = con.execute(f"SELECT {features} FROM t").fetchnumpy()
        x = np.stack([rows[f"x{number}"] for number in range(count)], axis=1)
        found = np.array([weights[f"x{number}"] for number in range(count)])
        y = x[:, 1] > x[:, 2] if learner == "logistic_regression" else x[:, 1] - x[:, 2] + x[:, 3]
        scores = x @ found + weights["(intercept)"]
        if learner == "logistic_regression":
            scores = 1 / (1 + np.exp(-scores))
        # At the minimum the penalty's pull is the loss's.
        np.testing.assert_allclose(x.T @ (scores - y) + 3 * found, 0, atol=5e-3)
        np.testing.assert_allclose((scores - y).sum(), 0, atol=5e-3)
        sparse.clear()
        con.execute(f"TRAIN MODEL categories USING {learner} PREDICT {label} AS y FEATURES (onehot(c), x1) FROM t")
        assert all(sparse)
        assert sparse
