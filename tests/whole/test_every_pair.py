"""Every way of every learner under every operator, by what both declare: legal pairs train and are planned, others say why."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.thorough import every_other, some

import grouplearn
from grouplearn import sqltext
from grouplearn.bind.run import compatibility
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import stops_between_batches
from grouplearn.models.label import simplest
from grouplearn.plan import physical
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.schedule.operators import OPERATORS, RUNTIMES

TABLE = (
    "CREATE TABLE t AS SELECT if(i < 40, 0, if(i < 460, 1, 2)) AS g, (i * 37) % 101 / 100 AS a, (i * 53) % 97 / 100 AS b, "
    "1 + a + (i * 11) % 7 AS y, i AS t FROM range(500) AS r(i)"
)
#: A table of the same columns of which no row can be read.
CLOSED = "CREATE VIEW closed.t AS SELECT error('a row was read')::INTEGER AS g, 1.0 AS a, 2.0 AS b, 3.0 AS y, 4 AS t"
WAYS = {way.way: way for name in registry.LEARNERS for way in registry.ways(registry.learner(name))}
PAIRS = [(way, operator) for way in WAYS for operator in OPERATORS]
MODELS = (
    "FROM (SELECT * EXCLUDE (model) FROM grouplearn.artifacts SEMI JOIN grouplearn.models USING (model)) ORDER BY ALL"
)


def places(pair: tuple[str, str]) -> tuple[str, ...]:
    way, operator = pair
    return compatibility.runtimes(operator, WAYS[way])


LOCAL = [pair for pair in PAIRS if "local" in places(pair)]
LEGAL = [pair for pair in PAIRS if places(pair)]
ILLEGAL = [(*pair, executor) for pair in PAIRS for executor in RUNTIMES if executor not in places(pair)]


def statement(learner: Learner, operator: str, more: str = "", epochs: int = 3) -> str:
    """Return a TRAIN of the learner's simplest label, as short as its hyperparameters allow."""
    label = simplest(learner.declaration.labels)
    label = f"PREDICT {'y > 4' if label.has_classes else 'y'} AS label" if label.is_given else ""
    trees, arima = {"num_iterations": 3, "min_data_in_leaf": 5}, {"p": 1, "d": 0, "q": 0}
    short = {**trees, **arima, "batches_per_epoch": 5, "hidden_units": 8, "n_samples": 20}
    options = [
        f"{each.name} = {short[each.name]}" for each in learner.declaration.hyperparameters if each.name in short
    ]
    if learner.declaration.default_epochs is not None:
        options.append(f"epochs = {epochs}")
    if len(registry.ways(registry.learner(learner.declaration.name))) > 1:
        options.append(f"solver = '{learner.declaration.solver}'")
    options += [f"operator = '{operator}'", "workers = 2", *([more] if more else [])]
    rows = "ORDER BY t" if learner.declaration.takes_series else "FEATURES (a, b)"
    train = f"TRAIN OR REPLACE MODEL m USING {learner.declaration.name} {label} {rows} FROM t GROUP BY g VALIDATE NONE"
    return f"{train} WITH ({', '.join(options)})"


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    """Groups of a few rows, of which the largest is of several blocks and divided by every operator that divides groups.

    One connection serves all pairs, of which each replaces the model of the one before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(physical, "BLOCK_ROWS", 64)
        patch.setattr(PhysicalPlan, "_split_seconds", 0.0)  # else nothing so small is worth dividing
        with grouplearn.connect(progress=False) as connection:
            connection.execute(TABLE)
            connection.execute("CREATE SCHEMA closed")
            connection.execute(CLOSED)
            yield connection


def trained(
    con: grouplearn.Connection, learner: Learner, operator: str, more: str = "executor = 'local'", epochs: int = 3
) -> list[Any]:
    con.execute(statement(learner, operator, more, epochs)).fetchall()
    assert con.execute("SELECT DISTINCT status, error FROM m").fetchall() == [("done", None)]
    assert con.execute("SELECT count(*) FROM m_predict(t)").fetchall() == [(500,)]
    return con.execute(MODELS).fetchall()


@functools.cache
def usual(con: grouplearn.Connection, name: str) -> list[Any]:
    """Return the models of the first operator, which those of others are to be."""
    return trained(con, WAYS[name], next(iter(OPERATORS)))


@functools.cache
def averaged(con: grouplearn.Connection, name: str, epochs: int) -> list[Any]:
    """Return the models of the usual rounds."""
    return trained(con, WAYS[name], "averaging", THREE, epochs)


@pytest.mark.parametrize(("name", "operator"), LOCAL)
def test_a_legal_pair_trains(con: grouplearn.Connection, name: str, operator: str) -> None:
    learner = WAYS[name]
    found = usual(con, name) if operator == next(iter(OPERATORS)) else trained(con, learner, operator)
    assert len(found) == 3
    if not compatibility.changes_models(operator, learner):
        assert found == usual(con, name)


#: What operator averaging does with learners that say what their batches do, by what it declares.
UNUSUAL = {"send": "gradient", "sync": "batch", "outer_momentum": 0.9}
FORMS = [
    f"{option.name} = {sqltext.literal(UNUSUAL[option.name])}"
    for option in OPERATORS["averaging"].options
    if option.needs_batches
]
THREE = "executor = 'local', partitions = 3"
AVERAGED = [name for name, operator in LOCAL if operator == "averaging"]


@pytest.mark.parametrize(
    ("name", "form"),
    every_other(itertools.product(AVERAGED, FORMS)),
)
def test_averaged_learners_take_every_form_of_rounds_or_say_why(
    con: grouplearn.Connection, name: str, form: str
) -> None:
    learner = WAYS[name]
    epochs = 1 if form == "sync = 'batch'" else 3  # batches of a row each are hundreds of rounds
    text = statement(learner, "averaging", f"{THREE}, {form}", epochs)
    if not stops_between_batches(learner):
        with pytest.raises(grouplearn.BindError, match="does not say what its batches do"):
            con.execute(text.replace("FROM t", "FROM closed.t"))
        return
    con.execute(text).fetchall()
    assert con.execute("SELECT DISTINCT status, error FROM m").fetchall() == [("done", None)]
    assert con.execute(MODELS).fetchall() != averaged(con, name, epochs)
    plan = json.loads(con.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()[0][0])
    chosen = next(each for each in plan["operators"] if each["chosen"])
    assert chosen["makespan_seconds"] > 0
    assert chosen["closed_form_seconds"]["total"] > 0
    assert "rounds of " in plan["reasons"]["operator"]


@pytest.mark.examples(20)
@pytest.mark.parametrize(("name", "operator"), every_other(LEGAL))
def test_a_legal_pair_runs_on_the_simulated_runtime(con: grouplearn.Connection, name: str, operator: str) -> None:
    text = statement(WAYS[name], operator)
    plan = json.loads(con.execute(f"EXPLAIN (FORMAT json) {text}").fetchall()[0][0])
    chosen = next(each for each in plan["operators"] if each["chosen"])
    assert chosen["operator"] == operator
    assert chosen["makespan_seconds"] > 0
    assert chosen["units"] == 3
    assert chosen["loads"] == (
        3 if OPERATORS[operator].whole else 4
    )  # a group that is divided is loaded by both workers
    assert chosen["peak_bytes_per_worker"] > 0


@pytest.mark.parametrize(("name", "operator", "executor"), some(ILLEGAL, 50))
def test_an_illegal_pair_says_why_before_a_row_is_read(
    con: grouplearn.Connection, name: str, operator: str, executor: str
) -> None:
    why = compatibility.refusal_reason(operator, WAYS[name], executor)
    assert why is not None
    assert ", because " in why
    with pytest.raises(grouplearn.BindError) as error:
        con.execute(statement(WAYS[name], operator, f"executor = '{executor}'").replace("FROM t", "FROM closed.t"))
    assert str(error.value).startswith(f"{why}\n")


def test_every_learner_runs_somewhere_and_every_operator_runs_something() -> None:
    assert {way for way, _ in LOCAL} == set(WAYS)
    assert {operator for _, operator in LEGAL} == set(OPERATORS)
    assert {way for way, _, _ in ILLEGAL} == set(WAYS)
