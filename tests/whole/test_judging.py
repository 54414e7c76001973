"""m_confusion, m_roc, m_pr, m_lift and m_calibration are those of scikit-learn, for each group."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn import calibration, metrics

import grouplearn

ROWS = """
CREATE TABLE t AS SELECT i % 2 AS part, sin(i) AS a, cos(i * 3) AS b, sin(i) + 2 * sin(i * i) > 0 AS y,
  ['r', 's', 't'][1 + (i * i) % 3] AS c, sin(i) * 3 + cos(i * 5) AS v FROM range(600) AS r(i);
INSERT INTO t SELECT 1, 1, 1, NULL, 'u', NULL FROM range(3);
INSERT INTO t SELECT 7, 1, 1, true, 'r', 1 FROM range(3);
"""
TRAIN = "TRAIN MODEL m USING {} PREDICT {} FEATURES (a, b) FROM (FROM t WHERE y IS NOT NULL AND part < 2) GROUP BY part"


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as made:
        made.execute(ROWS)
        yield made


def columns(con: grouplearn.Connection, query: str) -> dict[str, Any]:
    return {name: np.array(values) for name, values in con.execute(query).fetchnumpy().items()}


@pytest.mark.parametrize("learner", ["logistic_regression", "gbdt"])
def test_two_classes(con: grouplearn.Connection, learner: str) -> None:
    con.execute(TRAIN.format(learner, "y"))
    for group in (0, 1):
        where = f"WHERE part = {group}"
        rows = columns(con, f"SELECT y, probability, prediction FROM m_predict(t) {where} AND y IS NOT NULL")
        y, p = rows["y"].astype(bool), rows["probability"].astype(float)
        false, true, thresholds = metrics.roc_curve(y, p, drop_intermediate=False)
        roc = columns(con, f"SELECT * FROM m_roc(t, points := NULL) {where}")
        np.testing.assert_allclose(roc["false_positive_rate"], false[1:])
        np.testing.assert_allclose(roc["true_positive_rate"], true[1:])
        np.testing.assert_allclose(roc["threshold"], thresholds[1:])
        short = columns(con, f"SELECT * FROM m_roc(t, points := 20) {where}")
        assert len(short["threshold"]) <= 20
        assert {*short["false_positive_rate"]} <= {*false}
        assert (short["true_positive_rate"][-1], short["false_positive_rate"][-1]) == (1, 1)
        precision, recall, _ = metrics.precision_recall_curve(y, p)
        curve = columns(con, f"SELECT * FROM m_pr(t, points := NULL) {where}")
        np.testing.assert_allclose(curve["precision"][::-1], precision[:-1])
        np.testing.assert_allclose(curve["recall"][::-1], recall[:-1])
        for limit in (0.5, 0.3):
            found = columns(con, f"SELECT actual, predicted, n_rows FROM m_confusion(t, threshold := {limit}) {where}")
            expected = metrics.confusion_matrix(y, p > limit)
            for actual, predicted, n_rows in zip(found["actual"], found["predicted"], found["n_rows"], strict=True):
                assert expected[int(actual), int(predicted)] == n_rows
            assert found["n_rows"].sum() == len(y)


def test_equal_parts(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format("logistic_regression", "y"))
    where = "WHERE part = 0"
    rows = columns(con, f"SELECT y, probability FROM m_predict(t) {where} AND y IS NOT NULL")
    y, p = rows["y"].astype(float), rows["probability"].astype(float)
    order = np.argsort(-p, kind="stable")
    lift = columns(con, f"SELECT * FROM m_lift(t, parts := 6) {where}")
    parts = np.array_split(y[order], 6)
    np.testing.assert_allclose(lift["n_positive"], [part.sum() for part in parts])
    np.testing.assert_allclose(lift["lift"], [part.mean() / y.mean() for part in parts])
    np.testing.assert_allclose(lift["captured"], np.cumsum([part.sum() for part in parts]) / y.sum())
    found = columns(con, f"SELECT * FROM m_calibration(t, parts := 6) {where}")
    observed, predicted = calibration.calibration_curve(y, p, n_bins=6, strategy="quantile")
    np.testing.assert_allclose(found["observed"], observed)
    np.testing.assert_allclose(found["predicted"], predicted)


@pytest.mark.parametrize("order", ["y", "y DESC", "a"])
def test_rows_of_one_prediction_count_alike_whatever_their_order(con: grouplearn.Connection, order: str) -> None:
    con.execute(TRAIN.format("logistic_regression", "y").replace("FEATURES (a, b)", "FEATURES (0 * a AS nothing)"))
    con.execute(f"CREATE TABLE sorted AS FROM t WHERE part = 0 ORDER BY {order}")
    np.testing.assert_allclose(columns(con, "SELECT lift FROM m_lift(sorted)")["lift"], 1)
    found = columns(con, "SELECT predicted, observed FROM m_calibration(sorted)")
    np.testing.assert_allclose(found["observed"], found["predicted"], atol=0.05)


def test_several_classes_and_numbers(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format("gbdt", "c"))
    rows = columns(con, "SELECT c, prediction FROM m_predict(t) WHERE part = 1 AND c <> 'u'")
    expected = metrics.confusion_matrix(rows["c"], rows["prediction"], labels=["r", "s", "t"])
    found = columns(con, "SELECT actual, predicted, n_rows FROM m_confusion(t) WHERE part = 1 AND actual <> 'u'")
    names = {name: number for number, name in enumerate("rst")}
    for actual, predicted, n_rows in zip(found["actual"], found["predicted"], found["n_rows"], strict=True):
        assert expected[names[actual], names[predicted]] == n_rows
    con.execute(TRAIN.format("linear_regression", "v").replace("TRAIN MODEL", "TRAIN OR REPLACE MODEL"))
    rows = columns(con, "SELECT v, prediction FROM m_predict(t) WHERE part = 0 ORDER BY prediction")
    parts = columns(con, "SELECT * FROM m_calibration(t, parts := 3) WHERE part = 0")
    np.testing.assert_allclose(parts["observed"], [part.mean() for part in np.array_split(rows["v"].astype(float), 3)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("m_confusion(t, threshold := 2)", "threshold is a probability from 0 to 1, got 2"),
        ("m_roc(t, points := 0)", "points is a whole number of at least 1, or NULL for all"),
        ("m_lift(t, parts := 'many')", "parts is a whole number of at least 1"),
    ],
)
def test_parameters_are_checked(con: grouplearn.Connection, call: str, message: str) -> None:
    con.execute(TRAIN.format("logistic_regression", "y"))
    with pytest.raises(grouplearn.Error, match=message):
        con.execute(f"SELECT * FROM {call}").fetchall()
