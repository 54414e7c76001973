"""Standard errors of weights against statsmodels, and the promises that a stored model keeps."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import statsmodels.api as sm
from helpers.dying_runs import answer, dies
from statsmodels.tools.sm_exceptions import SpecificationWarning

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


def by_cluster(frame, label, weight=None):
    how = {"cov_type": "cluster", "cov_kwds": {"groups": frame.c.factorize(use_na_sentinel=False)[0]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecificationWarning)  # weights of GLM; they equal those of WLS
        return reference(frame, label, frame[["a", "b"]].to_numpy(), weight, **how)


@pytest.fixture
def clustered(con, rows):
    """Rows whose scores depend on their cluster c, some of them NULL; each group has other clusters."""
    rng = np.random.default_rng(1)
    found = rows.assign(c=rng.integers(0, 12, len(rows)).astype(float))
    found["c"] = found.c.where((found.c < 11) | (found.g > 0)) + found.g
    effect = np.sin(3 * found.c.fillna(0))
    found["y"], found["a"] = found.y + effect, found.a + 0.2 * found.c.fillna(0)
    con.register("rows", found)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("learner", LEARNERS)
def test_clusters_equal_statsmodels(con, clustered, learner, weighted):
    found = weights(con, learner, ", standard_errors = 'cluster', cluster = c" + (", weight = w" if weighted else ""))
    for group, own in found.groupby("g"):
        part = clustered[clustered.g == group]
        agree(own, by_cluster(part, LEARNERS[learner], part.w.to_numpy() if weighted else None))


def test_clusters_of_parents_folds_texts_and_beside_a_key(con, clustered):
    found = weights(con, "linear_regression", ", cluster = 'store ' || c", rest="GROUP BY ROLLUP (g)")
    agree(found[found.g.isna()], by_cluster(clustered, "y"))
    con.execute("CREATE TABLE kept AS SELECT *, row_number() OVER () AS id FROM rows")
    con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (a, b) FROM kept GROUP BY g VALIDATE FOLDS 3"
        " WITH (cluster = c, keep_held_out = true, key = id)"
    )
    assert con.execute("SELECT count(DISTINCT id), typeof(any_value(id)) FROM m_held_out").fetchone() == (
        1200,
        "BIGINT",
    )
    expected = found[found.g.notna()]
    own = con.execute("SELECT standard_error FROM m_weights ORDER BY g").df()
    np.testing.assert_allclose(own.standard_error, expected.sort_values("g", kind="stable").standard_error, rtol=1e-9)


def test_clusters_without_intercept_and_with_an_offset(con, clustered):
    found = weights(con, "poisson_regression", ", cluster = c, offset = ln(w)")
    part = clustered[clustered.g == 2]
    how = {"cov_type": "cluster", "cov_kwds": {"groups": part.c.to_numpy()}}
    x = np.column_stack([part[["a", "b"]], np.ones(len(part))])
    expected = sm.GLM(part.k, x, family=sm.families.Poisson(), offset=np.log(part.w)).fit(tol=1e-15, **how)
    own = found[(found.g == 2) & (found.feature != "offset")]
    np.testing.assert_allclose(own.standard_error, expected.bse, rtol=1e-7)
    found = weights(con, "linear_regression", ", cluster = c, fit_intercept = false")
    expected = sm.OLS(part.y, x[:, :2]).fit(**how)
    np.testing.assert_allclose(found[found.g == 2].standard_error[:2], expected.bse, rtol=1e-8)


def test_a_cluster_alone_has_no_errors_and_classes_of_a_pack_have_each_their_own(con, clustered):
    found = weights(con, "logistic_regression", ", cluster = CASE WHEN g = 1 THEN 0 ELSE c END")
    notes = found.groupby("g").note.unique().map(list).to_dict()
    assert notes == {0: [None], 1: ["one cluster: its rows cannot be compared with others"], 2: [None]}
    assert found.standard_error.isna().tolist() == (found.g == 1).tolist()


def test_clusters_of_a_large_group_lie_in_many_blocks_wherever_these_are(con):
    con.execute(
        "CREATE TABLE many AS SELECT sin(i * 7.1) AS a, cos(i * 3.3) AS b, sin(i * 7.1) + sin(i * 1.7) AS y, i % 3 = 0 AS z,"
        " 3.0 * (i % 2) AS k, i % 97 AS c FROM range(60000) AS t(i)"
    )
    frame = con.execute("SELECT a, b, y, z::INTEGER AS z, k, c FROM many").df()
    for learner, label in LEARNERS.items():
        seen = []
        for where in ("workers = 1, operator = 'gap'", "workers = 2, operator = 'gap'", "memory_limit = '1MB'"):
            con.execute(
                f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES (a, b) FROM many VALIDATE NONE"
                f" WITH (l2 = 0, tolerance = 1e-15, cluster = c, {where})"
            )
            seen.append(con.execute("SELECT weight, standard_error, p_value FROM m_weights").fetchall())
        assert seen[0] == seen[1] == seen[2]
        np.testing.assert_allclose([row[1] for row in seen[0]], by_cluster(frame, label).bse, rtol=1e-8)


def test_refresh_with_clusters(con, clustered):
    con.execute("CREATE TABLE kept AS FROM rows WHERE b < 0.5; CREATE TABLE later AS FROM rows WHERE b >= 0.5")
    ask = "USING linear_regression PREDICT y FEATURES (a, b) FROM kept GROUP BY g VALIDATE NONE"
    con.execute(f"TRAIN MODEL m {ask} WITH (cluster = c, keep_state = true); REFRESH MODEL m FROM later")
    notes = con.execute("SELECT DISTINCT standard_error, note FROM m_weights").fetchall()
    assert notes == [(None, "refreshed without the rows of before")]
    con.execute(f"TRAIN OR REPLACE MODEL m {ask} WITH (cluster = c); INSERT INTO kept FROM later; REFRESH MODEL m")
    found = con.execute("FROM m_weights").df()
    for group, own in found.groupby("g"):
        agree(own, by_cluster(clustered[clustered.g == group], "y"))


def test_asking_for_errors_keeps_the_rows_of_a_stream(con, clustered):
    rest = "USING linear_regression PREDICT y FEATURES (a, b) FROM {} GROUP BY g VALIDATE NONE WITH ({})"
    for options in ("cluster = c", "standard_errors = 'hc1'"):
        con.execute(f"TRAIN OR REPLACE MODEL m {rest.format('rows', options)}")
        expected = con.execute("SELECT standard_error FROM m_weights ORDER BY ALL").fetchall()
        passing = iter(pa.Table.from_pandas(clustered, preserve_index=False).to_batches(max_chunksize=100))  # noqa: F841
        con.execute(f"TRAIN OR REPLACE MODEL m {rest.format('passing', options)}")
        found = con.execute("SELECT standard_error FROM m_weights ORDER BY ALL").fetchall()
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_run_that_died_is_resumed_with_its_clusters_and_offset(tmp_path, monkeypatch):
    path, shown = tmp_path / "own.duckdb", "SELECT k, feature, weight, standard_error FROM m_weights ORDER BY ALL"
    with grouplearn.connect(path, progress=False) as made:
        made.execute(
            "CREATE TABLE t AS SELECT i % 3 AS k, sin(i) AS x, 1 + i % 4 AS e, i % 20 AS c, i % 7 AS y FROM range(900) r(i)"
        )
    train = "TRAIN MODEL m USING poisson_regression PREDICT y FEATURES (x) FROM t GROUP BY k"
    options = "l2 = 0, cluster = c, offset = ln(e)"
    expected = answer(path, f"{train} WITH ({options})", shown)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, f"{train} WITH ({options}, durable = true, operator = 'group_task_parallel')", units=1)
    assert answer(path, "RESUME MODEL m", shown) == expected
    assert all(row[3] for row in expected if row[1] == "x")
