"""A database of small models, and its catalog damaged in one column."""

import contextlib
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np

import grouplearn
from grouplearn.models.forms.trees import leaf_tables

MODELS = {
    "line": ("linear_regression", "y", "x, zscore(z), onehot(k), hash(k, 4)", ""),
    "trees": ("gbdt", "kind", "x, ordinal(k), hash(k, 4)", "OVER GRID (num_iterations IN (2, 3))"),
    "leaves": ("gbdt", "kind", "x, ordinal(k), hash(k, 4)", "WITH (num_iterations = 2)"),
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
            rows = "t WHERE kind <> 'c' OR g = 1" if learner == "gbdt" else "t"
            with mock.patch.object(
                leaf_tables, "MOST_SLOTS", 0 if name == "trees" else leaf_tables.MOST_SLOTS
            ):  # walked
                con.execute(
                    f"TRAIN MODEL {name} USING {learner} PREDICT {target} AS label FEATURES ({features}) FROM {rows}"
                    f" GROUP BY ROLLUP (g) {rest}"
                ).fetchall()


def patch(path: Path, text: bytes, other: bytes) -> int:
    """Put other bytes in the place of a text in the file, and the checksums of its blocks right; returns how often."""
    header, size = 3 * 4096, 262_144
    content, found = bytearray(path.read_bytes()), 0
    for start in range(header, len(content), size):
        block = content[start + 8 : start + size]
        if text not in block:
            continue
        found += block.count(text)
        block = block.replace(text, other)
        with np.errstate(over="ignore"):
            words = np.frombuffer(block, "<u8", len(block) // 8) * np.uint64(0xBF58476D1CE4E5B9)
        content[start : start + 8] = int(np.bitwise_xor.reduce(words) ^ np.uint64(5381)).to_bytes(8, "little")
        content[start + 8 : start + size] = block
    path.write_bytes(content)
    return found


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
