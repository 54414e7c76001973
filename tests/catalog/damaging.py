"""A database of small models, its catalog damaged column by column, and every statement run on it: in a process of its own.

Run as ``python damaging.py SEED DIRECTORY``. What is found goes to standard output, a line each.
"""

import contextlib
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

import grouplearn
from grouplearn.catalog.schema import TABLES

MODELS = {
    "line": ("linear_regression", "y", "x, zscore(z), onehot(k), hash(k, 4)", ""),
    "trees": ("gbdt", "kind", "x, ordinal(k), hash(k, 4)", "OVER GRID (num_iterations IN (2, 3))"),
    "net": ("mlp", "y > 3", "zscore(x), onehot(k)", "OVER GRID (hidden_layers IN ([3])) WITH (epochs = 1)"),
    "other": ("linear_regression", "y", "x", ""),
}
#: What stands in a column instead, by the words of its type.
HOSTILE = {
    "INTEGER": ("NULL", "-1", "2147483647", "20000", "0", "-2147483648"),
    "BIGINT": ("NULL", "-1", "9223372036854775807"),
    "DOUBLE": ("NULL", "'nan'", "'-inf'", "1e308"),
    "BOOLEAN": ("NULL", "true", "false"),
    "VARCHAR": ("NULL", "''", "'x'", "'tanh'", "repeat('(', 100000)", "'DOUBLE[999999999]'"),
    "BLOB": ("NULL", "''", "'tree'::BLOB"),
    "TIMESTAMP": ("NULL", "'infinity'"),
}
STATEMENTS = (
    "SHOW MODELS",
    "DESCRIBE MODEL {m}",
    "EVALUATE MODEL {m} ON t",
    "SELECT predict('{m}', t) FROM t LIMIT 20",
    "FROM {m}_predict(t) LIMIT 20",
    "RETRY FAILED MODEL {m}",
    "ALTER MODEL {m} RENAME TO {m}_2",
    "EXPORT MODEL {m} TO '{to}' (FORMAT native, OVERWRITE)",
    "EXPORT MODEL {m} TO '{to}_2' (FORMAT {format}, OVERWRITE)",
    "EXPORT MODEL {m} TO '{to}_3' (FORMAT sql, OVERWRITE)",
    "IMPORT OR REPLACE MODEL again FROM '{to}'",
    "TRAIN MODEL twin USING linear_regression PREDICT y FROM t WITH (operator = 'mop', replay = '{m}')",
)
FORMATS = {"line": "onnx", "trees": "lightgbm", "net": "safetensors"}
_LONGEST = 10.0


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


def hostile(kind: str) -> tuple[str, ...]:
    """Return values of a column, in SQL: of a list also one that is empty, has NULL in it, or is longer than it was."""
    if kind.endswith("[]"):
        inner = kind[:-2]
        each = [f"[CAST({value} AS {inner})]" for value in hostile(inner)]
        return ("NULL", "[]", "{column} || {column}", "{column}[2:]", "list_reverse({column})", *each)
    if kind.startswith("STRUCT"):
        names = ("name", "kind", "position", "encoder", "impute", "scope", "buckets", "type")
        return ("NULL", *(f"struct_update({{first}}, {name} := {value})" for name in names for value in ("NULL", "-1")))
    if kind.startswith("MAP"):
        return ("NULL", "MAP {}")
    return HOSTILE.get(kind, ("NULL",))


def damages(path: Path) -> list[tuple[str, str, str]]:
    """Return every table, column and hostile value."""
    with duckdb.connect(str(path), read_only=True) as con:
        found = []
        for table in TABLES:
            for column, kind, *_ in con.execute(f"DESCRIBE grouplearn.{table}").fetchall():
                if column not in ("model", "schema_name", "model_name"):
                    found += [(table, column, value) for value in hostile(kind)]
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


def run(path: Path, folder: Path, told: str) -> None:
    """Run every statement on every model; what raises another error than ours or DuckDB's, or takes long, is told."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with grouplearn.connect(str(path), progress=False) as con:
        for name, format_name in FORMATS.items():
            for text in STATEMENTS:
                statement = text.format(m=name, to=folder / name, format=format_name)
                tried(con, statement, told)
            tried(con, lambda name=name: con.model(name).report(), told)
            tried(con, f"DROP MODEL IF EXISTS {name}_2", told, may_fail=False)
            tried(con, f"DROP MODEL IF EXISTS {name}", told, may_fail=False)
        left = [row[0] for row in con.execute("SHOW MODELS").fetchall()]
        if "other" not in left or set(left) & set(FORMATS):
            print(f"{told}: SHOW MODELS has {left}")


def tried(con: grouplearn.Connection, statement: Any, told: str, *, may_fail: bool = True) -> None:
    began = time.monotonic()
    try:
        if callable(statement):
            statement()
        else:
            con.execute(statement).fetchall()
    except duckdb.Error as error:
        wrong = next((word for word in _PYTHONS if word in str(error)), None)
        if wrong or not may_fail or isinstance(error, duckdb.InternalException):
            print(f"{told}: {statement}: {type(error).__name__}: {str(error)[:300]!r}")
    except BaseException as error:
        print(f"{told}: {statement}: {type(error).__name__}: {str(error)[:300]!r}")
    if time.monotonic() - began > _LONGEST:
        print(f"{told}: {statement} took {time.monotonic() - began:.0f} s")


#: What is in the text of an error that Python raised inside of DuckDB.
_PYTHONS = ("Traceback", "TypeError", "ValueError", "KeyError", "IndexError", "AttributeError", "RecursionError")


def main(seed: int, folder: Path, count: int) -> None:
    whole, broken = folder / "whole.duckdb", folder / "broken.duckdb"
    if not whole.exists():
        make(whole)
    chosen = damages(whole)
    random.Random(seed).shuffle(chosen)
    for table, column, value in chosen[:count]:
        shutil.copy(whole, broken)
        if damage(broken, table, column, value):
            run(broken, folder / "exports", f"{table}.{column} = {value[:60]}")
    print("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
