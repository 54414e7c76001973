"""A collation, of columns or of the session, changes no model, no split and no group: texts are told apart by their bytes."""

from collections.abc import Iterator
from typing import Any

import pytest

import grouplearn

ROWS = """
CREATE TABLE plain AS SELECT i, (['e', 'E', 'f'])[1 + (hash(i) % 3)::INTEGER] AS s, i % 10 * 1.0 AS x,
  hash(i + 7) % 1000 / 100 AS y, (['b', 'A', 'c'])[1 + i % 3] AS k, [s, 'Z'] AS l, {'u': s} AS st, to_json(s) AS j,
  s::ENUM ('f', 'E', 'e') AS e
FROM range(120) AS r(i)
"""
STATEMENTS = [
    "linear_regression PREDICT y FEATURES (x) FROM t VALIDATE SAMPLE 20%",  # every column decides what is held out
    "linear_regression PREDICT y FEATURES (x, multihot(l), hash(s, 8)) FROM t GROUP BY k VALIDATE SAMPLE 30%",
    "mlp PREDICT y FEATURES (x, onehot(s), onehot(e)) FROM t GROUP BY ROLLUP (k) WITH (epochs = 2)",
    "random_forest PREDICT y FEATURES (x, ordinal(s)) FROM t VALIDATE FOLDS 2 WITH (num_iterations = 3)",
    "logistic_regression PREDICT s FEATURES (x, y) FROM t VALIDATE SAMPLE 20%",
]


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=None) as connection:
        connection.execute(ROWS)
        yield connection


def trained(con: grouplearn.Connection, statement: str) -> list[Any]:
    con.execute(f"TRAIN OR REPLACE MODEL m USING {statement}")
    asked = (
        "SELECT * EXCLUDE (seconds) FROM m",
        "FROM m_predict(t) ORDER BY i",
        "SELECT p.prediction, p.probability FROM (SELECT i, predict('m', t) AS p FROM t) ORDER BY i",
        "EVALUATE MODEL m ON t",
    )
    return [con.execute(query).fetchall() for query in asked]


@pytest.mark.examples(2)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_models_are_those_of_texts_as_they_are_written(con: grouplearn.Connection, statement: str) -> None:
    con.execute("CREATE TABLE t AS FROM plain")
    expected = trained(con, statement)
    con.execute("SET default_collation = 'nocase'")
    assert con.execute("EVALUATE MODEL m ON t").fetchall() == expected[3]
    assert trained(con, statement) == expected
    con.execute("RESET default_collation")
    con.execute("CREATE OR REPLACE TABLE t AS FROM plain LIMIT 0")
    for column in ("s", "k"):
        con.execute(f"ALTER TABLE t ALTER {column} TYPE VARCHAR COLLATE NOCASE")
    con.execute("INSERT INTO t FROM plain")
    assert trained(con, statement) == expected


def test_groups_that_differ_in_case_are_not_damaged(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE t AS FROM plain")
    con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY s")
    asked = ("FROM m_predict(t) ORDER BY i", "SELECT predict_value('m', t) FROM t ORDER BY i", "EVALUATE MODEL m ON t")
    expected = [con.execute(query).fetchall() for query in asked]
    con.execute("SET default_collation = 'nocase'")
    assert [con.execute(query).fetchall() for query in asked] == expected
    con.execute("RETRY FAILED MODEL m")


def test_a_key_of_which_texts_are_taken_for_equal_is_refused(con: grouplearn.Connection) -> None:
    con.execute("SET default_collation = 'nocase'")
    for key, named in (("s", "s"), ("j", r"CAST\(j AS VARCHAR\)")):
        with pytest.raises(grouplearn.Error, match=rf"are one group(.|\n)*GROUP BY {named} COLLATE POSIX"):
            con.execute(f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM plain GROUP BY {key}")
