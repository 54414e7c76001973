"""A table larger than memory: what a TRAIN of it keeps resident under a memory limit, and how fast it is.

One table has 32 DOUBLE features, a number and a class to predict, in 2,501 groups: one has 60% of the rows, the others are
small. The other has 20 categories and a class: 5 of them texts, of which 4 have 10 values and one 100,000, and 15 numbers of
1,000 values, small ones the more frequent (by Zipf's law); it trains one wide model, and is predicted as a whole. Both are made
by hashes of row numbers, so the same every time. Each statement runs in a process of its own that says how much memory it ever
had resident (VmHWM), and at most how much of it was its own (RssAnon) and how much mapped files (RssFile). A run that exceeds
the limit is marked ``OVER``.

    python benchmarks/larger_than_memory.py [--gigabytes 10] [--limit 2GB] [--directory DIR] [--only gbdt --limit 3GB]
    python benchmarks/larger_than_memory.py --only categorical [--rows 50_000_000] [--limit 4GB] [--directory DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
from _pairs import write

import grouplearn

FEATURES, GROUPS, DOMINANT = 32, 2_500, 0.6
ROW_BYTES = 8 * FEATURES + 8 + 1 + 4
#: How many values each category has.
VALUES = (10,) * 4 + (1_000,) * 15 + (100_000,)
_READINGS = (
    f"TRAIN OR REPLACE MODEL m USING {{}} PREDICT {{}} FEATURES ({', '.join(f'x{k}' for k in range(FEATURES))}) FROM readings"
    " GROUP BY g OVER GRID ({}) KEEP ALL WITH ({}executor = 'local', memory_limit = '{{limit}}')"
)
_VISITS = (
    f"TRAIN OR REPLACE MODEL {{}} USING logistic_regression PREDICT late"
    f" FEATURES ({', '.join(f'onehot(c{k})' for k in range(len(VALUES)))}) FROM visits VALIDATE NONE"
    " WITH (solver = '{}', {}l2 = 1, executor = 'local', memory_limit = '{{limit}}')"
)
_JUDGED = "SELECT count(*), avg(p), avg(((p > 0.5) = late)::INTEGER) FROM (SELECT late, {} AS p FROM {})"
#: What runs on each table, by the name that it is shown by: SQL with the limit to come.
STATEMENTS = {
    "dense": {
        "linear_regression": _READINGS.format("linear_regression", "y", "l2 IN (0.1, 1, 10)", ""),
        "logistic_regression": _READINGS.format("logistic_regression", "late", "l2 IN (0.1, 1, 10)", "epochs = 10, "),
        "gbdt": _READINGS.format("gbdt", "late", "num_leaves IN (7, 15)", "num_iterations = 10, "),
    },
    "categorical": {
        "coordinate_descent": _VISITS.format("m", "coordinate_descent", "tolerance = 1e-3, "),
        "sgd": _VISITS.format("s", "sgd", "epochs = 2, "),
        "averaging": _VISITS.format("a", "sgd", "epochs = 2, operator = 'averaging', partitions = 4, "),
        "macro": _JUDGED.format("probability", "m_predict(visits)"),
        "predict()": _JUDGED.format("predict_probability('m', visits)", "visits"),
    },
}
ALL = {name: sql for statements in STATEMENTS.values() for name, sql in statements.items()}


def made(path: Path, select: str) -> None:
    """Write a table to a new file, its rows in any order."""
    with duckdb.connect(str(path)) as con:
        con.execute("SET preserve_insertion_order = false; SET memory_limit = '2GB'")
        con.execute(f"CREATE TABLE {path.stem} AS {select}")


def visits(path: Path, rows: int, seed: int) -> None:
    """Write the table of categories: a hash u in (0, 1) of (seed, row, column) is the value (n + 1)^u, of which a hash is the
    effect."""
    uniform = f"(hash({seed} * 10000000000000 + i * 64 + {{}}) / 18446744073709551616.0)"
    codes = ", ".join(f"(floor(({n} + 1) ** {uniform.format(k)}) - 1)::INTEGER AS c{k}" for k, n in enumerate(VALUES))
    effect = " + ".join(f"hash(c{k} * 32 + {k}) / 9223372036854775808.0 - 1" for k in range(len(VALUES)))
    texts = ", ".join(f"'v' || c{k} AS c{k}" for k, n in enumerate(VALUES) if n != 1_000)
    made(
        path,
        f"SELECT * EXCLUDE u REPLACE ({texts}), ({effect}) * 0.7 + ln(u / (1 - u)) > 0 AS late"
        f" FROM (SELECT {codes}, {uniform.format(62)} AS u FROM range({rows}) AS t(i))",
    )


def readings(path: Path, rows: int, seed: int) -> None:
    """Write the table of numbers: every value is a hash of (seed, row, column), scaled to (-1, 1)."""
    # Hashes of several values are too alike: each value is the hash of a number of its own.
    uniform = f"(hash({seed} * 10000000000000 + i * 64 + {{column}}) / 9223372036854775808.0 - 1)"
    columns = ", ".join(f"{uniform.format(column=k)} AS x{k}" for k in range(FEATURES))
    score = " + ".join(f"{(k % 5 - 2) / 4} * x{k}" for k in range(FEATURES))
    group = f"CASE WHEN u < {DOMINANT} THEN 0 ELSE 1 + hash(i) % {GROUPS} END::INTEGER"
    made(
        path,
        f"SELECT {group} AS g, * EXCLUDE (i, u, noise), {score} + noise AS y, {score} + noise > 0 AS late"
        f" FROM (SELECT i, ({uniform.format(column=62)} + 1) / 2 AS u, {uniform.format(column=63)} AS noise, {columns}"
        f" FROM range({rows}) AS t(i))",
    )


class Memory:
    """Samples what the process has resident until it is stopped."""

    def __init__(self) -> None:
        self.most = {"RssAnon": 0, "RssFile": 0, "VmRSS": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            now = status()
            self.most = {name: max(most, now[name]) for name, most in self.most.items()}

    def stop(self) -> dict[str, int]:
        self._stop.set()
        self._thread.join()
        return {**self.most, "VmHWM": status()["VmHWM"]}


def status() -> dict[str, int]:
    """Return the lines in kB of /proc/self/status, in bytes."""
    text = Path("/proc/self/status").read_text()
    return {name: 1024 * int(kilobytes) for name, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", text)}


def run(path: Path, name: str, limit: str) -> dict[str, Any]:
    """Train in this process, or predict, and return what it took."""
    sql = ALL[name].format(limit=limit)
    memory, began = Memory(), time.perf_counter()
    with grouplearn.connect(path, progress=False) as con:
        if sql.startswith("SELECT"):
            # A query has DuckDB's own limit, which counts its buffers alone.
            con.execute(f"SET memory_limit = '{bytes_of(limit) / 2:.0f}B'")
            _, mean, right = con.execute(sql).fetchall()[0]
            said = f"mean {mean:.6f}, {right:.2%} right"
        else:
            con.execute(sql)
            model = sql.split()[4]
            counted = con.execute(f"SELECT count(*), count(*) FILTER (status <> 'done'), max(epochs) FROM {model}")
            models, failed, epochs = counted.fetchall()[0]
            ((operator,),) = con.execute(
                f"SELECT operator FROM grouplearn.models WHERE model_name = '{model}'"
            ).fetchall()
            said = f"{models} models, {failed} failed, {epochs} epochs, {operator}"
        seconds, processor = time.perf_counter() - began, time.process_time()
    return {**memory.stop(), "seconds": seconds, "processor": processor, "said": said}


def measured(path: Path, name: str, limit: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--run", name, "--limit", limit, "--directory", str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(name: str, rows: int, found: dict[str, Any], limit: int) -> None:
    sizes = ", ".join(f"{name} {found[name] / 1e9:.2f} GB" for name in ("VmHWM", "RssAnon", "RssFile"))
    speed = f"{found['seconds']:.0f} s ({found['processor']:.0f} s of processors), {rows / found['seconds'] / 1e3:.0f}k rows/s"
    mark = "  OVER" if found["VmHWM"] > limit else ""
    print(f"{name:20} {speed:48} {sizes}  {found['said']}{mark}", flush=True)


def bytes_of(limit: str) -> int:
    return int(float(limit.removesuffix("GB")) * 1e9)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--rows", type=int, default=50_000_000, help="of the table of categories")
    parser.add_argument("--limit", default="2GB")
    parser.add_argument("--directory", type=Path, help="where the tables are, and are left for the next run")
    parser.add_argument("--only", choices=(*STATEMENTS, *ALL), nargs="*", default=["dense"])
    parser.add_argument("--run", choices=tuple(ALL), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.directory or Path(temporary)
        if given.run:
            print(json.dumps(run(path_of(directory, given.run), given.run, given.limit)))
            return
        results = []
        for name in [each for only in given.only for each in STATEMENTS.get(only, [only])]:
            path = path_of(directory, name)
            if not path.exists():
                began = time.perf_counter()
                make, rows = (
                    (visits, given.rows)
                    if path.stem == "visits"
                    else (readings, int(given.gigabytes * 1e9 / ROW_BYTES))
                )
                make(path, rows, seed=1)
                print(
                    f"{rows:,} rows made in {time.perf_counter() - began:.0f} s, {os.path.getsize(path) / 1e9:.1f} GB",
                    flush=True,
                )
            with duckdb.connect(str(path), read_only=True) as con:
                (rows,) = con.execute(f"SELECT count(*) FROM {path.stem}").fetchall()[0]
            found = measured(path, name, given.limit)
            show(name, rows, found, bytes_of(given.limit))
            results.append({"statement": name, "rows": rows, "limit": given.limit, **found})
    write(__file__, results)


def path_of(directory: Path, name: str) -> Path:
    """Return the file of the table that a statement is about."""
    return directory / ("visits.duckdb" if name in STATEMENTS["categorical"] else "readings.duckdb")


if __name__ == "__main__":
    main()
