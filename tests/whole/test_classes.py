"""Groups with other classes: a group's models do not depend on which classes other groups have."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import grouplearn
from grouplearn.errors import BindError

ROWS = """
CREATE TABLE t AS
WITH r AS (
  SELECT i, g, (hash(i, g) % 2000) / 1000 - 1 AS x, (hash(i, g, 1) % 2000) / 1000 - 1 AS z, hash(i, g, 2) % 7 = 0 AS wrong
  FROM range(160) AS r(i), range(4) AS s(g) WHERE i < 120 + 10 * g
)
SELECT g, i, x, z, i % 5 = 0 AS held, 1 + i % 3 AS w, CASE g
  WHEN 0 THEN CASE WHEN (x > 0) <> wrong THEN 'b' ELSE 'a' END
  WHEN 1 THEN CASE WHEN (x > 0.3) <> wrong THEN 'c' WHEN z > 0 THEN 'b' ELSE 'a' END
  WHEN 2 THEN CASE WHEN (z > 0) <> wrong THEN 'c' ELSE 'a' END
  ELSE CASE WHEN (x + z > 0) <> wrong THEN 'c' ELSE 'b' END END AS y
FROM r
"""
#: Learner: features, what follows FROM and GROUP BY, and how close the models are: what is not our arithmetic has a tolerance.
STATEMENTS = {
    "logistic_regression": ("x, zscore(z)", "OVER GRID (l2 IN (1, 0.1), l1 IN (0, 1))", 1e-9),
    "gbdt": ("x, z", "OVER GRID (num_iterations IN (5, 9), num_leaves IN (4, 7))", 1e-14),
    "mlp": ("x, z", "OVER GRID (hidden_layers IN ([3], [2, 2]), learning_rate IN (0.05, 0.01))", 1e-4),
    "plain": ("x, z", "OVER GRID (learning_rate IN (0.05, 0.01))", 1e-4),
}
HOLDOUTS = ["VALIDATE WHERE held OPTIMIZE f1", "VALIDATE FOLDS 2 OPTIMIZE auc"]


def linear(problem: Any, config: Any) -> nn.Module:
    return nn.Linear(problem.n_features, problem.n_outputs)


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    grouplearn.register("plain", linear, tasks="classification")
    with grouplearn.connect(progress=False) as connection:
        connection.execute(ROWS)
        for group in (0, 3):
            connection.execute(f"CREATE TABLE t{group} AS FROM t WHERE g = {group}")
        yield connection
    grouplearn.unregister("plain")


def trained(con: grouplearn.Connection, learner: str, rest: str, source: str, name: str = "m") -> None:
    features, over, _ = STATEMENTS[learner]
    epochs = "" if learner == "gbdt" else "epochs = 8, "
    con.execute(
        f"TRAIN OR REPLACE MODEL {name} USING {learner} PREDICT y FEATURES ({features}) FROM {source} GROUP BY g {over} {rest}"
        f" WITH ({epochs}weight = w, min_rows = 1)"
    )


def rows_of(con: grouplearn.Connection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


def assert_close(left: list[tuple[Any, ...]], right: list[tuple[Any, ...]], tolerance: float) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one, other, strict=True):
            if isinstance(a, float) and isinstance(b, float):
                assert a == pytest.approx(b, rel=tolerance, abs=tolerance), (one, other)
            else:
                assert a == b, (one, other)


@pytest.mark.examples(2)
@pytest.mark.parametrize("rest", HOLDOUTS)
@pytest.mark.parametrize("learner", STATEMENTS)
def test_a_group_of_two_classes_is_what_it_is_alone(con: grouplearn.Connection, learner: str, rest: str) -> None:
    tolerance = STATEMENTS[learner][2]
    trained(con, learner, rest, "t")
    for group in (0, 3):
        alone = f"t{group}"
        trained(con, learner, rest, alone, "alone")
        columns = "EXCLUDE (seconds) FROM {0} WHERE g = {1} ORDER BY ALL"
        assert_close(
            rows_of(con, f"SELECT * {columns.format('m', group)}"),
            rows_of(con, f"SELECT * {columns.format('alone', group)}"),
            tolerance,
        )
        predicted = "SELECT i, prediction, {0} FROM {1}_predict({2}) ORDER BY i"
        expected = rows_of(con, predicted.format("probability", "alone", alone))
        second = {0: "b", 3: "c"}[group]
        assert_close(
            rows_of(con, predicted.format(f"probabilities['{second}']", "m", alone)), expected, tolerance + 1e-9
        )
        by_function = f"SELECT i, p.prediction, p.probabilities['{second}'] FROM (SELECT i, predict('m', s) AS p FROM"
        assert_close(rows_of(con, f"{by_function} {alone} AS s) ORDER BY i"), expected, tolerance + 1e-9)


UNSEEN = """
CREATE TABLE IF NOT EXISTS u AS
WITH r AS (SELECT i, g, (hash(i, g) % 200) / 100 - 1 AS x, round(hash(i, g, 1) % 200 / 100 - 1, 1) AS z
           FROM range(150) AS r(i), range(4) AS s(g))
