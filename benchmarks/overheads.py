"""What a statement costs besides reading and training: opening, a tiny TRAIN, EXPLAIN of many groups, planning, storing.

Wall and processor seconds, the least of several runs: on a busy machine the latter says more. Shares of a statement's wall
time: the least and the median.

    python benchmarks/overheads.py [--groups 100000] [--against PYTHON]

With ``--against``, the interpreter of an environment that has another version, every measurement is taken of both in turn,
each in a process of its own, and the ratio of processor time is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TINY = "TRAIN {replace} MODEL {name} USING {learner} PREDICT {label} FEATURES (a, b, c) FROM tiny GROUP BY g {grid}"
GRID = "OVER GRID (l2 IN (0.1, 1, 10))"
MANY = "MODEL many USING linear_regression PREDICT y FEATURES (a, b) FROM big GROUP BY g OVER GRID (l2 IN (0.1, 1, 10))"
WIDE = "MODEL wide USING logistic_regression PREDICT k FEATURES (a, b, c) FROM mid GROUP BY g OVER GRID (l2 IN (0.1, 1, 10, 100))"
TALL = "MODEL tall USING logistic_regression PREDICT k FROM tall_rows GROUP BY g OVER GRID (l2 IN (0.1, 1, 10))"
#: What is measured, its unit, and its limit.
LINES = {
    "connect": ("connect, duckdb not imported before", "ms", 200.0),
    "linear": ("TRAIN of 300 rows, 3 groups, linear", "ms", 40.0),
    "linear_grid": ("... 3 configurations", "ms", 40.0),
    "logistic": ("... logistic", "ms", 40.0),
    "logistic_grid": ("... logistic, 3 configurations", "ms", 40.0),
    "replace": ("... OR REPLACE, linear", "ms", 40.0),
    "explain": ("EXPLAIN of many groups", "ms", 1000.0),
    "storing": ("storing a trial", "us", 3.0),
    "planning": ("planning, of a TRAIN of 100 groups", "%", 5.0),
    "checks_train": ("checks of what a file may run, of TRAIN", "%", 1.0),
    "checks_predict": ("... of predict of as many rows", "%", 1.0),
    "checks_tiny": ("... of TRAIN of 300 rows", "ms", 4.0),
}


def timed(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the least wall and processor seconds."""
    found = []
    for _ in range(times):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - wall, time.process_time() - processor))
    return min(wall for wall, _ in found), min(processor for _, processor in found)


