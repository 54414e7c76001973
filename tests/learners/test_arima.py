"""``arima`` makes what statsforecast makes when called directly, and says what it cannot make."""

from typing import Any

import numpy as np
import pytest
from statsforecast.arima import Arima, auto_arima_f, fitted_arima, forecast_arima

import grouplearn
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.registry import LEARNERS
from grouplearn.learners.series.batch import SeriesBatch

#: The probability within one deviation of the mean.
LEVEL = 0.6826894921370859
SALES = (
    "CREATE TABLE sales AS SELECT s AS store, CAST(DATE '2016-06-01' + to_months(CAST(i AS INTEGER)) AS DATE) AS month,"
    " 50.0 + 10 * s + i / 2 + 8 * sin(2 * pi() * i / 12) + (i * 7919 + s * 104729) % 7 AS units"
    " FROM range(50) AS r(i), range(2) AS q(s)"
)


@pytest.fixture(scope="module")
def con() -> grouplearn.Connection:
    connection = grouplearn.connect(progress=None)
    connection.execute(SALES)
    return connection


def labels(con: grouplearn.Connection, store: int) -> np.ndarray:
    rows = con.execute("SELECT units FROM sales WHERE store = ? ORDER BY month", [store]).fetchall()
    return np.array([float(units) for (units,) in rows])


def expected(model: dict[str, Any], begin: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ahead = forecast_arima(model, h=6, level=(100 * LEVEL,))
    deviation = (ahead["upper"] - ahead["lower"]).to_numpy()[:, 0] / 2
    return np.asarray(fitted_arima(model))[begin:], ahead["mean"], deviation


def assert_same(con: grouplearn.Connection, store: int, found: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    fitted = con.execute("SELECT prediction FROM m_fitted() WHERE store = ? ORDER BY month", [store]).fetchall()
    np.testing.assert_allclose([value for (value,) in fitted], found[0], rtol=1e-9)
    columns = "prediction, (upper - lower) / 2"
    forecast = f"FROM m_forecast(level := {LEVEL}) WHERE store = ? ORDER BY step"
    rows = con.execute(f"SELECT {columns} {forecast}", [store]).fetchall()
    np.testing.assert_allclose([row[0] for row in rows], found[1], rtol=1e-9)
    np.testing.assert_allclose([row[1] for row in rows], found[2], rtol=1e-9)


TRAIN = (
    "TRAIN OR REPLACE MODEL m USING arima PREDICT units ORDER BY month FROM {} GROUP BY store VALIDATE NONE WITH ({})"
)


@pytest.mark.filterwarnings("ignore")
def test_the_chosen_model_is_statsforecasts(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format("(FROM sales WHERE store = 0)", "criterion = 'bic', season_length = 4, horizon = 6"))
    model = auto_arima_f(labels(con, 0), period=4, ic="bic")
    assert_same(con, 0, expected(model, model["arma"][5] + 4 * model["arma"][6]))


@pytest.mark.filterwarnings("ignore")
def test_a_given_model_is_statsforecasts(con: grouplearn.Connection) -> None:
    orders = "p = 1, d = 1, q = 1, seasonal_p = 0, seasonal_d = 1, seasonal_q = 0"
    con.execute(TRAIN.format("sales", f"{orders}, horizon = 6"))
    for store in (0, 1):
        seasonal = {"order": (0, 1, 0), "period": 12}
        model = Arima(labels(con, store), order=(1, 1, 1), seasonal=seasonal, method="CSS-ML")
        assert_same(con, store, expected(model, 13))


@pytest.mark.filterwarnings("ignore")
def test_a_missing_value_lies_between_its_neighbours(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format("(FROM sales WHERE store = 0 AND month(month) <> 3)", "p = 1, d = 0, q = 0, horizon = 6"))
    y = labels(con, 0)
    march = np.arange(9, 50, 12)
    y[march] = (y[march - 1] + y[march + 1]) / 2
    assert_same(con, 0, expected(Arima(y, order=(1, 0, 0), method="CSS-ML"), 0))


def test_orders_are_given_together(con: grouplearn.Connection) -> None:
    for options, message in (
        ("p = 1", "p, d and q are given together, or all chosen"),
        ("seasonal_d = 1", "seasonal_p, seasonal_d and seasonal_q are given together, or all chosen"),
        ("seasonal_p = 1, seasonal_d = 1, seasonal_q = 1", "seasonal orders are given beside p, d and q"),
        (
            "p = 1, d = 0, q = 0, seasonal_p = 1, seasonal_d = 0, seasonal_q = 0, season_length = 200",
            "seasonal orders take seasons of 2 to 100 steps, and season_length is 200",
        ),
    ):
        with pytest.raises(grouplearn.Error, match=message):
            con.execute(TRAIN.format("sales", options))


def test_it_stops_between_series() -> None:
    learner = LEARNERS["arima"]
    values = {each.name: each.default for each in learner.declaration.hyperparameters}
    config = values | {"p": 0, "d": 1, "q": 0, "season_length": 1, "horizon": 3}
    batch = SeriesBatch(np.arange(30.0) % 7, np.array([0, 10, 20, 30]), np.zeros(3, np.int64))
    looks: list[None] = []

    def cancelled() -> bool:
        looks.append(None)
        return len(looks) == 3

    with pytest.raises(Interrupted):
        learner.fit(config, batch, cancelled)  # type: ignore[attr-defined]
    assert len(looks) == 3
