"""Makespans of all operators from 1 to 1,024 workers and from 1 to 100,000 groups, on the simulated runtime.

The shape of Figures 3 and 10 of Kingpin (Li and Kumar 2021). Nothing is trained: EXPLAIN runs the real schedules on a virtual
clock, with durations from the cost model. First the model is held against reality: each operator's estimated makespan beside
the measured one (EXPLAIN ANALYZE) with 1 and 2 workers.

    python benchmarks/scaling.py [--skip-real]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from _pairs import write
from kingpin import COLUMNS, OPERATORS, shares, table

import grouplearn

FEATURES = ", ".join(f"x{number}" for number in range(COLUMNS))
STATEMENT = (
    "TRAIN OR REPLACE MODEL m USING {learner} PREDICT y FEATURES ({features}) FROM {source} GROUP BY g "
    "OVER GRID (l2 IN (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)) VALIDATE NONE WITH ({options})"
)


def explained(con: Any, how: str, source: str, features: str, options: str) -> dict[str, Any]:
    text = STATEMENT.format(learner="logistic_regression", features=features, source=source, options=options)
    found: dict[str, Any] = json.loads(con.execute(f"EXPLAIN ({how}FORMAT json) {text}").fetchall()[0][0])
    return found


def real(con: Any) -> list[dict[str, Any]]:
    """Return estimate and measurement of every operator: the second run counts, whose coefficients the first corrected."""
    table(con, "country", 2_000_000, shares()["Country"])
    con.execute("CALIBRATE")
    rows = []
    for workers in (1, 2):
        for operator in OPERATORS:
            options = f"epochs = 30, executor = 'ray', workers = {workers}, operator = '{operator}'"
            for _ in range(2):
                found = explained(con, "ANALYZE, ", "country", FEATURES, options)
            estimate, seen = (found[side]["makespan_seconds"] for side in ("estimated", "measured"))
            rows.append({"operator": operator, "workers": workers, "estimated": estimate, "measured": seen})
            print(f"{operator:20} {workers} workers: estimated {estimate:6.2f} s, measured {seen:6.2f} s", flush=True)
    return rows


def simulated(con: Any, source: str, title: str, counts: list[tuple[str, int]], per: str) -> list[dict[str, Any]]:
    rows = []
    print(f"\n{title}\n{per:>9}" + "".join(f"{operator:>21}" for operator in OPERATORS))
    for name, workers in counts:
        options = f"epochs = 10, executor = 'ray', workers = {workers}"
        found = explained(con, "", source.format(name=name), "x", options)
        seconds = {each["operator"]: each["makespan_seconds"] for each in found["operators"]}
        print(
            f"{name if per == 'groups' else workers:>9}" + "".join(f"{seconds[o]:>19.4g} s" for o in OPERATORS),
            flush=True,
        )
        rows.append({per: int(name), "workers": workers, **seconds})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-real", action="store_true")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, grouplearn.connect(Path(folder) / "s.duckdb", progress=False) as con:
        if not arguments.skip_real:
            results["real"] = real(con)
        # Group i of n has a share of the rows that falls with its number, as in Figure 6.
        con.execute(
            "CREATE MACRO skewed(n) AS TABLE SELECT (power(random(), 2) * n)::INTEGER AS g, random() AS x, "
            "random() < 0.5 AS y FROM range(4000000)"
        )
        con.execute("CREATE TABLE g18 AS FROM skewed(18)")
        workers = [("18", count) for count in (1, 2, 4, 8, 16, 64, 256, 1024)]
        results["workers"] = simulated(con, "g{name}", "18 groups, 4,000,000 rows", workers, "workers")
        for groups in (1, 10, 100, 1000, 10_000, 100_000):
            con.execute(f"CREATE TABLE g{groups} AS FROM skewed({groups})")
        counts = [(str(groups), 8) for groups in (1, 10, 100, 1000, 10_000, 100_000)]
        results["groups"] = simulated(con, "g{name}", "8 workers, 4,000,000 rows", counts, "groups")
    write(__file__, [results])


if __name__ == "__main__":
    main()
