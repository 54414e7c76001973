"""WITH (calibrate = ...) against scikit-learn on the same scores, in SQL, in functions and in exports."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

import grouplearn
from grouplearn.models.calibration import KINDS, calibrated, fitted, log_odds


def theirs(kind: str, p: np.ndarray, y: np.ndarray, at: np.ndarray, weight: np.ndarray | None = None) -> Any:
    if kind == "isotonic":
        return IsotonicRegression(out_of_bounds="clip").fit(p, y, weight).predict(at)
    return _SigmoidCalibration().fit(log_odds(p), y, weight).predict(log_odds(at))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("digits", [2, 17])
def test_a_calibration_is_that_of_scikit_learn(kind: str, digits: int) -> None:
    rng = np.random.default_rng(1)
    for n in (12, 100, 5000):
        for scale in (0.5, 2.0, 8.0):
            s = scale * rng.normal(size=n)
            y = rng.random(n) < 1 / (1 + np.exp(-0.7 * s - 0.4))
            y[:2] = True, False
            p, at, weight = (
                np.round(1 / (1 + np.exp(-s)), digits),
                rng.random(300),
                np.where(y, 1.0, 1 + 9 * rng.random(n)),
            )
            found = fitted(kind, p, y, weight)
            assert found is not None
            np.testing.assert_allclose(calibrated(kind, found, at), theirs(kind, p, y, at, weight), atol=2e-6)


def test_too_few_rows_or_one_class_have_no_calibration() -> None:
    p, weight = np.linspace(0.1, 0.9, 20), np.ones(20)
    for kind in KINDS:
        assert fitted(kind, p[:9], p[:9] > 0.3, weight[:9]) is None
        assert fitted(kind, p, np.ones(20, np.bool_), weight) is None
        assert fitted(kind, p, np.zeros(20, np.bool_), weight) is None


@pytest.mark.parametrize("kind", KINDS)
def test_rows_count_as_much_as_their_weight(kind: str) -> None:
    """Of the rows of one class a tenth is there, each for ten."""
    rng = np.random.default_rng(5)
    n = 4000
    x = rng.normal(size=n)
    y = rng.random(n) < 1 / (1 + np.exp(2 - x))
    with grouplearn.connect(progress=False) as con:
        con.register("every", pa.table({"id": np.arange(n), "x": x, "y": y, "w": np.where(y, 1.0, 10.0)}))
        con.execute("CREATE TABLE t AS FROM every WHERE y OR id % 10 = 0")
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM t VALIDATE FOLDS 3"
            f" WITH (weight = w, calibrate = '{kind}')"
        )
        (found,) = con.execute("SELECT avg(probability) FROM m_predict(every)").fetchone()
    assert abs(found - y.mean()) < 0.02


LEARNERS = [
    ("linear_svm", ""),
    ("gbdt", ", num_iterations = 5"),
    ("random_forest", ", num_iterations = 5"),
    ("mlp", ", epochs = 2"),
]


@pytest.mark.parametrize(("learner", "options"), LEARNERS)
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_calibrated_by_held_out_rows_of_their_group(
    learner: str, options: str, kind: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    n = 1200
    g, x, z = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=n)
    y = x + z * z / 2 * g + rng.logistic(size=n) > 0.5
    rows = pa.table({"id": np.arange(n), "g": g, "x": x, "z": z, "y": y})
    with grouplearn.connect(progress=False) as con:
        con.register("every", rows)
        con.execute("CREATE TABLE t AS FROM every")
        train = f"USING {learner} PREDICT y FEATURES (x, z) FROM t GROUP BY g"
        train += f" VALIDATE {{}} WITH (keep_held_out = true{options}{{}})"
        for validate in ("FOLDS 3", "WHERE id % 3 = 1"):
            con.execute("TRAIN OR REPLACE MODEL raw " + train.format(validate, ""))
            con.execute("TRAIN OR REPLACE MODEL m " + train.format(validate, f", calibrate = '{kind}'"))
            query = (
                "SELECT m.g, m.probability AS p, raw.probability AS before, predict_probability('m', t) AS f"
                " FROM m_predict('t') AS m JOIN raw_predict('t') AS raw USING (id) JOIN t USING (id)"
            )
            found = con.execute(query).fetchnumpy()
            np.testing.assert_allclose(found["f"], found["p"], atol=1e-9)
            for group in (0, 1):
                held = con.execute(f"SELECT probability, label FROM m_held_out WHERE g = {group}").fetchnumpy()
                own = found["g"] == group
                expected = theirs(kind, held["probability"], held["label"], found["before"][own])
                np.testing.assert_allclose(found["p"][own], expected, atol=1e-6)
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'sql'}' (FORMAT sql)")
        with duckdb.connect() as other:
            other.execute((tmp_path / "sql" / "model.sql").read_text(encoding="utf-8"))
            other.register("t", rows)
            plain = other.execute("SELECT probability FROM m_predict(t)").fetchnumpy()["probability"]
        ours = con.execute("SELECT probability FROM m_predict(t)").fetchnumpy()["probability"]
        np.testing.assert_allclose(plain, ours, atol=1e-9)


def test_retry_refresh_and_import_keep_calibrations(tmp_path: Path) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, hash(i) % 100 AS x, x + hash(i, 1) % 80 > 90 AS y FROM range(400) r(i)"
        )
        con.execute("INSERT INTO t VALUES (5, 1, true)")
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE FOLDS 3"
            " WITH (calibrate = 'sigmoid')"
        )
        kept = "SELECT groups.keys, calibration FROM grouplearn.groups JOIN grouplearn.models USING (model)"
        kept += " WHERE model_name = '{}' ORDER BY groups.keys"
        before = con.execute(kept.format("m")).fetchall()
        assert [found is None for _, found in before] == [False, False, True]
        con.execute("INSERT INTO t SELECT 5, i, i % 3 = 0 FROM range(40) r(i)")
        con.execute("RETRY FAILED MODEL m")
        retried = con.execute(kept.format("m")).fetchall()
        assert retried[:2] == before[:2]
        assert retried[2][1] is not None
        con.execute("INSERT INTO t SELECT 1, x, NOT y FROM t WHERE g = 1")
        con.execute("REFRESH MODEL m")
        refreshed = con.execute(kept.format("m")).fetchall()
        assert refreshed[0] == retried[0]
        assert refreshed[1][1] not in (None, retried[1][1])
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}'")
        con.execute(f"IMPORT MODEL n FROM '{tmp_path / 'm'}'")
        assert con.execute(kept.format("n")).fetchall() == refreshed
