"""Ibis on a connection of ours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import grouplearn

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"


@pytest.fixture
def ibis() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ibis calls DuckDB's relations by names of before 2.0
        import ibis

        yield ibis


def test_ibis_trains_by_raw_sql_and_goes_on_with_expressions(ibis: Any) -> None:
    with grouplearn.connect(progress=None) as con:
        backend = ibis.duckdb.from_connection(con)
        backend.raw_sql(TABLE)
        best = backend.raw_sql(TRAIN).fetchall()
        assert [row[0] for row in best] == [0, 1, 2]
        assert "m" in backend.list_tables()
        model = backend.table("m")
        assert model.filter(model.is_best).count().execute() == 3
        predicted = backend.sql("FROM m_predict(t)")
        assert predicted.mutate(miss=predicted.y - predicted.prediction).miss.abs().max().execute() < 1e-9
        assert sum(batch.num_rows for batch in predicted.to_pyarrow_batches(chunk_size=100)) == 300


def test_ibis_shows_our_errors_with_their_caret(ibis: Any) -> None:
    with grouplearn.connect(progress=None) as con:
        backend = ibis.duckdb.from_connection(con)
        backend.raw_sql(TABLE)
        with pytest.raises(grouplearn.BindError, match=r"\^{16}"):
            backend.raw_sql(TRAIN.replace("linear_regression", "linear_regresion"))
