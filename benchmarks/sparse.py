"""One wide sparse model, from a DuckDB table to weights: us against scikit-learn's solvers, Vowpal Wabbit and celer.

Half a million rows of 20 categories, of 50,000 values each: ten million ones in a million columns. Logistic regression with an
intercept, as ``Σ loss + l1·‖w‖₁ + ½·l2·‖w‖²``. Each side is run with tolerances of 10⁻¹, 10⁻², ... until its objective is within
10⁻⁶ (l2) or 10⁻⁵ (l1) of the least that any side finds, and again with that one: wall seconds and those of processors, from the
table to the model, which is in the database or in memory then. Of processors in all threads: with ``OPENBLAS_NUM_THREADS=1``
NumPy's library has none that only wait. Sides that are not installed are left out: ``pip install vowpalwabbit celer``.

    OPENBLAS_NUM_THREADS=1 python benchmarks/sparse.py [--part 1] [--runs 3] [--only l2] [--sides ours newton-cg]
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import scipy.sparse
from _pairs import write

import grouplearn

ROWS, ITEMS, VALUES = 500_000, 20, 50_000
NEAR = {"l2": 1e-6, "l1": 1e-5}
PENALTY = {"l2": 1.0, "l1": 1.0}
TOLERANCES = tuple(10.0**-power for power in range(1, 9))
#: liblinear has a penalty on the intercept, which is as much smaller as this is greater.
INTERCEPT_SCALING = 100.0

#: Where Vowpal Wabbit has the intercept, before the number of its bits is looked at.
CONSTANT = 11_650_396

Model = tuple[np.ndarray, float]
#: Trains on a table, with a penalty, a tolerance and so many values of each category; returns what looks at the model.
Side = Callable[[Path, str, float, int], Callable[[], Model]]


def made(path: Path, rows: int, values: int) -> None:
    """Make table t: categories c0, c1, ..., of which small numbers are more frequent, and a class y of a model and some noise."""
    chance = np.random.default_rng(7)
    codes = (values * chance.random((rows, ITEMS)) ** 2).astype(np.int32)
    truth = chance.normal(size=(ITEMS, values)) / math.sqrt(ITEMS)
    score = truth[np.arange(ITEMS), codes].sum(axis=1)
    columns = {f"c{item}": codes[:, item] for item in range(ITEMS)}
    table = pa.table({**columns, "y": score + chance.logistic(size=rows) > 0})
    with duckdb.connect(str(path)) as con:
        con.register("arrow", table)
        con.execute("CREATE TABLE t AS FROM arrow")


def read(path: Path, values: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Return the rows as a matrix, what a user of the other libraries makes of the table first."""
    with duckdb.connect(str(path), read_only=True) as con:
        found = con.execute("FROM t").fetchnumpy()
    codes = np.stack([np.asarray(found[f"c{item}"]) + item * values for item in range(ITEMS)], axis=1)
    rows = len(codes)
    ones, starts = np.ones(codes.size), np.arange(rows + 1) * ITEMS
    matrix = scipy.sparse.csr_matrix((ones, codes.ravel(), starts), shape=(rows, ITEMS * values))
    return matrix, np.asarray(found["y"]).astype(float)


def ours(path: Path, penalty: str, tolerance: float, values: int) -> Callable[[], Model]:
    features = ", ".join(f"onehot(c{item})" for item in range(ITEMS))
    penalties = ", ".join(f"{name} = {PENALTY[name] * (name == penalty)}" for name in PENALTY)
    with grouplearn.connect(str(path), progress=None) as con:
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING logistic_regression PREDICT y FEATURES ({features}) FROM t VALIDATE NONE"
            f" WITH (solver = 'coordinate_descent', {penalties}, tolerance = {tolerance})"
        )
    return partial(stored, path, values)


def stored(path: Path, values: int) -> Model:
    """Return our model's weights in the order of the others' columns."""
    item, code = (
        "TRY_CAST(split_part(feature, '=', 1)[2:] AS INTEGER)",
        "TRY_CAST(split_part(feature, '=', 2) AS INTEGER)",
    )
    with grouplearn.connect(str(path), progress=None) as con:
        found = con.execute(f"SELECT {item} AS item, {code} AS code, weight FROM m_weights").fetchnumpy()
    column = found["item"].astype(np.int64) * values + found["code"]
    named = ~np.ma.getmaskarray(column)  # the intercept has no such number
    weights = np.zeros(ITEMS * values)
    weights[column[named]] = found["weight"][named]
    return weights, float(found["weight"][~named][0])


def scikit_learn(solver: str) -> Side:
    def side(path: Path, penalty: str, tolerance: float, values: int) -> Callable[[], Model]:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(
            l1_ratio=float(penalty == "l1"),
            C=1.0 / PENALTY[penalty],
            solver=solver,
            tol=tolerance,
            max_iter=200,
            intercept_scaling=INTERCEPT_SCALING,
        )
        model.fit(*read(path, values))
        return lambda: (model.coef_[0], float(model.intercept_[0]))

    return side


