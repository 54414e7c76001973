"""A database of small models, and its catalog damaged in one column."""

import contextlib
from pathlib import Path

import duckdb

import grouplearn

MODELS = {
    "line": ("linear_regression", "y", "x, zscore(z), onehot(k), hash(k, 4)", ""),
    "trees": ("gbdt", "kind", "x, ordinal(k), hash(k, 4)", "OVER GRID (num_iterations IN (2, 3))"),
    "net": ("mlp", "y > 3", "zscore(x), onehot(k)", "OVER GRID (hidden_layers IN ([3])) WITH (epochs = 1)"),
    "other": ("linear_regression", "y", "x", ""),
}


def make(path: Path) -> None:
    """Make the database and its models."""
    with grouplearn.connect(str(path), progress=False) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 2 AS g, i * 0.37 % 7 AS x, i * 1.3 % 5 AS z, 'k' || (i % 5) AS k, i % 7 AS y,"
            " ['a', 'b', 'c'][i % 3 + 1] AS kind FROM range(90) AS r(i)"
        )
        for name, (learner, target, features, rest) in MODELS.items():
            rows = "t WHERE kind <> 'c' OR g = 1" if name == "trees" else "t"
            con.execute(
                f"TRAIN MODEL {name} USING {learner} PREDICT {target} AS label FEATURES ({features}) FROM {rows}"
                f" GROUP BY ROLLUP (g) {rest}"
            ).fetchall()


def damage(path: Path, table: str, column: str, value: str) -> bool:
    """Write a hostile value into a column of the first three models; False where DuckDB does not take it."""
    with duckdb.connect(str(path)) as con:
        written = value.replace("{column}", column).replace("{first}", f"{column}[1]")
        with contextlib.suppress(duckdb.Error):
            con.execute(f"ALTER TABLE grouplearn.{table} ALTER COLUMN {column} DROP NOT NULL")
        try:
            changed = con.execute(
                f"UPDATE grouplearn.{table} SET {column} = {written} WHERE model IN"
                " (SELECT model FROM grouplearn.models WHERE model_name <> 'other')"
            ).fetchall()
        except duckdb.Error:
            return False
        return changed[0][0] > 0
