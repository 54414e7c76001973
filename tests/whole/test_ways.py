"""A learner of several ways: which one a statement trains by, where that is written down, and what all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn.learners import registry
from grouplearn.learning import (
    NUMBER,
    TWO_CLASSES,
    AlgebraicLearner,
    Artifact,
    Declaration,
    Hyperparameter,
    Learner,
    SequentialLearner,
    State,
    solver_named,
)


class _Mean(Learner):
    """The weighted mean of a label."""

    usual = Declaration(
        name="mean_of",
        summary="the mean of a number",
        labels=frozenset({NUMBER}),
        form="linear",
        default_epochs=2,
    )

    def finalize(self, problem: Any, configs: Any, state: State, index: int) -> Artifact:
        mean = state.tensors["mean"][index : index + 1]
        return Artifact("tensors", {"weights": np.zeros((1, problem.n_features)), "intercept": mean.copy()})

    def score(self, label: Any, artifact: Artifact, x: Any) -> Any:
        return np.full((x.shape[0], 1), artifact.tensors["intercept"][0])


class BySgd(_Mean, SequentialLearner):
    """By steps of ``rate`` towards each row."""

    declaration = replace(
        _Mean.usual,
        solver="sgd",
        hyperparameters=(
            solver_named("sgd", "Robbins & Monro 1951"),
            Hyperparameter("rate", "float", 0.01, "share of the way to a row", "Robbins & Monro 1951", low=0.0),
        ),
    )

    def init(self, problem: Any, configs: Any) -> State:
        names = ("mean", "loss")
        return State({name: np.zeros(len(configs)) for name in names}, np.zeros(len(configs), dtype=bool))

    def train(self, problem: Any, configs: Any, state: State, shard: Any, epoch: int) -> State:
        mean = state.tensors["mean"].copy()
        for index, config in enumerate(configs):
            for y in shard.y:
                mean[index] += config["rate"] * (y - mean[index])
        return State({"mean": mean, "loss": np.zeros(len(configs))}, state.done)


class BySums(_Mean, AlgebraicLearner):
    """By Σwy / Σw."""

    declaration = replace(
        _Mean.usual,
        solver="sums",
        further_ways=(BySgd(),),
        hyperparameters=(Hyperparameter("shift", "float", 0.0, "added to the mean", "nobody", low=0.0),),
    )

    def init(self, problem: Any, configs: Any) -> State:
        names = ("mean", "loss")
        return State({name: np.zeros(len(configs)) for name in names}, np.zeros(len(configs), dtype=bool))

    def accumulate(self, problem: Any, configs: Any, state: State, block: Any) -> Any:
        return {"sum": np.array([(block.y * block.weight).sum()]), "weight": np.array([block.weight.sum()])}

    def merge(self, left: Any, right: Any) -> Any:
        return {name: left[name] + right[name] for name in left}

    def step(self, problem: Any, configs: Any, state: State, sums: Any) -> State:
        mean = sums["sum"] / sums["weight"] + np.array([config["shift"] for config in configs])
        return State({"mean": mean, "loss": np.zeros(len(configs))}, np.ones(len(configs), dtype=bool))


TABLE = "CREATE TABLE t AS SELECT i % 2 AS g, i % 5 AS x, 10.0 + i % 2 AS y FROM range(200) AS r(i)"
TRAIN = "TRAIN OR REPLACE MODEL m USING mean_of PREDICT y FEATURES (x) FROM t GROUP BY g "


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    grouplearn.register_learner(BySums)
    with grouplearn.connect(progress=False) as connection:
        connection.execute(TABLE)
        yield connection
    grouplearn.unregister("mean_of")


def trained(con: grouplearn.Connection, rest: str = "") -> list[Any]:
    con.execute(TRAIN + rest).fetchall()
    return con.execute("SELECT DISTINCT g, prediction FROM m_predict(t) ORDER BY g").fetchall()


def by_sgd(rate: float, visits: int = 200) -> list[tuple[int, float]]:
    """Return what the way by SGD makes of the table: each group has 100 rows of one label, and there are two epochs."""
    return [(group, pytest.approx((10 + group) * (1 - (1 - rate) ** visits), rel=1e-12)) for group in (0, 1)]


EXACT = [(0, pytest.approx(10.0)), (1, pytest.approx(11.0))]


def test_the_first_way_trains_unless_the_statement_names_another(con: grouplearn.Connection) -> None:
    assert trained(con) == EXACT
    assert trained(con, "WITH (solver = 'sums')") == EXACT
    assert "solver" not in [row[0] for row in con.execute("DESCRIBE m").fetchall()]
    assert trained(con, "WITH (solver = 'SGD')") == by_sgd(0.01)


def test_the_model_table_and_the_file_say_by_which_solver(con: grouplearn.Connection) -> None:
    trained(con, "OVER GRID (rate IN (0.5, 0.2)) VALIDATE NONE WITH (solver = 'sgd')")
    assert con.execute("SELECT DISTINCT solver FROM m").fetchall() == [("sgd",)]
    stored = con.execute(
        "SELECT DISTINCT json_extract_string(parameters, '$.solver') FROM grouplearn.configs"
    ).fetchall()
    assert stored == [("sgd",)]


def test_an_operator_chooses_the_first_way_that_it_runs(con: grouplearn.Connection) -> None:
    assert trained(con, "WITH (operator = 'mop')") == by_sgd(0.01)
    con.execute("SET grouplearn_operator = 'mop'")
    assert trained(con, "WITH (rate = 0.03)") == by_sgd(0.03)
    con.execute("RESET grouplearn_operator")
    assert trained(con, "WITH (operator = 'gap')") == EXACT


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("WITH (solver = 'adam')", "unknown solver 'adam'\nSolvers of mean_of: sums, sgd"),
        ("WITH (solver = 'sdg')", 'Hint: Did you mean "sgd"?'),
        ("WITH (solver = NULL)", "unknown solver NULL\nSolvers of mean_of: sums, sgd"),
        ("WITH (solver = 7)", "unknown solver 7\nSolvers of mean_of: sums, sgd"),
        ("WITH (rate = 0.1)", "Hint: rate is a hyperparameter of WITH (solver = 'sgd')."),
        ("OVER GRID (rate IN (0.1))", "Hint: rate is a hyperparameter of WITH (solver = 'sgd')."),
        ("WITH (solver = 'sgd', shift = 1)", "Hint: shift is a hyperparameter of WITH (solver = 'sums')."),
        ("OVER GRID (solver IN ('sums', 'sgd'))", "Hint: A statement trains by one solver: WITH (solver = ...)."),
        ("WITH (solver = 'sums', operator = 'mop')", "operator mop does not run learners that train on sums over rows"),
    ],
)
def test_what_is_not_there_is_refused(con: grouplearn.Connection, rest: str, said: str) -> None:
    with pytest.raises(grouplearn.BindError) as error:
        trained(con, rest)
    assert said in str(error.value)


def test_learners_of_one_way_have_no_option_of_that_name(con: grouplearn.Connection) -> None:
    with pytest.raises(grouplearn.BindError, match='unknown option "solver"'):
        con.execute("TRAIN MODEL n USING gbdt PREDICT y FEATURES (x) FROM t WITH (solver = 'lbfgs')")


def test_both_ways_are_listed_described_and_calibrated(
    con: grouplearn.Connection, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", str(tmp_path / "calibration.json"))
    shown = [row[:2] for row in con.execute("SHOW LEARNERS").fetchall() if row[0] == "mean_of"]
    assert shown == [("mean_of", "sums"), ("mean_of", "sgd")]
    described = [row[:2] for row in con.execute("DESCRIBE LEARNER mean_of").fetchall()]
    assert described == [("sums", "shift"), ("sgd", "solver"), ("sgd", "rate")]
    rows = con.execute("CALIBRATE LEARNER mean_of").fetchall()
    assert {row[0] for row in rows} == {"mean_of", "mean_of by sgd"}
    plan = con.execute("EXPLAIN TRAIN MODEL n USING mean_of PREDICT y FROM t WITH (solver = 'sgd')").fetchall()
    assert "estimates of mean_of by sgd: calibrated on this machine" in str(plan)


def test_a_killed_run_goes_on_by_its_own_way(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, models = tmp_path / "d.duckdb", "SELECT DISTINCT g, prediction FROM m_predict(t) ORDER BY g"
    answer(path, TABLE)
    dies(path, monkeypatch, TRAIN + "WITH (durable = true, operator = 'group_task_parallel', solver = 'sgd')", 1)
    answer(path, "RESUME MODEL m")
    assert answer(path, models) == by_sgd(0.01)


def test_retry_trains_failed_groups_by_the_same_way(con: grouplearn.Connection) -> None:
    con.execute("INSERT INTO t VALUES (7, 1, 3.0)")
    trained(con, "WITH (solver = 'sgd', min_rows = 2)")
    assert con.execute("SELECT g, status FROM m WHERE g = 7").fetchall() == [(7, "failed")]
    con.execute("RETRY FAILED MODEL m WITH (min_rows = 1)").fetchall()
    expected = 3.0 * (1 - 0.99**2)
    assert con.execute("SELECT max(prediction) FROM m_predict(t) WHERE g = 7").fetchone() == (pytest.approx(expected),)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"solver": "sums"}, "each of its ways has a solver of its own"),
        ({"labels": frozenset({TWO_CLASSES})}, "all its ways have one name, its labels and its form"),
        ({"hyperparameters": ()}, "has the hyperparameter solver_named('sgd', ...)"),
    ],
)
def test_ways_that_do_not_belong_together_are_refused(changed: dict[str, Any], said: str) -> None:
    other = type("Other", (BySgd,), {"declaration": replace(BySgd.declaration, **changed)})
    first = type("First", (BySums,), {"declaration": replace(BySums.declaration, further_ways=(other(),))})
    with pytest.raises(grouplearn.ProgrammingError) as error:
        grouplearn.register_learner(first)
    assert said in str(error.value)


def test_every_built_in_way_has_its_learners_name_tasks_and_form() -> None:
    for name in registry.LEARNERS:
        first, *others = registry.ways(registry.learner(name))
        for each in others:
            assert (
                each.declaration.name,
                each.declaration.labels,
                each.declaration.form,
                each.declaration.predicts_arrays,
            ) == (
                first.declaration.name,
                first.declaration.labels,
                first.declaration.form,
                first.declaration.predicts_arrays,
            )
            assert registry.by_way(each.way) is not None
            assert registry.way(name, [{"solver": each.declaration.solver}]).way == each.way


def test_that_nothing_is_left_to_gain_is_said_where_it_is_known() -> None:
    """Of coordinate descent with l2; never of a model of an earlier epoch than the last."""
    train = (
        "TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT k FEATURES (x, x2) FROM r VALIDATE {} WITH ("
        "solver = 'coordinate_descent', l2 = {}, epochs = {}{})"
    )
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE r AS SELECT sin(i) AS x, cos(7 * i) AS x2, sin(i) + 2 * cos(i * i) > 0.1 AS k,"
            " i % 3 = 0 AS v FROM range(600) AS r(i)"
        )

        def converged(rows: str, l2: float, epochs: int, more: str = "") -> bool | None:
            con.execute(train.format(rows, l2, epochs, more)).fetchall()
            found: bool | None = con.execute("SELECT converged FROM m").fetchall()[0][0]
            return found

        assert converged("NONE", 1.0, 1000) is True
        assert converged("NONE", 1.0, 1) is False
        assert converged("NONE", 0.0, 1000) is None
        assert converged("NONE", 0.0, 1) is False
        assert converged("WHERE v", 1.0, 1000, ", early_stopping = 1") in (True, None)
        trial = con.execute("SELECT converged, epochs, (SELECT max(epoch) FROM m_curves) FROM m").fetchall()[0]
        assert trial[0] is (None if trial[1] < trial[2] else True)


def test_no_way_shows_an_intercept_where_there_is_none() -> None:
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT (i * 7919) % 1000 / 500 - 1 AS x, i % 3 AS y FROM range(300) AS r(i)")
        for solver in ("lbfgs", "coordinate_descent", "sgd"):
            con.execute(
                "TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM t"
                f" WITH (fit_intercept = false, solver = '{solver}')"
            )
            shown = con.execute("SELECT DISTINCT weight FROM m_weights WHERE feature = '(intercept)'").fetchall()
            assert shown in ([], [(0.0,)])
