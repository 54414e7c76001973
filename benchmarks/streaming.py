"""A stream of rows that is read once: what stays resident, and how fast it is, whatever the number of rows.

A generator makes record batches of four DOUBLE features, a number to predict and one of ten groups. ``one pass`` trains a
linear regression per group while it reads them, and keeps none. ``kept`` trains the same with ``zscore``, which needs to see all
rows before: they are kept in a temporary table of DuckDB's, under the memory limit. ``table`` is what a user would do without
either: read all batches into an Arrow table, and train on that. ``NumPy`` is the least that one pass can take: X'X and X'y per
group. Each runs in a process of its own, which says how much memory it ever had resident (VmHWM).

    python benchmarks/streaming.py [--rows 500_000 5_000_000 50_000_000] [--only "one pass"] [--limit 1GB]
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import grouplearn

FEATURES, GROUPS, BATCH = "abcd", 10, 100_000
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES ({}) FROM rows GROUP BY g WITH (memory_limit = '{}')"
RUNS = ("one pass", "kept", "table", "NumPy")


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield that many rows; the weights of a group are 1 to 4, its intercept is its number."""
    draws = np.random.default_rng(1)
    noise = draws.normal(size=BATCH)
    for first in range(0, rows, BATCH):
        x, g = draws.random((len(FEATURES), min(BATCH, rows - first))), np.arange(min(BATCH, rows - first)) % GROUPS
        y = (np.arange(1, 5)[:, None] * x).sum(axis=0) + g + noise[: len(g)]
        yield pa.record_batch({**dict(zip(FEATURES, x, strict=True)), "g": g, "y": y})


def in_numpy(rows: Iterator[pa.RecordBatch]) -> float:
    """Return the first weight of group 0 by the normal equations."""
    sums = np.zeros((GROUPS, 6, 6))
    for batch in rows:
        design = np.column_stack(
            [*(batch[name].to_numpy() for name in FEATURES), np.ones(batch.num_rows), batch["y"].to_numpy()]
        )
        group = batch["g"].to_numpy()
        for each in range(GROUPS):
            own = design[group == each]
            sums[each] += own.T @ own
    return float(np.linalg.solve(sums[0, :5, :5], sums[0, :5, 5])[0])


def in_database(name: str, rows: Any, limit: str) -> float:
    """Return the first weight of group 0, of features as they are written."""
    features = ", ".join(f"zscore({each})" for each in FEATURES) if name == "kept" else ", ".join(FEATURES)
    with grouplearn.connect(progress=False) as con:
        con.execute("SET enable_progress_bar = false")
        con.execute(TRAIN.format(features, limit))
        predicted = "SELECT predict_value('m', {'a': %s, 'b': 0, 'c': 0, 'd': 0, 'g': 0})"
        one, zero = (con.execute(predicted % value).fetchall()[0][0] for value in (1.0, 0.0))
    assert rows is not None
    return float(one - zero)


def run(name: str, rows: int, limit: str) -> dict[str, float]:
    """Train in this process, and return what it took."""
    began, stream = time.perf_counter(), batches(rows)
    if name == "NumPy":
        weight = in_numpy(stream)
    else:
        first = next(stream)
        source = (
            pa.Table.from_batches(itertools.chain([first], stream))
            if name == "table"
            else itertools.chain([first], stream)
        )
        weight = in_database(name, source, limit)
    peak = 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])  # type: ignore[index]
    return {"seconds": time.perf_counter() - began, "peak": peak, "weight": weight}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[500_000, 5_000_000, 50_000_000])
    parser.add_argument("--only", choices=RUNS, nargs="*", default=RUNS)
    parser.add_argument("--limit", default="1GB")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(run(given.run, given.rows[0], given.limit)))
        return
    for rows in given.rows:
        making = time.perf_counter()
        n_bytes = sum(batch.nbytes for batch in batches(rows))
        making = time.perf_counter() - making
        print(f"{rows:,} rows, {n_bytes / 1e9:.2f} GB, made in {making:.1f} s", flush=True)
        for name in given.only:
            command = [sys.executable, __file__, "--run", name, "--rows", str(rows), "--limit", given.limit]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            speed = f"{found['seconds']:6.1f} s, {rows / found['seconds'] / 1e6:5.2f} M rows/s"
            print(f"  {name:9} {speed}, VmHWM {found['peak'] / 1e9:.2f} GB, weight {found['weight']:.6f}", flush=True)


if __name__ == "__main__":
    main()
