"""Forecasts of many series from one table: us against statsforecast, from a DuckDB table to a table of forecasts with intervals.

The alternative fetches the rows as a data frame, forecasts in two processes and writes what it gets. Ours is one statement,
whose models and metrics are stored besides. Quality is the mean absolute scaled error (MASE) of the steps that follow, which
neither side sees: ours may be 1% above. The last workload has no alternative but our own: a statement for each window.

    python benchmarks/forecasting.py [--runs 3] [--only theta] [--series 1000] [--part 0.1]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.pop("OPENBLAS_L2_SIZE", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")

import duckdb
from _pairs import Workload, run, show, write

import grouplearn

HORIZON = 12
#: Positive series of different level, trend, season (some have none) and noise: a row per step; ``later`` has those to forecast.
SERIES = """
CREATE TABLE every AS
SELECT id, CAST(DATE '2010-01-01' + to_months(CAST(i * {months} AS INTEGER)) AS DATE) AS ds, i,
       level * (1 + slope * i + swing * sin(2 * pi() * (i + shift) / {season}))
       * exp(noise * (random() + random() + random() - 1.5)) AS y
FROM (SELECT id, 20 + 200 * random() AS level, 0.01 * random() - 0.002 AS slope, greatest(0, random() - 0.3) / 2 AS swing,
             12 * random() AS shift, 0.02 + 0.2 * random() AS noise FROM range({series}) AS r(id)),
     range({steps} + {horizon}) AS s(i);
CREATE TABLE t AS SELECT id, ds, y FROM every WHERE i < {steps} ORDER BY id, ds;
CREATE TABLE later AS SELECT id, ds, y FROM every WHERE i >= {steps};
CREATE TABLE scales AS
SELECT id, avg(abs(y - before)) AS scale FROM (SELECT id, y, lag(y, {season}) OVER (PARTITION BY id ORDER BY ds) AS before FROM t)
GROUP BY id;
"""
MASE = "SELECT avg(abs(f.y_hat - later.y) / scale) FROM f JOIN later USING (id, ds) JOIN scales USING (id)"
TRAIN = (
    "TRAIN OR REPLACE MODEL m USING {learner} PREDICT y ORDER BY ds FROM {rows} GROUP BY id {validate}"
    " WITH (horizon = {horizon})"
)


def make(path: Path, series: int, steps: int, season: int) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute("SELECT setseed(0.5)")
        con.execute("SET threads = 1")  # the same random numbers in every run
        months = 12 // season
        con.execute(SERIES.format(series=series, steps=steps, season=season, months=months, horizon=HORIZON))


def ours(path: Path, learner: str) -> float:
    """Return the MASE of forecasts, of which a table has been made."""
    with grouplearn.connect(path, progress=False) as con:
        con.execute(TRAIN.format(learner=learner, rows="t", validate="VALIDATE NONE", horizon=HORIZON))
        forecasts = "SELECT id, CAST(ds AS DATE) AS ds, prediction AS y_hat, lower, upper FROM m_forecast(level := 0.9)"
        con.execute(f"CREATE OR REPLACE TABLE f AS {forecasts}")
        return float(con.execute(MASE).fetchone()[0])


def theirs(path: Path, model: Callable[[], Any], season: int) -> float:
    from statsforecast import StatsForecast

    with duckdb.connect(str(path)) as con, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = con.execute("SELECT id AS unique_id, CAST(ds AS TIMESTAMP) AS ds, y FROM t").df()
        frequency = "MS" if season == 12 else "QS"
        found = StatsForecast([model()], freq=frequency, n_jobs=2).forecast(df=rows, h=HORIZON, level=[90])
        found.columns = ["id", "ds", "y_hat", *found.columns[3:]]
        con.execute("CREATE OR REPLACE TABLE f AS SELECT * REPLACE (CAST(ds AS DATE) AS ds) FROM found")
        return float(con.execute(MASE).fetchone()[0])


def no_worse(mine: float, other: float) -> tuple[str, bool]:
    return f"MASE {mine:.4f} against {other:.4f}", mine <= 1.01 * other


def against_statsforecast(
    folder: Path, learner: str, model: Callable[[], Any], shape: tuple[int, int, int], target: float
) -> Workload:
    """The same method on both sides, of so many series of so many steps and seasons of a length."""
    series, steps, season = shape
    path = folder / f"{learner}.duckdb"
    make(path, series, steps, season)
    return Workload(
        f"{learner}, {series:,} series of {steps} steps",
        lambda: ours(path, learner),
        lambda: theirs(path, model, season),
        no_worse,
        target,
    )


def smoothing() -> Any:
    from statsforecast.models import AutoETS

    return AutoETS(season_length=12)


def theta() -> Any:
    from statsforecast.models import OptimizedTheta

    return OptimizedTheta(season_length=12)


def naive() -> Any:
    from statsforecast.models import SeasonalNaive

    return SeasonalNaive(season_length=4)


def rolling(folder: Path, series: int, windows: int) -> Workload:
    """VALIDATE ROLLING against a statement per window, each of what lies before, and one of all rows."""
    path = folder / "rolling.duckdb"
    make(path, series, 120, 12)

    def by_validation() -> float:
        with grouplearn.connect(path, progress=False) as con:
            validate = f"VALIDATE ROLLING {windows} HORIZON {HORIZON}"
            con.execute(TRAIN.format(learner="exponential_smoothing", rows="t", validate=validate, horizon=HORIZON))
            return float(con.execute("SELECT avg(valid_mae) FROM m WHERE is_best").fetchone()[0])

    def by_hand() -> float:
        errors = []
        with grouplearn.connect(path, progress=False) as con:
            for window in range(windows, -1, -1):
                before = f"(FROM t WHERE ds < DATE '2020-01-01' - INTERVAL {HORIZON * window} MONTH)"
                con.execute(
                    TRAIN.format(
                        learner="exponential_smoothing", rows=before, validate="VALIDATE NONE", horizon=HORIZON
                    )
                )
                if window:
                    error = "avg(abs(prediction - y))"
                    judged = (
                        f"SELECT {error} FROM m_forecast() AS f JOIN t ON t.id = f.id AND t.ds = CAST(f.ds AS DATE)"
                    )
                    errors.append(float(con.execute(judged).fetchone()[0]))
        return sum(errors) / windows

    def same(mine: float, other: float) -> tuple[str, bool]:
        return f"mean absolute error {mine:.6f} against {other:.6f}", abs(mine / other - 1) < 1e-6

    return Workload(
        f"{windows} windows of {series:,} series, against a statement each", by_validation, by_hand, same, 1.0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--series", type=int, default=1000, help="monthly series of exponential smoothing and theta")
    parser.add_argument("--part", type=float, default=1.0, help="of a million series of the seasonal naive forecast")
    asked = parser.parse_args()
    monthly = (asked.series, 120, 12)
    short = (round(1_000_000 * asked.part), 12, 4)
    makers: dict[str, Callable[[Path], Workload]] = {
        "exponential_smoothing": lambda folder: against_statsforecast(
            folder, "exponential_smoothing", smoothing, monthly, 20.0
        ),
        "theta": lambda folder: against_statsforecast(folder, "theta", theta, monthly, 20.0),
        "seasonal_naive": lambda folder: against_statsforecast(folder, "seasonal_naive", naive, short, 5.0),
        "rolling": lambda folder: rolling(folder, asked.series, 5),
    }
    rows = []
    for name, maker in makers.items():
        if asked.only in name:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(run(maker(Path(folder)), asked.runs))
            show(rows[-1])
    write(__file__, rows)


if __name__ == "__main__":
    main()
