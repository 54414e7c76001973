"""Which operator ``auto`` chooses, and which one is fastest: ten shapes of work, every operator that trains the same models.

Each statement runs once to warm up and then in turns, with the operators in another order in each round; seconds are medians, of
the statement from the table to stored models. A choice that is more than a tenth slower than the best one is marked, once
differences of less than ``NOISE`` seconds are left out.

    python benchmarks/choices.py [--part 1] [--runs 3] [--only flights] [--workers 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from _pairs import write

import grouplearn

# The coefficients that everybody begins with; the first shapes are not to change what is chosen for the last.
os.environ["GROUPLEARN_CALIBRATION"] = str(Path(tempfile.mkdtemp()) / "calibration.json")
os.environ["GROUPLEARN_CALIBRATE_RUNS"] = "off"

#: Seconds by which two runs of the same statement differ here.
NOISE = 0.05


@dataclass(frozen=True)
class Shape:
    """A table of groups with a statement about it: rows, groups, how unequal these are (Zipf), and what is trained."""

    name: str
    rows: int
    groups: int
    zipf: float
    learner: str
    label: str
    features: str
    grid: str = ""
    options: str = ""


NUMBERS = "x0, x1, x2, x3, x4, x5, x6, x7"
ITEMS = ", ".join(f"onehot(c{number})" for number in range(8))
L2 = "OVER GRID (l2 IN (0.1, 1, 10, 100))"
DESCENT = "solver = 'coordinate_descent'"
SHAPES = (
    Shape("many small groups", 400_000, 4_000, 0.0, "logistic_regression", "k", NUMBERS, L2),
    Shape("some equal groups", 800_000, 16, 0.0, "logistic_regression", "k", NUMBERS, L2),
    Shape("one group has most", 800_000, 16, 2.0, "logistic_regression", "k", NUMBERS, L2),
    Shape("one group", 1_000_000, 1, 0.0, "logistic_regression", "k", NUMBERS, L2),
    Shape("one group, one model", 1_000_000, 1, 0.0, "linear_regression", "y", NUMBERS),
    Shape("one group, wide", 400_000, 1, 0.0, "logistic_regression", "k", ITEMS, L2, "epochs = 10"),
    Shape("trees, unequal groups", 400_000, 12, 1.0, "gbdt", "y", NUMBERS, "", "num_iterations = 20"),
    Shape("networks, few groups", 60_000, 3, 0.0, "mlp", "y", NUMBERS, "OVER GRID (l2 IN (0, 1))", "epochs = 3"),
    Shape("descent, one group", 600_000, 1, 0.0, "logistic_regression", "k", ITEMS, "", DESCENT),
    Shape("descent, some groups", 600_000, 12, 1.0, "logistic_regression", "k", ITEMS, "", DESCENT),
)


def table(con: duckdb.DuckDBPyConnection, shape: Shape, part: float) -> None:
    """Make table t: group g, numbers x0 to x7, categories c0 to c7 of 200 values, a class k and a number y."""
    random, rows = np.random.default_rng(0), round(shape.rows * part)
    share = np.arange(1, shape.groups + 1) ** -shape.zipf
    g = random.choice(shape.groups, size=rows, p=share / share.sum())
    x, c = random.normal(size=(rows, 8)), random.integers(0, 200, size=(rows, 8))
    y = x @ random.normal(size=8) + random.normal(size=(8, 200))[np.arange(8), c].sum(axis=1) + random.normal(size=rows)
    columns = {f"x{number}": x[:, number] for number in range(8)} | {f"c{number}": c[:, number] for number in range(8)}
    con.register("arrow", pa.table({"g": g, **columns, "y": y, "k": y > 0}))
    con.execute("CREATE OR REPLACE TABLE t AS FROM arrow")
    con.unregister("arrow")


def statement(shape: Shape, workers: int, operator: str = "") -> str:
    """Return TRAIN, with an operator or with the one that is chosen."""
    options = ", ".join(
        filter(None, (shape.options, f"workers = {workers}", f"operator = '{operator}'" if operator else ""))
    )
    return (
        f"TRAIN OR REPLACE MODEL m USING {shape.learner} PREDICT {shape.label} FEATURES ({shape.features}) FROM t GROUP BY g"
        f" {shape.grid} VALIDATE NONE WITH ({options})"
    )


def compared(shape: Shape, part: float, runs: int, workers: int) -> dict[str, object]:
    """Return the seconds of each operator, and which was chosen."""
    with grouplearn.connect(progress=None) as con:
        table(con, shape, part)
        explained = con.execute(f"EXPLAIN (FORMAT json) {statement(shape, workers)}").fetchall()[0][0]
        plan = json.loads(explained.replace("OR REPLACE ", ""))
        operators = [each["operator"] for each in plan["operators"] if each["refused"] is None]
        seconds: dict[str, list[float]] = {operator: [] for operator in operators}
        for attempt in range(runs + 1):
            turn = attempt % len(operators)
            for operator in (*operators[turn:], *operators[:turn]):
                began = time.perf_counter()
                con.execute(statement(shape, workers, operator)).fetchall()
                seconds[operator].append(time.perf_counter() - began)
    medians = {operator: statistics.median(times[1:]) for operator, times in seconds.items()}
    estimates = {each["operator"]: each["makespan_seconds"] for each in plan["operators"] if each["refused"] is None}
    return {"shape": shape.name, "chosen": plan["operator"], "seconds": medians, "estimated": estimates}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=float, default=1.0, help="make this part of the rows")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="shapes whose names begin so")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    found = []
    for shape in SHAPES:
        if given.only and not shape.name.startswith(tuple(given.only)):
            continue
        row = compared(shape, given.part, given.runs, given.workers)
        seconds = row["seconds"]
        assert isinstance(seconds, dict)
        best = min(seconds, key=seconds.__getitem__)
        chosen = seconds[row["chosen"]]
        row |= {"best": best, "ratio": chosen / seconds[best]}
        slower = chosen > 1.1 * seconds[best] and chosen > seconds[best] + NOISE
        others = ", ".join(f"{name} {took:.2f}" for name, took in sorted(seconds.items(), key=lambda each: each[1]))
        mark = "  SLOWER" if slower else ""
        print(
            f"{shape.name:22} chosen {row['chosen']:20} {chosen:6.2f} s, {row['ratio']:.2f} of the best{mark}   ({others})"
        )
        found.append(row)
    write(__file__, found)


if __name__ == "__main__":
    main()