SELECT g, i, x, z, i % 3 = 0 AS held, 1 + i % 4 / 2 AS w,
  CASE WHEN held AND g IN (1, 3) AND i % 5 = 0 THEN 'new' || i % 2 ELSE
  CASE WHEN x + z / 2 > 0.4 AND g IN (0, 1) THEN 'c' WHEN z + x / 3 > 0 THEN 'b' ELSE 'a' END END AS y
FROM r
"""
#: Metrics that a model has besides the one that it optimises, and others.
ALWAYS, MORE = ["log_loss", "accuracy", "f1"], ["auc", "precision", "recall", "balanced_accuracy", "pr_auc", "brier"]


@pytest.mark.examples(3)
@pytest.mark.parametrize("metric", MORE)
@pytest.mark.parametrize("learner", ["logistic_regression", "gbdt"])
def test_evaluate_says_what_the_model_table_says(con: grouplearn.Connection, learner: str, metric: str) -> None:
    """Groups of two and three classes, with held-out rows of classes that no training row has, and with weights."""
    con.execute(UNSEEN)
    con.execute(
        f"TRAIN OR REPLACE MODEL seen USING {learner} PREDICT y FEATURES (x, z) FROM u GROUP BY g VALIDATE WHERE held"
        f" OPTIMIZE {metric} WITH (weight = w{', num_iterations = 8' if learner == 'gbdt' else ''})"
    )
    for part, where in (("valid", "held"), ("train", "NOT held")):
        con.execute(f"EVALUATE MODEL seen ON u WHERE {where}")
        names = [column[0] for column in con.description]
        result = [dict(zip(names, row, strict=True)) for row in con.fetchall()]
        assert len(result) == 4
        for each in (metric, *ALWAYS):
            found = rows_of(con, f"SELECT g, {part}_{each} FROM seen ORDER BY g")
            assert_close([(row["g"], row[each]) for row in result], found, 1e-6)
        assert [row["weight"] for row in result] == [
            row[1] for row in rows_of(con, f"SELECT g, sum(w) FROM u WHERE {where} GROUP BY g ORDER BY g")
        ]


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    ("type_", "given", "classes"),
    [
        ("DOUBLE", "0", ("1.0", "0.0")),
        ("INTEGER", "0.0", ("1", "0")),
        ("BOOLEAN", "'FALSE'", ("true", "false")),
        ("DECIMAL(4, 2)", "0", ("1.00", "0.00")),
    ],
)
def test_a_class_is_named_by_any_text_of_its_value(type_: str, given: str, classes: tuple[str, str]) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(f"CREATE TABLE d AS SELECT i AS x, (i % 7 > 3)::INTEGER::{type_} AS y FROM range(70) r(i)")
        train = "TRAIN OR REPLACE MODEL {} USING logistic_regression PREDICT y FEATURES (x) FROM d WITH ({})"
        train = train.replace("WITH (", "WITH (task = 'classification', ")
        con.execute(train.format("m", f"positive_class = {given}"))
        assert con.execute("SELECT classes FROM grouplearn.models").fetchall() == [(list(classes),)]
        name = given.strip("'")
        con.execute(train.format("a", f"class_weight = {{'{name}': 3}}"))
        con.execute(train.format("b", f"class_weight = {{'{classes[1]}': 3}}"))
        both = "SELECT (SELECT list(weight) FROM a_weights) = (SELECT list(weight) FROM b_weights)"
        assert con.execute(both).fetchall() == [(True,)]
        with pytest.raises(BindError, match="twice"):
            con.execute(train.format("c", f"class_weight = {{'{name}': 3, '{classes[1]}': 2}}"))
        with pytest.raises(BindError, match="no class of the label"):
            con.execute(train.format("c", "positive_class = 0.5"))


IDLE = """
CREATE TABLE idle AS
SELECT i, i % 5 AS g, sin(i) AS x, cos(2 * i) AS z, CASE WHEN i % 3 = 1 OR i < 4 THEN 0 ELSE 1 + i % 4 END AS w,
  CASE WHEN i = 0 THEN 'nan'::DOUBLE WHEN i = 1 THEN 'inf' ELSE [1.5, -2.0, 7.25][i % 3 + 1] END AS y
