"""The network deepar through statements: what it stores, its quantiles in SQL and Python, its notes and errors."""

from pathlib import Path

import duckdb
import numpy as np
import pytest

import grouplearn

pytest.importorskip("torch")

SALES = (
    "CREATE TABLE sales AS SELECT s AS store, CAST(DATE '2020-01-01' + to_months(CAST(i AS INTEGER)) AS DATE) AS month,"
    " if(i < 30, 10 * s + i % 12 + (i * 7919 + s * 104729) % 7, NULL) AS units, 5 + i % 4 AS price"
    " FROM range(34) AS r(i), range(1, 6) AS q(s) WHERE i < 30 - 2 * s OR i >= 30"
)
SMALL = "horizon = 4, epochs = 2, batches_per_epoch = 4, hidden_units = 8, n_samples = 40"
TRAIN = "TRAIN MODEL {} USING deepar PREDICT units ORDER BY month {} FROM sales {} WITH (" + SMALL + "{})"
FORECAST = "FROM m_forecast(level := 0.8, quantiles := [0.05, 0.1, 0.123, 0.5, 0.9, 0.999]) ORDER BY ALL"


@pytest.fixture
def con() -> grouplearn.Connection:
    connection = grouplearn.connect(progress=None)
    connection.execute(SALES)
    return connection


def train(
    con: grouplearn.Connection, name: str, series: str = "SERIES BY store", rest: str = "", more: str = ""
) -> str:
    """Return the note of the result."""
    return str(con.execute(TRAIN.format(name, series, rest, more)).fetchall()[0][-1])


def test_quantiles_are_interpolated_between_those_that_are_stored(con: grouplearn.Connection) -> None:
    train(con, "m", "SERIES BY store FEATURES (price)", "VALIDATE NONE")
    stored = dict(
        con.execute("SELECT place, vector FROM grouplearn.factors WHERE part = 'quantiles' ORDER BY place").fetchall()
    )
    grid = [0.005, *(number / 100 for number in range(1, 100)), 0.995]
    found = con.execute(FORECAST).fetchall()
    assert len(found) == 5 * 4
    for store, step, _, _, lower, upper, quantiles in found:
        own = stored[store][101 * (step - 1) : 101 * step]
        expected = np.interp([0.05, 0.1, 0.123, 0.5, 0.9, 0.999], grid, own)
        np.testing.assert_allclose(quantiles, expected, rtol=1e-9)
        assert (lower, upper) == pytest.approx((expected[1], expected[4]))


def test_every_client_and_every_copy_forecasts_alike(tmp_path: Path) -> None:
    path = str(tmp_path / "sales.duckdb")
    rows = "SELECT store, month, prediction, lower, upper FROM m_predict(sales) ORDER BY ALL"
    with grouplearn.connect(path, progress=None) as con:
        con.execute(SALES)
        train(con, "m", rest="VALIDATE NONE")
        found, predicted = con.execute(FORECAST).fetchall(), con.execute(rows).fetchall()
        # The first value of a series, and steps beyond the horizon, have no forecast and no interval.
        assert {(row[2] is None, row[3] is None) for row in predicted} == {(False, False), (True, True)}
        ends = "p.predicted[4], p.predicted[14]"
        calls = con.execute(
            f"SELECT store, month, p.value, {ends} FROM (SELECT *, predict('m', sales) AS p FROM sales) ORDER BY ALL"
        ).fetchall()
        np.testing.assert_allclose(
            np.array(calls)[:, 2:].astype(float), np.array(predicted)[:, 2:].astype(float), rtol=1e-9
        )
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'native'}'")
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'script'}' (FORMAT sql)")
        con.execute(f"IMPORT MODEL n FROM '{tmp_path / 'native'}'")
        assert con.execute(FORECAST.replace("m_", "n_", 1)).fetchall() == found
    with duckdb.connect(path) as plain:
        assert plain.execute(FORECAST).fetchall() == found
    with duckdb.connect() as elsewhere:
        elsewhere.execute((tmp_path / "script" / "model.sql").read_text())
        assert elsewhere.execute(FORECAST).fetchall() == found


def test_evaluate_measures_the_quantiles_that_training_measures(con: grouplearn.Connection) -> None:
    train(con, "m", "SERIES BY store FEATURES (price)", "VALIDATE NONE")
    con.execute("CREATE TABLE later AS SELECT store, month, 10 * store + 5 AS units, 5 AS price FROM m_forecast()")
    measured = con.execute("EVALUATE MODEL m ON later").df().iloc[0]
    quantiles = con.execute(
        "SELECT quantiles FROM m_forecast(quantiles := [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])"
        " ORDER BY store, step"
    ).fetchall()
    at = np.array([row[0] for row in quantiles])
    y = np.repeat(10.0 * np.arange(1, 6) + 5, 4)
    share = np.arange(1, 10) / 10
    losses = np.maximum(share * (y[:, None] - at[:, 1:10]), (share - 1) * (y[:, None] - at[:, 1:10]))
    assert measured.wql == pytest.approx(2 / 9 * losses.sum() / y.sum())
    assert measured.coverage == pytest.approx(np.mean((at[:, 0] <= y) & (y <= at[:, 10])))


def test_windows_are_judged_by_what_lies_before(con: grouplearn.Connection) -> None:
    train(con, "m", rest="VALIDATE ROLLING 1 HORIZON 4 OPTIMIZE wql")
    con.execute(
        "CREATE OR REPLACE TABLE sales AS SELECT * EXCLUDE back REPLACE (if(back <= 4, 1e6, units) AS units) FROM (SELECT *,"
        " row_number() OVER (PARTITION BY store ORDER BY month DESC) AS back FROM sales WHERE units IS NOT NULL)"
    )
    train(con, "late", rest="VALIDATE ROLLING 1 HORIZON 4 OPTIMIZE wql")
    clean, late = (con.execute(f"SELECT valid_mae, valid_wql FROM {name}").fetchone() for name in ("m", "late"))
    assert np.isfinite(clean).all()
    # Windows that are a million judge a model that saw none of it: its errors are a million.
    assert late[0] == pytest.approx(1e6, rel=0.01)


def test_one_series_per_group_is_learned_with_a_note(con: grouplearn.Connection) -> None:
    note = train(con, "m", "", "GROUP BY store VALIDATE NONE")
    assert "deepar learned from one series per group, which is little: SERIES BY gives it many" in note
    assert con.execute("SELECT count(*), count(DISTINCT store) FROM m_forecast()").fetchall() == [(20, 5)]
    assert "SERIES BY" not in train(con, "n", rest="VALIDATE NONE")


def test_labels_and_devices_that_are_not_there_fail_the_group(con: grouplearn.Connection) -> None:
    train(con, "m", "", "GROUP BY store VALIDATE NONE", ", likelihood = 'bernoulli'")
    (error,) = con.execute("SELECT DISTINCT error FROM m").fetchone() or ("",)
    assert "likelihood = 'bernoulli' learns 0 and 1, and a label is neither" in error
    import torch

    if not torch.cuda.is_available():
        train(con, "n", "", "GROUP BY store VALIDATE NONE", ", device = 'cuda'")
        assert "torch has no device 'cuda' here" in str(con.execute("SELECT DISTINCT error FROM n").fetchone())
