"""The bytes of a row, as they are told and as limits count them: half of DOUBLE's for features that FLOAT holds."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from helpers import plans

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.extract import extract as extracting
from grouplearn.extract.extract import extract, fits_in_memory
from grouplearn.plan.miniature import Miniature
from grouplearn.statements.workflow import planning

ROWS = 2000
#: Features; bytes of their numbers in a row as it is read, and as a learner sees it.
FEATURES = {
    "a, b": (8, 8),
    "a, b, d": (24, 24),
    "zscore(a), b": (8, 16),
    "impute(a, 0.5), b": (8, 8),
    "impute(a, 0.1), b": (8, 16),
    "onehot(k)": (0, 12),
    "a, onehot(k)": (4, 16),
    "a, ordinal(k)": (4, 8),
    "d, onehot(k)": (8, 32),
    "a, hash(k, 600)": (4, 16),
    "a, e": (20, 20),
    "zscore(b), e": (20, 40),
    "bytes": (16, 16),
    "whole": (12, 12),
}


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 7 AS g, (i % 97 / 7)::FLOAT AS a, (i % 31)::SMALLINT AS b, i % 53 / 3 AS d, "
            "[a, NULL, b, 1e-45]::FLOAT[4] AS e, [b, 7, i % 4]::UTINYINT[] AS whole, 'ab'::BLOB AS bytes, "
            f"'k' || i % 3 AS k, i % 11 / 5 AS y FROM range({ROWS}) AS r(i)"
        )
        yield connection


@pytest.mark.parametrize("features", FEATURES)
def test_bytes_of_a_row(con: duckdb.DuckDBPyConnection, features: str) -> None:
    text = f"TRAIN MODEL m USING gbdt PREDICT y FEATURES ({features}) FROM t GROUP BY g"
    physical = plans.planned(con, text)
    read, seen = FEATURES[features]
    assert physical.row_bytes == seen + 16
    layout = extracting._layout(physical.bound, physical.stats)
    dataset, _ = extract(con, SqlChecker(con, text), physical.bound, physical.stats)
    assert dataset.numeric.nbytes == read * ROWS
    assert dataset.n_bytes == layout.row_bytes * ROWS


def test_rows_of_floats_stay_in_memory_where_those_of_doubles_do_not(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("CREATE TABLE wide AS SELECT * REPLACE (a::DOUBLE AS a, b::DOUBLE AS b) FROM t")
    for limit in range(20_000, 400_000, 1000):
        fits = [
            fits_in_memory(physical.bound, physical.stats, limit)
            for physical in (
                plans.planned(con, f"TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a, b) FROM {table}")
                for table in ("t", "wide")
            )
        ]
        if any(fits):
            assert fits == [True, False]
            return
    raise AssertionError("neither fits")


@pytest.mark.parametrize(
    ("learner", "held"), [("linear_regression", 16_384 * 144), ("gbdt", 200_000 * 144 + 10**6 * 64)]
)
def test_what_a_worker_holds_of_rows_in_files(con: duckdb.DuckDBPyConnection, learner: str, held: int) -> None:
    """16 features as doubles, label and weight are 144 bytes: of a million a block, or those that place bins and all binned."""
    names = [f"x{number}" for number in range(16)]
    columns = ", ".join(f"i % {place + 2} / 3 AS {name}" for place, name in enumerate(names))
    con.execute(f"CREATE VIEW long AS SELECT {columns}, i % 7 / 3 AS y FROM range(1000000) AS r(i)")
    for limit, expected in (("1GB", 144 * 10**6), ("200MB", held)):
        text = f"TRAIN MODEL m USING {learner} PREDICT y FEATURES ({', '.join(names)}) FROM long WITH (memory_limit = '{limit}')"
        physical = plans.planned(con, text)
        assert planning.costs_of(Miniature(physical, 1, 1)).most_rows_held(0) == expected