FROM range(400) r(i)
"""


@pytest.mark.examples(4)
@pytest.mark.parametrize("groups", ["", "GROUP BY g"])
@pytest.mark.parametrize(
    "learner",
    [
        "logistic_regression",
        "logistic_regression WITH (solver = 'sgd', epochs = 3)",
        "logistic_regression WITH (solver = 'coordinate_descent')",
        "linear_svm",
        "gbdt WITH (num_iterations = 3)",
        "random_forest WITH (num_iterations = 3)",
        "mlp WITH (epochs = 2)",
        "plain WITH (epochs = 2)",
    ],
)
@pytest.mark.parametrize("also", ["", "class_weight = 'balanced'", "positive_class = 1.5"])
def test_a_class_without_weight_is_no_class(con: grouplearn.Connection, learner: str, groups: str, also: str) -> None:
    """The model is that of the rows that have a weight: the same classes, columns and bits."""
    con.execute(IDLE.replace("CREATE", "CREATE OR REPLACE"))
    name, _, options = learner.partition(" WITH (")
    given = ", ".join(filter(None, ["weight = w", "task = 'classification'", options.rstrip(")"), also]))
    for model, source in (("all_rows", "idle"), ("weighing", "(FROM idle WHERE w > 0)")):
        con.execute(
            f"TRAIN OR REPLACE MODEL {model} USING {name} PREDICT y FEATURES (x, z) FROM {source} {groups} VALIDATE NONE"
            f" WITH ({given})"
        )
    results = [
        rows_of(con, f"SELECT * EXCLUDE (seconds, n_rows, n_skipped) FROM {model} ORDER BY ALL")
        for model in ("all_rows", "weighing")
    ]
    assert results[0] == results[1]
    predicted = [
        rows_of(con, f"SELECT i, prediction, probability FROM {model}_predict(idle) ORDER BY i")
        for model in ("all_rows", "weighing")
    ]
    assert predicted[0] == predicted[1]
    assert {row[1] for row in predicted[0]} <= {1.5, 7.25}


NANOSECONDS = "make_timestamp_ns(1577836800000000000 + i % 2)"


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("label", "lesser", "greater", "parameter"),
    [
        (NANOSECONDS, "TIMESTAMP_NS '2020-01-01'", "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'", None),
        ("CASE i % 2 WHEN 0 THEN DATE '9999-12-31' ELSE 'infinity' END", "DATE '9999-12-31'", "DATE 'infinity'", None),
        (
            "CASE i % 2 WHEN 0 THEN TIMESTAMP '-infinity' ELSE '0001-01-01' END",
            "'-infinity'",
            "DATE '0001-01-01'",
            None,
        ),
        ("(['x', 'y'])[i % 2 + 1]::BLOB", "'x'::BLOB", "'y'::BLOB", b"x"),
        ("CASE i % 2 WHEN 0 THEN encode('é') ELSE '\\x00'::BLOB END", "'\\x00'::BLOB", "encode('é')", b"\0"),
        ("(['0.5', '1e30'])[i % 2 + 1]::DOUBLE", "0.5", "1e30::HUGEINT", 0.5),
        ("(DATE '2020-01-01' + i::INTEGER % 2)", "TIMESTAMP '2020-01-01'", "DATE '2020-01-02'", dt.date(2020, 1, 1)),
        ("(['b', 'a'])[i % 2 + 1]::ENUM('b', 'a')", "'b'::ENUM('a', 'b')", "'a'", "b"),
        (
            "TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (i % 2) HOUR",
            "TIMESTAMPTZ '2020-01-01 05:00:00+05'",
            "'2020-01-01 01:00:00+00'",
            None,
        ),
    ],
)
def test_a_class_named_by_a_constant_is_that_class(label: str, lesser: str, greater: str, parameter: Any) -> None:
    """A constant stays DuckDB's value: no Python object has nanoseconds, or an infinite date."""
    with grouplearn.connect(progress=None) as con:
        con.execute(f"CREATE TABLE d AS SELECT sin(i) AS x, {label} AS y FROM range(300) r(i)")
        train = (
            "TRAIN OR REPLACE MODEL {} USING logistic_regression PREDICT y FEATURES (x) FROM d VALIDATE NONE WITH ({})"
        )
        train = train.replace("WITH (", "WITH (task = 'classification', ")
        told = "SELECT value = (SELECT {}(y)::VARCHAR FROM d) FROM (DESCRIBE MODEL m) WHERE property = 'positive class'"
        for constant, which in ((lesser, "min"), (greater, "max")):
            con.execute(train.format("m", f"positive_class = {constant}"))
            assert con.execute(told.format(which)).fetchall() == [(True,)]
            for key in (constant, "$given") if parameter is not None and which == "min" else (constant,):
                con.execute(
                    train.format("m", f"class_weight = MAP {{{key}: 50}}"),
                    {"given": parameter} if key == "$given" else None,
                )
                same = f"SELECT count(DISTINCT prediction), any_value(prediction) = (SELECT {which}(y) FROM d) FROM m_predict(d)"
                assert con.execute(same).fetchall() == [(1, True)]
        if parameter is not None:
            con.execute(train.format("m", "positive_class = ?"), [parameter])
            assert con.execute(told.format("min")).fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("label", "constant", "named"),
    [
        (
            "DATE '2020-01-01' + i::INTEGER % 2",
            "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'",
            "2020-01-01 00:00:00.000000001",
        ),
        (
            "TIMESTAMP '2020-01-01' + INTERVAL (i % 2) DAY",
            "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'",
            "2020-01-01 00:00:00.000000001",
        ),
        ("TIME '01:00:00' + INTERVAL (i % 2) HOUR", "TIMETZ '01:00:00+02'", "01:00:00+02"),
        ("i % 2 = 0", "2", "2"),
        ("i % 2", "DATE '2020-01-01'", "2020-01-01"),
    ],
)
def test_a_constant_that_is_no_value_of_the_label_names_no_class(label: str, constant: str, named: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(f"CREATE TABLE d AS SELECT sin(i) AS x, {label} AS y FROM range(30) r(i)")
        train = "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM d WITH ({})"
        for option, given in (("positive_class", constant), ("class_weight", f"MAP {{{constant}: 2}}")):
            with pytest.raises(BindError, match=rf'"{re.escape(named)}", which is no class of the label'):
                con.execute(train.format(f"{option} = {given}"))


@pytest.mark.parametrize(("option", "task"), [("", "binary"), (", task = 'regression'", "regression")])
def test_a_network_of_both_tasks_takes_0_and_1_for_classes(option: str, task: str) -> None:
    grouplearn.register("versatile", linear)
    try:
        with grouplearn.connect(progress=None) as con:
            con.execute("CREATE TABLE d AS SELECT sin(i) AS x, (sin(i) > 0)::INTEGER AS y FROM range(80) r(i)")
            con.execute(
                f"TRAIN MODEL m USING versatile PREDICT y FEATURES (x) FROM d VALIDATE NONE WITH (epochs = 1{option})"
            )
            assert con.execute("SELECT task FROM grouplearn.models").fetchall() == [(task,)]
    finally:
        grouplearn.unregister("versatile")


def test_labels_of_which_none_can_be_a_class_are_not_scored() -> None:
    """A class that training has not is one that the model gets wrong; a text where classes are numbers is a mistake."""
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE d AS SELECT i AS x, i % 3 AS y FROM range(70) r(i)")
        con.execute("TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM d")
        told = r'no label of 70 rows is of type BIGINT, as classes are \(0, 1, 2\): there is "class 0"'
        with pytest.raises(BindError, match=told):
            con.execute("EVALUATE MODEL m ON (SELECT x, 'class ' || y AS y FROM d)")
        for label in ("y::VARCHAR", "CASE WHEN x = 5 THEN '2' ELSE 'other' END", "NULL", "9"):
            assert len(con.execute(f"EVALUATE MODEL m ON (SELECT x, {label} AS y FROM d)").fetchall()) == 1
