"""An offset is a known part of the score: against statsmodels, and in everything that a model does."""

import lightgbm
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers.dying_runs import answer, dies

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


TREES = {"regression": "y", "binary": "z", "poisson": "k"}
INVERSE = {"regression": lambda s: s, "binary": lambda s: 1 / (1 + np.exp(-s)), "poisson": np.exp}


def grow(con, objective, rest="FROM rows GROUP BY g VALIDATE NONE", options="num_iterations = 20", offset="ln(e)"):
    statement = f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT {TREES[objective]} FEATURES (a, b) {rest}"
    con.execute(f"{statement} WITH (objective = '{objective}', {options}, offset = {offset})")


def boosted(part, objective, rounds=20, begin=None):
    given = {"objective": objective, "verbosity": -1, "num_threads": 1, "deterministic": True, "force_col_wise": True}
    begin = np.log(part.e) if begin is None else begin
    data = lightgbm.Dataset(part[["a", "b"]].to_numpy(), part[TREES[objective]], init_score=begin)
    return lightgbm.train(given, data, rounds)


def predicted(con, objective, source="rows"):
    return con.execute(f"FROM m_predict({source})").df()["probability" if objective == "binary" else "prediction"]


@pytest.mark.parametrize("objective", TREES)
def test_trees_equal_lightgbm_with_initial_scores(con, rows, objective):
    grow(con, objective)
    found = predicted(con, objective)
    function = con.execute("SELECT predict('m', rows) AS p FROM rows").df().p
    for group, part in rows.groupby("g"):
        scores = boosted(part, objective).predict(part[["a", "b"]], raw_score=True) + np.log(part.e)
        np.testing.assert_allclose(found[rows.g == group], INVERSE[objective](scores), rtol=1e-9)
    own = [each["probability"] if objective == "binary" else each["value"] for each in function]
    np.testing.assert_allclose(own, found, rtol=1e-9)
    metric, label = ("log_loss", "z") if objective == "binary" else ("rmse", TREES[objective])
    for group, value in con.execute(f"SELECT g, train_{metric} FROM m").fetchall():
        y, p = rows[label][rows.g == group], found[rows.g == group]
        losses = -np.log(np.where(y == 1, p, 1 - p)) if objective == "binary" else (y - p) ** 2
        np.testing.assert_allclose(value, losses.mean() if objective == "binary" else np.sqrt(losses.mean()), rtol=1e-6)


def test_trees_are_the_same_wherever_rows_are_and_judged_with_the_offset(con):
    con.register("many", made(60_000, seed=1))
    seen = []
    for options in ("workers = 1", "workers = 2", "memory_limit = '1MB'"):
        grow(con, "poisson", "FROM many VALIDATE SAMPLE 20%", f"num_iterations = 9, early_stopping = 9, {options}")
        curve = con.execute("SELECT valid_poisson_deviance FROM m_curves ORDER BY epoch").fetchall()
        seen.append((curve, predicted(con, "poisson", "many").tolist()))
        last = con.execute("SELECT valid_poisson_deviance FROM m").fetchone()
        np.testing.assert_allclose(min(curve), last, rtol=1e-6)
    assert seen[0] == seen[1] == seen[2]


def test_trees_go_on_from_the_offset(con, rows):
    con.execute("CREATE TABLE first AS FROM rows WHERE b < 0.5; CREATE TABLE later AS FROM rows WHERE b >= 0.5")
    grow(con, "poisson", "FROM first GROUP BY g VALIDATE NONE")
    con.execute("REFRESH MODEL m FROM later WITH (num_iterations = 7)")
    found = predicted(con, "poisson")
    for group, part in rows.groupby("g"):
        x = part[["a", "b"]].to_numpy()
        before, new = boosted(part[part.b < 0.5], "poisson"), part[part.b >= 0.5]
        reached = before.predict(new[["a", "b"]], raw_score=True) + np.log(new.e)
        after = boosted(new, "poisson", 7, reached)
        scores = before.predict(x, raw_score=True) + after.predict(x, raw_score=True) + np.log(part.e)
        np.testing.assert_allclose(found[rows.g == group], np.exp(scores), rtol=1e-9)


@pytest.mark.parametrize("missing", ["NULL", "'-inf'::DOUBLE"])
def test_trees_need_the_offset_and_no_feature(con, missing):
    con.execute(
        f"CREATE TABLE few AS SELECT * REPLACE (CASE WHEN b < 0 THEN NULL ELSE a END AS a), CASE WHEN b > 1 THEN {missing}"
        " ELSE ln(e) END AS o FROM rows"
    )
    for rest in ("FROM few GROUP BY g VALIDATE NONE", "FROM few VALIDATE SAMPLE 20%"):
        grow(con, "poisson", rest, offset="o")
        without = con.execute("SELECT count(*) FILTER (NOT isfinite(coalesce(o, 'nan'))) FROM few").fetchone()
        assert con.execute("SELECT sum(n_skipped) FROM m").fetchone() == without
        assert con.execute("SELECT bool_and((prediction IS NULL) = (b > 1)) FROM m_predict(few)").fetchone() == (True,)
        assert con.execute(
            "SELECT bool_and((p.prediction IS NULL) = (b > 1)) FROM (SELECT b, predict('m', few) AS p FROM few)"
        ).fetchone() == (True,)


def test_what_trees_tell_has_the_offset(con, rows):
    grow(con, "binary", "FROM rows GROUP BY g VALIDATE FOLDS 3", "num_iterations = 9, keep_held_out = true")
    added = "SELECT any_value(score) - any_value(baseline) - sum(contribution) AS d FROM m_explain(rows) GROUP BY row_number"
    assert con.execute(f"SELECT max(abs(d)) < 1e-9 FROM ({added})").fetchone() == (True,)
    explained = con.execute(
        "SELECT contribution FROM m_explain(rows) WHERE feature = 'offset' ORDER BY row_number"
    ).df()
    np.testing.assert_allclose(explained.contribution, np.log(rows.e))
    auc = dict(con.execute("SELECT g, train_auc FROM m").fetchall())
    evaluated = dict(con.execute("SELECT g, auc FROM (EVALUATE MODEL m ON rows)").fetchall())
    assert evaluated == pytest.approx(auc, rel=1e-9)


def test_a_run_of_trees_that_died_is_resumed_with_its_offset(tmp_path, monkeypatch):
    path, shown = tmp_path / "own.duckdb", "SELECT prediction FROM m_predict(t)"
    with grouplearn.connect(path, progress=False) as made:
        made.execute(
            "CREATE TABLE t AS SELECT i % 3 AS k, sin(i) AS x, 1 + i % 4 AS e, i % 7 AS y FROM range(900) r(i)"
        )
    train = "TRAIN MODEL m USING gbdt PREDICT y FEATURES (x) FROM t GROUP BY k VALIDATE SAMPLE 20%"
    options = "objective = 'poisson', num_iterations = 20, offset = ln(e)"
    expected = answer(path, f"{train} WITH ({options})", shown)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, f"{train} WITH ({options}, durable = true, operator = 'group_task_parallel')", units=1)
    assert answer(path, "RESUME MODEL m", shown) == expected
