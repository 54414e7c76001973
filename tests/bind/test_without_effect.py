"""A hyperparameter that counts only with a value of another one is refused where no configuration has that value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import grouplearn
from grouplearn.errors import BindError
from grouplearn.frontends.python.dbapi import Connection
from grouplearn.learners import registry


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    with grouplearn.connect(progress=None) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 50 AS x, 3.0 * (i % 50) + i % 7 AS y FROM range(300) r(i)")
        yield connection


def train(con: Connection, learner: str, options: str, search: str = "") -> None:
    given = "epochs = 1" if learner == "mlp" else "num_iterations = 2"
    con.execute(
        f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT y FEATURES (x) FROM t {search} WITH ({given}{options})"
    )


@pytest.mark.parametrize(
    ("learner", "options", "told"),
    [
        ("gbdt", ", alpha = 0.1", "alpha does nothing without objective = 'quantile' or objective = 'huber'"),
        ("gbdt", ", alpha = 0.9, objective = 'fair'", "alpha does nothing without objective = 'quantile'"),
        ("gbdt", ", top_rate = 0.1", "top_rate does nothing without data_sample_strategy = 'goss'"),
        ("gbdt", ", drop_seed = 3", "drop_seed does nothing without boosting = 'dart'"),
        ("gbdt", ", linear_lambda = 100", "linear_lambda does nothing without linear_tree = true"),
        ("gbdt", ", monotone_penalty = 1", "monotone_penalty does nothing without monotone_constraints"),
        ("mlp", ", momentum = 0.9", "momentum does nothing without optimizer = 'sgd'"),
    ],
)
def test_what_has_no_effect_is_refused_at_its_place(con: Connection, learner: str, options: str, told: str) -> None:
    with pytest.raises(BindError) as refused:
        train(con, learner, options)
    assert told in str(refused.value)
    line, caret = str(refused.value).splitlines()[2:4]
    value = options.removeprefix(", ").partition(" = ")[2].partition(",")[0]
    assert line[caret.index("^") :].startswith(value)


@pytest.mark.parametrize(
    ("learner", "options", "search"),
    [
        ("gbdt", ", alpha = 0.3, objective = 'huber'", ""),
        ("gbdt", ", monotone_penalty = 1, monotone_constraints = {'x': 1}", ""),
        ("gbdt", "", "OVER GRID (alpha IN (0.1, 0.5), objective IN ('quantile', 'regression'))"),
        ("gbdt", ", trials = 2", "OVER RANDOM (alpha BETWEEN 0.1 AND 0.5, objective IN ('regression', 'quantile'))"),
        ("mlp", "", "OVER GRID (momentum IN (0, 0.9), optimizer IN ('adam', 'sgd'))"),
    ],
)
def test_what_some_configuration_uses_is_taken(con: Connection, learner: str, options: str, search: str) -> None:
    train(con, learner, options, search)


def test_a_grid_of_what_has_no_effect_is_refused(con: Connection) -> None:
    with pytest.raises(BindError, match="alpha does nothing"):
        train(con, "gbdt", "", "OVER GRID (alpha IN (0.1, 0.5, 0.9))")


def test_what_others_depend_on_is_declared() -> None:
    for name in registry.names():
        known = {each.name: each for each in registry.learner(name).declaration.hyperparameters}
        for parameter in known.values():
            if parameter.only_with is None:
                continue
            other, values = parameter.only_with
            assert other in known
            assert not known[other].choices or set(values) - {None} <= set(known[other].choices)
