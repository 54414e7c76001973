"""Ibis and marimo on a connection of ours."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
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


NOTEBOOK = f"""
import marimo

app = marimo.App()

@app.cell
def _():
    import marimo as mo
    import pandas as pd
    import sqlalchemy
    import grouplearn
    con = grouplearn.connect(progress=None)
    engine = sqlalchemy.create_engine("grouplearn:///:memory:")
    return con, engine, mo, pd

@app.cell
def _(con, engine, mo):
    _ = mo.sql("{TABLE}", engine=con)
    _ = mo.sql("{TABLE}", engine=engine)
    ready = True
    return (ready,)

@app.cell
def _(con, engine, mo, ready):
    best = mo.sql(f\"\"\"
        {TRAIN}
    \"\"\", engine=con)
    by_engine = mo.sql(f\"\"\"
        {TRAIN}
    \"\"\", engine=engine)
    return best, by_engine

@app.cell
def _(pd):
    frame = pd.DataFrame({{"g": [0, 2], "x": [1.0, 5.0]}})
    return (frame,)

@app.cell
def _(best, con, frame, mo):
    predicted = mo.sql("FROM m_predict(frame) ORDER BY g", engine=con)
    return (predicted,)

@app.cell
def _(con, mo, ready):
    try:
        mo.sql("TRAIN MODEL x USING linear_regresion PREDICT y FROM t", engine=con)
    except Exception as error:
        message = str(error)
    return (message,)
"""
RUN = """
import notebook
from marimo._sql.get_engines import get_engines_from_variables
_, made = notebook.app.run()
print([type(engine).__name__ for _, engine in get_engines_from_variables([("con", made["con"]), ("e", made["engine"])])])
print(made["best"].select("g", "l2", "status").rows())
print(made["by_engine"].select("g", "l2", "status").rows())
print([round(value, 6) for value in made["predicted"]["prediction"]])
print(made["message"])
"""


def test_marimo_cells_train_and_see_data_frames(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    engines, best, by_engine, predicted, *message = run.stdout.splitlines()
    assert engines == "['DBAPIEngine', 'SQLAlchemyEngine']"
    assert best == by_engine == "[(0, 0.0, 'done'), (1, 0.0, 'done'), (2, 0.0, 'done')]"
    assert predicted == "[4.0, 16.0]"
    assert message[0] == 'unknown learner "linear_regresion"'
    assert "                       ^^^^^^^^^^^^^^^^" in "\n".join(message)
