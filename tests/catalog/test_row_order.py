"""Predictions come in the order of the rows, at more rows than one thread reads at a time, whatever form they take in SQL."""

import duckdb
import numpy as np
import pytest
from helpers.thorough import THOROUGH

import grouplearn

#: More than two row groups of DuckDB, each of which may be read by another thread.
ROWS = 300_000
MODELS = {
    "linear": "USING linear_regression PREDICT y FEATURES (x, onehot(c)) FROM few GROUP BY ROLLUP (g)",
    "forest": "USING gbdt PREDICT y FEATURES (x) FROM few GROUP BY g OVER GRID (num_iterations IN (2))",
    "single_forest": "USING gbdt PREDICT y FEATURES (x) FROM few OVER GRID (num_iterations IN (2))",
    "deep_forest": "USING gbdt PREDICT y FEATURES (x) FROM few GROUP BY g OVER GRID (num_iterations IN (20))",
    "layers": "USING mlp PREDICT x > 1 AS up FEATURES (x) FROM few GROUP BY g WITH (epochs = 1)",
}
SOURCES = {
    "table": "many",
    "view": "odd",
    "query": "(SELECT * FROM many ORDER BY hash(i))",
    "parquet": "parquet",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return a database file with the models and the sources of their predictions."""
    folder = tmp_path_factory.mktemp("order")
    with grouplearn.connect(str(folder / "order.db")) as con:
        con.execute(
            f"CREATE TABLE many AS SELECT i, i % 7 AS g, hash(i) % 100 / 50 AS x, 'c' || i % 5 AS c, i % 7 + x AS y"
            f" FROM range({ROWS}) AS r(i)"
        )
        con.execute("CREATE TABLE few AS FROM many LIMIT 700; CREATE VIEW odd AS FROM many WHERE i % 2 = 1")
        con.execute(f"COPY many TO '{folder}/many.parquet' (ROW_GROUP_SIZE 20000)")
        con.execute(f"CREATE VIEW parquet AS FROM '{folder}/many.parquet'")
        for name, statement in MODELS.items():
            con.execute(f"TRAIN MODEL {name} {statement} VALIDATE NONE")
    return folder / "order.db"


@pytest.fixture(scope="module")
def con(path):
    """Return a plain DuckDB connection that reads the models and the sources."""
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


READ = [("table", 1), *((source, 8) for source in SOURCES), ("table", 2)]


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("model", "source", "threads"),
    [
        (model, *read)
        for at, model in enumerate(name for name in MODELS if name != "deep_forest")
        for number, read in enumerate(READ)
        if THOROUGH or (at + number) % 2 == 0
    ],
)
def test_predictions_keep_the_order_of_rows(con, model, source, threads):
    con.execute(f"SET threads = {threads}; CREATE OR REPLACE TEMP VIEW source AS FROM {SOURCES[source]}")
    wanted = con.sql("SELECT i FROM source").fetchnumpy()["i"]
    found = con.sql(f"SELECT i, g, prediction FROM {model}_predict(source)").fetchnumpy()
    np.testing.assert_array_equal(found["i"], wanted)
    assert not np.ma.is_masked(found["prediction"])


def test_equal_rows_have_equal_predictions_whatever_the_threads(con):
    """Leaves are summed in the order in which threads come to them."""
    found = set()
    for threads in (1, 4, 8):
        con.execute(f"SET threads = {threads}")
        predictions = con.sql("SELECT DISTINCT g, x, prediction FROM deep_forest_predict(many)").fetchall()
        assert len(predictions) == 700
        found.add(frozenset(predictions))
    assert len(found) == 1
