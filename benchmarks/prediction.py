"""Microseconds a row to predict a table: the macro, predict(), predict_value(), EVALUATE, and what one does without us.

The alternative fetches the rows once, sorts them by group and asks NumPy or LightGBM group by group, on all cores; its models
are those of the same TRAIN. All ways take turns in one process, and the predictions are compared.

    python benchmarks/prediction.py [--runs 3] [--rows 200000] [--groups 100] [--only linear]

The sizes that are published: --rows 1000000 --groups 100.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _pairs import write
from peers import names, table

import grouplearn

COLUMNS = 32
WORKLOADS = {
    "linear": ("linear_regression", "z", ""),
    "logistic": ("logistic_regression", "y", ""),
    "trees": ("gbdt", "z", "WITH (num_iterations = 50)"),
}
#: Ways whose predictions differ by more of the largest one are not equal.
TOLERANCE = 1e-6


def by_group(con: Any) -> list[tuple[int, np.ndarray]]:
    """Fetch the rows and return those of each group, and their places."""
    found = con.execute(f"SELECT g, {names(COLUMNS)} FROM t").fetchnumpy()
    order = np.argsort(found["g"], kind="stable")
    starts = np.flatnonzero(np.diff(found["g"][order], prepend=-1))
    x = np.stack([found[f"x{number}"] for number in range(COLUMNS)], axis=1)[order].astype(np.float64)
    return list(zip(found["g"][order][starts].tolist(), np.split(x, starts[1:]), strict=True))


def alternative(con: Any, learner: str) -> Callable[[], float]:
    """Return what predicts without us, and returns the sum of the predictions."""
    where = "FROM grouplearn.artifacts JOIN grouplearn.groups USING (model, group_id)"
    models = {
        key: rest
        for key, *rest in con.execute(f"SELECT keys[1]::INTEGER, content, weights, intercept {where}").fetchall()
    }
    if learner == "gbdt":
        import lightgbm

        boosters = {key: lightgbm.Booster(model_str=bytes(text).decode()) for key, (text, *_) in models.items()}
        return lambda: float(sum(boosters[key].predict(x).sum() for key, x in by_group(con)))
    linear = {key: (np.array(weights), intercept[0]) for key, (_, weights, intercept) in models.items()}

    def predict() -> float:
        scores = (x @ linear[key][0] + linear[key][1] for key, x in by_group(con))
        return float(sum((1 / (1 + np.exp(-s)) if learner == "logistic_regression" else s).sum() for s in scores))

    return predict


def ways(con: Any, learner: str) -> dict[str, Callable[[], float | None]]:
    """Return each way to predict the table; what it returns is the sum of its predictions, None of EVALUATE."""

    def asked(query: str) -> Callable[[], float]:
        return lambda: float(con.execute(query).fetchall()[0][0])

    number = "probability" if learner == "logistic_regression" else "prediction"
    field = "probability" if learner == "logistic_regression" else "value"
    return {
        "theirs": alternative(con, learner),
        "macro": asked(f"SELECT sum({number}) FROM m_predict(t)"),
        "predict": asked(f"SELECT sum(predict('m', t).{field}) FROM t"),
        f"predict_{field}": asked(f"SELECT sum(predict_{field}('m', t)) FROM t"),
        "EVALUATE": lambda: con.execute("EVALUATE MODEL m ON t").fetchall() and None,
    }


def measure(path: Path, name: str, rows: int, runs: int) -> dict[str, Any]:
    """Train one model and time every way to predict the table in turn."""
    learner, label, options = WORKLOADS[name]
    with grouplearn.connect(path, progress=False) as con:
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} FEATURES ({names(COLUMNS)}) FROM t GROUP BY g"
            f" VALIDATE NONE {options}"
        )
        seconds: dict[str, list[float]] = {}
        sums: dict[str, float | None] = {}
        every = ways(con, learner)
        for _ in range(runs + 1):  # the first time warms up
            for way, work in every.items():
                began = time.perf_counter()
                sums[way] = work()
                seconds.setdefault(way, []).append(time.perf_counter() - began)
    known = [value for value in sums.values() if value is not None]
    spread = (max(known) - min(known)) / max(1.0, abs(known[0]))
    micros = {way: round(statistics.median(times[1:]) / rows * 1e6, 3) for way, times in seconds.items()}
    return {"workload": name, "us_per_row": micros, "difference": spread, "equal": spread <= TOLERANCE}


def show(row: dict[str, Any]) -> None:
    """Print one line of the table."""
    parts = [f"{way} {value:8.3f}" for way, value in row["us_per_row"].items()]
    print(f"{row['workload']:9} us a row: {'   '.join(parts)}{'' if row['equal'] else '   NOT EQUAL'}", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--only", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    arguments = parser.parse_args(given)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prediction.duckdb"
        table(path, arguments.rows, COLUMNS, arguments.groups)
        for name in arguments.only:
            found.append(measure(path, name, arguments.rows, arguments.runs))
            show(found[-1])
    write(__file__, found)


if __name__ == "__main__":
    main()
