"""Standard errors of weights against statsmodels, and the promises that a stored model keeps."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import grouplearn

LEARNERS = {"linear_regression": "y", "logistic_regression": "z", "poisson_regression": "k"}
FAMILIES = {"z": sm.families.Binomial, "k": sm.families.Poisson}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 1200
    found = pd.DataFrame(
        {"g": np.arange(n) % 3, "a": 5 + rng.normal(size=n), "b": rng.normal(size=n), "w": rng.uniform(0.5, 3, n)}
    )
    score = 0.3 * found.a - 0.7 * found.b
    found["y"] = 2 + score * (1 + found.g) + rng.normal(size=n) * (0.5 + found.b**2)
    found["z"] = (rng.uniform(size=n) < 1 / (1 + np.exp(1.5 - score))).astype(int)
    found["k"] = rng.poisson(np.exp(score - 1))
    return found


@pytest.fixture
def con(rows):
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.register("rows", rows)
        yield connection


def weights(con, learner, options, features="a, b", rest="GROUP BY g"):
    statement = (
        f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {LEARNERS[learner]} FEATURES ({features}) FROM rows {rest}"
    )
    con.execute(f"{statement} VALIDATE NONE WITH (l2 = 0, tolerance = 1e-15{options})")
    return con.execute("FROM m_weights").df()


def reference(rows, label, x, weight=None, **how):
    x = np.column_stack([x, np.ones(len(x))])
    weight = np.ones(len(x)) if weight is None else weight
    if label == "y":
        return sm.WLS(rows[label], x, weights=weight).fit(use_t=True, **how)
    return sm.GLM(rows[label], x, family=FAMILIES[label](), var_weights=weight).fit(tol=1e-15, maxiter=200, **how)


def agree(found, expected):
    low, high = expected.conf_int().to_numpy().T if hasattr(expected.conf_int(), "to_numpy") else expected.conf_int().T
    np.testing.assert_allclose(found.weight, expected.params, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.standard_error, expected.bse, rtol=1e-8)
    np.testing.assert_allclose(found.statistic, expected.tvalues, rtol=1e-7)
    np.testing.assert_allclose(found.p_value, expected.pvalues, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.lower, low, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(found.upper, high, rtol=1e-7, atol=1e-8)
    assert found.note.isna().all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["classical", "hc1"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_equal_statsmodels(con, rows, learner, kind, weighted):
    found = weights(con, learner, f", standard_errors = '{kind}'" + (", weight = w" if weighted else ""))
    how = {} if kind == "classical" else {"cov_type": "HC1"}
    for group, own in found.groupby("g"):
        part = rows[rows.g == group]
        weight = part.w.to_numpy() if weighted else None
        agree(own, reference(part, LEARNERS[learner], part[["a", "b"]].to_numpy(), weight, **how))


@pytest.mark.parametrize("learner", LEARNERS)
def test_errors_are_of_weights_on_encoded_features(con, rows, learner):
    found = weights(con, learner, "", "zscore(a), b")
    for group, own in found.groupby("g"):
        part = rows[rows.g == group]
        x = np.column_stack([(part.a - part.a.mean()) / part.a.std(ddof=0), part.b])
        agree(own, reference(part, LEARNERS[learner], x))


def test_confidence_is_that_of_the_interval(con, rows):
    found = weights(con, "linear_regression", ", confidence = 0.8")
    part = rows[rows.g == 1]
    expected = reference(part, "y", part[["a", "b"]].to_numpy()).conf_int(0.2)
    own = found[found.g == 1]
    np.testing.assert_allclose(own[["lower", "upper"]], expected, rtol=1e-8)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("kind", ["classical", "hc1"])
def test_redundant_features_have_none_and_leave_others_alone(con, rows, learner, kind):
    option = f", standard_errors = '{kind}'"
    with_twin = weights(con, learner, option, "a, b, 2 * b + 1, 0 * a")
    without = weights(con, learner, option, "a, b")
    for group, own in with_twin.groupby("g"):
        assert own.standard_error.isna().tolist() == [False, True, True, True, True]
        assert own.note.iloc[1:].eq("redundant: other features determine it").all()
        expected = without[without.g == group]
        np.testing.assert_allclose(own.standard_error.iloc[0], expected.standard_error.iloc[0], rtol=1e-7)


def test_without_intercept(con, rows):
    found = weights(con, "linear_regression", ", fit_intercept = false")
    part = rows[rows.g == 0]
    expected = sm.OLS(part.y, part[["a", "b"]].to_numpy()).fit()
    own = found[found.g == 0]
    np.testing.assert_allclose(own.standard_error[:2], expected.bse, rtol=1e-8)
    assert np.isnan(own.standard_error.iloc[2])
    assert own.note.isna().all()


@pytest.mark.parametrize(
    ("label", "learner"),
    [("a > 5", "logistic_regression"), ("CASE WHEN b > 0 THEN 0 ELSE 3 END", "poisson_regression")],
)
def test_separated_labels_have_none(con, label, learner):
    con.execute(
        f"TRAIN MODEL s USING {learner} PREDICT {label} AS label FEATURES (a, b > 0 AS c) FROM rows GROUP BY g"
        " VALIDATE NONE WITH (l2 = 0)"
    )
    found = con.execute(
        "SELECT standard_error, note FROM s_weights WHERE feature LIKE 'c%' OR feature = 'a'"
    ).fetchall()
    told = {note.partition(":")[0] for error, note in found if error is None}
    assert told == {"separated"}
    assert all(error is None or error < 10 for error, _ in found)


def test_a_large_group_has_the_same_errors_with_any_number_of_workers(con):
    con.execute(
        "CREATE TABLE many AS SELECT sin(i * 7.1) AS a, cos(i * 3.3) AS b, sin(i * 7.1) + sin(i * 1.7) AS y, i % 3 = 0 AS z,"
        " 3.0 * (i % 2) AS k FROM range(60000) AS t(i)"
    )
    for learner, label in LEARNERS.items():
        seen = []
        for workers in (1, 2):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES (a, b) FROM many VALIDATE NONE"
                f" WITH (l2 = 0, tolerance = 1e-15, standard_errors = 'hc1', workers = {workers}, operator = 'gap')"
            )
            seen.append(con.execute("SELECT weight, standard_error, p_value FROM m_weights").fetchall())
        assert seen[0] == seen[1]
        frame = con.execute("SELECT a, b, y, z::INTEGER AS z, k FROM many").df()
        expected = reference(frame, label, frame[["a", "b"]].to_numpy(), cov_type="HC1")
        np.testing.assert_allclose([row[1] for row in seen[0]], expected.bse, rtol=1e-8)


def test_a_group_alone_and_among_others(con):
    for learner in LEARNERS:
        among = weights(con, learner, ", standard_errors = 'hc1'")
        alone = weights(con, learner, ", standard_errors = 'hc1'", rest="WHERE g = 1 GROUP BY g")
        assert among[among.g == 1].standard_error.tolist() == alone.standard_error.tolist()


def test_refresh_from_sums_has_the_errors_of_all_rows(con, rows):
    con.execute("CREATE TABLE first AS FROM rows WHERE b < 0.5; CREATE TABLE later AS FROM rows WHERE b >= 0.5")
    ask = "USING linear_regression PREDICT y FEATURES (a, b) FROM first GROUP BY g VALIDATE NONE WITH (keep_state = true{})"
    con.execute(f"TRAIN MODEL m {ask.format('')}")
    con.execute("REFRESH MODEL m FROM later")
    for group, own in con.execute("FROM m_weights").df().groupby("g"):
        part = rows[rows.g == group]
        agree(own, reference(part, "y", part[["a", "b"]].to_numpy()))
    con.execute(f"TRAIN MODEL r {ask.format(', standard_errors = $$hc1$$')}")
    con.execute("REFRESH MODEL r FROM later")
    notes = con.execute("SELECT DISTINCT standard_error, note FROM r_weights").fetchall()
    assert notes == [(None, "refreshed without the rows of before")]


def test_errors_stay_with_the_model(con, tmp_path):
    weights(con, "linear_regression", "", rest="GROUP BY ROLLUP (g)")
    before = con.execute("FROM m_weights ORDER BY ALL").fetchall()
    con.execute("ALTER MODEL m RENAME TO n")
    assert con.execute("FROM n_weights ORDER BY ALL").fetchall() == before
    con.execute(f"EXPORT MODEL n TO '{tmp_path}/n'; DROP MODEL n; IMPORT MODEL n FROM '{tmp_path}/n'")
    assert con.execute("FROM n_weights ORDER BY ALL").fetchall() == before
    con.execute("CREATE TABLE kept AS FROM rows; ")
    con.execute(
        "TRAIN OR REPLACE MODEL n USING linear_regression PREDICT y FEATURES (a) FROM kept; ALTER MODEL n USE VERSION 1"
    )
    assert con.execute("FROM n_weights ORDER BY ALL").fetchall() == before
