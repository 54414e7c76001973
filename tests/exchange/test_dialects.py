"""The SQL of other databases: run by DuckDB where it can be, read again by sqlglot, and small models as they are written."""

import os
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from dialect_rows import assert_predicts_the_same
from exchange_models import MODELS

import grouplearn
from grouplearn.models.dialects import databases
from grouplearn.models.dialects.databases import DATABASES, Database

WRITTEN = Path(__file__).parent / "dialects"
#: DuckDB as a database whose queries may number rows twice in two ways, as all but Postgres.
DUCKDB = Database(
    "duckdb",
    "DuckDB",
    "never",
    "except",
    "CAST('0x' || {} AS BIGINT)",
    {"isodow": "isodow({})", "doy": "dayofyear({})", "days": "epoch_us({}) / 86400000000.0"},
    rounds=True,
)
SMALL = """
    CREATE TABLE small AS SELECT i % 3 AS shop, ['a', 'b''c', NULL][i % 3 + 1] AS kind, i % 5 AS size,
      DATE '2024-01-01' + i::INT AS day, CASE WHEN i % 7 > 0 THEN i / 8.0 END AS weight, i % 4 > 1 AS late, i % 11 AS n
    FROM range(60) AS r(i)
"""
STATEMENTS = {
    "logistic_regression": "PREDICT late FEATURES (zscore(weight), onehot(kind, null := true), hash(size, 4),"
    " parts(day, ['weekday']), cross(kind, size)) GROUP BY ROLLUP (shop)",
    "kmeans": "FEATURES (zscore(size), onehot(kind)) GROUP BY shop OVER GRID (k IN (2))",
    "pca": "FEATURES (zscore(size), n) OVER GRID (n_components IN (1))",
    "gbdt": "PREDICT n FEATURES (size, kind) WITH (num_iterations = 2)",
    "mlp": "PREDICT n FEATURES (zscore(size)) OVER GRID (hidden_layers IN ([2])) WITH (epochs = 1)",
}


@pytest.mark.parametrize("name", MODELS)
def test_without_row_numbers_predictions_are_the_same(
    name: str, con: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(databases.DATABASES, "duckdb", DUCKDB)  # type: ignore[arg-type]
    folder = tmp_path / "m"
    con.execute(f"EXPORT MODEL {name} TO '{folder}' (FORMAT sql, DIALECT 'duckdb', SOURCE 'fresh')")
    con.execute(f"COPY fresh TO '{tmp_path / 'fresh.parquet'}'")
    with duckdb.connect() as elsewhere:
        elsewhere.execute(f"CREATE TABLE fresh AS FROM '{tmp_path / 'fresh.parquet'}'")
        elsewhere.execute((folder / "model.sql").read_text(encoding="utf-8"))
        found = elsewhere.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {name}_predictions")
        columns = [each[0] for each in found.description]
        there = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    assert_predicts_the_same(con, name, "fresh", there)


@pytest.mark.parametrize("dialect", DATABASES)
@pytest.mark.parametrize("learner", STATEMENTS)
def test_what_is_written_is_read_again(learner: str, dialect: str, tmp_path: Path) -> None:
    model, predict = written(learner, dialect, tmp_path)
    made = sqlglot.parse(model, read=dialect)
    assert not [each for each in made if isinstance(each, sqlglot.exp.Command) and each.name not in ("BEGIN",)]
    assert [each for each in made if isinstance(each, sqlglot.exp.Create) and each.kind == "VIEW"]
    assert isinstance(sqlglot.parse_one(predict.replace("{source}", "t"), read=dialect), sqlglot.exp.Select)


@pytest.mark.parametrize("dialect", DATABASES)
def test_a_small_model(dialect: str, tmp_path: Path) -> None:
    """GROUPLEARN_COMPLETE=1 writes what is seen; weights are left out."""
    model, _ = written("logistic_regression", dialect, tmp_path)
    seen = re.sub(r"^\(.*\)", lambda row: re.sub(r"-?\d+\.\d+(e-?\d+)?", "0.0", row[0]), model, flags=re.MULTILINE)
    file = WRITTEN / f"{dialect}.sql"
    if os.environ.get("GROUPLEARN_COMPLETE") == "1":
        file.write_text(seen, encoding="utf-8")
    assert seen == file.read_text(encoding="utf-8")


def written(learner: str, dialect: str, folder: Path) -> tuple[str, str]:
    """The files of a small model."""
    clauses = STATEMENTS[learner]
    label, _, rest = clauses.rpartition("FEATURES")
    features, bracket, after = rest.partition(" GROUP BY") if " GROUP BY" in rest else (rest, "", "")
    with grouplearn.connect(progress=None) as con:
        con.execute(SMALL)
        con.execute(f"TRAIN MODEL m USING {learner} {label} FROM small FEATURES{features}{bracket}{after}")
        con.execute(f"EXPORT MODEL m TO '{folder / 'm'}' (FORMAT sql, DIALECT '{dialect}', SOURCE 'shop.small')")
    return tuple((folder / "m" / name).read_text(encoding="utf-8") for name in ("model.sql", "predict.sql"))  # type: ignore[return-value]
