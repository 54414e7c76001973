"""Microseconds a row to predict a table: the macro, predict(), predict_value(), EVALUATE, and what one does without us.

The alternative fetches the rows once, sorts them by group and asks NumPy or LightGBM group by group, on all cores; its models
are those of the same TRAIN. All ways take turns in one process, and the predictions are compared.

    python benchmarks/prediction.py [--runs 3] [--rows 200000] [--groups 100] [--only linear]

The sizes that are published: --rows 1000000 --groups 100. With --grid it measures trees of many shapes instead, the macro on a
connection of ours and in plain DuckDB beside predict(), as multiples of its processor time; a line whose predictions differ is
not equal:

    python benchmarks/prediction.py --grid [--groups 1 16 1000] [--trees 20 100 500] [--rows 1 2000 200000]
        [--features few encoded many]
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
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


#: The grid's features: a few numbers, all kinds of encoders, and many numbers.
FEATURES = {
    "few": names(3),
    "encoded": "zscore(x0), impute(x1), onehot(chr(97 + (x2 * 9)::INTEGER)) AS c, ordinal((x0 * 5)::INTEGER % 7) AS o",
    "many": names(16),
}
#: Most trees of all groups together: more take minutes to train.
MOST_TREES = 20_000


def measure_shape(
    path: Path, groups: int, trees: int, features: str, rows: Sequence[int], runs: int
) -> list[dict[str, Any]]:
    """Train one model, and time the ways to predict so many rows: three in turn, in one process."""
    with grouplearn.connect(path, progress=False) as con:
        con.execute(
            f"CREATE OR REPLACE TABLE t AS SELECT i % {groups} AS g, i, sin(i) + 1 AS x0, cos(i * 7) + 1 AS x1,"
            f" {', '.join(f'abs(sin(i * {2 * number - 1})) AS x{number}' for number in range(2, 16))},"
            f" x0 * x1 + x2 * (g % 5) + x3 * x4 + x5 * x6 + x7 * x8 + x9 - x10 * x11 + x12 * x13 + x14 * x15 AS z"
            f" FROM range({max(20_000, 200 * groups)}) AS r(i)"
        )
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING gbdt PREDICT z FEATURES ({FEATURES[features]}) FROM t GROUP BY g VALIDATE NONE"
            f" WITH (num_iterations = {trees})"
        )
    shape = {"groups": groups, "trees": trees, "features": features}
    return [{**shape, **_shape_row(path, count, runs)} for count in rows]


def _shape_row(path: Path, count: int, runs: int) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    sums: dict[str, float] = {}
    some = f"CREATE OR REPLACE TEMP TABLE s AS SELECT t.* FROM t, range({count}) LIMIT {count}"
    macro = "SELECT sum(prediction) FROM m_predict(s)"
    with grouplearn.connect(path, progress=False) as ours:
        ours.execute(some)
        for way, query in (("predict", "SELECT sum(predict('m', s).value) FROM s"), ("macro", macro)):
            seconds[way], sums[way] = _best(ours, query, runs)
    with duckdb.connect(str(path)) as plain:
        plain.execute(some)
        with suppress(duckdb.CatalogException):  # SQL has no form of so many trees
            seconds["plain"], sums["plain"] = _best(plain, macro, runs)
    spread = max(sums.values()) - min(sums.values())
    times = {way: round(value / seconds["predict"], 2) for way, value in seconds.items()}
    equal = spread <= TOLERANCE * max(1.0, abs(sums["predict"]))
    return {"rows": count, "predict_ms": round(seconds["predict"] * 1e3, 1), "times_predict": times, "equal": equal}


def _best(con: Any, query: str, runs: int) -> tuple[float, float]:
    """Return the processor seconds of the quickest run after one that loads the model, and the sum of the predictions."""
    con.execute(query).fetchall()
    taken = []
    for _ in range(runs):
        began = time.process_time()
        found = float(con.execute(query).fetchall()[0][0])
        taken.append(time.process_time() - began)
    return min(taken), found


def grid(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure and print every shape."""
    found = []
    for groups, trees, features in itertools.product(arguments.groups, arguments.trees, arguments.features):
        if groups * trees > arguments.most_trees:
            print(
                f"{groups:5} groups x {trees:3} trees: left out, --most-trees {groups * trees} measures it", flush=True
            )
            continue
        path = folder / f"{groups}_{trees}_{features}.duckdb"
        for row in measure_shape(path, groups, trees, features, arguments.rows, arguments.runs):
            found.append(row)
            ways = "   ".join(f"{way} {times:6.2f}" for way, times in row["times_predict"].items())
            shape = f"{groups:5} groups x {trees:3} trees{features:>8} {row['rows']:7} rows"
            print(f"{shape} {row['predict_ms']:9.1f} ms   {ways}{'' if row['equal'] else '   NOT EQUAL'}", flush=True)
        path.unlink()
    return found


def show(row: dict[str, Any]) -> None:
    """Print one line of the table."""
    parts = [f"{way} {value:8.3f}" for way, value in row["us_per_row"].items()]
    print(f"{row['workload']:9} us a row: {'   '.join(parts)}{'' if row['equal'] else '   NOT EQUAL'}", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--groups", type=int, nargs="*")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--trees", type=int, nargs="*", default=[20, 100, 500])
    parser.add_argument("--features", choices=FEATURES, nargs="*", default=list(FEATURES))
    parser.add_argument("--most-trees", type=int, default=MOST_TREES)
    parser.add_argument("--only", choices=WORKLOADS, nargs="*", default=list(WORKLOADS))
    arguments = parser.parse_args(given)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        if arguments.grid:
            arguments.rows, arguments.groups = arguments.rows or [1, 2_000, 200_000], arguments.groups or [1, 16, 1_000]
            write(__file__, grid(arguments, Path(folder)))
            return
        (rows,), (groups,) = arguments.rows or [200_000], arguments.groups or [100]
        path = Path(folder) / "prediction.duckdb"
        table(path, rows, COLUMNS, groups)
        for name in arguments.only:
            found.append(measure(path, name, rows, arguments.runs))
            show(found[-1])
    write(__file__, found)


if __name__ == "__main__":
    main()