def vowpal_wabbit(path: Path, penalty: str, tolerance: float, values: int) -> Callable[[], Model]:
    """L-BFGS over a text that DuckDB writes; its own stopping rule is by the progress of a pass."""
    import vowpalwabbit

    with tempfile.TemporaryDirectory() as folder:
        text, weights = Path(folder) / "rows.txt", Path(folder) / "weights.txt"
        entries = " || ' ' || ".join(f"(c{item} + {item * values})" for item in range(ITEMS))
        with duckdb.connect(str(path), read_only=True) as con:
            line = f"SELECT CASE WHEN y THEN '1 | ' ELSE '-1 | ' END || {entries} FROM t"
            con.execute(f"COPY ({line}) TO '{text}' (FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')")
        bits = max(18, (ITEMS * values).bit_length())
        tool = vowpalwabbit.Workspace(
            f"-d {text} --quiet --bfgs --loss_function logistic --{penalty} {PENALTY[penalty]} --passes 200 -c -k -b {bits}"
            f" --termination {tolerance} --holdout_off --predict_only_model --readable_model {weights}"
        )
        tool.finish()
        lines = weights.read_text().rpartition(":0\n")[2].splitlines()
        found = np.zeros(1 << bits)
        for line in lines:
            place, _, weight = line.partition(":")
            found[int(place)] = float(weight.split()[0])
    return lambda: (found[: ITEMS * values], float(found[CONSTANT % len(found)]))


def celer(path: Path, penalty: str, tolerance: float, values: int) -> Callable[[], Model]:
    """Working sets and dual extrapolation, for l1; it has no intercept, so that a column of ones stands for it."""
    from celer import LogisticRegression

    matrix, y = read(path, values)
    matrix = scipy.sparse.hstack([matrix, scipy.sparse.csr_matrix(np.full((matrix.shape[0], 1), 100.0))]).tocsc()
    model = LogisticRegression(C=1.0 / PENALTY[penalty], tol=tolerance, fit_intercept=False)
    model.fit(matrix, y)
    return lambda: (model.coef_[0][:-1], float(100.0 * model.coef_[0][-1]))


SIDES: dict[str, dict[str, Side]] = {
    "l2": {
        "ours": ours,
        "newton-cg": scikit_learn("newton-cg"),
        "liblinear": scikit_learn("liblinear"),
        "saga": scikit_learn("saga"),
        "vowpalwabbit": vowpal_wabbit,
    },
    "l1": {"ours": ours, "liblinear": scikit_learn("liblinear"), "celer": celer},
}


def objective(x: scipy.sparse.csr_matrix, y: np.ndarray, penalty: str, model: Model) -> float:
    weights, intercept = model
    score = x @ weights + intercept
    norm = {"l2": 0.5 * float(weights @ weights), "l1": float(np.abs(weights).sum())}[penalty]
    return float((np.logaddexp(0.0, score) - y * score).sum()) + PENALTY[penalty] * norm


def timed(side: Side, path: Path, penalty: str, tolerance: float, values: int) -> tuple[Model, tuple[float, float]]:
    """Return what a side finds, and its seconds: wall time and processor time."""
    began = time.perf_counter(), time.process_time()
    model = side(path, penalty, tolerance, values)
    seconds = time.perf_counter() - began[0], time.process_time() - began[1]
    return model(), seconds


def compared(path: Path, penalty: str, values: int, runs: int, chosen: list[str]) -> list[dict[str, Any]]:
    """Return a row for each side: its tolerance, how far it is from the least objective, its seconds."""
    x, y = read(path, values)
    sides = {
        name: side
        for name, side in SIDES[penalty].items()
        if (not chosen or name in chosen) and (name not in ("vowpalwabbit", "celer") or importlib.util.find_spec(name))
    }
    least = objective(x, y, penalty, ours(path, penalty, 1e-9, values)())
    rows = []
    for name, side in sides.items():
        for tolerance in TOLERANCES:
            model, first = timed(side, path, penalty, tolerance, values)
            excess = objective(x, y, penalty, model) / least - 1
            if excess <= NEAR[penalty]:
                break
        seconds = [first, *(timed(side, path, penalty, tolerance, values)[1] for _ in range(runs - 1))]
        row = {"penalty": penalty, "side": name, "tolerance": tolerance, "excess": excess}
        row["seconds"], row["processor_seconds"] = map(statistics.median, zip(*seconds, strict=True))
        mark = "" if excess <= NEAR[penalty] else "  NOT EQUAL"
        print(
            f"{penalty}  {name:13} {row['seconds']:7.2f} s, {row['processor_seconds']:7.2f} s of processors, "
            f"tolerance {tolerance:g}, excess {excess:.0e}{mark}",
            flush=True,
        )
        rows.append(row)
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", type=float, default=1.0, help="make this part of the rows and of the values")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=["l2", "l1"], choices=["l2", "l1"])
    parser.add_argument("--sides", nargs="*", default=[])
    given = parser.parse_args()
    rows, values = round(ROWS * given.part), max(10, round(VALUES * given.part))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wide.duckdb"
        made(path, rows, values)
        print(f"{rows:,} rows of {ITEMS} categories, {ITEMS * values:,} columns")
        found = [row for penalty in given.only for row in compared(path, penalty, values, given.runs, given.sides)]
    write(__file__, found)


if __name__ == "__main__":
    main()
