"""A table larger than memory: what a TRAIN of it keeps resident under a memory limit, and how fast it is.

The table has 32 DOUBLE features, a number and a class to predict, in 2,501 groups: one has 60% of the rows, the others are
small. It is made by hashes of row numbers, so the same every time. Each statement runs in a process of its own that says how
much memory it ever had resident (VmHWM), and at most how much of it was its own (RssAnon) and how much mapped files (RssFile).
A run that exceeds the limit is marked ``OVER``.

    python benchmarks/larger_than_memory.py [--gigabytes 10] [--limit 2GB] [--directory DIR] [--only gbdt --limit 3GB]
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
STATEMENTS = {
    "linear_regression": ("y", "OVER GRID (l2 IN (0.1, 1, 10))", ""),
    "logistic_regression": ("late", "OVER GRID (l2 IN (0.1, 1, 10))", "epochs = 10, "),
    "gbdt": ("late", "OVER GRID (num_leaves IN (7, 15))", "num_iterations = 10, "),
}


def generate(path: Path, rows: int, seed: int) -> None:
    """Write the table: every value is a hash of (seed, row, column), scaled to (-1, 1)."""
    with duckdb.connect(str(path)) as con:
        con.execute("SET preserve_insertion_order = false; SET memory_limit = '2GB'")
        # Hashes of several values are too alike: each value is the hash of a number of its own.
        uniform = f"(hash({seed} * 10000000000000 + i * 64 + {{column}}) / 9223372036854775808.0 - 1)"
        columns = ", ".join(f"{uniform.format(column=k)} AS x{k}" for k in range(FEATURES))
        score = " + ".join(f"{(k % 5 - 2) / 4} * x{k}" for k in range(FEATURES))
        group = f"CASE WHEN u < {DOMINANT} THEN 0 ELSE 1 + hash(i) % {GROUPS} END::INTEGER"
        con.execute(
            f"CREATE TABLE readings AS SELECT {group} AS g, * EXCLUDE (i, u, noise), {score} + noise AS y, "
            f"{score} + noise > 0 AS late FROM (SELECT i, ({uniform.format(column=62)} + 1) / 2 AS u, "
            f"{uniform.format(column=63)} AS noise, {columns} FROM range({rows}) AS t(i))"
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


def train(path: Path, learner: str, limit: str) -> dict[str, Any]:
    """Train in this process and return what it took."""
    label, search, options = STATEMENTS[learner]
    features = ", ".join(f"x{k}" for k in range(FEATURES))
    memory, began = Memory(), time.perf_counter()
    with grouplearn.connect(path, progress=False) as con:
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES ({features}) FROM readings GROUP BY g "
            f"{search} WITH ({options}executor = 'local', memory_limit = '{limit}')"
        )
        seconds = time.perf_counter() - began
        models, failed = con.execute("SELECT count(*), count(*) FILTER (status <> 'done') FROM m").fetchall()[0]
        operator = con.execute("SELECT DISTINCT operator FROM grouplearn.models").fetchall()[0][0]
    return {**memory.stop(), "seconds": seconds, "models": models, "failed": failed, "operator": operator}


def measured(path: Path, learner: str, limit: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--train", learner, "--limit", limit, "--directory", str(path.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(learner: str, rows: int, found: dict[str, Any], limit: int) -> None:
    sizes = ", ".join(f"{name} {found[name] / 1e9:.2f} GB" for name in ("VmHWM", "RssAnon", "RssFile"))
    speed = f"{found['seconds']:.0f} s, {rows / found['seconds'] / 1e3:.0f}k rows/s"
    mark = "  OVER" if found["VmHWM"] > limit else ""
    print(f"{learner:22} {speed:26} {sizes}  {found['models']} models, {found['failed']} failed{mark}", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--limit", default="2GB")
    parser.add_argument("--directory", type=Path, help="where the table is, and is left for the next run")
    parser.add_argument("--only", choices=tuple(STATEMENTS))
    parser.add_argument("--train", choices=tuple(STATEMENTS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    with tempfile.TemporaryDirectory() as temporary:
        path = (given.directory or Path(temporary)) / "readings.duckdb"
        if given.train:
            print(json.dumps(train(path, given.train, given.limit)))
            return
        rows = int(given.gigabytes * 1e9 / ROW_BYTES)
        if not path.exists():
            began = time.perf_counter()
            generate(path, rows, seed=1)
            print(f"{rows:,} rows made in {time.perf_counter() - began:.0f} s, {os.path.getsize(path) / 1e9:.1f} GB")
        with duckdb.connect(str(path), read_only=True) as con:
            (rows,) = con.execute("SELECT count(*) FROM readings").fetchall()[0]
        results = []
        for learner in [given.only] if given.only else list(STATEMENTS):
            found = measured(path, learner, given.limit)
            show(learner, rows, found, int(float(given.limit.removesuffix("GB")) * 1e9))
            results.append({"learner": learner, "rows": rows, "limit": given.limit, **found})
    write(__file__, results)


if __name__ == "__main__":
    main()
