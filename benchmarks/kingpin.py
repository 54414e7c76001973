"""The five operators on Ray with two workers and the same learners: the shape of Table 5 of Kingpin (Li and Kumar 2021).

Four ways to group the rows: Country (18 groups, the largest 26%), Partner (280 groups), Device (two groups have most of
the rows), and Home, where one group has 80%: what Device is on the paper's 18 workers, no whole group keeps two busy.
Logistic regression and boosted trees over the grids of Table 3, 10 epochs or rounds; and a UNet that finds the classes
of pixels in small pictures of 44 cities, over its grid of Table 3, 5 epochs. Seconds are those of the statement, from
the table to stored models; CPU is the busy share of the machine meanwhile; MB are rows loaded by workers and states and
sums taken from other workers; loads count how often a worker loaded rows. Quality: every operator's mean training loss,
whose largest difference from group_task_parallel's is shown.

    python benchmarks/kingpin.py [--rows 200000] [--pictures 400] [--runs 3] [--only unet] [--by Device]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from _cityscapes import pictures, unet
from _pairs import write

import grouplearn

OPERATORS = ("gap", "group_task_parallel", "model_task_parallel", "data_parallel", "switching")
COLUMNS = 20
LEARNERS = {
    "logistic_regression": "OVER GRID (learning_rate IN (1, 0.5, 0.1), l1 IN (1, 0.5, 0.1, 0.05))",
    "gbdt": "OVER GRID (learning_rate IN (1, 0.5, 0.1, 0.05), num_leaves IN (10, 20, 30))",
    "unet": "OVER GRID (learning_rate IN (1e-2, 1e-3, 1e-4, 1e-5), l2 IN (0, 1e-3, 1e-2))",
}
WITH = {
    "logistic_regression": "epochs = 10, l2 = 0",
    "gbdt": "num_iterations = 10",
    "unet": "epochs = 5, batch_size = 32, width = 8",
}
NUMBERS = ", ".join(f"x{number}" for number in range(COLUMNS))
LEARNS = {"unet": "PREDICT mask FEATURES (image) FROM {table} GROUP BY city"}


def shares() -> dict[str, np.ndarray]:
    """Return the share of the rows of each group."""
    country = np.r_[0.26, 0.74 * _zipf(17, 0.9)]
    device = np.r_[0.45, 0.35, 0.2 * _zipf(48, 1.0)]
    home = np.r_[0.8, 0.2 * _zipf(48, 1.0)]
    return {"Country": country, "Partner": _zipf(280, 1.0), "Device": device, "Home": home}


def _zipf(groups: int, power: float) -> np.ndarray:
    share = np.arange(1, groups + 1) ** -power
    return share / share.sum()


def table(con: duckdb.DuckDBPyConnection, name: str, rows: int, share: np.ndarray) -> None:
    random = np.random.default_rng(0)
    g = random.choice(share.size, size=rows, p=share)
    x = random.normal(size=(rows, COLUMNS)).astype(np.float32)
    score = np.einsum("ij,ij->i", x, (random.normal(size=(share.size, COLUMNS)) * 0.4)[g])
    features = {f"x{number}": x[:, number] for number in range(COLUMNS)}
    arrow = pa.table({"g": g, **features, "y": random.random(rows) < 1 / (1 + np.exp(-score))})
    con.register("arrow", arrow)
    con.execute(f"CREATE TABLE {name} AS FROM arrow")
    con.unregister("arrow")


def busy() -> tuple[int, int]:
    """Return the machine's busy and total jiffies."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def measured(con: Any, name: str, learner: str, operator: str) -> dict[str, float]:
    learns = LEARNS.get(learner, f"PREDICT y FEATURES ({NUMBERS}) FROM {{table}} GROUP BY g").format(table=name)
    statement = (
        f"TRAIN OR REPLACE MODEL m USING {learner} {learns} "
        f"{LEARNERS[learner]} VALIDATE SAMPLE 10% "
        f"WITH ({WITH[learner]}, executor = 'ray', workers = 2, operator = '{operator}')"
    )
    before, began = busy(), time.perf_counter()
    con.execute(statement)
    seconds, after = time.perf_counter() - began, busy()
    moved, loads = con.execute(
        "SELECT sum(loaded + fetched) / 1e6, count(*) FILTER (loaded > 0) FROM grouplearn.units"
    ).fetchall()[0]
    (loss,) = con.execute("SELECT avg(train_log_loss) FROM m").fetchall()[0]
    cpu = (after[0] - before[0]) / max(1, after[1] - before[1])
    return {"seconds": seconds, "cpu": cpu, "mb": moved, "loads": loads, "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=list(LEARNERS))
    parser.add_argument("--by", choices=list(shares()), nargs="*", default=list(shares()))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, grouplearn.connect(Path(folder) / "k.duckdb", progress=False) as con:
        learners = [arguments.only] if arguments.only else list(LEARNERS)
        for name in arguments.by if learners != ["unet"] else ():
            table(con, name, arguments.rows, shares()[name])
            for learner in learners:
                rows += cell(con, name, learner, arguments.runs) if learner != "unet" else []
        if "unet" in learners:
            grouplearn.register("unet", unet, hyperparameters={"width": 8}, tasks="classification")
            pictures(con, "City", arguments.pictures)
            rows += cell(con, "City", "unet", arguments.runs)
    write(__file__, rows)


def cell(con: Any, name: str, learner: str, runs: int) -> list[dict[str, Any]]:
    """Measure every operator ``runs`` times, each round from another one on, after a first that warms the workers."""
    found: dict[str, list[dict[str, float]]] = {operator: [] for operator in OPERATORS}
    for number in range(runs + 1):
        for operator in (*OPERATORS[number % len(OPERATORS) :], *OPERATORS[: number % len(OPERATORS)]):
            found[operator].append(measured(con, name, learner, operator))
    medians = {
        operator: {key: statistics.median(run[key] for run in each[1:]) for key in each[0]}
        for operator, each in found.items()
    }
    best = min(each["seconds"] for each in medians.values())
    reference = medians["group_task_parallel"]["loss"]
    rows = []
    print(f"{learner} by {name}")
    for operator, each in medians.items():
        difference = abs(each["loss"] / reference - 1)
        print(
            f"  {operator:20} {each['seconds']:7.2f} s  {each['seconds'] / best:5.2f} of the best  CPU {each['cpu']:4.0%}  "
            f"{each['mb']:8.1f} MB  {each['loads']:6.0f} loads  loss differs by {difference:.0e}",
            flush=True,
        )
        rows.append({"learner": learner, "data": name, "operator": operator, **each, "of_best": each["seconds"] / best})
    return rows


if __name__ == "__main__":
    main()
