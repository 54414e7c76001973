"""Numbers read out of Arrow: DuckDB's casts, written as they come or where they belong."""

from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from grouplearn.kernels import number_columns
from grouplearn.kernels.number_columns import NumberReader

RANDOM = np.random.default_rng(3)
VALUES = {
    **{f"int{bits}": pa.array([0, -1, None, 2 ** (bits - 1) - 1], f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array([0, 1, None, 2**bits - 1], f"uint{bits}") for bits in (8, 16, 32, 64)},
    "float": pa.array([0.1, -np.inf, None, np.nan], pa.float32()),
    "double": pa.array([0.1, -0.0, None, 1e300], pa.float64()),
    "bool": pa.array([True, False, None, True]),
    "small": pa.array([Decimal("1.10"), Decimal("-99.99"), None, Decimal("0.07")], pa.decimal128(4, 2)),
    "large": pa.array(
        [Decimal("123456789012345.678"), Decimal("-999999999999999.999"), None, Decimal("0.001")], pa.decimal128(18, 3)
    ),
}


def test_numbers_are_read_as_duckdb_casts_them(build: str) -> None:
    rows = pa.StructArray.from_arrays([*VALUES.values(), pa.array(["a", "b", None, "c"])], names=[*VALUES, "text"])
    longer = pa.concat_arrays([rows, rows, rows]).slice(3, 7)
    places = RANDOM.permutation(len(VALUES))
    found = np.full((len(longer), len(VALUES) + 2), 7.0)
    NumberReader(longer.type, range(len(VALUES)), places).read(longer, found)
    casts = ", ".join(f"r.{name}::DOUBLE" for name in VALUES)
    with duckdb.connect() as con:
        con.register("t", pa.table({"r": longer}))
        expected = con.sql(f"SELECT {casts} FROM t").to_arrow_table()
    for place, column in zip(places, expected.columns, strict=True):
        np.testing.assert_array_equal(found[:, place], column.to_numpy())
    assert (found[:, len(VALUES) :] == 7).all()
    assert all(number_columns.is_readable(column.type) for column in VALUES.values())
    assert not any(
        map(number_columns.is_readable, (pa.string(), pa.decimal128(38, 0), pa.date32(), pa.list_(pa.int8())))
    )


@pytest.mark.parametrize("n_rows", [0, 1, 127, 128, 129, 1000])
@pytest.mark.parametrize("width", [1, 7, 40])
def test_rows_are_written_where_they_belong(build: str, n_rows: int, width: int) -> None:
    """Slices of batches, NULLs as NaN, other columns and rows untouched; plain Python's result."""
    kinds = [*VALUES.values(), pa.array([None, None, None, None], pa.float32())]
    chosen = [kinds[place] for place in RANDOM.integers(0, len(kinds), width)]
    batch = pa.record_batch(
        [column.take(pa.array(RANDOM.integers(0, 4, n_rows + 5))) for column in chosen], [str(k) for k in range(width)]
    ).slice(3, n_rows)
    to = RANDOM.permutation(n_rows + 9)[:n_rows]
    fields = RANDOM.permutation(width)[: max(1, width - 2)].tolist()
    reader = NumberReader(pa.struct(list(batch.schema)), fields, [field + 1 for field in fields])
    found, straight = (np.full((n_rows + 9, width + 1), 7.0) for _ in range(2))
    reader.read(batch, found, to)
    reader.read(batch, straight)
    expected = np.full_like(found, 7.0)
    for field in fields:
        for row, value in zip(to.tolist(), batch.column(field).to_pylist(), strict=True):
            expected[row, field + 1] = np.nan if value is None else float(value)
    assert found.tobytes() == expected.tobytes()
    assert straight[:n_rows].tobytes() == expected[to].tobytes()
    assert (straight[n_rows:] == 7).all()
