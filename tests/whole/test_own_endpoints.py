"""An output whose endpoint takes a number of steps: its rows come from the model alone, not from rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import grouplearn
from grouplearn.learning import (
    NUMBER,
    PREDICT,
    VALUES,
    AlgebraicLearner,
    Artifact,
    BoolArray,
    Config,
    Declaration,
    Endpoint,
    FloatArray,
    Form,
    Label,
    Output,
    Problem,
    State,
)
from grouplearn.models.forms.form import FunctionSql, Prediction, SqlForm
from grouplearn.models.forms.routed import ModelTables, PredictedRows, level_sql
from grouplearn.sqltext import identifier


def steps(model: ModelTables, predicted: str) -> str:
    """Return the SELECT of the steps after each group's last row."""
    keys = [f"{sql} AS {identifier(name)}" for name, sql in model.definition.key_columns("g.keys")]
    level = level_sql(model.definition, "g.level")
    columns = ", ".join([*keys, "h.step", "f.value * h.step AS prediction", f"{level} AS model_level"])
    return (
        f"SELECT {columns} FROM (FROM {model.table('groups')}) AS g"
        f" JOIN (FROM {model.table('factors')}) AS f ON f.group_id = g.group_id"
        " CROSS JOIN range(1, CAST(horizon AS BIGINT) + 1) AS h(step) ORDER BY g.group_id ASC, h.step ASC"
    )


class Forecast(Output):
    """A number per row, and per step after the last row."""

    width = 1
    metrics = VALUES
    endpoints = (
        PREDICT,
        Endpoint("_forecast", (("horizon", None),), "Steps after the last row with ", predicts=False, select=steps),
    )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        return (f"{predicted}.value AS prediction",)

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        return {"value": pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)}

    def value(self) -> int | None:
        return 0


class DriftSql(SqlForm):
    """Rows by the function ``predict``, steps in SQL."""

    tables = ("groups", "factors")

    def select(self, rows: PredictedRows) -> str:
        return FunctionSql("").select(rows)


class Drift(Form):
    """One number per group: how much the label grows with each step."""

    name = "drift"
    tables = ("factors",)

    def prediction(self, definition: Any, best: Sequence[Any]) -> Prediction:
        value = [float(each.artifact.tensors["drift"][0]) for each in best]
        names = {"part": ["drift"] * len(best), "place": [0] * len(best), "vector": [[0.0]] * len(best), "value": value}
        factors = pa.table({"group_id": pa.array([each.group for each in best], pa.int32()), **names})
        return Prediction(DriftSql(), (("factors", factors),))

    def stored(self, definition: Any, rows: Any) -> SqlForm:
        return DriftSql()


class Drifting(AlgebraicLearner):
    """The mean of the label."""

    declaration = Declaration(
        name="drifting", summary="grows by its mean", labels=frozenset({NUMBER}), form=Drift(), output=Forecast
    )

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        none = np.full(len(configs), np.nan)
        return State({"drift": none, "loss": none}, np.zeros(len(configs), bool))

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Any) -> Any:
        return {"sums": np.array([block.weight @ block.y, block.weight.sum()])}

    def merge(self, left: Any, right: Any) -> Any:
        return {"sums": left["sums"] + right["sums"]}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Any) -> State:
        drift = np.full(len(configs), sums["sums"][0] / sums["sums"][1])
        return State({"drift": drift, "loss": 0 * drift}, np.ones(len(configs), bool))

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        return Artifact("tensors", {"drift": state.tensors["drift"][index : index + 1].copy()})

    def score(self, label: Label, artifact: Artifact, x: Any) -> FloatArray:
        return np.full((len(x), 1), artifact.tensors["drift"][0])


@pytest.fixture
def con() -> Iterator[Any]:
    grouplearn.register_learner(Drifting)
    with grouplearn.connect(progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i % 2 AS k, i % 2 + 1.5 AS y, i AS x FROM range(20) AS r(i)")
        con.execute("TRAIN MODEL m USING drifting PREDICT y FEATURES (x) FROM t GROUP BY k")
        yield con
    grouplearn.unregister("drifting")


STEPS = [(0, 1, 1.5, "k"), (0, 2, 3.0, "k"), (1, 1, 2.5, "k"), (1, 2, 5.0, "k")]


def test_a_horizon_gives_steps_of_each_group(con: Any) -> None:
    assert con.execute("FROM m_forecast(2)").fetchall() == STEPS
    assert con.execute("SELECT k, any_value(prediction) FROM m_predict(t) GROUP BY k ORDER BY k").fetchall() == [
        (0, 1.5),
        (1, 2.5),
    ]
    comments = "SELECT function_name, comment FROM duckdb_functions() WHERE function_name LIKE 'm\\_%' ESCAPE '\\' ORDER BY ALL"
    said = dict(con.execute(comments).fetchall())
    assert [*said] == ["m_drift", "m_forecast", "m_predict"]
    assert said["m_forecast"] == "Steps after the last row with prediction, by the best trial of each group."


def test_the_macro_of_steps_goes_where_the_model_goes(con: Any) -> None:
    con.execute("ALTER MODEL m RENAME TO n")
    assert con.execute("FROM n_forecast(2)").fetchall() == STEPS
    con.execute("DROP MODEL n")
    assert con.execute("SELECT 1 FROM duckdb_functions() WHERE function_name LIKE '__forecast'").fetchall() == []


def test_exported_sql_has_the_steps(con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT sql)")
    with duckdb.connect() as plain:
        plain.execute((tmp_path / "out" / "model.sql").read_text(encoding="utf-8"))
        assert plain.execute("FROM m_forecast(2)").fetchall() == STEPS
