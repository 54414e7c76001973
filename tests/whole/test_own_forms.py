"""Learners that declare a form, an output and a label of their own; and models whose learner a session does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import grouplearn
from grouplearn.learning import (
    AlgebraicLearner,
    Artifact,
    Asked,
    BoolArray,
    Config,
    Declaration,
    Family,
    FloatArray,
    Form,
    Judged,
    Label,
    Metric,
    MetricSums,
    OnnxGraph,
    Output,
    Problem,
    Scores,
    State,
    Vector,
    VectorLearner,
    mean_of,
    summed,
)

TABLE = "CREATE TABLE t AS SELECT i % 3 AS k, sin(i) AS x, cos(1.7 * i) AS y FROM range(300) AS r(i)"


def measured(rows: Scores) -> MetricSums:
    away = (rows.scores[:, :, 0] * rows.weight[:, None]).sum(axis=0)
    return MetricSums({"weight": np.array(rows.weight.sum()), "away": away})


def judged(_: Asked) -> Judged:
    return Judged({"d": "distance"}, "distance IS NOT NULL", summed("known", {"away": "sum(w * d)"}))


class Distance(Output):
    """How far a row is from the middle."""

    width = 1
    shown = ("distance",)
    metrics = Family(
        (Metric("mean_distance", False, "mean distance", mean_of("away"), "away / total", "mean"),), measured, judged
    )

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        return (f"{predicted}.value AS distance",)

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        return {"value": pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)}

    def onnx(self, graph: OnnxGraph, model: Any) -> None:
        graph.output(model.known(graph, model.scores()), "distance", "DOUBLE", 1)


class Middles(Form):
    """A middle, from which ONNX knows how far a row is."""

    name = "middles"

    def onnx_scores(self, graph: OnnxGraph, definition: Any, group: Any, x: str) -> str:
        away = graph.add("Sub", x, graph.constant(group.artifact.tensors["middle"][None]))
        square = graph.add("ReduceSum", graph.add("Mul", away, away), graph.constant(np.array([1])))
        return graph.add("Sqrt", square)


class Middle(AlgebraicLearner):
    """The mean of the features."""

    declaration = Declaration(
        name="middle",
        summary="how far rows are from their mean",
        labels=frozenset({Label("oddness", is_given=False)}),
        output=Distance,
        form=Middles(),
    )

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        return State(
            {"middle": np.zeros((len(configs), problem.n_features)), "loss": np.full(len(configs), np.nan)},
            np.zeros(len(configs), bool),
        )

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Any) -> Any:
        return {"sums": np.append(block.weight @ block.x, block.weight.sum())}

    def merge(self, left: Any, right: Any) -> Any:
        return {"sums": left["sums"] + right["sums"]}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Any) -> State:
        middle = np.repeat((sums["sums"][:-1] / sums["sums"][-1])[None], len(configs), axis=0)
        return State({"middle": middle, "loss": np.zeros(len(configs))}, np.ones(len(configs), bool))

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        return Artifact("tensors", {"middle": state.tensors["middle"][index].copy()})

    def score(self, label: Label, artifact: Artifact, x: Any) -> FloatArray:
        found: FloatArray = np.sqrt(((np.asarray(x) - artifact.tensors["middle"]) ** 2).sum(axis=1))[:, None]
        return found


class Points(Middle, VectorLearner):
    """The same, as vectors."""

    declaration = replace(Middle.declaration, name="points", form="vectors")

    def vectors(self, artifact: Artifact) -> Sequence[Vector]:
        return [Vector("middle", 1, artifact.tensors["middle"], 0.0)]


@pytest.fixture
def con() -> Iterator[Any]:
    grouplearn.register_learner(Middle)
    with grouplearn.connect(progress=False) as con:
        con.execute(TABLE)
        con.execute("TRAIN MODEL m USING middle FEATURES (x, y) FROM t GROUP BY k VALIDATE SAMPLE 20%")
        yield con
    grouplearn.unregister("middle")


def test_one_module_is_a_learner_with_its_label_its_output_and_its_metrics(con: Any) -> None:
    assert dict(con.execute("DESCRIBE MODEL m").fetchall())["task"] == "oddness"
    train, valid = con.execute("SELECT avg(train_mean_distance), avg(valid_mean_distance) FROM m").fetchall()[0]
    assert 0.5 < train < 1.5
    assert 0.5 < valid < 1.5
    expected = (
        "SELECT k, avg(sqrt((x - mx) ** 2 + (y - my) ** 2)) FROM t"
        " JOIN (SELECT k, avg(x) AS mx, avg(y) AS my FROM t GROUP BY k) USING (k) GROUP BY k ORDER BY k"
    )
    found = con.execute("SELECT k, avg(distance) FROM m_predict(t) GROUP BY k ORDER BY k").fetchall()
    np.testing.assert_allclose(found, con.execute(expected).fetchall(), rtol=0.05)
    evaluated = con.execute("EVALUATE MODEL m ON t").fetchall()
    np.testing.assert_allclose([row[-1] for row in evaluated], [away for _, away in found], rtol=1e-12)


def test_other_metrics_are_not_for_it(con: Any) -> None:
    with pytest.raises(grouplearn.BindError, match="metric rmse is not for middle\nMetrics of middle: mean_distance"):
        con.execute("TRAIN MODEL n USING middle FEATURES (x, y) FROM t OPTIMIZE rmse")


def test_a_form_given_as_an_object_is_exported(con: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT onnx)")
    (first, *_) = sorted((tmp_path / "out").glob("*.onnx"))
    session = onnxruntime.InferenceSession(str(first))
    values = {each.name: np.array([[0.25]]) for each in session.get_inputs()}
    (away,) = session.run(["distance"], values)
    expected = con.execute(
        "WITH r AS (SELECT 0 AS k, 0.25 AS x, 0.25 AS y) SELECT distance FROM m_predict(r)"
    ).fetchall()
    np.testing.assert_allclose(away, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "oval"}, "its form is one of linear, trees, layers, vectors, own, or a Form, got 'oval'"),
        ({"form": "vectors"}, r"a learner of vectors has vectors\(\)"),
        (
            {"form": type("Odd", (Form,), {"name": "odd", "tables": ("odd",)})()},
            "the tables of its form are among trees",
        ),
        ({"output": None}, "a learner without a label declares its output"),
        ({"output": "Distance"}, "its output is a class of Output, got 'Distance'"),
        ({"output": Output}, "its output has metrics, such as VALUES or CLASSES"),
    ],
)
def test_what_it_declares_wrongly_is_said_at_once(changes: dict[str, Any], message: str) -> None:
    wrong = type("Wrong", (Middle,), {"declaration": replace(Middle.declaration, name="wrong", **changes)})
    with pytest.raises(grouplearn.ProgrammingError, match=f"register_learner: Wrong: {message}"):
        grouplearn.register_learner(wrong)


# --- a session that does not know the learner of a stored model --------------------------------------------------------


@pytest.fixture
def unknown(tmp_path: Path) -> Iterator[Any]:
    """A connection to a database with a model of vectors, whose learner is no longer registered."""
    grouplearn.register_learner(Points)
    try:
        with grouplearn.connect(tmp_path / "d.duckdb", progress=False) as con:
            con.execute(TABLE)
            con.execute("TRAIN MODEL m USING points FEATURES (x, y) FROM t GROUP BY k")
    finally:
        grouplearn.unregister("points")
    with grouplearn.connect(tmp_path / "d.duckdb", progress=False) as con:
        yield con


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    "statement",
    [
        "DESCRIBE MODEL m",
        "FROM m_predict(t)",
        "SELECT predict('m', t) FROM t",
        "EVALUATE MODEL m ON t",
        "ALTER MODEL m RENAME TO n",
        "EXPORT MODEL m TO '{folder}' (FORMAT sql)",
    ],
)
def test_what_needs_the_learner_says_so(unknown: Any, tmp_path: Path, statement: str) -> None:
    with pytest.raises(grouplearn.Error) as error:
        unknown.execute(statement.format(folder=tmp_path / "out")).fetchall()
    assert "points" in str(error.value)
    assert "register" in str(error.value)
    assert unknown.execute("SELECT DISTINCT status FROM m").fetchall() == [("done",)]


def test_the_model_is_dropped_all_the_same(unknown: Any) -> None:
    unknown.execute("DROP MODEL m")
    assert unknown.execute("SHOW MODELS").fetchall() == []
    left = (
        "SELECT view_name FROM duckdb_views() WHERE NOT internal UNION ALL SELECT function_name FROM duckdb_functions()"
    )
    assert [name for (name,) in unknown.execute(left).fetchall() if name == "m" or name.startswith("m_")] == []
