"""Python variables as tables: what DuckDB reads our statements read, and for what it does not they say why."""

import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import grouplearn
from grouplearn import Connection

TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM rows"


@pytest.fixture
def con() -> Iterator[Connection]:
    with grouplearn.connect(progress=False) as connection:
        yield connection


def table() -> pa.Table:
    x = np.arange(60.0)
    return pa.table({"x": x, "y": 2 * x})


def error_of(con: Connection, rows: Any, sql: str = TRAIN) -> str:
    with pytest.raises(grouplearn.Error) as caught:
        con.execute(sql)
    return str(caught.value)


def test_a_scanner_is_a_table(con: Connection) -> None:
    rows = ds.dataset(table()).scanner()
    con.execute(TRAIN)
    assert con.execute("SELECT n_rows FROM (EVALUATE MODEL m ON rows)").fetchall() == [(60,)]
    assert con.execute("SELECT n_rows FROM (EVALUATE MODEL m ON (FROM rows WHERE x < 5))").fetchall() == [(5,)]
    assert con.execute("SELECT count(prediction) FROM m_predict(rows)").fetchall() == [(60,)]
    assert rows.count_rows() == 60


@pytest.mark.examples(2)
@pytest.mark.parametrize(
    "make", [pd.Series, lambda x: pl.Series("value", x), pa.array, lambda x: pa.chunked_array([x])]
)
def test_a_column_is_a_table_of_one(con: Connection, make: Any) -> None:
    rows = make(np.arange(60.0) % 7)
    assert len(rows) == 60
    (name,) = con.execute("FROM rows").df().columns
    con.execute(f"TRAIN MODEL k USING kmeans FEATURES ({name}) FROM rows WITH (k = 2)")
    con.execute(f"TRAIN MODEL j USING kmeans FEATURES ({name}) FROM (SELECT * FROM rows) WITH (k = 2)")
    assert con.execute("SELECT n_rows FROM (EVALUATE MODEL k ON rows)").fetchall() == [(60,)]
    assert con.execute("SELECT count(cluster) FROM k_predict(rows)").fetchall() == [(60,)]


def test_a_stream_that_can_be_read_once_is_refused_where_rows_are_read_twice(con: Connection) -> None:
    rows: Any = table()
    con.execute(TRAIN)
    rows, sql = table().to_reader(), "EVALUATE MODEL m ON rows"
    assert error_of(con, rows, sql) == (
        '"rows" is a stream that can be read only once, and rows are read more than once\n\n'
        f"LINE 1: {sql}\n"
        f"{' ' * len(f'LINE 1: {sql[:-4]}')}^^^^\n\n"
        "Hint: Read it into a table first: rows = rows.read_all(), or rows.to_table() of a scanner."
    )
    assert rows.read_all().num_rows == 60


def test_a_scanner_of_a_stream_is_refused(con: Connection) -> None:
    rows = ds.Scanner.from_batches(table().to_batches(), schema=table().schema)
    assert error_of(con, rows).startswith('"rows" is a stream that can be read only once')


def test_what_duckdb_cannot_read_is_refused_for_duckdbs_reason(con: Connection) -> None:
    whole = np.arange(60)
    y = whole * 1.0
    frames = {
        "Unsupported Internal Arrow Type e": pa.table({"x": pa.array(y.astype(np.float16)), "y": y}),
        "Unsupported Internal Arrow Type for Decimal d:60,4,256": pa.table(
            {"x": pa.array([decimal.Decimal(int(each)) for each in whole], pa.decimal256(60, 4)), "y": y}
        ),
        "Data type 'complex128' not recognized": pd.DataFrame({"x": y * 1j, "y": y}),
        "Data type 'period[M]' not recognized": pd.DataFrame(
            {"x": pd.period_range("2020-01", periods=60, freq="M"), "y": y}
        ),
        "Data type 'Sparse[float64, nan]' not recognized": pd.DataFrame({"x": pd.arrays.SparseArray(y), "y": y}),
        "ArrowInvalid": pl.DataFrame({"x": pl.Series(whole, dtype=pl.Int128), "y": y}),
    }
    for reason, rows in frames.items():
        for sql in (TRAIN, f"EXPLAIN {TRAIN}"):
            said = error_of(con, rows, sql)
            assert said.startswith('the Python variable "rows" (')
            assert "is no table that DuckDB reads: " in said
            assert reason in said
            assert 'in column "x"\n\nLINE 1' in said
            assert said.endswith("Hint: Cast such a column to a type that DuckDB has, or leave it out.")


def test_a_list_is_no_table(con: Connection) -> None:
    assert error_of(con, [1, 2]) == (
        'the Python variable "rows" (list) is no table that DuckDB reads\n\n'
        f"LINE 1: {TRAIN}\n"
        f"{' ' * len(f'LINE 1: {TRAIN[:-4]}')}^^^^\n\n"
        "Hint: Tables are data frames of pandas and Polars, Arrow tables, datasets and scanners, relations, and NumPy arrays."
    )
    assert '"rows" (dict) is no table' in error_of(con, {"x": 1})


def test_an_exception_while_a_variable_is_read_is_the_reason(con: Connection) -> None:
    class Away:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ValueError("the server is away")

    assert "ValueError: the server is away\n\nLINE 1" in error_of(con, Away())


def test_a_variable_that_is_not_read_may_be_anything(con: Connection) -> None:
    class Away:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ValueError("the server is away")

    rows, x, y = table(), Away(), [1]
    con.execute(TRAIN)
    assert (rows.num_rows, type(x), y) == (60, Away, [1])


def test_a_name_that_is_no_variable_is_duckdbs_to_refuse(con: Connection) -> None:
    assert error_of(con, None).startswith("Table with name rows does not exist!")


@pytest.mark.parametrize("clause", ["GROUP BY late", "WITH (weight = late)", "VALIDATE SAMPLE 20%", ""])
@pytest.mark.parametrize("transaction", [False, True])
def test_a_column_of_several_types_is_named(con: Connection, clause: str, *, transaction: bool) -> None:
    rows = pd.DataFrame({"late": pd.Series([1] * 3999 + ["n/a"], dtype=object), "x": np.arange(4000.0)})
    rows["y"] = rows.x
    if transaction:
        con.execute("BEGIN")
    sql = f"TRAIN MODEL m USING linear_regression PREDICT y {'FEATURES (x)' if clause else ''} FROM rows {clause}"
    said = error_of(con, rows, sql)
    assert said.startswith(
        'column "late" of the data frame "rows" has values of several types: Could not convert string \'n/a\' to INT32\n\n'
    )
    assert "Hint: DuckDB takes the type of such a column from 1,000 of its values. Make it one, rows['late'] = " in said
    assert said.endswith("or let DuckDB look at all: SET pandas_analyze_sample = 4000.")
