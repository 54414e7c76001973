"""Models of a thousand columns and more: trained, looked at and predicting like any other, without a setting changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.thorough import some

import grouplearn
from grouplearn.catalog.models import load_definition
from grouplearn.models.forms.items import MOST_COLUMNS, listed

#: Beyond DuckDB's limit of 1,000 nested expressions.
_WIDE = 1_100
#: 10,000 are allowed, and take a quarter of a minute.
_WIDEST = 10_000 if "GROUPLEARN_EXPLORE" in os.environ else 2_000


def _table(columns: int, rows: int) -> str:
    values = ", ".join(f"hash(i * {columns} + {n}) % 1000 / 1000 AS c{n}" for n in range(columns))
    return f"CREATE TABLE w AS SELECT i % 2 AS g, hash(i) % 3 AS y, {values} FROM range({rows}) AS r(i)"


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(":memory:", progress=False) as connection:
        connection.execute(_table(_WIDE, 40))
        yield connection


@pytest.mark.examples(2)
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
    if name == "line":
        assert con.execute("SELECT count(*) FROM line_weights").fetchall() == [(3 * (_WIDE + 1),)]


def _answers(con: grouplearn.Connection, query: str, name: str) -> list[float]:
    """Return the numbers that are predicted, whatever they are called."""
    columns = {"classes": "map_values(probabilities)", "layers": "[probability]"}
    chosen = columns.get(name, "[prediction::DOUBLE]")
    return [value for (values,) in con.execute(f"SELECT {chosen} FROM ({query})").fetchall() for value in values]


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


@pytest.mark.thorough
def test_thousands_of_columns() -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({f"c{n}": rng.random(4) for n in range(_WIDEST)} | {"y": [True, False, True, False]})
    with grouplearn.connect(":memory:", progress=False) as con:
        con.register("w", rows)
        con.execute("TRAIN MODEL m USING logistic_regression PREDICT y FROM w WITH (epochs = 1)")
        assert con.execute("SELECT count(probability) FROM m_predict(w)").fetchall() == [(4,)]


def test_more_columns_are_refused() -> None:
    with grouplearn.connect(":memory:", progress=False) as con:
        con.register("w", pa.table({"y": [1]} | {f"c{n}": [n] for n in range(10_001)}))
        with pytest.raises(grouplearn.Error) as told:
            con.execute("TRAIN MODEL m USING gbdt PREDICT y FEATURES (* EXCLUDE (y)) FROM w")
        assert str(told.value) == (
            "FEATURES takes 10,000 items, and here are 10,001\n\n"
            "LINE 1: TRAIN MODEL m USING gbdt PREDICT y FEATURES (* EXCLUDE (y)) FROM w\n"
            "                                                     ^^^^^^^^^^^^^\n\n"
            "Hint: An array counts as one item: gbdt, mlp and registered networks take columns such as DOUBLE[]."
        )


_ITEMS = (
    "onehot(c), c0, zscore(c1), ordinal(d), impute(c2, 'mean'), minmax(c3, impute := 'median'),"
    " * EXCLUDE (i, g, y, c, d, c0, c1, c2, c3)"
)
_EITHER_FORM = {
    "sums": f"linear_regression PREDICT y FEATURES ({_ITEMS})",
    "plain": "linear_regression PREDICT y FEATURES (* EXCLUDE (i, g, y, c, d))",
    "scaled": "logistic_regression PREDICT y > 1 AS up FEATURES (zscore(* EXCLUDE (i, g, y, c, d)))",
    "imputed": "logistic_regression PREDICT y FEATURES (zscore(* EXCLUDE (i, g, y, c, d), impute := 'mean'), ordinal(d))",
    "classes": f"logistic_regression PREDICT y FEATURES ({_ITEMS})",
    "margins": f"linear_svm PREDICT y FEATURES ({_ITEMS})",
    "counts": "poisson_regression PREDICT y FEATURES (minmax(* EXCLUDE (i, g, y, c, d)))",
    "layers": f"mlp PREDICT y > 1 AS up FEATURES ({_ITEMS})",
    "trees": f"gbdt PREDICT y FEATURES ({_ITEMS})",
}


@pytest.mark.examples(3)
@pytest.mark.parametrize(
    ("name", "more"), [*((name, 1) for name in _EITHER_FORM), *((name, 0) for name in some([*_EITHER_FORM], 4))]
)
def test_numbers_are_columns_or_a_list(name: str, more: int) -> None:
    """With one number more the macro takes its other form: of rows that lack values, groups or known categories, too."""
    width = MOST_COLUMNS + more
    values = [f"hash(i * {width} + {n}) % 1000 / 1000 AS c{n}" for n in range(width)]
    holes = ", ".join(
        f"CASE (i + {n}) % 97 WHEN 3 THEN NULL WHEN 4 THEN 'inf'::DOUBLE WHEN 5 THEN 'nan'::DOUBLE ELSE c{n} END AS c{n}"
        for n in range(0, width, 9)
    )
    options = {"trees": "num_iterations = 3, min_data_in_leaf = 5", "layers": "hidden_layers = [3, 2], epochs = 2"}
    with grouplearn.connect(":memory:", progress=False) as con:
        con.execute(
            "CREATE TABLE w AS SELECT i, i % 3 AS g, hash(i) % 3 AS y, 'c' || i % 4 AS c, 'd' || i % 5 AS d,"
            f" {', '.join(values)} FROM range(300) AS r(i)"
        )
        con.execute(
            f"CREATE TABLE odd AS SELECT * REPLACE (i % 5 AS g, 'c' || i % 6 AS c, 'd' || i % 7 AS d, {holes}) FROM w"
        )
        con.execute(
            f"TRAIN MODEL m USING {_EITHER_FORM[name]} FROM w GROUP BY {'ROLLUP (g)' if name != 'plain' else 'g'}"
            f" VALIDATE NONE WITH ({options.get(name, 'l2 = 1')})"
        )
        assert listed(load_definition(con.native, "memory", "main", "m").definition) == bool(more)
        shown = [column[0] for column in con.execute("FROM m_predict(odd) LIMIT 0").description]
        number = next(each for each in ("probability", "probabilities", "prediction") if each in shown)
        field = "value" if number == "prediction" else number
        found = con.execute(f"SELECT i, {number}, model_level FROM m_predict(odd)").fetchall()
        wanted = con.execute(f"SELECT i, p.{field}, p.model_level FROM (SELECT i, predict('m', odd) AS p FROM odd)")
        expected = wanted.fetchall()
    assert [row[0] for row in found] == list(range(300))
    assert [row[2] for row in found] == [row[2] for row in expected]
    for (_, one, _), (_, other, _) in zip(found, expected, strict=True):
        assert one == (None if other is None else pytest.approx(other, abs=1e-9))
    missing = sum(row[1] is None for row in found)
    assert missing == 0 if name == "trees" else 0 < missing < 250
