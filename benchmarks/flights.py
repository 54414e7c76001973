"""One model per carrier and configuration on real flights: us against joblib over scikit-learn, from table to models.

Both sides start from the same DuckDB table, train 16 carriers x 4 penalties on the same training rows (every month but
December) with the same zscore and one-hot columns, and end with finished models. The alternative is what a competent
user writes: fetch the columns once, split by carrier, one fit per task, two processes, one thread each. Quality is the
objective on the training rows; a row whose objective is worse than the alternative's by more than 1e-5 is marked.

    python benchmarks/flights.py [--runs 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import duckdb
import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import LogisticRegression, Ridge

import grouplearn
from grouplearn.frontends.shell.flights import load_flights

PENALTIES = (0.1, 1.0, 10.0, 100.0)
WHERE = "arr_delay IS NOT NULL AND month <> 12"
QUERY = f"SELECT carrier, dep_delay, distance, air_time, origin, arr_delay FROM flights WHERE {WHERE}"


def ours(path: Path, learner: str, label: str) -> dict[tuple[str, float], float]:
    with grouplearn.connect(path, progress=False) as con:
        con.execute(
            f"TRAIN OR REPLACE MODEL m USING {learner} PREDICT {label} "
            "FEATURES (zscore(dep_delay, distance, air_time), onehot(origin)) "
            f"FROM flights WHERE {WHERE} GROUP BY carrier OVER GRID (l2 IN {PENALTIES}) VALIDATE NONE"
        )
        rows = con.execute("SELECT carrier, l2, arg_max(train_loss, epoch) FROM m_curves GROUP BY ALL").fetchall()
    return {(carrier, l2): loss for carrier, l2, loss in rows}


def design(columns: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    numbers = np.stack([columns[name][rows].astype(float) for name in ("dep_delay", "distance", "air_time")], axis=1)
    spread = numbers.std(axis=0)
    scaled = (numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    origins = columns["origin"][rows]
    return np.hstack([scaled, *((origins == value)[:, None].astype(float) for value in np.unique(origins))])


def fit(learner: str, x: np.ndarray, y: np.ndarray, l2: float) -> float:
    if learner == "linear_regression":
        model = Ridge(alpha=l2).fit(x, y)
        return float(0.5 * ((y - model.predict(x)) ** 2).sum() + 0.5 * l2 * (model.coef_**2).sum())
    model = LogisticRegression(C=1 / l2, max_iter=1000, tol=1e-5).fit(x, y)
    scores = model.decision_function(x)
    return float((np.logaddexp(0, scores) - y * scores).sum() + 0.5 * l2 * (model.coef_**2).sum())


def theirs(path: Path, learner: str, label: str) -> dict[tuple[str, float], float]:
    with duckdb.connect(str(path), read_only=True) as con:
        columns = con.execute(QUERY).fetchnumpy()
    delay = columns["arr_delay"].astype(float)
    target = delay if label == "arr_delay" else (delay > 15).astype(float)
    tasks = []
    for carrier in np.unique(columns["carrier"]):
        rows = np.flatnonzero(columns["carrier"] == carrier)
        x = design(columns, rows)
        tasks += [((str(carrier), l2), delayed(fit)(learner, x, target[rows], l2)) for l2 in PENALTIES]
    losses = Parallel(n_jobs=2)(task for _, task in tasks)
    return dict(zip((key for key, _ in tasks), losses, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.duckdb"
        with duckdb.connect(str(path)) as con:
            load_flights(con)
        for learner, label in (("logistic_regression", "arr_delay > 15"), ("linear_regression", "arr_delay")):
            seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
            for _ in range(runs + 1):  # the first pair warms caches and joblib's processes
                found = {}
                for side, run in (("theirs", theirs), ("ours", ours)):
                    began = time.perf_counter()
                    found[side] = run(path, learner, label)
                    seconds[side].append(time.perf_counter() - began)
            excess = max(found["ours"][key] / loss - 1 for key, loss in found["theirs"].items())
            medians = {side: statistics.median(times[1:]) for side, times in seconds.items()}
            results.append(
                {
                    "workload": f"{learner}, 16 carriers x {len(PENALTIES)} penalties",
                    "ours_seconds": round(medians["ours"], 3),
                    "joblib_seconds": round(medians["theirs"], 3),
                    "ratio": round(medians["theirs"] / medians["ours"], 2),
                    "worst_excess": float(f"{excess:.1e}"),
                    "equal_quality": excess <= 1e-5,
                }
            )
    for row in results:
        mark = "" if row["equal_quality"] else "  NOT EQUAL"
        print(
            f"{row['workload']:50} ours {row['ours_seconds']:7.3f} s   joblib {row['joblib_seconds']:7.3f} s   "
            f"{row['ratio']:5.2f}x   excess {row['worst_excess']:.0e}{mark}"
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
