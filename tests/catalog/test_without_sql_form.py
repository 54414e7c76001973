"""What a model without an SQL form says to a client that has no functions of ours."""

from pathlib import Path

import duckdb
import pytest

import grouplearn

QUERIES = ("FROM leaves_predict(t)", "SELECT prediction FROM leaves_predict(t) WHERE x < 5", "FROM seen")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = str(tmp_path / "models.db")
    with grouplearn.connect(path, progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i::DOUBLE AS x, i * 2.0 AS y FROM range(60) AS r(i)")
        con.execute(
            "TRAIN MODEL leaves USING gbdt PREDICT y FEATURES (x) FROM t VALIDATE NONE"
            " WITH (linear_tree = true, num_iterations = 2)"
        )
        con.execute("CREATE VIEW seen AS SELECT prediction FROM leaves_predict(t)")
        assert len(con.execute("FROM seen").fetchall()) == 60
    return path


@pytest.mark.parametrize("query", QUERIES)
def test_plain_duckdb_says_what_the_model_needs(file: str, query: str) -> None:
    with duckdb.connect(file) as plain, pytest.raises(duckdb.Error) as refused:
        plain.execute(query).fetchall()
    assert str(refused.value).endswith(
        "model leaves predicts by grouplearn alone, as its leaves are linear models\n\n"
        "Hint: In Python, grouplearn.connect(file) predicts; in the duckdb shell, LOAD grouplearn comes first."
    )
