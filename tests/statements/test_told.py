"""Hints that lead somewhere: what they say to do works, and what they say of a model is so."""

from collections.abc import Iterator

import duckdb
import pytest

import grouplearn


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i::DOUBLE AS x, i * 2.0 + i / 1001 AS y FROM range(1500) AS r(i)")
        yield connection


def told(con: grouplearn.Connection, statement: str) -> str:
    with pytest.raises((grouplearn.Error, duckdb.Error)) as raised:
        con.execute(statement).fetchall()
    return str(raised.value)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        (
            "logistic_regression PREDICT y FEATURES (x) FROM t",
            "For a number write USING linear_regression, gbdt or mlp, or predict an expression such as y > 15.",
        ),
        (
            "gbdt PREDICT y::INT AS y FEATURES (x) FROM t WITH (task = 'classification')",
            "For a number write WITH (task = 'regression'), or predict an expression such as y > 15.",
        ),
        (
            "gbdt PREDICT md5(x::VARCHAR) AS y FEATURES (x) FROM t",
            "Predict an expression that has fewer, such as left(y, 1), or a comparison.",
        ),
        (
            "logistic_regression PREDICT x > 9 AS y FEATURES (y) FROM t WITH (threshold = 0.3)",
            "Predictions take it: FROM m_predict(t, threshold := 0.3).",
        ),
        (
            "gbdt PREDICT x::VARCHAR::BLOB AS y FEATURES (x) FROM t",
            "PREDICT (x::VARCHAR::BLOB)::VARCHAR takes its values for classes.",
        ),
        (
            "gbdt PREDICT DATE '2026-01-01' + x::INT AS y FEATURES (x) FROM t",
            "PREDICT (DATE '2026-01-01' + x::INT)::VARCHAR takes its values for classes; epoch(...) of a time is a number.",
        ),
    ],
)
def test_hints_of_train(con: grouplearn.Connection, statement: str, hint: str) -> None:
    assert told(con, f"TRAIN MODEL m USING {statement}").endswith(f"\n\nHint: {hint}")


def test_a_model_that_this_transaction_dropped_is_not_what_is_meant(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM t").fetchall()
    con.execute("BEGIN; DROP MODEL m")
    message = told(con, "SELECT predict_value('m', t) FROM t")
    assert 'model "m" does not exist' in message
    assert "Did you mean" not in message
    con.execute("ROLLBACK")
    assert 'Did you mean "m"?' in told(con, "SELECT predict_value('mm', t) FROM t")


def test_a_macro_that_is_gone_is_what_is_missing(con: grouplearn.Connection) -> None:
    con.execute("CREATE MACRO twice(a) AS a * 2")
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (twice(x)) FROM t").fetchall()
    con.execute("DROP MACRO twice")
    message = told(con, "SELECT predict_value('m', t) FROM t")
    assert "calls twice, and there is no function or macro of that name now" in message
    assert "trust" not in message
    con.execute("CREATE MACRO twice(a) AS a * 2")
    assert con.execute("SELECT count(predict_value('m', t)) FROM t").fetchall() == [(1500,)]


@pytest.mark.parametrize(
    "model",
    [
        "linear_regression PREDICT y FEATURES (*)",
        "logistic_regression PREDICT x::INT % 3 AS k FEATURES (y)",
        "kmeans FEATURES (x)",
        "pca FEATURES (x, y)",
    ],
)
def test_a_probability_is_of_two_classes(con: grouplearn.Connection, model: str) -> None:
    con.execute(f"TRAIN MODEL m USING {model} FROM t").fetchall()
    expected = 'predict_probability is for two classes, and model "m" is no classifier of two'
    assert expected in told(con, "SELECT predict_probability('m', t) FROM t")
    assert con.execute("SELECT predict_probability('m', {'x': NULL, 'y': NULL})").fetchall() == [(None,)]


def test_one_transaction_writes_to_one_database(con: grouplearn.Connection) -> None:
    con.execute("ATTACH ':memory:' AS other")
    con.execute("BEGIN; CREATE TABLE other.z AS SELECT 1 AS a")
    message = told(con, "TRAIN MODEL m USING linear_regression PREDICT y FROM t")
    assert message.endswith(
        "Hint: DuckDB lets a transaction write to one database: ROLLBACK, and run the statement in one of its own."
    )


def test_what_is_left_of_a_model_whose_tables_are_gone_can_be_dropped(con: grouplearn.Connection) -> None:
    train = "MODEL m USING linear_regression PREDICT y FROM t"
    con.execute(f"TRAIN {train}").fetchall()
    con.execute("DROP SCHEMA grouplearn CASCADE")
    con.execute("CREATE VIEW m_variance AS FROM t")
    for how in ("TRAIN", "TRAIN OR REPLACE"):
        message = told(con, f"{how} {train}")
        assert 'view "m" already exists' in message
        assert message.endswith("Hint: It is left of a model whose tables are gone: DROP MODEL m removes it.")
    assert con.execute("DROP MODEL m").fetchall() == [("model m is dropped",)]
    left = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
    assert con.execute(left).fetchall() == [("m_variance",)]  # which is the user's own
    assert "unknown model" in told(con, "DROP MODEL m")
    con.execute(f"TRAIN {train}").fetchall()
    assert con.execute("SELECT count(*) FROM m_predict(t)").fetchall() == [(1500,)]


def test_a_view_of_the_user_is_no_model_that_is_left(con: grouplearn.Connection) -> None:
    con.execute("CREATE VIEW m AS FROM t")
    assert told(con, "TRAIN MODEL m USING linear_regression PREDICT y FROM t").endswith("Hint: Choose another name.")
    assert "unknown model" in told(con, "DROP MODEL m")
    assert con.execute("SELECT count(*) FROM m").fetchall() == [(1500,)]


def test_a_name_that_a_model_needs_and_the_user_has_taken_is_no_reason_to_drop_the_model(
    con: grouplearn.Connection,
) -> None:
    con.execute("TRAIN MODEL m USING gbdt PREDICT y FROM t").fetchall()
    con.execute("CREATE TABLE m_weights AS SELECT 1 AS mine")  # a model of trees has no such view
    message = told(con, "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FROM t")
    assert 'table "m_weights" already exists' in message
    assert "DROP MODEL" not in message
    assert message.endswith("rename or drop it, as m needs the name, or choose another for the model.")


def test_predict_says_in_its_own_words_what_it_does_not_trust(con: grouplearn.Connection) -> None:
    con.execute("CREATE MACRO half(a) AS a % 2")
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY half(x) AS h").fetchall()
    con.execute("DROP MACRO half")
    assert told(con, "SELECT predict_value('m', t) FROM t").startswith('key "h" of model "m" calls half')
