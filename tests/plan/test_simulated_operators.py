"""Which operators are simulated: in TRAIN those that may be chosen, in EXPLAIN all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from helpers.plans import planned

import grouplearn
from grouplearn.statements.workflow import planning

TRAIN = "TRAIN OR REPLACE MODEL m USING {learner} PREDICT y FEATURES (x) FROM points GROUP BY g WITH (executor = 'local'{more})"
EVERY = ["group_task_parallel", "model_task_parallel", "gap", "data_parallel", "switching"]


@pytest.fixture
def con() -> Any:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE points AS SELECT i % 3 AS g, i * 37 % 101 AS x, i % 7 AS y FROM range(90) AS t(i)"
        )
        yield connection


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    real = planning._simulated

    def spied(physical: Any, name: str, *others: Any) -> Any:
        names.append(name)
        return real(physical, name, *others)

    monkeypatch.setattr(planning, "_simulated", spied)
    return names


@pytest.mark.parametrize(
    ("learner", "more", "expected"),
    [
        ("linear_regression", "", EVERY),
        ("linear_regression", ", operator = 'gap'", ["gap"]),
        # The others need processes, or make models that depend on the number of workers.
        ("gbdt", ", task = 'regression'", ["group_task_parallel", "model_task_parallel"]),
    ],
)
def test_what_may_be_chosen_is_simulated(
    con: grouplearn.Connection,
    simulated: list[str],
    monkeypatch: pytest.MonkeyPatch,
    learner: str,
    more: str,
    expected: list[str],
) -> None:
    monkeypatch.setattr(planning, "_NOTHING_TO_GAIN", -1.0)  # as if the rows were many
    statement = TRAIN.format(learner=learner, more=more)
    con.execute(statement)
    assert simulated == expected
    for explain in ("EXPLAIN", "EXPLAIN ANALYZE"):
        simulated.clear()
        con.execute(f"{explain} {statement}")
        assert simulated == EVERY


def test_where_there_is_little_to_do_one_operator_is_simulated_and_in_explain_all(
    con: grouplearn.Connection, simulated: list[str]
) -> None:
    statement = TRAIN.format(learner="linear_regression", more="")
    con.execute(statement)
    assert simulated == ["group_task_parallel"]
    simulated.clear()
    con.execute(f"EXPLAIN {statement}")
    assert simulated == EVERY


@pytest.mark.parametrize(
    ("learner", "coefficient", "other"), [("mlp", "descend", "exchange"), ("gbdt", "exchange", "descend")]
)
def test_a_gang_waits_in_every_batch_or_leaf(learner: str, coefficient: str, other: str) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i % 7 AS x, i % 3 > 1 AS y FROM range(40000) r(i)")
        text = f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (x) FROM t WITH (operator = 'data_parallel')"
        physical = planned(con, text, workers=2)

    def makespan(**machine: float) -> float:
        rates = replace(physical.rates, machine=replace(physical.rates.machine, **machine))
        return planning.choose(replace(physical, rates=rates), lambda: False).chosen.makespan

    usual = makespan()
    assert makespan(**{other: 1.0}) == usual
    assert makespan(**{coefficient: 1.0}) > 100 + usual
