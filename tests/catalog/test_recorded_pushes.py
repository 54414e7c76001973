"""The order of pushes in ``units``: exported and imported, older tables that have none, rows that somebody changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import grouplearn
from grouplearn.plan import physical

TRAIN = (
    "TRAIN OR REPLACE MODEL {} USING logistic_regression PREDICT y FEATURES (x, z) FROM signals "
    "WITH (operator = 'parameter_server', solver = 'sgd', workers = 2, epochs = 3, {})"
)
HASHES = "SELECT count(DISTINCT sha256), count(*) FROM grouplearn.artifacts"


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[grouplearn.Connection]:
    monkeypatch.setattr(physical, "BLOCK_ROWS", 64)
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE signals AS SELECT (i * 37 % 101) / 20 AS x, (i * 53 % 97) / 20 AS z, x + z > 5 AS y "
            "FROM range(600) AS t(i)"
        )
        connection.execute(TRAIN.format("m", "partitions = 3, staleness = 2"))
        yield connection


def test_an_imported_model_can_be_repeated(con: grouplearn.Connection, tmp_path: Path) -> None:
    con.execute(f"EXPORT MODEL m TO '{tmp_path}/m'")
    con.execute("DROP MODEL m")
    con.execute(f"IMPORT MODEL m FROM '{tmp_path}/m'")
    con.execute(TRAIN.format("again", "replay = 'm'"))
    assert con.execute(HASHES).fetchall() == [(1, 2)]


ORDER, PARTITIONS = "cannot have been in that order", "was trained in other partitions, or in more epochs"
SPOILED = {
    "[{'partition': -1, 'seen': 0}]": ORDER,
    "[{'partition': 0, 'seen': 1}]": ORDER,
    "[{'partition': 0, 'seen': -1}]": ORDER,
    "[{'partition': 0, 'seen': NULL}]": ORDER,
    "[NULL]": ORDER,
    "pushes || [{'partition': 0, 'seen': 0}]": ORDER,
    "[{'partition': 0, 'seen': 0}, {'partition': 0, 'seen': 0}]": ORDER,
    "[{'partition': 7, 'seen': 0}]": PARTITIONS,
    "[{'partition': 0, 'seen': i} for i in range(4)]": PARTITIONS,
}


@pytest.mark.parametrize("pushes", SPOILED)
def test_pushes_that_cannot_be_are_not_repeated(con: grouplearn.Connection, pushes: str) -> None:
    con.execute(f"UPDATE grouplearn.units SET pushes = {pushes} WHERE pushes IS NOT NULL")
    with pytest.raises(duckdb.Error) as error:
        con.execute(TRAIN.format("again", "partitions = 3, replay = 'm'"))
    assert SPOILED[pushes] in str(error.value)
