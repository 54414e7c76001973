"""An offset is a known part of the score: against statsmodels, and in everything that a model does."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import grouplearn

LEARNERS = {"linear_regression": "y", "logistic_regression": "z", "poisson_regression": "k"}
FAMILIES = {"y": sm.families.Gaussian, "z": sm.families.Binomial, "k": sm.families.Poisson}


def made(n, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(
        {"g": np.arange(n) % 3, "a": 2 + rng.normal(size=n), "b": rng.normal(size=n), "e": rng.uniform(0.2, 9, n)}
    )
    score = 0.3 * found.a - 0.5 * found.b - 0.5 + np.log(found.e)
    found["y"] = score + rng.normal(size=n)
    found["z"] = (rng.uniform(size=n) < 1 / (1 + np.exp(-score))).astype(int)
    found["k"] = rng.poisson(np.exp(score))
    return found


@pytest.fixture(scope="module")
def rows():
    return made(1500)


@pytest.fixture
def con(rows):
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.register("rows", rows)
        yield connection


def train(con, learner, rest="FROM rows GROUP BY g VALIDATE NONE", options="l2 = 0, tolerance = 1e-15", offset="ln(e)"):
    statement = f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {LEARNERS[learner]} FEATURES (a, b) {rest}"
    con.execute(f"{statement} WITH ({options}, offset = {offset})")
    return con.execute("FROM m_weights").df()


def reference(part, label, offset=None, intercept=True):
    x = np.column_stack([part[["a", "b"]], *([np.ones(len(part))] if intercept else [])])
    offset = np.log(part.e) if offset is None else offset
    return x, sm.GLM(part[label], x, family=FAMILIES[label](), offset=offset).fit(tol=1e-15, maxiter=200)


def learned(own):
    assert own.weight[own.feature == "offset"].tolist() == [1.0]
    return own[own.feature != "offset"]


@pytest.mark.parametrize("learner", LEARNERS)
def test_equals_statsmodels_and_predicts_with_it(con, rows, learner):
    found, label = train(con, learner), LEARNERS[learner]
    predicted = con.execute("FROM m_predict(rows)").df()
    value = predicted["probability" if label == "z" else "prediction"]
    function = con.execute("SELECT predict_value('m', rows) AS p FROM rows").df().p if label != "z" else None
    for group, own in found.groupby("g"):
        part = rows[rows.g == group]
        x, expected = reference(part, label)
        np.testing.assert_allclose(learned(own).weight, expected.params, rtol=1e-7)
        if label != "y":
            np.testing.assert_allclose(learned(own).standard_error, expected.bse, rtol=1e-8)
        np.testing.assert_allclose(value[rows.g == group], expected.predict(x, offset=np.log(part.e)), rtol=1e-7)
    if function is not None:
        np.testing.assert_allclose(function, value, rtol=1e-9)


@pytest.mark.parametrize("learner", LEARNERS)
def test_without_intercept_and_with_the_same_offset_everywhere(con, rows, learner):
    part = rows[rows.g == 0]
    own = train(con, learner, options="l2 = 0, tolerance = 1e-15, fit_intercept = false")
    _, expected = reference(part, LEARNERS[learner], intercept=False)
    np.testing.assert_allclose(learned(own[own.g == 0]).weight[:2], expected.params, rtol=1e-6)
    own = train(con, learner, offset="0.75")
    _, expected = reference(part, LEARNERS[learner], np.full(len(part), 0.75))
    np.testing.assert_allclose(learned(own[own.g == 0]).weight, expected.params, rtol=1e-6)


@pytest.mark.parametrize("learner", LEARNERS)
def test_penalties_leave_it_alone(con, rows, learner):
    """With an exposure of 1 in place of the offset the models are those without one."""
    with_it = train(con, learner, options="l1 = 3, l2 = 2", offset="0 * e")
    con.execute(
        f"TRAIN OR REPLACE MODEL o USING {learner} PREDICT {LEARNERS[learner]} FEATURES (a, b) FROM rows GROUP BY g VALIDATE NONE"
        " WITH (l1 = 3, l2 = 2)"
    )
    without = con.execute("FROM o_weights").df()
    np.testing.assert_allclose(with_it[with_it.feature != "offset"].weight, without.weight, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("offset", ["ln(e)", "0.75"])
def test_a_large_group_has_the_same_bits_with_any_number_of_workers(con, learner, offset):
    many = made(60_000, seed=1)
    con.register("many", many)
    seen = []
    for workers in (1, 2):
        options = f"l2 = 0, tolerance = 1e-15, workers = {workers}, operator = 'gap'"
        seen.append(train(con, learner, "FROM many VALIDATE NONE", options, offset))
    assert seen[0].weight.tolist() == seen[1].weight.tolist()
    given = None if offset == "ln(e)" else np.full(len(many), 0.75)
    _, expected = reference(many, LEARNERS[learner], given)
    np.testing.assert_allclose(learned(seen[0]).weight, expected.params, rtol=1e-7)
    if learner != "linear_regression":
        np.testing.assert_allclose(learned(seen[0]).standard_error, expected.bse, rtol=1e-8)


def test_metrics_are_of_predictions_with_it(con, rows):
    train(con, "poisson_regression", options="l2 = 0")
    measured = dict(con.execute("SELECT g, train_rmse FROM m").fetchall())
    predicted = con.execute("FROM m_predict(rows)").df()
    for group, own in predicted.groupby("g"):
        np.testing.assert_allclose(measured[group], np.sqrt(((own.k - own.prediction) ** 2).mean()), rtol=1e-5)


def test_rows_without_one_do_not_train_and_have_no_prediction(con):
    con.execute("CREATE TABLE few AS SELECT * REPLACE (CASE WHEN b > 1 THEN NULL ELSE e END AS e) FROM rows")
    train(con, "poisson_regression", "FROM few VALIDATE NONE")
    (skipped,) = con.execute("SELECT n_skipped FROM m").fetchone()
    assert skipped == con.execute("SELECT count(*) FROM rows WHERE b > 1").fetchone()[0]
    assert con.execute("SELECT count(prediction) = count(e) FROM m_predict(few)").fetchone()[0]


def test_folds_refresh_retyped_and_exported(con, rows, tmp_path):
    con.execute("CREATE TABLE first AS FROM rows WHERE b < 0.5; CREATE TABLE later AS FROM rows WHERE b >= 0.5")
    train(con, "linear_regression", "FROM first GROUP BY g VALIDATE FOLDS 3", "keep_state = true")
    con.execute("REFRESH MODEL m FROM later")
    for group, own in con.execute("FROM m_weights").df().groupby("g"):
        part = rows[rows.g == group]
        x = np.column_stack([part[["a", "b"]], np.ones(len(part))])
        expected = sm.OLS(part.y - np.log(part.e), x).fit()
        np.testing.assert_allclose(learned(own).weight, expected.params, rtol=1e-8)
        np.testing.assert_allclose(learned(own).standard_error, expected.bse, rtol=1e-8)
    before = con.execute("SELECT prediction FROM m_predict(rows)").fetchall()
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/m'; DROP MODEL m; IMPORT MODEL m FROM '{tmp_path}/m'")
    assert con.execute("SELECT prediction FROM m_predict(rows)").fetchall() == before
    con.execute("CREATE TABLE counted AS FROM rows")
    train(con, "poisson_regression", "FROM counted GROUP BY g VALIDATE NONE")
    con.execute("INSERT INTO counted FROM rows WHERE b > 0; REFRESH MODEL m")
    twice = pd.concat([rows, rows[rows.b > 0]])
    own = con.execute("FROM m_weights WHERE g = 0").df()
    _, expected = reference(twice[twice.g == 0], "k")
    np.testing.assert_allclose(learned(own).weight, expected.params, rtol=1e-6)
