"""How many configurations share a pass: as many as their state allows, and a memory limit has room for."""

from __future__ import annotations

import duckdb
import pytest
from helpers.plans import planned

TRAIN = (
    "TRAIN MODEL m USING mlp PREDICT y FEATURES (a, b) FROM t OVER GRID (learning_rate IN (0.1, 0.2, 0.3, 0.4, 0.5)) "
    "WITH (hidden_layers = [1000] {options})"
)


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i AS a, i % 7 AS b, i % 2 = 0 AS y FROM range(100) r(i)")
    return connection


@pytest.mark.parametrize(
    ("options", "packs"),
    [
        ("", [5]),
        (", memory_limit = '1GB'", [5]),
        (", memory_limit = '1MB'", [2, 2, 1]),
        (", memory_limit = '1kB'", [1, 1, 1, 1, 1]),
        (", memory_limit = '1MB', workers = 7", [2, 2, 1]),
    ],
)
def test_a_memory_limit_makes_packs_smaller_whatever_the_workers(
    con: duckdb.DuckDBPyConnection, options: str, packs: list[int]
) -> None:
    units = planned(con, TRAIN.format(options=options)).units
    assert [len(unit.configs) for unit in units if unit.fold == -1] == packs
    assert sorted(config for unit in units for config in unit.configs) == [0, 1, 2, 3, 4]
