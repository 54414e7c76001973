"""A learner with an output of its own: what it declares is in the macro, predict(), EVALUATE, views and exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import grouplearn
from grouplearn.learning import (
    FEATURES,
    NUMBER,
    TARGET,
    VALUES,
    AlgebraicLearner,
    Artifact,
    BoolArray,
    Config,
    Declaration,
    FloatArray,
    Hyperparameter,
    Label,
    OnnxGraph,
    OnnxModel,
    Output,
    Problem,
    Scored,
    State,
    Vector,
    VectorLearner,
    VectorSql,
    VectorView,
    list_array,
)

MIDDLE = "__grouplearn_middle"
REACH = "__grouplearn_reach"


def with_middle(rows: str) -> str:
    dot = f"list_dot_product({FEATURES}, coalesce(line, list_transform({FEATURES}, lambda v: 'nan'::DOUBLE)))"
    return f"SELECT *, nullif({dot} + base, 'nan'::DOUBLE) AS {MIDDLE} FROM ({rows})"


class Interval(Output):
    """A number, and the bounds between which the label is expected."""

    width = 3
    metrics = VALUES
    shown = ("prediction", "low", "high")
    vectors = VectorSql(
        ("line", "reach"),
        {"line": "v.line[1]", "base": "v.line_values[1]", REACH: "v.reach_values[1]"},
        with_middle,
        values=True,
        views=(VectorView("_reaches", "Half of the width of intervals.", "reach", (("reach", "f.value"),)),),
    )
    measured: Mapping[str, str] = {"coverage": f"{TARGET} BETWEEN low AND high", "breadth": "high - low"}

    def select(self, scored: Scored) -> str:
        low, high = f"{MIDDLE} - {REACH}", f"{MIDDLE} + {REACH}"
        columns = f"{scored.head}, {MIDDLE} AS prediction, {low} AS low, {high} AS high, {scored.level} AS model_level"
        return f"SELECT {columns} FROM {scored.relation}"

    def columns(self, predicted: str, threshold: str, *, judged: bool = False) -> Sequence[str]:
        bounds = (f"{predicted}.predicted[{place}] AS {name}" for place, name in ((1, "low"), (2, "high")))
        return f"{predicted}.value AS prediction", *bounds

    def outputs(self, score: FloatArray, classes: Sequence[int]) -> FloatArray:
        return score

    def fields(self, outputs: FloatArray, missing: BoolArray) -> Mapping[str, pa.Array]:
        value = pa.array(np.ascontiguousarray(outputs[:, 0]), mask=missing)
        return {"value": value, "predicted": list_array(outputs[:, 1:], np.full(len(outputs), 2), missing)}

    def value(self) -> int | None:
        return 0

    def onnx(self, graph: OnnxGraph, model: OnnxModel) -> None:
        tensors = model.tensors
        line = graph.constant(np.ascontiguousarray(tensors["line"][:, None]))
        middle = graph.add("Add", graph.add("MatMul", model.features, line), graph.constant(tensors["base"][None]))
        for name, sign in (("prediction", 0.0), ("low", -1.0), ("high", 1.0)):
            bound = graph.add("Add", middle, graph.constant(sign * tensors["reach"][None]))
            graph.output(model.known(graph, bound), name, "DOUBLE", 1)


class Bounds(AlgebraicLearner, VectorLearner):
    """Least squares, and as many standard deviations of the residuals to either side."""

    declaration = Declaration(
        name="bounds",
        summary="an interval around least squares",
        labels=frozenset({NUMBER}),
        hyperparameters=(Hyperparameter("deviations", "float", 2.0, "to either side", "", low=0.0),),
        form="vectors",
        output=Interval,
    )

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        size = problem.n_features + 2
        tensors = {"sums": np.zeros((len(configs), size, size)), "loss": np.full(len(configs), np.nan)}
        return State(tensors, np.zeros(len(configs), dtype=bool))

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Any) -> Any:
        rows = np.column_stack([np.ones(block.n_rows), np.asarray(block.x, np.float64), block.y])
        return {"sums": rows.T @ (rows * block.weight[:, None])}

    def merge(self, left: Any, right: Any) -> Any:
        return {"sums": left["sums"] + right["sums"]}

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Any) -> State:
        every = np.repeat(sums["sums"][None], len(configs), axis=0)
        return State({"sums": every, "loss": np.zeros(len(configs))}, np.ones(len(configs), dtype=bool))

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        sums = state.tensors["sums"][index]
        found = np.linalg.lstsq(sums[:-1, :-1], sums[:-1, -1], rcond=None)[0]
        square = max(0.0, sums[-1, -1] - found @ sums[:-1, -1]) / max(1.0, sums[0, 0])
        reach = np.array([configs[index]["deviations"] * np.sqrt(square)])  # type: ignore[operator]
        return Artifact("tensors", {"line": found[1:].copy(), "base": found[:1].copy(), "reach": reach})

    def score(self, label: Label, artifact: Artifact, x: Any) -> FloatArray:
        line, base, reach = (artifact.tensors[name] for name in ("line", "base", "reach"))
        middle = np.asarray(x) @ line + base
        return np.column_stack([middle, middle - reach, middle + reach])

    def vectors(self, artifact: Artifact) -> Sequence[Vector]:
        line, base, reach = (artifact.tensors[name] for name in ("line", "base", "reach"))
        return [Vector("line", 1, line, float(base[0])), Vector("reach", 1, 0 * line, float(reach[0]))]


TRAIN = (
    "TRAIN MODEL m USING bounds PREDICT y FEATURES (zscore(x), onehot(g)) FROM t GROUP BY k"
    " OVER GRID (deviations IN (1, 3)) VALIDATE SAMPLE 20% WITH (seed = 1)"
)
COLUMNS = "k, x, prediction, low, high"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("outputs") / "own.duckdb"
    grouplearn.register_learner(Bounds)
    with grouplearn.connect(path, progress=False) as con:
        con.execute("""
            CREATE TABLE t AS
            SELECT i % 3 AS k, 4 * sin(i) AS x, chr(97 + i::INTEGER % 4) AS g,
                   2 * sin(i) + i % 4 + cos(1.7 * i) / 2 AS y
            FROM range(600) AS r(i) UNION ALL SELECT 1, NULL, 'a', NULL UNION ALL SELECT 9, 0, 'a', NULL
        """)
        con.execute(TRAIN)
    yield path
    grouplearn.unregister("bounds")


@pytest.fixture
def con(path: Path) -> Iterator[Any]:
    with grouplearn.connect(path, progress=False) as con:
        yield con


def values(con: Any, sql: str) -> npt.NDArray[np.float64]:
    return np.array(con.execute(sql).fetchall(), np.float64)


def test_the_macro_is_sql_with_its_columns_and_predict_has_the_same(con: Any) -> None:
    assert dict(con.execute("DESCRIBE MODEL m").fetchall())["prediction"].startswith("SQL")
    macro = values(con, f"SELECT {COLUMNS} FROM m_predict(t) ORDER BY k, x")
    predicted = "SELECT *, predict('m', t) AS p FROM t"
    fields = "k, x, p.value, p.predicted[1], p.predicted[2]"
    function = values(con, f"SELECT {fields} FROM ({predicted}) ORDER BY k, x")
    assert np.allclose(macro, function, rtol=1e-9, equal_nan=True)
    known = macro[~np.isnan(macro[:, 2])]
    assert len(known) == 600
    assert (known[:, 3] < known[:, 2]).all()
    assert (known[:, 2] < known[:, 4]).all()


def test_exported_sql_predicts_the_same_without_it(con: Any, tmp_path: Path) -> None:
    macro = values(con, f"SELECT {COLUMNS} FROM m_predict(t) ORDER BY k, x")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT sql)")
    with duckdb.connect() as plain:
        plain.register("t", con.sql("FROM t").to_arrow_table())
        plain.execute((tmp_path / "out" / "model.sql").read_text(encoding="utf-8"))
        exported = values(plain, f"SELECT {COLUMNS} FROM m_predict('t') ORDER BY k, x")
    assert np.allclose(macro, exported, rtol=1e-12, equal_nan=True)


def test_evaluate_measures_what_it_declares(con: Any) -> None:
    found = con.sql("EVALUATE MODEL m ON t")
    k, rmse, coverage, breadth = (found.columns.index(name) for name in ("k", "rmse", "coverage", "breadth"))
    expected = values(
        con,
        "SELECT k, sqrt(avg((prediction - y) ** 2)), avg((y BETWEEN low AND high)::INTEGER), avg(high - low)"
        " FROM m_predict(t) WHERE k < 9 AND y IS NOT NULL AND prediction IS NOT NULL GROUP BY k ORDER BY k",
    )
    kept = [row for row in found.fetchall() if row[k] is not None]
    measured = np.array([[row[place] for place in (k, rmse, coverage, breadth)] for row in kept])
    assert np.allclose(measured.astype(float), expected, rtol=1e-9)
    assert 0.3 < measured[0, 2] < 1


def test_onnx_has_its_outputs(con: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT onnx)")
    (first, *_) = sorted((tmp_path / "out").glob("*.onnx"))
    session = onnxruntime.InferenceSession(str(first))
    assert [each.name for each in session.get_outputs()] == ["prediction", "low", "high"]
    rows = con.execute("SELECT x, g FROM t WHERE k = 0 ORDER BY x").fetchall()
    given = {"x": np.array([[x] for x, _ in rows]), "g": np.array([[g] for _, g in rows])}
    macro = values(con, "SELECT prediction, low, high FROM m_predict(t) WHERE k = 0 ORDER BY x")
    assert np.allclose(np.column_stack(session.run(None, given)), macro, rtol=1e-9)


def test_its_view_is_there_and_goes_with_the_model(con: Any) -> None:
    reaches = values(con, "SELECT k, deviations, reach FROM m_reaches ORDER BY k")
    assert reaches.shape == (3, 3)
    half = values(con, "SELECT k, any_value(high - prediction) FROM m_predict(t) WHERE k < 9 GROUP BY k ORDER BY k")
    assert np.allclose(reaches[:, 2], half[:, 1])
    con.execute("ALTER MODEL m RENAME TO n")
    assert con.execute("SELECT count(*) FROM n_reaches").fetchall() == [(3,)]
    con.execute("DROP MODEL n")
    assert con.execute("SELECT view_name FROM duckdb_views() WHERE view_name LIKE '%reaches'").fetchall() == []
    con.execute(TRAIN)


def test_vectors_of_other_parts_are_damage(con: Any, tmp_path: Path) -> None:
    con.execute("UPDATE grouplearn.factors SET part = 'centroid' WHERE part = 'reach'")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT native)")
    con.execute("UPDATE grouplearn.factors SET part = 'reach' WHERE part = 'centroid'")
    with pytest.raises(duckdb.Error, match="a vector has an unknown part"):
        con.execute(f"IMPORT MODEL other FROM '{tmp_path / 'out'}'")


def test_without_an_onnx_form_the_export_says_so(con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    monkeypatch.delattr(Interval, "onnx")
    with pytest.raises(grouplearn.Error, match="ONNX has no form of prediction and low and high"):
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'out'}' (FORMAT onnx)")
