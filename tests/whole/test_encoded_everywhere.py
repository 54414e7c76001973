"""Encoders predict the same wherever they predict: macro, function, exported SQL, ONNX, an imported model; a group learns the
same alone as among others, from rows in any order, under any names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pytest

import grouplearn

#: What none of the odd rows leaves without a prediction.
ITEMS = (
    "robust(impute(x))",
    "robust(impute(z, 'median'))",
    "onehot(a, null := true)",
    "onehot(a, min_count := 5)",
    "onehot(a, null := true, min_count := 30) AS c",
    "onehot(b, null := true, min_count := 25)",
    "cross(a, b, min_count := 3)",
    "cross(a, e, f, null := true)",
    "cross(b, f)",
    "bins(x, 4)",
    "bins(z, 5, null := true)",
    "bins(b, 3)",
    "parts(ts)",
    "target(a)",
    "target(b, smooth := 3)",
    "parts(ts, ['minute', 'hour_sin', 'days'], impute := 'median') AS d",
)
#: Columns, and the same in another type.
COLUMNS = {
    "x": "x::DOUBLE",
    "z": "z::DOUBLE",
    "a": "a",
    "b": "b::DOUBLE",
    "e": "e::VARCHAR",
    "f": "f::INTEGER",
    "ts": "ts::TIMESTAMP_NS",
}
LEARNERS = {
    "linear_regression": "l2 = 1",
    "gbdt": "num_iterations = 8, min_data_in_leaf = 5",
    "mlp": "hidden_layers = [4], epochs = 3",
    "kmeans": "k = 3",
}
#: Rows with all that FEATURES may meet: outliers, gaps, rare categories, texts that look like others.
ROWS = """
    CREATE TABLE t AS
    SELECT i AS id, i % 3 AS k, (round(4 * sin(i), 2) + 40 * (i % 50 = 0)::INTEGER)::FLOAT AS x,
           CASE WHEN i % 7 > 0 THEN (i % 11 + i % 3)::FLOAT END AS z,
           ['one', 'two', NULL, '(null)', '(other)', 'a & b', 'größe', 'rare' || i // 60][1 + i % 8] AS a,
           (i * i % 5)::INTEGER AS b, ['low', 'high'][1 + i % 2]::ENUM ('low', 'high') AS e, i % 4 = 0 AS f,
           TIMESTAMP '2023-12-25 03:30:00' + to_hours(i * 7) AS ts, i % 5 + sin(i) + i % 8 + i % 3 AS y
    FROM range(360) AS r(i)
"""
#: Some of them, and unknown, extreme and missing values.
ODD = """
    CREATE TABLE odd AS
    (FROM t LIMIT 40) UNION ALL BY NAME
    SELECT 900 + i AS id, i % 3 AS k, ['-1e6', '1e6', '0', NULL, 'inf', '-inf', 'nan'][1 + i]::FLOAT AS x,
           [NULL, 'inf', '-inf', 'nan', '1', '-50', '50'][1 + i]::FLOAT AS z, ['', 'new', NULL, 'one'][1 + i % 4] AS a,
           [NULL, 77, 1][1 + i % 3] AS b, [NULL, 'low'][1 + i % 2]::ENUM ('low', 'high') AS e, NULL AS f,
           TIMESTAMP '1969-07-20 20:17:40' + to_hours(i * 1000) AS ts
    FROM range(7) AS r(i)
"""
Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with grouplearn.connect(tmp_path_factory.mktemp("encoders") / "e.duckdb", progress=False) as con:
        con.execute(ROWS)
        con.execute(ODD)
        yield con


def train(con: Any, name: str, learner: str, source: str = "t", items: str = "") -> None:
    items = items or ", ".join(item for item in ITEMS if learner != "kmeans" or not item.startswith("target"))
    label = "" if learner == "kmeans" else "PREDICT y"
    con.execute(
        f"TRAIN OR REPLACE MODEL {name} USING {learner} {label} FEATURES ({items}) FROM {source} GROUP BY k"
        f" VALIDATE NONE WITH (seed = 1, {LEARNERS[learner]})"
    )


def values(con: Any, query: str) -> Floats:
    return np.array(con.execute(query).fetchall(), np.float64)


def same(one: Floats, other: Floats) -> bool:
    return bool(np.allclose(one, other, rtol=1e-6, atol=1e-9))


@pytest.mark.parametrize("learner", LEARNERS)
def test_macro_function_and_exports_predict_the_same(con: Any, learner: str, tmp_path: Path) -> None:
    train(con, "m", learner)
    assert ("prediction", "SQL") in con.execute("DESCRIBE MODEL m").fetchall()
    column, part = ("distance", "value") if learner == "kmeans" else ("prediction", "prediction")
    query = f"SELECT {column} FROM {{}}_predict({{}}) ORDER BY id"
    macro = values(con, query.format("m", "odd"))
    assert np.isfinite(macro).all()
    assert same(macro, values(con, f"SELECT predict('m', odd).{part} FROM odd ORDER BY id"))
    columns = ", ".join(f"{sql} AS {name}" for name, sql in COLUMNS.items())
    con.execute(f"CREATE OR REPLACE TEMP TABLE retyped AS SELECT * REPLACE ({columns}) FROM odd")
    assert same(macro, values(con, query.format("m", "retyped")))
    assert same(macro, values(con, f"SELECT predict('m', retyped).{part} FROM retyped ORDER BY id"))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'sql'}' (FORMAT sql)")
    with duckdb.connect() as plain:
        plain.register("odd", con.sql("FROM odd").to_arrow_table())
        plain.execute((tmp_path / "sql" / "model.sql").read_text(encoding="utf-8"))
        assert same(macro, values(plain, query.format("m", "'odd'")))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'native'}' (FORMAT native)")
    con.execute(f"IMPORT OR REPLACE MODEL imported FROM '{tmp_path / 'native'}'")
    assert (macro == values(con, query.format("imported", "odd"))).all()


def test_onnx_predicts_the_same(con: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    train(con, "m", "linear_regression", items=", ".join(item for item in ITEMS if not item.startswith("parts")))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'onnx'}' (FORMAT onnx)")
    (first, *_) = sorted((tmp_path / "onnx").glob("*.onnx"))
    session = onnxruntime.InferenceSession(str(first))
    items = con.execute("SELECT unnest(items) FROM grouplearn.models WHERE model_name = 'm'").fetchall()
    expressions = {item["name"]: item["sql"] for (item,) in items}
    given = {}
    for each in session.get_inputs():
        rows = con.execute(f"SELECT {expressions[each.name]} FROM odd WHERE k = 0 ORDER BY id").fetchall()
        missing: Any = "(null)" if each.type == "tensor(string)" else np.nan
        given[each.name] = np.array([[missing if value is None else value] for (value,) in rows])
    (found,) = session.run(None, given)
    assert same(found, values(con, "SELECT prediction FROM m_predict(odd) WHERE k = 0 ORDER BY id"))


def test_a_group_learns_the_same_alone_and_from_rows_in_any_order(con: Any) -> None:
    weights = []
    for source in ("t", "(FROM t WHERE k = 1)", "(FROM t ORDER BY hash(id))"):
        train(con, "m", "linear_regression", source)
        weights.append(con.execute("SELECT feature, weight FROM m_weights WHERE k = 1 ORDER BY feature").fetchall())
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.parametrize("name", ["select", "two words", "größe", 'it\'s ""quoted""'])
def test_columns_of_any_name_are_encoded(con: Any, name: str) -> None:
    query = "SELECT prediction FROM m_predict({}) ORDER BY id"
    train(con, "m", "linear_regression")
    plain = values(con, query.format("odd"))
    others = ", ".join(f'{each} AS "{name} {each}"' for each in COLUMNS)
    for table in ("t", "odd"):
        con.execute(f"CREATE OR REPLACE TEMP TABLE named_{table} AS SELECT id, k, y, {others} FROM {table}")
    items = re.sub(rf"\b({'|'.join(COLUMNS)})\b(?!')", lambda found: f'"{name} {found[0]}"', ", ".join(ITEMS))
    train(con, "m", "linear_regression", "named_t", items)
    assert (values(con, query.format("named_odd")) == plain).all()
