"""Runs every statement on databases that were spoiled, and writes one line per finding: in a process of its own, which may die.

``python victim.py DIRECTORY``: the directory has ``base.duckdb``, ``secret`` and ``cases.json``.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

import grouplearn
from grouplearn.errors import OtherVersion

#: What a secret file says, and no answer or error may.
SECRET = "this-was-read-from-a-file"
#: The models, and what each is exported as besides.
MODELS = {"linear": ("onnx", "safetensors"), "trees": ("onnx", "lightgbm"), "network": ("onnx", "safetensors")}
#: What an object of Python shows of a model.
SHOWN = ("report", "__repr__", "_repr_html_", "trials", "curves", "weights", "importance", "schedule")
#: Seconds of processor time for one statement: what waits for ever ends with the whole.
LONGEST = 10.0


def main(directory: Path) -> None:
    """Try the cases, and say before each which it is."""
    for number, (name, sql) in enumerate(json.loads((directory / "cases.json").read_text())):
        print(f"CASE {name}", flush=True)
        database = directory / f"case{number}.duckdb"
        shutil.copy(directory / "base.duckdb", database)
        if _spoil(database, sql):
            began = time.process_time()
            for finding in _statements(directory, database, [*MODELS][number % len(MODELS)]):
                # What a macro of the file says runs where DuckDB alone runs a macro: strangers-databases.md in docs/.
                if not (sql.startswith("CREATE MACRO") and finding.startswith("READ FROM")):
                    print(f"FOUND {finding}", flush=True)
            print(f"TOOK {time.process_time() - began:.2f}", flush=True)
        database.unlink()
        Path(f"{database}.wal").unlink(missing_ok=True)
        shutil.rmtree(directory / "out", ignore_errors=True)


def _spoil(database: Path, sql: str) -> bool:
    with duckdb.connect(str(database)) as con:
        try:
            con.execute(sql)
        except duckdb.Error:  # a constraint of ours
            return False
    return True


def _statements(directory: Path, database: Path, model: str) -> Iterator[str]:
    with grouplearn.connect(str(database), progress=None) as con:
        yield from _try(directory, "SHOW MODELS", lambda: con.execute("SHOW MODELS").fetchall())
        yield from _try(directory, "SHOW RUNS", lambda: con.execute("SHOW RUNS").fetchall())
        out = directory / "out"
        texts = (
            f"DESCRIBE MODEL {model}",
            f"SELECT predict('{model}', t) FROM t LIMIT 3",
            f"SELECT predict_value('{model}', t) FROM t LIMIT 3",
            f"FROM {model}_predict(t) LIMIT 3",
            f"EVALUATE MODEL {model} ON t",
            f"EXPORT MODEL {model} TO '{out}/native'",
            f"IMPORT MODEL again FROM '{out}/native'",
            f"EXPORT MODEL {model} TO '{out}/sql' (FORMAT sql)",
            *(f"EXPORT MODEL {model} TO '{out}/{kind}' (FORMAT {kind})" for kind in MODELS[model]),
            f"TRAIN MODEL twin USING linear_regression PREDICT y FROM t WITH (operator = 'mop', replay = '{model}')",
            f"RETRY FAILED MODEL {model}",
            f"ALTER MODEL {model} RENAME TO renamed",
            f"ALTER MODEL renamed RENAME TO {model}",
            "TRAIN OR REPLACE MODEL fresh USING linear_regression PREDICT y FEATURES (x) FROM t",
        )
        for text in texts:
            yield from _try(directory, text, lambda text=text: con.execute(text).fetchall())
        for part in SHOWN:
            yield from _try(directory, f"{part} of {model}", lambda part=part: _shown(con, model, part), own=True)
        yield from _try(directory, f"DROP MODEL {model}", lambda: _drop(con, model))


def _shown(con: grouplearn.Connection, model: str, part: str) -> object:
    shown = getattr(con.model(model), part)
    return shown.fetchall() if hasattr(shown, "fetchall") else shown()


def _drop(con: grouplearn.Connection, model: str) -> None:
    """Drop what may be damaged, which succeeds; not where the tables are not ours, or of another version."""
    try:
        con.execute(f"DROP MODEL IF EXISTS {model}").fetchall()
    except (grouplearn.NotTrusted, OtherVersion):
        return
    except duckdb.Error as error:
        raise AssertionError(f"a model cannot be dropped: {error}") from error
    if model in [row[0] for row in con.execute("SHOW MODELS").fetchall()]:
        raise AssertionError("a model is shown that is dropped")


def _try(directory: Path, what: str, run: Callable[[], object], own: bool = False) -> Iterator[str]:
    """Yield what is wrong with a statement, or with what is made of our tables alone (``own``), and no expression of a model."""
    told, allowed, began = "", True, time.monotonic()
    try:
        told = str(run())
    except duckdb.Error as error:
        told = str(error)
        known = not isinstance(error, duckdb.InternalException | duckdb.FatalException)
        ours = any(name in told for name in ("NotTrusted", "DataError", "OtherVersion"))
        allowed = ours or isinstance(error, grouplearn.Error)
        allowed = allowed or (not own and known and "Python exception occurred" not in told)
    except BaseException as error:
        told, allowed = f"{type(error).__name__}: {error}", False
    if not allowed:
        yield f"RAW {what}: {told[:300]!r}"
    if time.process_time() - began > LONGEST:
        yield f"SLOW {what}: {time.process_time() - began:.0f} s"
    if SECRET in told:
        yield f"READ {what}: {told[:300]!r}"
    if (directory / "canary").exists():
        (directory / "canary").unlink()
        yield f"WRITTEN {what}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