class Spent:
    """Seconds that functions take in all, by name; of those inside each other the outermost counts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: set[str] = set()

    def watch(self, name: str, module: Any, *functions: str) -> None:
        for function in functions:
            setattr(module, function, self._watched(name, getattr(module, function)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if name in self._inside:
                return function(*arguments, **options)
            self._inside.add(name)
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self._inside.discard(name)
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return watched


def measured(groups: int) -> dict[str, tuple[float, float]]:
    """Return wall and processor time of each line of ``LINES``, in its unit."""
    began, processor = time.perf_counter(), time.process_time()
    import grouplearn

    con = grouplearn.connect(progress=False)
    found = {"connect": (1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - processor))}
    con.execute(
        "CREATE TABLE tiny AS SELECT *, a * 2 - b + sin(i * 1.7) AS y, a + sin(i * 3.3) > 1 AS k"
        " FROM (SELECT i % 3 AS g, random() AS a, random() AS b, random() AS c, i FROM range(300) AS r(i))"
    )
    con.execute(
        "CREATE TABLE mid AS SELECT *, a + sin(i * 3.3) > 1 AS k FROM"
        " (SELECT i % 100 AS g, random() AS a, random() AS b, random() AS c, i FROM range(200000) AS r(i))"
    )
    con.execute(
        "CREATE TABLE tall_rows AS SELECT *, a + sin(i * 3.3) > 1 AS k FROM (SELECT i % 100 AS g, i,"
        " random() AS a, random() AS b, random() AS c, random() AS d, random() AS e, random() AS f, random() AS h"
        " FROM range(400000) AS r(i))"
    )
    con.execute(
        "CREATE TABLE big AS SELECT *, a * 2 - b + sin(i * 1.7) AS y FROM"
        f" (SELECT i % {groups} AS g, random() AS a, random() AS b, i FROM range({5 * groups}) AS r(i))"
    )
    found |= tiny(con)
    seconds = timed(lambda: con.execute(f"EXPLAIN TRAIN {MANY}").fetchall(), 3)
    found["explain"] = (1e3 * seconds[0], 1e3 * seconds[1])
    return found | shares(con, groups)


def tiny(con: Any) -> dict[str, tuple[float, float]]:
    found, number = {}, 0

    def train(learner: str, label: str, grid: str = "", replace: str = "") -> Callable[[], None]:
        def work() -> None:
            nonlocal number
            number += not replace
            name = "same" if replace else f"m{number}"
            text = TINY.format(replace=replace, name=name, learner=learner, label=label, grid=grid)
            con.execute(text).fetchall()

        return work

    for name, work in {
        "linear": train("linear_regression", "y"),
        "linear_grid": train("linear_regression", "y", GRID),
        "logistic": train("logistic_regression", "k"),
        "logistic_grid": train("logistic_regression", "k", GRID),
        "replace": train("linear_regression", "y", replace="OR REPLACE"),
    }.items():
        timed(work, 3)
        wall, processor = timed(work, 15)
        found[name] = (1e3 * wall, 1e3 * processor)
    return found


def shares(con: Any, groups: int) -> dict[str, tuple[float, float]]:
    """Return what storing takes a trial, and the shares of planning and of checks."""
    from grouplearn.catalog import schema
    from grouplearn.catalog.checks.trust import Guard
    from grouplearn.statements import train
    from grouplearn.statements.workflow import planning
    from grouplearn.store import writer as store

    spent, found = Spent(), {}
    write, stored = store.write, []

    def timed_write(*arguments: Any, **options: Any) -> Any:
        result: list[Any] = []
        stored.append(timed(lambda: result.append(write(*arguments, **options)), 1))
        return result[0]

    store.write = timed_write
    con.execute(f"TRAIN OR REPLACE {MANY}").fetchall()
    store.write = write
    found["storing"] = tuple(1e6 * seconds / (3 * groups) for seconds in stored[-1])
    spent.watch("planning", planning, "choose", "settled")
    # Which databases have models, and of which version, is asked (tables_in) for the work itself.
    spent.watch("checks", schema, "refuse_foreign", "refuse_triggers", "refuse_views")
    spent.watch("checks", Guard, "refuse_hidden", "refuse_hidden_in", "admit", "admit_user", "has_admitted")
    spent.watch("checks", train, "trained_here")
    for name, text, times in (
        ("planning", f"TRAIN OR REPLACE {WIDE}", 3),
        ("checks_train", f"TRAIN OR REPLACE {TALL}", 9),
        ("checks_predict", "SELECT sum(predict('tall', t).probability) FROM tall_rows AS t", 9),
        (
            "checks_tiny",
            TINY.format(replace="OR REPLACE", name="n", learner="linear_regression", label="y", grid=""),
            15,
        ),
    ):
        con.execute(text).fetchall()
        of = name.partition("_")[0]
        parts = []
        for _ in range(times):
            spent.seconds.clear()
            began = time.perf_counter()
            con.execute(text).fetchall()
            whole, own = time.perf_counter() - began, spent.seconds.get(of, 0.0)
            parts.append(1e3 * own if LINES[name][1] == "ms" else 100 * own / whole)
        found[name] = (min(parts), statistics.median(parts))
    return found


def measured_of(python: Path, groups: int) -> dict[str, tuple[float, float]]:
    """Return what a process of its own measures."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    environment["GROUPLEARN_CALIBRATE_RUNS"] = "off"
    command = [str(python), __file__, "--measure", "--groups", str(groups)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return found


def least(every: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    return {name: (min(each[name][0] for each in every), min(each[name][1] for each in every)) for name in LINES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.groups)))
        return
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(measured_of(Path(sys.executable), arguments.groups))
        if arguments.against:
            theirs.append(measured_of(arguments.against, arguments.groups))
    now, before = least(ours), least(theirs) if theirs else {}
    print(f"{'':40}{'wall':>9}{'processor':>11}{'limit':>8}{'before':>10}{'ratio':>7}")
    for name, (title, unit, limit) in LINES.items():
        wall, processor = now[name]
        line = f"{title:40}{wall:9.1f}{processor:11.1f}{limit:8g} {unit:3}"
        if before:
            line += f"{before[name][1]:6.1f}{before[name][1] / max(processor, 1e-9):6.1f}x"
        print(line, flush=True)


if __name__ == "__main__":
    main()
