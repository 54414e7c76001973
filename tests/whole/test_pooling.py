"""Groups that shrink to what those of their parent have in common: against statsmodels' mixed models, and where it must hold."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from helpers.dying_runs import answer, dies
from statsmodels.regression.mixed_linear_model import MixedLMParams

import grouplearn

SPREAD = np.array([[0.3, 0.1, 0.0], [0.1, 0.2, 0.05], [0.0, 0.05, 0.5]])


def made(groups, fewest=2, most=30, seed=0, regions=1):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(fewest, most, groups)
    found = pd.DataFrame({"g": np.repeat(np.arange(groups), sizes)})
    n = len(found)
    found["r"] = "r" + (found.g % regions).astype(str)
    found["a"], found["b"], found["w"] = 5 + 2 * rng.normal(size=n), rng.normal(size=n) / 2 - 1, rng.uniform(0.5, 3, n)
    weights = rng.multivariate_normal([1, -2, 3], SPREAD, groups)[found.g] + (found.g % regions).to_numpy()[:, None]
    found["y"] = (
        weights[:, 0] * found.a + weights[:, 1] * found.b + weights[:, 2] + rng.normal(size=n) / np.sqrt(found.w)
    )
    return found


@pytest.fixture(scope="module")
def rows():
    return made(40)


@pytest.fixture
def con(rows):
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.register("rows", rows)
        yield connection


def train(con, rest="GROUP BY g VALIDATE NONE", options="", source="rows", features="a, b"):
    statement = f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES ({features}) FROM {source} {rest}"
    con.execute(f"{statement} WITH (pooling = 'shrink'{options})")


def table(con, model="m"):
    found = con.execute(f"FROM {model}_weights").df()
    keys = [name for name in ("r", "g") if name in found]
    return found.pivot(index=keys, columns="feature", values="weight")


def mixed(rows, weight=None, diagonal=False, intercept=True):
    """Return the weights of each group by REML, of rows times the roots of their weights and features about their means."""
    root = np.ones(len(rows)) if weight is None else np.sqrt(weight.to_numpy())
    means = np.average(rows[["a", "b"]], axis=0, weights=root**2) * intercept
    x = np.column_stack([rows[["a", "b"]] - means, *([np.ones(len(rows))] if intercept else [])]) * root[:, None]
    width = x.shape[1]
    free = MixedLMParams.from_components(fe_params=np.ones(width), cov_re=np.eye(width)) if diagonal else None
    model = sm.MixedLM(rows.y.to_numpy() * root, x, rows.g.to_numpy(), exog_re=x)
    fit = model.fit(reml=True, method=["bfgs"], gtol=1e-8, free=free)
    effects = {group: fit.fe_params + each.to_numpy() for group, each in fit.random_effects.items()}
    found = pd.DataFrame(effects).T.sort_index().to_numpy()
    if intercept:
        found[:, 2] -= found[:, :2] @ means
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weighted", [False, True])
def test_equal_the_mixed_model(con, rows, weighted):
    train(con, options=", weight = w" if weighted else "")
    expected = mixed(rows, weight=rows.w if weighted else None)
    np.testing.assert_allclose(table(con)[["a", "b", "(intercept)"]], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_without_an_intercept(con, rows):
    train(con, options=", fit_intercept = false")
    np.testing.assert_allclose(table(con)[["a", "b"]], mixed(rows, intercept=False), rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_few_groups_have_independent_weights_about_their_mean(con):
    rows = made(5, 8, 20)
    con.register("few", rows)
    train(con, source="few")
    expected = mixed(rows, diagonal=True)
    np.testing.assert_allclose(table(con)[["a", "b", "(intercept)"]], expected, rtol=1e-4, atol=1e-4)


def test_each_level_shrinks_to_its_parent(con):
    """The groups of one region are as if there were no other, and the model of all rows is its own."""
    rows = made(60, regions=3)
    con.register("regional", rows)
    train(con, "GROUP BY ROLLUP (r, g) VALIDATE NONE", source="regional")
    found = table(con)
    whole = con.execute("SELECT weight FROM m_weights WHERE r IS NULL ORDER BY feature").fetchall()
    for region in ("r0", "r1", "r2"):
        train(con, "WHERE r = '" + region + "' GROUP BY g VALIDATE NONE", source="regional")
        own = found.loc[region]
        np.testing.assert_allclose(own[own.index.notna()], table(con), rtol=1e-6)
    train(con, "GROUP BY r VALIDATE NONE", source="regional")
    np.testing.assert_allclose(
        found[found.index.get_level_values("g").isna()].dropna().loc[["r0", "r1", "r2"]], table(con)
    )
    con.execute(
        "TRAIN MODEL n USING linear_regression PREDICT y FEATURES (a, b) FROM regional GROUP BY () VALIDATE NONE"
    )
    np.testing.assert_allclose(whole, con.execute("SELECT weight FROM n_weights ORDER BY feature").fetchall())


def test_units_do_not_matter(con):
    """Encoders are fitted on all groups, and weights shrink as in other units."""
    train(con)
    plain = con.execute("SELECT prediction FROM m_predict(rows)").df()
    train(con, features="zscore(a), minmax(b)")
    np.testing.assert_allclose(con.execute("SELECT prediction FROM m_predict(rows)").df(), plain, rtol=1e-5)


def test_small_groups_predict_better(con):
    rows = made(200, 20, 25, seed=1)
    rows["place"] = rows.groupby("g").cumcount()
    known, new = rows[rows.place < 2 + rows.g % 8], rows[rows.place >= 10]
    con.register("known", known)
    con.register("new", new)
    errors = {}
    for pooling in ("none", "shrink"):
        statement = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (a, b) FROM known GROUP BY g"
        con.execute(f"{statement} WITH (pooling = '{pooling}')")
        errors[pooling] = con.execute("SELECT sqrt(avg((y - prediction) ** 2)) FROM m_predict(new)").fetchone()[0]
    assert errors["shrink"] < 0.6 * errors["none"]


@pytest.mark.parametrize("validation", ["FOLDS 4", "SAMPLE 20%", "WHERE w > 2.2 REFIT"])
def test_the_grid_chooses_by_held_out_rows(con, validation):
    con.register("small", made(100, 4, 10))
    over = f"GROUP BY ROLLUP (g) OVER GRID (pooling IN ('none', 'shrink')) VALIDATE {validation}"
    con.execute(f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a, b) FROM small {over}")
    errors = con.execute(
        "SELECT pooling, median(valid_rmse), count(*) FILTER (is_best) FROM m GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    (_, alone, few), (_, shrunk, most) = errors
    assert shrunk < alone
    assert 0 < few < most


def test_held_out_labels_change_no_prior(con, rows):
    other = rows.assign(y=rows.y + 1000 * (rows.w > 2.5))
    con.register("other", other)
    found = []
    for source in ("rows", "other"):
        train(con, "GROUP BY g VALIDATE WHERE w > 2.5", source=source)
        found.append(con.execute("SELECT * FROM m_weights").df())
    pd.testing.assert_frame_equal(*found)


def test_explain_and_describe_say_it(con):
    statement = (
        "TRAIN MODEL m USING linear_regression PREDICT y FROM rows GROUP BY ROLLUP (r, g) WITH (pooling = 'shrink')"
    )
    plan = [line for (line,) in con.execute(f"EXPLAIN {statement}").fetchall()]
    assert "  groups shrink to what those of their parent have in common, after a pass that finds it" in plan
    con.execute(statement)
    described = dict(con.execute("DESCRIBE MODEL m").fetchall())
    assert described["statement"].endswith("WITH (pooling = 'shrink')")
    before = con.execute("FROM m_weights").df()
    con.execute(described["statement"].replace("TRAIN", "TRAIN OR REPLACE"))
    pd.testing.assert_frame_equal(con.execute("FROM m_weights").df(), before)


GRID = "GROUP BY ROLLUP (r, g) OVER GRID (pooling IN ('none', 'shrink')) VALIDATE FOLDS 3"
STATEMENT = f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (zscore(a), b) FROM rows {GRID}"
SHOWN = "SELECT * EXCLUDE (seconds) FROM m ORDER BY ALL"


def test_the_same_on_ray(con):
    con.execute(STATEMENT)
    expected = con.execute(SHOWN).df(), con.execute("FROM m_weights").df()
    con.execute(f"{STATEMENT} WITH (executor = 'ray', workers = 2)")
    for found, known in zip((con.execute(SHOWN).df(), con.execute("FROM m_weights").df()), expected, strict=True):
        pd.testing.assert_frame_equal(found, known, check_exact=True)


@pytest.mark.parametrize("units", [1, 3, 6])
def test_a_killed_run_goes_on(tmp_path, monkeypatch, units):
    path = tmp_path / "d.duckdb"
    with grouplearn.connect(path, progress=False) as connection:
        connection.register("given", made(40, regions=2))
        connection.execute("CREATE TABLE rows AS FROM given")
        connection.execute(STATEMENT)
        expected = connection.execute(SHOWN).fetchall()
        connection.execute("DROP MODEL m")
    durable = f"{STATEMENT} WITH (durable = true, operator = 'group_task_parallel')"
    dies(path, monkeypatch, durable, units)
    answer(path, "RESUME MODEL m")
    assert answer(path, SHOWN) == expected


def test_failed_groups_are_not_trained_alone(con, rows):
    con.register("partly", pd.concat([rows, rows[:3].assign(g=99, a=np.nan)]))
    train(con, source="partly")
    assert con.execute("SELECT g FROM m WHERE status = 'failed'").fetchall() == [(99,)]
    with pytest.raises(grouplearn.BindError, match="shrink to what they have in common"):
        con.execute("RETRY FAILED MODEL m")


def test_rows_of_a_stream_are_kept(con, rows):
    train(con)
    expected = table(con)
    stream = (rows[rows.g % 3 == part] for part in range(3))  # noqa: F841  (FROM stream)

    best = con.execute(
        "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (a, b) FROM stream GROUP BY g VALIDATE NONE"
        " WITH (pooling = 'shrink')"
    ).df()
    assert "groups shrink to what they have in common" in str(best.note.dropna().tolist())
    np.testing.assert_allclose(table(con), expected, rtol=1e-6)
