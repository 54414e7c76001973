"""Models of a thousand columns and more: trained, looked at and predicting like any other, without a setting changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import grouplearn

#: Beyond DuckDB's limit of 1,000 nested expressions.
_WIDE = 1_100


def _table(columns: int, rows: int) -> str:
    values = ", ".join(f"hash(i * {columns} + {n}) % 1000 / 1000 AS c{n}" for n in range(columns))
    return f"CREATE TABLE w AS SELECT i % 2 AS g, hash(i) % 3 AS y, {values} FROM range({rows}) AS r(i)"


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.execute(_table(_WIDE, 40))
        yield connection


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("line", "USING linear_regression PREDICT y FROM w GROUP BY ROLLUP (g) WITH (l2 = 1)"),
        (
            "classes",
            "USING logistic_regression PREDICT y FEATURES (zscore(* EXCLUDE (g, y), impute := 'mean')) FROM w"
            " GROUP BY g WITH (epochs = 2)",
        ),
        ("trees", "USING gbdt PREDICT y FROM w WITH (num_iterations = 2, min_data_in_leaf = 5)"),
        ("layers", "USING mlp PREDICT y < 1 FEATURES (* EXCLUDE (g, y)) FROM w WITH (hidden_layers = [2], epochs = 1)"),
    ],
)
def test_a_thousand_columns(con: grouplearn.Connection, tmp_path: Path, name: str, statement: str) -> None:
    con.execute(f"TRAIN MODEL {name} {statement}")
    assert con.execute(f"SELECT DISTINCT status FROM {name}").fetchall() == [("done",)]
    macro = _answers(con, f"FROM {name}_predict(w)", name)
    function = _answers(con, f"SELECT p.* FROM (SELECT predict('{name}', w) AS p FROM w)", name)
    assert macro == pytest.approx(function, abs=1e-9)
    assert con.execute(f"EVALUATE MODEL {name} ON w").fetchall()
    assert ("SQL",) in con.execute(f"DESCRIBE MODEL {name}").df()[["value"]].itertuples(index=False)
    con.execute(f"EXPORT MODEL {name} TO '{tmp_path}/exported' (FORMAT sql)")


def _answers(con: grouplearn.Connection, query: str, name: str) -> list[float]:
    """Return the numbers that are predicted, whatever they are called."""
    columns = {"classes": "map_values(probabilities)", "layers": "[probability]"}
    chosen = columns.get(name, "[prediction::DOUBLE]")
    return [value for (values,) in con.execute(f"SELECT {chosen} FROM ({query})").fetchall() for value in values]


def test_weights_of_a_thousand_columns(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL weighed USING linear_regression PREDICT y FEATURES (* EXCLUDE (g, y)) FROM w WITH (l2 = 1)"
    )
    assert con.execute("SELECT count(*) FROM weighed_weights").fetchall() == [(_WIDE + 1,)]


def test_many_texts() -> None:
    texts = ", ".join(f"'v' || hash(i * 40 + {n}) % 3 AS c{n}" for n in range(40))
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(f"CREATE TABLE w AS SELECT hash(i) % 7 AS y, {texts} FROM range(60) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FROM w WITH (l2 = 1)")
        macro, function = (
            _answers(con, "FROM m_predict(w)", "m"),
            _answers(con, "SELECT p.* FROM (SELECT predict('m', w) AS p FROM w)", "m"),
        )
        assert macro == pytest.approx(function, abs=1e-9)


def test_ten_thousand_columns() -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({f"c{n}": rng.random(4) for n in range(10_000)} | {"y": [True, False, True, False]})
    with grouplearn.connect(":memory:", progress=False) as con:
        con.register("w", rows)
        con.execute("TRAIN MODEL m USING logistic_regression PREDICT y FROM w WITH (epochs = 1)")
        assert con.execute("SELECT count(probability) FROM m_predict(w)").fetchall() == [(4,)]


def test_more_columns_are_refused() -> None:
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(f"CREATE TABLE w AS SELECT 1 AS y, {', '.join(f'{n} AS c{n}' for n in range(10_001))}")
        with pytest.raises(grouplearn.Error) as told:
            con.execute("TRAIN MODEL m USING gbdt PREDICT y FEATURES (* EXCLUDE (y)) FROM w")
        assert str(told.value) == (
            "FEATURES takes 10,000 items, and here are 10,001\n\n"
            "LINE 1: TRAIN MODEL m USING gbdt PREDICT y FEATURES (* EXCLUDE (y)) FROM w\n"
            "                                                     ^^^^^^^^^^^^^\n\n"
            "Hint: An array counts as one item: gbdt, mlp and registered networks take columns such as DOUBLE[]."
        )
