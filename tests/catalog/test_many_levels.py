"""Predictions of models with many grouping sets: the same as by one join per level, planned in time that is linear in them."""

from collections.abc import Iterator

import pytest
from helpers.thorough import some

import grouplearn
from grouplearn.models.forms import routed as predict_sql

KEYS = "a, b, c, d, e"
ODD = {  # keys as the rows to predict have them
    "as in training": "a, b, c, d, e",
    "NULL, and values of no group": "nullif(a, 1) AS a, b + 1 AS b, c, d, e",
    "texts, of which some are no number": "CASE WHEN i % 5 = 0 THEN 'no' ELSE a::VARCHAR END AS a, b::VARCHAR AS b, c, d, e",
    "fractions that are no whole number": "a + i % 2 * 0.5 AS a, b::DOUBLE AS b, c, d, e",
}


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i, nullif(i % 3, 2) AS a, i % 2 AS b, 'k' || i // 7 % 3 AS c, i // 5 % 2 = 0 AS d,"
            " DATE '2024-01-01' + (i % 4)::INT AS e, i * 1.0 AS x, i * 2.0 + hash(i) % 5 AS y FROM range(120) AS r(i)"
        )
        yield connection


def trained(con: grouplearn.Connection, name: str, learner: str, rest: str = "") -> None:
    con.execute(
        f"TRAIN MODEL {name} USING {learner} PREDICT y FEATURES (x) FROM t GROUP BY CUBE ({KEYS}) HAVING count(*) > 3 {rest}"
    ).fetchall()


@pytest.mark.examples(2)
@pytest.mark.parametrize("learner", ["linear_regression", "gbdt", "mlp"])
def test_every_row_is_predicted_by_the_group_that_joins_find(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    fast = " WITH (num_iterations = 2)" if learner == "gbdt" else " WITH (epochs = 1)" if learner == "mlp" else ""
    trained(con, "many", learner, fast)
    with monkeypatch.context() as patch:
        patch.setattr(predict_sql, "_JOINED_LEVELS", 1000)
        trained(con, "joined", learner, fast)
    for keys in some([*ODD.values()], 3 if learner == "linear_regression" else 2):
        con.execute(f"CREATE OR REPLACE TABLE other AS SELECT i, x, y, {keys} FROM t")
        seen, expected = (
            con.execute(f"SELECT i, model_level, prediction FROM {name}_predict(other)").fetchall()
            for name in ("many", "joined")
        )
        assert seen == expected
        assert len({level for _, level, _ in seen}) > 1
        by_function = con.execute("SELECT i, predict('many', other).value FROM other").fetchall()
        assert [row[2] for row in seen] == pytest.approx([value for _, value in by_function], rel=1e-6)


def test_plans_do_not_grow_with_the_number_of_levels(con: grouplearn.Connection) -> None:
    trained(con, "many", "linear_regression")
    plan = con.execute("EXPLAIN (FORMAT json) SELECT sum(prediction) FROM many_predict(t)").fetchall()[0][1]
    assert 1 < plan.count("_JOIN") < 10
