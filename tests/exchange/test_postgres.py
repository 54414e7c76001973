"""Models predict in a real Postgres as in DuckDB."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dialect_rows import assert_predicts_the_same
from exchange_models import MODELS
from helpers.postgres import Postgres, programs, served

import grouplearn

#: With GROUPLEARN_POSTGRES=1, as `make dialects` says, a missing server is an error.
pytestmark = pytest.mark.skipif(
    programs() is None and os.environ.get("GROUPLEARN_POSTGRES") != "1",
    reason="no Postgres here: apt-get install postgresql",
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="postgres", dir="/tmp") as home:
        Path(home).chmod(0o755)
        with served(Path(home)) as server:
            yield server


@pytest.mark.parametrize("name", MODELS)
def test_a_model_predicts_the_same(name: str, con: Any, postgres: Postgres, tmp_path: Path) -> None:
    compare(con, name, "fresh", postgres, tmp_path)


def compare(con: Any, name: str, table: str, postgres: Postgres, folder: Path) -> None:
    con.execute(f"EXPORT MODEL \"{name}\" TO '{folder / 'm'}' (FORMAT sql, DIALECT 'postgres', SOURCE '{table}')")
    postgres.load(con, table)
    postgres.run((folder / "m" / "model.sql").read_text(encoding="utf-8"))
    assert_predicts_the_same(con, name, table, postgres.rows(f'SELECT * FROM "{name}_predictions"'))


#: Rows with every odd value that both databases can have.
ODD = """
    CREATE TABLE odd AS SELECT i AS id,
      CASE i % 9 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE WHEN 2 THEN 'inf'::DOUBLE WHEN 3 THEN '-inf'::DOUBLE
        WHEN 4 THEN -0.0 ELSE sin(i) * 10 END AS x,
      (i * 37 % 101) / 7.0 AS z,
      CASE WHEN i % 5 > 0 THEN i % 5 = 1 END AS truth,
      ['plain', 'it''s', 'a "b"', 'ü ∑ 漢', '', '(null)', 'a & b', 'back\\slash', NULL][i % 9 + 1] AS word,
      CASE WHEN i % 7 > 0 THEN DATE '2020-02-27' + (i % 6)::INT END AS day,
      TIMESTAMP '2021-03-04 05:06:07.25' + (i % 4)::INT * INTERVAL 90 MINUTE AS moment,
      (i % 6 / 4.0)::DECIMAL(6, 2) AS price, (i % 3)::FLOAT / 3 AS third,
      CASE WHEN i % 8 > 0 THEN 9007199254740993 + i % 3 END AS big, i % 4 AS "Odd key's", cos(i) + i % 3 AS y
    FROM range(400) AS r(i)
"""
EVERY = (
    "impute(x), zscore(z), minmax(x, impute := 'median'), robust(z), impute(truth), bins(x, 5, null := true), bins(z, 4),"
    " onehot(word), onehot(word, null := true, min_count := 45), onehot(day), onehot(moment), onehot(price), onehot(third),"
    " onehot(big), onehot(truth), ordinal(z > 3), cross(word, truth), cross(day, word, null := true), hash(word, 16),"
    " hash(big, 1000), hash(truth, 3), sin(z * 2 * pi() / 24), CASE WHEN word LIKE 'a%' THEN 2 ELSE z END, abs(z - 3) ** 1.5,"
    " parts(day, impute := 0), parts(moment, ['hour', 'minute', 'days', 'day_of_year', 'weekday_sin'], impute := 1)"
)
OF = {
    "linear_regression": "PREDICT y",
    "logistic_regression": "PREDICT word IS NULL OR y > 1 AS late",
    "kmeans": "",
    "pca": "",
    "gbdt": "PREDICT y",
    "mlp": "PREDICT y",
}
WITH = {
    "kmeans": "OVER GRID (k IN (3))",
    "pca": "OVER GRID (n_components IN (3))",
    "mlp": "OVER GRID (hidden_layers IN ([6])) WITH (epochs = 2)",
}


@pytest.mark.parametrize("learner", OF)
def test_every_encoder_and_odd_value(learner: str, postgres: Postgres, tmp_path: Path) -> None:
    name = f"Odd ü of {learner}"
    features = EVERY if not OF[learner] else f"{EVERY}, target(word), target(big)"
    with grouplearn.connect(progress=None) as con:
        con.execute(ODD)
        con.execute(
            f'TRAIN MODEL "{name}" USING {learner} {OF[learner]} FEATURES ({features}) FROM odd'
            f' GROUP BY ROLLUP ("Odd key\'s", word) HAVING count(*) > 12 {WITH.get(learner, "")}'
        )
        con.execute(
            "INSERT INTO odd (id, z, word, day, big, \"Odd key's\") VALUES (900, 1, 'new', '1066-10-14', 3, 99)"
        )
        compare(con, name, "odd", postgres, tmp_path)
