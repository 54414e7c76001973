"""An encoder with options of its own is one class: what it declares, the parser, the binder, the catalog and exports take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import numpy.typing as npt
import pytest
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn.data.dataset import FloatArray, Item
from grouplearn.data.encoding import registry
from grouplearn.data.encoding.columns import IntArray, Reading, SqlColumn
from grouplearn.data.encoding.encoder import FittedItem, OnnxGraph
from grouplearn.data.encoding.encoder_calls import SCOPE, EncoderCall, EncoderOption, OptionValue
from grouplearn.data.encoding.numbers.number import Number
from grouplearn.data.encoding.numbers.scaled import Scaled
from grouplearn.errors import BindError, ParseError
from grouplearn.kernels.spreads import Spreads


class Clip(Number):
    """A number not below ``low`` nor above ``high``, by SQL alone."""

    name: ClassVar[str] = "clip"
    plain: ClassVar[bool] = False
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "clip",
        {"clip(x, low, high)": "x between low and high"},
        (
            EncoderOption("low", "number", "the least", required=True, example="0"),
            EncoderOption("high", "number", "the most", required=True, high=1e9),
        ),
        unnamed=("low", "high"),
    )

    def validation_error(self, options: Mapping[str, OptionValue]) -> str | None:
        return "low is above high" if options["low"] > options["high"] else None  # type: ignore[operator]

    def reading(self, column: SqlColumn, item: Item) -> Reading:
        low, high = (f"CAST({item.option(name)!r} AS DOUBLE)" for name in ("low", "high"))
        around = ("least(greatest(CAST((\n", f"\n) AS DOUBLE), {low}), {high})")
        return Reading(around, around)

    def onnx(self, graph: OnnxGraph, fitted: FittedItem, finite: bool) -> list[str]:
        (x,) = super().onnx(graph, fitted, finite)
        least, most = (graph.number(fitted.item.option(name)) for name in ("low", "high"))
        return [graph.add("Min", graph.add("Max", x, least), most)]


class Between(Scaled):
    """Minus the median, divided by the distance between two quantiles: options that only the fit reads."""

    name: ClassVar[str] = "between"
    call: ClassVar[EncoderCall | None] = EncoderCall(
        "between",
        {"between(x, ...)": "(x - median) / (quantile - other quantile)"},
        (
            SCOPE,
            EncoderOption("share", "number", "of rows between the quantiles", default=0.5, low=0.01, high=1),
            EncoderOption("centre", "text", "what is taken away", default="median", choices=("median", "none")),
        ),
    )

    def spread(self, item: Item, found: Spreads, known: FloatArray, start: IntArray) -> tuple[FloatArray, FloatArray]:
        del found
        runs = [known[first:last] for first, last in itertools.pairwise(start)]
        aside = (1 - item.option("share")) / 2
        low, middle, high = np.array([np.quantile(run, [aside, 0.5, 1 - aside]) for run in runs]).T
        return middle if item.option("centre") == "median" else 0 * middle, high - low


OWN = (Clip(), Between())
TRAIN = (
    "TRAIN OR REPLACE MODEL m USING {} PREDICT y FEATURES (clip(x, -1, 2.5) AS c, between(z, share := 0.8), g) FROM t"
    " GROUP BY k WITH (seed = 1)"
)


@pytest.fixture(autouse=True)
def own_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ENCODERS", (*registry.ENCODERS, *OWN))
    for each in OWN:
        assert each.call is not None
        monkeypatch.setitem(registry.BY_NAME, (each.kind, each.name), each)
        monkeypatch.setitem(registry.CALLS, each.call.name, each.call)


@pytest.fixture
def con(tmp_path: Path) -> Iterator[Any]:
    with grouplearn.connect(tmp_path / "own.duckdb", progress=False) as con:
        con.execute("""
            CREATE TABLE t AS
            SELECT i % 3 AS k, 4 * sin(i) AS x, 7 + 3 * cos(1.7 * i) AS z, chr(97 + i::INTEGER % 4) AS g,
                   least(greatest(4 * sin(i), -1), 2.5) + cos(1.7 * i) AS y
            FROM range(400) AS r(i)
        """)
        yield con


def values(con: Any, sql: str) -> npt.NDArray[np.float64]:
    return np.array(con.execute(sql).fetchall(), np.float64)


def test_the_function_the_macro_and_exported_sql_predict_the_same(con: Any, tmp_path: Path) -> None:
    for learner in ("linear_regression", "gbdt"):
        con.execute(TRAIN.format(learner))
        macro = values(con, "SELECT x, z, prediction FROM m_predict(t) ORDER BY ALL")
        function = values(con, "SELECT x, z, predict_value('m', t) FROM t ORDER BY ALL")
        assert np.allclose(macro, function, rtol=1e-9, atol=1e-12)
        target = tmp_path / learner
        con.execute(f"EXPORT MODEL m TO '{target}' (FORMAT sql)")
        with duckdb.connect() as plain:
            rows = con.sql("FROM t").to_arrow_table()
            plain.register("t", rows)
            plain.execute((target / "model.sql").read_text(encoding="utf-8"))
            exported = np.array(plain.execute("SELECT x, z, prediction FROM m_predict('t') ORDER BY ALL").fetchall())
        assert np.allclose(macro, exported, rtol=1e-9, atol=1e-12)


def test_it_learns_what_was_encoded(con: Any) -> None:
    con.execute(TRAIN.format("linear_regression"))
    assert values(con, "SELECT min(train_r2) FROM m")[0, 0] > 0.9999
    weights = dict(con.execute("SELECT feature, weight FROM m_weights WHERE k = 0").fetchall())
    assert weights["c"] == pytest.approx(1, abs=1e-3)


def test_onnx_has_its_nodes(con: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    con.execute(TRAIN.format("linear_regression"))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'o'}' (FORMAT onnx)")
    (first, *_) = sorted((tmp_path / "o").glob("*.onnx"))
    session = onnxruntime.InferenceSession(str(first))
    rows = con.execute("SELECT x, z, g FROM t WHERE k = 0 ORDER BY x, z").fetchall()
    columns: Sequence[Any] = [np.array([[row[place]] for row in rows]) for place in range(3)]
    given = {each.name: column for each, column in zip(session.get_inputs(), columns, strict=True)}
    (found,) = session.run(None, given)
    macro = values(con, "SELECT prediction FROM m_predict(t) WHERE k = 0 ORDER BY x, z")
    assert np.allclose(found, macro, rtol=1e-9)


def test_options_are_in_the_catalog_and_come_back(con: Any, tmp_path: Path) -> None:
    con.execute(TRAIN.format("linear_regression"))
    query = "SELECT list_transform(items, lambda x: x.options) FROM grouplearn.models WHERE model_name = 'm'"
    options = con.execute(query).fetchone()[0]
    assert options == [{"low": "-1.0", "high": "2.5"}, {"share": "0.8", "centre": "median"}, {}]
    before = values(con, "SELECT x, prediction FROM m_predict(t) ORDER BY ALL")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'n'}' (FORMAT native)")
    con.execute(f"IMPORT MODEL other FROM '{tmp_path / 'n'}'")
    assert (values(con, "SELECT x, prediction FROM other_predict(t) ORDER BY ALL") == before).all()
    con.execute("RETRY FAILED MODEL m")
    assert con.execute(query).fetchone()[0] == options
    shown = "\n".join(map(str, con.execute("DESCRIBE MODEL m").fetchall()))
    assert "clip, low -1.0, high 2.5" in shown


DAMAGED = (
    "[MAP {'low': '-1', 'high': '2.5'}, MAP {'share': '0.8', 'centre': 'median'}]",
    "[MAP {'low': '9', 'high': '2.5'}, MAP {'share': '0.8', 'centre': 'median'}, MAP {}]",
    "[MAP {'low': '-1'}, MAP {'share': '0.8', 'centre': 'median'}, MAP {}]",
    "[MAP {'low': '-1', 'high': 'much'}, MAP {'share': '0.8', 'centre': 'median'}, MAP {}]",
    "[MAP {'low': '-1', 'high': '2.5'}, MAP {'share': '2', 'centre': 'median'}, MAP {}]",
    "[MAP {'low': '-1', 'high': '2.5'}, MAP {'share': '0.8', 'centre': NULL}, MAP {}]",
    "[MAP {'low': '-1', 'high': '2.5'}, MAP {'share': '0.8', 'centre': 'median'}, MAP {'low': '1'}]",
)


@pytest.mark.examples(4)
@pytest.mark.parametrize("options", DAMAGED)
def test_options_that_train_could_not_have_written_are_damage(con: Any, options: str) -> None:
    con.execute(TRAIN.format("linear_regression"))
    con.execute(
        f"UPDATE grouplearn.models SET items = list_transform(items, lambda x, i: struct_update(x, options := ({options})[i]))"
    )
    with pytest.raises(duckdb.Error, match=r'"m" is damaged: .*options'):
        con.execute("DESCRIBE MODEL m")


REFUSED = {
    "clip(x)": ("clip needs low and high", "clip", "For example clip(x, 0, 1)."),
    "clip(x, 1)": ("clip needs low and high", "clip", "For example clip(x, 0, 1)."),
    "clip(x, z, 1, 2)": (
        "clip takes one column and low and high",
        "clip",
        "For several columns write clip(a, b, low := 0, high := 1).",
    ),
    "clip(x, 1, 2e9)": ("high must be a number of at most 1000000000.0, got 2000000000.0", "2e9", None),
    "clip(x, 1, z)": ('high must be a number of at most 1000000000.0, and "z" is a column', "z", None),
    "clip(x, 3, 2)": ("clip: low is above high", "3", None),
    "clip(x, low := 1, higher := 2)": ("clip needs low and high", "clip", "For example clip(x, 0, 1)."),
    "between(x, share := 2)": ("share must be a number from 0.01 to 1, got 2", "2", None),
    "between(x, centre := 'mediam')": (
        "centre must be 'median' or 'none', got 'mediam'",
        "'mediam'",
        'Did you mean "median"?',
    ),
    "between(x, centre := median)": (
        "centre must be 'median' or 'none', and \"median\" is a column",
        "median",
        "Write 'median' with single quotes.",
    ),
    "between(x, shar := 0.5)": (
        'unknown option "shar" of between\nOptions: scope, share, centre',
        "shar",
        'Did you mean "share"?',
    ),
}


@pytest.mark.parametrize("item", REFUSED)
def test_what_it_does_not_take_is_told_where_it_is(con: Any, item: str) -> None:
    message, at, hint = REFUSED[item]
    text = f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES ({item}) FROM t"
    with pytest.raises((BindError, ParseError)) as error:
        con.execute(text)
    assert error.value.message == message
    assert text[error.value.span.start : error.value.span.end] == at
    assert error.value.hint == hint


def test_options_by_name_and_in_order_are_the_same(con: Any) -> None:
    found = []
    for item in ("clip(x, -1, 2)", "clip(x, high := 2, low := -1)", "clip(x, 2, low := -1)"):
        con.execute(f"TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES ({item}) FROM t")
        found.append(con.execute("SELECT weight FROM m_weights ORDER BY feature").fetchall())
    assert found[0] == found[1] == found[2]


def test_a_run_that_died_is_resumed_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, models = tmp_path / "own.duckdb", "SELECT k, feature, weight FROM m_weights ORDER BY ALL"
    with grouplearn.connect(path, progress=False) as made:
        made.execute("CREATE TABLE t AS SELECT i % 3 AS k, 4 * sin(i) AS x, cos(i) AS y FROM range(400) AS r(i)")
    train = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (clip(x, -1, 2), between(x)) FROM t GROUP BY k"
    expected = answer(path, train, models)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, f"{train} WITH (durable = true, operator = 'group_task_parallel')", units=1)
    assert answer(path, "RESUME MODEL m", models) == expected
