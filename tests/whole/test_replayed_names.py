"""What names in an expression mean is the same in training and for any rows to predict, or is refused.

In the source a column may be named by its table, be a struct called like it, be hidden by a lambda's parameter or by a table of a
subquery. The rows to predict come from a table of another name, with other columns in another order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import grouplearn
from grouplearn.errors import BindError
from grouplearn.frontends.python.dbapi import Connection


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with grouplearn.connect(progress=None) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i AS id, i % 3 AS g, (i * 7919) % 50 AS x, (i * 104729) % 11 AS z, 3 * x + z AS y "
            "FROM range(300) r(i);"
            "CREATE TABLE o AS SELECT DISTINCT x AS k, x * 2.0 AS v, 1.5 AS z FROM t;"
            "CREATE TABLE s AS SELECT *, {'x': x, 'g': g} AS s, {'x': z} AS t FROM t;"
            "CREATE TABLE elsewhere AS SELECT z + 0 AS z, t AS t, 'no' AS extra, y, s, g, x, id FROM s;"
        )
        yield connection


#: A feature over a source, and what it is of the columns of ``elsewhere``.
SAME = [
    ("list_transform([z], lambda x: t.x * 2)[1]", "t", "2 * x"),
    ("[x + t.x FOR x IN [7]][1]", "t", "7 + x"),
    ("[q FOR q IN [x, z] IF q >= t.z][1]", "t", "CASE WHEN x >= z THEN x ELSE z END"),
    ("list_filter([t.x, 1000], lambda x: x < t.x + 1)[1]", "t", "x"),
    ("list_reduce([0, z], lambda x, y: t.x + x)", "t", "x"),
    ("list_transform([{'x': z}], lambda q: q.x)[1]", "t", "z"),
    ("list_transform([{'x': z}], lambda t: t.x)[1]", "t", "x"),
    ("list_transform([2], lambda a: list_transform([z], lambda x: t.x + x * a)[1])[1]", "t", "x + 2 * z"),
    ("list_transform([1], lambda y: y + x)[1]", "t", "1 + x"),
    ("s.s.x", "s", "x"),
    ("s.t.x", "s", "z"),
    ("s.x", "s", "x"),
    ("b.s.x", "s AS b", "x"),
    ("main.t.x + memory.main.t.z", "t", "x + z"),
    ("T.X", "t AS T", "x"),
    ("(SELECT o.v FROM o WHERE o.k = t.x)", "t", "2.0 * x"),
    ("(SELECT max(v) FROM o WHERE k = t.x) + (SELECT t.z)", "t", "2.0 * x + z"),
    ("(SELECT t.x FROM (SELECT t.x + t.z AS x) AS t)", "t", "x + z"),
    ("(SELECT max(a.v + b.w) FROM o AS a, (SELECT a.k + t.x AS w) AS b)", "t", "147.0 + x"),
]


@pytest.mark.examples(8)
@pytest.mark.parametrize(("feature", "source", "meaning"), SAME)
def test_a_feature_means_the_same_for_rows_from_elsewhere(
    con: Connection, feature: str, source: str, meaning: str
) -> None:
    train = "TRAIN OR REPLACE MODEL {} USING linear_regression PREDICT y FEATURES ({} AS f) FROM {} VALIDATE NONE"
    con.execute(train.format("named", feature, source))
    con.execute(train.format("plain", meaning, "elsewhere"))
    (rmse,) = con.execute("SELECT train_rmse FROM named").fetchall()[0]
    assert con.execute("SELECT train_rmse FROM plain").fetchall() == [(rmse,)]
    query = (
        "SELECT max(abs(a.prediction - b.prediction)), max(abs(a.prediction - predict_value('named', e))), count(*) "
        "FROM elsewhere e JOIN named_predict(elsewhere) a USING (id) JOIN plain_predict(elsewhere) b USING (id)"
    )
    apart, of_function, rows = con.execute(query).fetchall()[0]
    assert (apart, rows) == (0.0, 300)
    assert of_function < 1e-9


@pytest.mark.parametrize("key", ["s.s.g", "list_transform([7], lambda g: s.g)[1]", "[s.g FOR g IN [1]][1]", "s.g"])
def test_a_key_means_the_same_for_rows_from_elsewhere(con: Connection, key: str) -> None:
    con.execute(
        f"TRAIN OR REPLACE MODEL named USING linear_regression PREDICT y FEATURES (x) FROM s GROUP BY {key} AS k VALIDATE NONE"
    )
    con.execute(
        "TRAIN OR REPLACE MODEL plain USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE NONE"
    )
    both = "named_predict(elsewhere) a JOIN plain_predict(elsewhere) b USING (id) WHERE a.prediction = b.prediction"
    assert con.execute(f"SELECT count(*) FROM {both}").fetchall() == [(300,)]


def test_label_and_weight_mean_the_same(con: Connection) -> None:
    con.execute(
        "TRAIN OR REPLACE MODEL named USING linear_regression PREDICT list_transform([1], lambda y: s.y)[1] AS label "
        "FEATURES (x) FROM s VALIDATE NONE WITH (weight = s.s.x + 1)"
    )
    trained = con.execute("SELECT train_rmse FROM named").fetchall()[0][0]
    evaluated = con.execute("EVALUATE MODEL named ON elsewhere").fetchall()[0]
    assert any(value == pytest.approx(trained, rel=1e-9) for value in evaluated)


@pytest.mark.parametrize(
    ("clauses", "of", "hint"),
    [
        ("FEATURES (#4 + 1) FROM t", "#4", 'Name it: "z".'),
        ('FEATURES (#2, x) FROM (SELECT x, z AS "a b", y FROM t)', "#2", 'Name it: "a b".'),
        ("FEATURES (x) FROM t GROUP BY #2 + 1", "#2", 'Name it: "g".'),
        ("FEATURES (x) FROM t WITH (weight = #3)", "#3", 'Name it: "x".'),
        ("FEATURES (t['x']) FROM t", '"t" is the whole row', "t.x is column x of t"),
        ("FEATURES ((t).x) FROM t", '"t" is the whole row', "t.x is column x of t"),
        ("FEATURES (CAST(main.hash(t) % 5 AS INTEGER)) FROM t", '"t" is the whole row', "t.x is column x of t"),
        (
            "FEATURES ((SELECT max(o.v) FROM o WHERE o.k = (t).x)) FROM t",
            '"t" is the whole row',
            "t.x is column x of t",
        ),
    ],
)
def test_places_and_whole_rows_are_refused(con: Connection, clauses: str, of: str, hint: str) -> None:
    with pytest.raises(BindError) as refused:
        con.execute(f"TRAIN MODEL no USING linear_regression PREDICT y {clauses}")
    assert of in str(refused.value)
    assert hint in str(refused.value)


@pytest.mark.parametrize(
    "feature",
    [
        "[t.y FOR y IN [1]][1]",
        "list_transform([1], lambda q: t.y + q)[1]",
        "list_transform([1], lambda q: y + q)[1]",
        "(SELECT y)",
        "(SELECT t.y + 1)",
        "(SELECT max(o.v) FROM o WHERE o.k < t.y)",
    ],
)
def test_the_label_is_found_in_lambdas_and_subqueries(con: Connection, feature: str) -> None:
    with pytest.raises(BindError, match="computed from the label"):
        con.execute(f"TRAIN MODEL no USING linear_regression PREDICT y FEATURES ({feature}) FROM t")


@pytest.mark.parametrize(
    "feature", ["list_transform([x], lambda y: y + 1)[1]", "(SELECT max(q.y) FROM (SELECT 1 AS y) q) + x"]
)
def test_what_is_only_called_like_the_label_is_no_leak(con: Connection, feature: str) -> None:
    con.execute(f"TRAIN OR REPLACE MODEL named USING linear_regression PREDICT y FEATURES ({feature}) FROM t")
    assert con.execute("SELECT status FROM named").fetchall() == [("done",)]
