"""Features that are lists: the same models by every road, and those of scikit-learn."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from helpers.dying_runs import answer, dies, units_trained
from helpers.thorough import every_other
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MultiLabelBinarizer

import grouplearn

TABLE = """
CREATE TABLE t AS SELECT i % 4 AS g, i AS id, hash(i) % 1000 / 1000 AS u, 'k' || hash(i + 9) % 12 AS one,
    CASE WHEN i % 11 = 0 THEN NULL WHEN i % 7 = 0 THEN []
         ELSE ['it''s', 'é"x', 'b' || i % 4, NULL, 'common', 'common', '[1, ''2'']', 'c' || hash(i) % 9]
              [1 + hash(i + 1) % 3 : 1 + hash(i + 3) % 9] END AS tags,
    [1 + hash(i) % 7, 8 + hash(i + 1) % 5]::INTEGER[] AS idx, [u, 1.5]::FLOAT[] AS val,
    u + coalesce(len(tags), 0) / 9 + hash(i + 5) % 100 / 100 > 1.2 AS yes, u + hash(i + 7) % 3 AS y FROM range({rows}) AS r(i)
"""
ITEMS = "(u, multihot(tags), multihot(idx, scope := 'all'), sparse(idx, val, 12) AS s, hash(tags, {buckets}) AS h)"


def connected(rows: int = 400, path: str = ":memory:") -> Any:
    con = grouplearn.connect(path, progress=None)
    con.execute(TABLE.format(rows=rows))
    return con


def model(con: Any, statement: str, name: str = "m") -> dict[str, list[tuple[Any, ...]]]:
    """Return weights and metrics of a model."""
    con.execute(f"TRAIN OR REPLACE MODEL {name} {statement}").fetchall()
    weights = con.execute(f"FROM {name}_weights ORDER BY ALL").fetchall()
    return {
        "weights": weights,
        "table": con.execute(
            f"SELECT COLUMNS('train_.*|valid_.*|status|n_train|n_valid') FROM {name} ORDER BY ALL"
        ).fetchall(),
    }


ALIKE = {
    "onehot(one)": "multihot([one])",
    "onehot(id % 3)": "multihot([(id % 3)::BIGINT])",
    "hash(one, 5)": "hash([one], 5)",
    "hash(one, 3000)": "hash([one], 3000)",
}
RESTS = ("", "VALIDATE SAMPLE 20%", "VALIDATE FOLDS 3 REFIT")


@pytest.mark.examples(2)
@pytest.mark.parametrize(("item", "rest"), every_other(product(ALIKE, RESTS)))
def test_a_list_of_one_element_has_the_model_of_its_element_bit_for_bit(item: str, rest: str) -> None:
    with connected() as con:
        found = [
            model(con, f"USING logistic_regression PREDICT yes FEATURES (u, {each} AS f) FROM t GROUP BY g {rest}")
            for each in (item, ALIKE[item])
        ]
    assert found[0]["weights"]
    assert found[0] == found[1]


def test_elements_of_any_type_are_one_model() -> None:
    with connected() as con:
        found = [
            model(con, f"USING linear_regression PREDICT y FEATURES (multihot(idx::{kind}) AS f) FROM t GROUP BY g")
            for kind in ("INTEGER[]", "BIGINT[]", "VARCHAR[]", "UTINYINT[2]")
        ]
    assert all(each == found[0] for each in found)


def test_the_order_of_rows_is_nothing() -> None:
    with connected() as con:
        statement = (
            f"USING linear_regression PREDICT y FEATURES {ITEMS.format(buckets=9)} FROM {{}} GROUP BY g WITH (l2 = 1)"
        )
        con.execute("CREATE TABLE shuffled AS FROM t ORDER BY hash(id + 77)")
        assert model(con, statement.format("t")) == model(con, statement.format("shuffled"))


@pytest.mark.examples(2)
@pytest.mark.parametrize("buckets", [6, 700])
@pytest.mark.parametrize(
    ("learner", "label", "shown"),
    [
        ("linear_regression", "y", "prediction"),
        ("logistic_regression", "yes", "probability"),
        ("logistic_regression", "['p', 'q', 'r'][1 + id % 3]", "probabilities['q']"),
    ],
)
def test_macro_function_evaluation_and_model_table_agree(buckets: int, learner: str, label: str, shown: str) -> None:
    with connected() as con:
        items = ITEMS.format(buckets=buckets)
        con.execute(
            f"TRAIN MODEL m USING {learner} PREDICT {label} AS y FEATURES {items} FROM t GROUP BY ROLLUP (g)"
            " VALIDATE NONE WITH (l2 = 1)"
        )
        given, far = con.execute(
            f"SELECT count({shown}), max(abs({shown} - CAST(predict('m', p).{shown} AS DOUBLE))) FROM m_predict(t) AS p"
        ).fetchone()
        assert given == 400
        assert far < 1e-12
        metric = {"y": "rmse"}.get(label, "log_loss")
        differs = con.execute(
            f"SELECT max(abs(e.{metric} - m.train_{metric})) FROM (EVALUATE MODEL m ON t) AS e JOIN m USING (g)"
        ).fetchone()
        assert differs[0] < 1e-9


def test_rows_in_files_and_durable_runs_have_the_same_models(tmp_path: Path) -> None:
    statement = (
        f"USING linear_regression PREDICT y FEATURES {ITEMS.format(buckets=700)} FROM t GROUP BY g VALIDATE SAMPLE 10%"
    )
    found = []
    for number, rest in enumerate(("l2 = 1", "l2 = 1, memory_limit = '1MB'", "l2 = 1, durable = true")):
        with connected(path=str(tmp_path / f"{number}.duckdb")) as con:
            found.append(model(con, f"{statement} WITH ({rest})"))
    assert found[0] == found[1] == found[2]


def test_what_training_has_not_seen_is_nothing() -> None:
    with connected() as con:
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (multihot(tags)) FROM t GROUP BY g")
        con.execute(
            "CREATE TABLE odd AS SELECT 0 AS g, unnest([NULL, [], ['never'], [NULL], ['b1'], ['common'],"
            " ['common', 'never', 'common', NULL]]) AS tags"
        )
        rows = con.execute("SELECT prediction, predict_value('m', o) FROM m_predict(odd) AS o").fetchall()
        assert [macro for macro, _ in rows] == pytest.approx([function for _, function in rows], abs=1e-12)
        assert len({round(macro, 12) for macro, _ in rows[:5]}) == 1  # b1 is an element of group 1 alone
        assert rows[5] == pytest.approx(rows[6])
        assert rows[5] != pytest.approx(rows[0])


def test_groups_of_one_row_and_of_empty_lists() -> None:
    with connected() as con:
        con.execute(
            "CREATE TABLE few AS SELECT * FROM (VALUES ('one', ['a'], 1.0), ('none', [], 2), ('none', NULL, 3)) AS v(g, tags, y)"
        )
        rows = con.execute(
            "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (multihot(tags)) FROM few GROUP BY g"
            " WITH (l2 = 1, min_rows = 1)"
        )
        status = [column[0] for column in rows.description].index("status")
        assert {row[0]: row[status] for row in rows.fetchall()} == {"one": "done", "none": "done"}
        found = con.execute("SELECT g, prediction FROM m_predict(few) ORDER BY ALL").fetchall()
        assert found == [("none", 2.5), ("none", 2.5), ("one", pytest.approx(1.0))]


def objective(x: Any, y: Any, weights: Any, intercept: float, l2: float) -> float:
    score = x @ weights + intercept
    return float(np.logaddexp(0, np.where(y, -score, score)).sum() + l2 / 2 * weights @ weights)


@pytest.mark.parametrize("kind", ["multihot", "hash"])
def test_logistic_regression_has_the_objective_of_scikit_learn(kind: str) -> None:
    with connected(3000) as con:
        item = "multihot(tags)" if kind == "multihot" else "hash(tags, 40)"
        con.execute(
            f"TRAIN MODEL m USING logistic_regression PREDICT yes FEATURES (u, {item} AS f) FROM t WITH (l2 = 0.5)"
        )
        weight = dict(con.execute("SELECT feature, weight FROM m_weights").fetchall())
        rows = con.execute("SELECT u, coalesce(tags, []) AS tags, yes FROM t ORDER BY id").fetchall()
        words = sorted({word for _, tags, _ in rows for word in tags if word is not None})
        bucket = dict(
            con.execute("SELECT w, md5_number_lower(w) % 40 FROM (SELECT unnest(?) AS w)", [words]).fetchall()
        )
    u, y = np.array([row[0] for row in rows]), np.array([row[2] for row in rows])
    if kind == "multihot":
        lists = [[word for word in tags if word is not None] for _, tags, _ in rows]
        x, names = MultiLabelBinarizer(classes=words).fit_transform(lists), [f"f={word}" for word in words]
    else:
        x, names = np.zeros((len(rows), 40)), [f"f[{number}]" for number in range(40)]
        for row, (_, tags, _) in enumerate(rows):
            for word in tags:
                if word is not None:
                    x[row, bucket[word]] += 1
    x = np.column_stack([u, x])
    other = LogisticRegression(C=2, tol=1e-10, max_iter=10_000).fit(x, y)
    ours = objective(x, y, np.array([weight[name] for name in ("u", *names)]), weight["(intercept)"], 0.5)
    theirs = objective(x, y, other.coef_[0], other.intercept_[0], 0.5)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_sparse_is_plain_columns() -> None:
    with connected() as con:
        plain = ", ".join(
            f"coalesce(val[list_position(idx, {index})], 0)::DOUBLE AS x{index}" for index in range(1, 13)
        )
        found = [
            model(
                con,
                f"USING linear_regression PREDICT y FEATURES ({items}) FROM t GROUP BY g VALIDATE NONE WITH (l2 = 0.1)",
            )
            for items in ("sparse(idx, val, 12) AS x", plain)
        ]
    assert found[0]["table"] == [
        tuple(pytest.approx(each, abs=1e-9) for each in row[:-1]) + row[-1:] for row in found[1]["table"]
    ]


def test_many_rows_of_a_list_are_wide_and_never_dense() -> None:
    with connected(1) as con:
        con.execute(
            "CREATE TABLE many AS SELECT ['w' || hash(i * 3 + j) % 20000 for j in range(3)] AS words, hash(i) % 7 AS y"
            " FROM range(200000) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y > 3 AS y FEATURES (hash(words, 100000)) FROM many"
            " VALIDATE NONE WITH (l2 = 1000)"
        )
        assert con.execute("SELECT status, n_train FROM m").fetchone() == ("done", 200000)
        con.execute("CREATE TABLE few AS FROM many LIMIT 3000")
        far = con.execute(
            "SELECT max(abs(probability - predict('m', p).probability)) FROM m_predict(few) AS p"
        ).fetchone()
        assert far[0] < 1e-9


@pytest.mark.examples(1)
@pytest.mark.parametrize("item", ["multihot(l)", "hash(l, 9)", "sparse(l, [1.0 FOR x IN l], 20)"])
def test_groups_with_lists_that_failed_are_trained_again(item: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute(
            "CREATE TABLE r AS SELECT i % 2 AS g, list_distinct([1 + i % 5, 1 + i % 3]) AS l, i * 1.0 AS y FROM range(20) AS t(i)"
            " UNION ALL SELECT 7, [1], 2.0"
        )
        train = f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES ({item}) FROM r GROUP BY g WITH (l2 = 1)"
        con.execute(train).fetchall()
        assert con.execute("SELECT g FROM m WHERE status = 'failed'").fetchall() == [(7,)]
        assert [row[0] for row in con.execute("RETRY FAILED MODEL m WITH (min_rows = 1)").fetchall()] == [7]
        assert con.execute("SELECT prediction FROM m_predict(r) WHERE g = 7").fetchall() == [(pytest.approx(2.0),)]


@pytest.mark.parametrize("item", ["onehot(g)", "multihot(one)", "ordinal(g)"])
def test_where_every_group_failed_there_is_no_prediction(item: str) -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE r AS SELECT i % 2 AS g, [1] AS one, true AS yes FROM range(20) AS t(i)")
        con.execute(f"TRAIN MODEL m USING gbdt PREDICT yes FEATURES ({item}) FROM r GROUP BY g").fetchall()
        assert con.execute("SELECT DISTINCT status FROM m").fetchall() == [("failed",)]
        query = (
            "SELECT DISTINCT (predict('m', r)).prediction FROM r UNION ALL SELECT DISTINCT prediction FROM m_predict(r)"
        )
        assert con.execute(query).fetchall() == [(None,), (None,)]


SOLVERS = ("lbfgs", "coordinate_descent", "sgd")
MODELS = (
    "FROM (SELECT * EXCLUDE (model) FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model)) ORDER BY ALL"
)


@pytest.mark.examples(1)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_run_over_lists_that_died_is_resumed_with_the_same_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    items = ITEMS.format(buckets=64)
    train = f"TRAIN MODEL m USING logistic_regression PREDICT yes FEATURES {items} FROM t GROUP BY g VALIDATE SAMPLE 20% WITH"
    path = tmp_path / "rows.duckdb"
    connected(path=str(path)).close()
    options = f"solver = '{solver}', epochs = 4"
    expected = answer(path, f"{train} ({options})", MODELS)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, f"{train} ({options}, durable = true, operator = 'group_task_parallel')", units=2)
    trained = units_trained(monkeypatch)
    assert answer(path, "RESUME MODEL m", MODELS) == expected
    assert len(trained) == 2


@pytest.mark.thorough
def test_workers_of_ray_have_the_same_models_of_lists() -> None:
    items = ITEMS.format(buckets=64)
    with connected() as con:
        for solver in SOLVERS:
            found = []
            for place in ("local", "ray"):
                con.execute(
                    f"TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT yes FEATURES {items} FROM t GROUP BY g"
                    f" WITH (solver = '{solver}', epochs = 4, executor = '{place}', workers = 2)"
                ).fetchall()
                found.append(con.execute(MODELS).fetchall())
            assert found[0] == found[1]


def test_a_null_of_no_type_is_an_empty_list() -> None:
    items = ITEMS.format(buckets=5000)
    with connected() as con:
        con.execute(
            f"TRAIN MODEL m USING logistic_regression PREDICT yes FEATURES {items} FROM t GROUP BY g"
        ).fetchall()
        nothing = "SELECT 0 AS g, 0.5 AS u, NULL AS tags, NULL AS idx, NULL AS val, true AS yes"
        empty = nothing.replace("NULL AS tags", "[]::VARCHAR[] AS tags").replace("NULL AS idx", "[]::INTEGER[] AS idx")
        empty = empty.replace("NULL AS val", "[]::FLOAT[] AS val")
        found = []
        for row in (nothing, empty):
            found.append(con.execute(f"WITH p AS ({row}) SELECT probability FROM m_predict(p)").fetchall())
            found.append(con.execute(f"SELECT predict_probability('m', p) FROM ({row}) AS p").fetchall())
            found.append(con.execute(f"SELECT n_skipped FROM (EVALUATE MODEL m ON ({row}) AS p)").fetchall())
        assert found[:3] == found[3:]
        assert found[0][0] == pytest.approx(found[1][0])


@pytest.mark.parametrize("ask", ["FROM m_predict(r)", "SELECT predict('m', r) FROM r", "EVALUATE MODEL m ON (FROM r)"])
def test_indices_of_other_types_are_taken_and_fractions_are_none(ask: str) -> None:
    """A cast would round them to the index of another column."""
    with connected() as con:
        model(con, "USING linear_regression PREDICT y FEATURES (sparse(idx, val, 12) AS s) FROM t GROUP BY g")
        before = con.execute(ask.replace(" r", " t").replace("(r)", "(t)").replace(", r)", ", t)")).fetchall()
        con.execute("CREATE VIEW r AS SELECT g, id, y, idx::DOUBLE[] AS idx, val FROM t")
        after = con.execute(ask).fetchall()
        assert [row[-1] for row in after] == [row[-1] for row in before]
        for wrong in ("[1.6, 3]", "['nan'::DOUBLE, 3]", "[1, 1e300]", "[-1.0, 3]"):
            con.execute(f"CREATE OR REPLACE VIEW r AS SELECT g, id, y, {wrong}::DOUBLE[] AS idx, val FROM t")
            with pytest.raises(duckdb.Error, match=r"an index that is not from 1 to 12|NULL (or NaN )?in a list"):
                con.execute(ask).fetchall()


def test_a_number_of_columns_is_no_column() -> None:
    with connected() as con, pytest.raises(duckdb.Error) as error:
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (hash(tags, id)) FROM t")
    assert 'buckets must be a whole number from 1 to 1073741824, and "id" is a column' in str(error.value)
    assert "hash takes one column and a number" in str(error.value)
