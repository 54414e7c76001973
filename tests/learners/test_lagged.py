"""Forecasts from earlier values: against least squares and pandas by hand, and what they cannot be."""

import numpy as np
import pandas as pd
import pytest

import grouplearn

STEPS, HORIZON = 90, 8


@pytest.fixture
def con() -> grouplearn.Connection:
    """Return a connection with three series in a table: integers as times, one missing step, of unequal lengths."""
    connection = grouplearn.connect(progress=None)
    connection.execute(
        "CREATE TABLE rows AS SELECT s, i AS t, 20 + 3 * s + 0.1 * i + 4 * sin(i / 2.0) + (i * 7919 + s * 104729) % 17 / 9 AS y,"
        f" i % 5 = 0 AS extra FROM range({STEPS}) AS r(i), range(3) AS q(s) WHERE i < {STEPS} - 10 * s AND NOT (s = 1 AND i = 30)"
    )
    return connection


def values(con: grouplearn.Connection, series: int) -> pd.Series:
    """Return a series, with the value before for a missing one, as linear learners have it."""
    frame = con.execute(f"SELECT t, y FROM rows WHERE s = {series} ORDER BY t").df()
    return frame.set_index("t")["y"].reindex(range(frame["t"].max() + 1)).ffill()


def forecast(con: grouplearn.Connection, model: str, series: int = 0) -> np.ndarray:
    found = con.execute(f"SELECT prediction FROM {model}_forecast() WHERE s = {series} ORDER BY step").fetchall()
    return np.array([row[0] for row in found])


def features(y: pd.Series) -> pd.DataFrame:
    """Return what FEATURES of the tests below make of a series."""
    before = y.shift(1)
    return pd.DataFrame(
        {
            "lag1": before,
            "lag3": y.shift(3),
            "mean": before.rolling(4).mean(),
            "std": before.rolling(5).std(),
            "least": before.rolling(3).min(),
            "most": before.rolling(6).max(),
            "difference": before - y.shift(3),
        }
    )


CALLS = "lags(1, 3), rolling_mean(4), rolling_std(5), rolling_min(3), rolling_max(6), difference(2)"


def continued(y: pd.Series, weights: np.ndarray, extra: bool = False) -> np.ndarray:
    """Return the forecasts of least squares, each from the ones before."""
    for _ in range(HORIZON):
        longer = pd.concat([y, pd.Series([np.nan], index=[y.index[-1] + 1])])
        row = features(longer).iloc[-1].to_numpy()
        row = np.append(row, longer.index[-1] % 5 == 0) if extra else row
        longer.iloc[-1] = weights[0] + row @ weights[1:]
        y = longer
    return y.iloc[-HORIZON:].to_numpy()


def least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), y, rcond=None)[0]
    return found


def test_a_linear_model_of_one_series_is_least_squares_continued(con: grouplearn.Connection) -> None:
    con.execute(
        f"TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t FEATURES ({CALLS}, (t % 5 = 0)::INTEGER) FROM rows"
        f" GROUP BY s VALIDATE NONE WITH (horizon = {HORIZON}, season_length = 1, l2 = 0)"
    )
    for series in (0, 2):
        y = values(con, series)
        x = np.column_stack([features(y).to_numpy(), y.index % 5 == 0]).astype(float)[6:]
        expected = continued(y, least_squares(x, y.to_numpy()[6:]), extra=True)
        np.testing.assert_allclose(forecast(con, "m", series), expected, rtol=1e-7)


@pytest.mark.parametrize("scale", ["mean", "standard", "none"])
def test_one_model_of_many_series_learns_from_all_of_them_as_scaled(con: grouplearn.Connection, scale: str) -> None:
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t SERIES BY s FEATURES (lags(1, 2)) FROM rows"
        f" VALIDATE NONE WITH (horizon = {HORIZON}, season_length = 1, l2 = 0, scale = '{scale}')"
    )
    known = con.execute("SELECT avg(abs(y)), avg(y), stddev_pop(y) FROM rows GROUP BY s ORDER BY s").fetchall()
    shift = [mean if scale == "standard" else 0.0 for _, mean, _ in known]
    factor = [{"mean": size, "standard": deviation, "none": 1.0}[scale] for size, _, deviation in known]
    every = [(values(con, series) - shift[series]) / factor[series] for series in range(3)]
    trained = []
    for own, missing in zip(every, ([], [30, 31, 32], []), strict=True):  # values without both lags do not train
        trained.append(pd.DataFrame({"lag1": own.shift(1), "lag2": own.shift(2), "y": own})[2:].drop(index=missing))
    rows = pd.concat(trained).to_numpy()
    weights = least_squares(rows[:, :2], rows[:, 2])
    for series, own in enumerate(every):
        past = [*own.to_numpy()]
        for _ in range(HORIZON):
            past.append(weights[0] + weights[1] * past[-1] + weights[2] * past[-2])
        expected = np.array(past[-HORIZON:]) * factor[series] + shift[series]
        np.testing.assert_allclose(forecast(con, "m", series), expected, rtol=1e-7)


def test_a_missing_value_is_no_lag_of_a_row_that_trains(con: grouplearn.Connection) -> None:
    """y(t) = 0.9 y(t - 1) exactly, in the rows that have a row before them."""
    con.execute(
        "CREATE TABLE gaps AS SELECT i AS t, 1000 * 0.9 ** i AS y FROM range(40) AS r(i)"
        " WHERE i < 10 OR i IN (12, 13, 16, 17, 18, 22) OR i > 26"
    )
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t FEATURES (lags(1)) FROM gaps VALIDATE NONE"
        " WITH (horizon = 3, season_length = 1, l2 = 0)"
    )
    found = con.execute("SELECT max(abs(prediction / (1000 * 0.9 ** t) - 1)) FROM m_forecast()").fetchall()
    assert found[0][0] < 1e-9


def test_a_series_of_zeros_among_others_stays_small(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE zeros AS SELECT s, t, CASE WHEN s > 0 THEN y / 1000 ELSE 0 END AS y FROM rows")
    for scale in ("mean", "standard"):
        con.execute(
            "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y ORDER BY t SERIES BY s FEATURES (lags(1)) FROM zeros"
            f" VALIDATE NONE WITH (horizon = {HORIZON}, season_length = 1, scale = '{scale}')"
        )
        assert np.abs(forecast(con, "m")).max() < 1e-4


def test_a_network_of_one_series_beats_the_season_before(con: grouplearn.Connection) -> None:
    """By its defaults, on a growing series of months with a season that grows, too."""
    con.execute(
        "CREATE TABLE air AS SELECT CAST(DATE '1949-01-01' + to_months(i::INTEGER) AS DATE) AS month, exp(4.8 + 0.01 * i"
        " + 0.15 * sin(i * pi() / 6) + 0.004 * ((i * 7919) % 17)) AS y FROM range(144) AS r(i)"
    )
    for learner in ("mlp", "seasonal_naive"):
        con.execute(
            f"TRAIN MODEL {learner} USING {learner} PREDICT y ORDER BY month FROM air VALIDATE ROLLING 3 HORIZON 12"
        )
    assert con.execute("SELECT n.valid_mae < 0.8 * s.valid_mae FROM mlp AS n, seasonal_naive AS s").fetchall() == [
        (True,)
    ]


def test_direct_models_learn_each_step_and_differences_are_added_again(con: grouplearn.Connection) -> None:
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t FEATURES (lags(1, 2)) FROM rows GROUP BY s VALIDATE NONE"
        f" WITH (horizon = {HORIZON}, season_length = 1, l2 = 0, strategy = 'direct', differences = [4, 1])"
    )
    y = values(con, 0)
    fourth = y.diff(4)
    learned = fourth.diff(1)
    found = []
    for step in range(1, HORIZON + 1):
        rows = pd.DataFrame({"a": learned.shift(step), "b": learned.shift(step + 1), "y": learned})
        rows = rows[2 + step - 1 + 5 :]
        weights = least_squares(rows[["a", "b"]].to_numpy(), rows["y"].to_numpy())
        found.append(weights[0] + weights[1] * learned.iloc[-1] + weights[2] * learned.iloc[-2])
    values_, fourths = [*y], [*fourth]
    for each in found:
        fourths.append(fourths[-1] + each)
        values_.append(values_[-4] + fourths[-1])
    np.testing.assert_allclose(forecast(con, "m"), values_[-HORIZON:], rtol=1e-7)


def test_deviations_are_those_of_the_process(con: grouplearn.Connection) -> None:
    """The deviation h steps ahead of y(t) = φ y(t - 1) + e is σ √(1 + φ² + ... + φ^(2h - 2))."""
    random, phi, sigma = np.random.default_rng(5), 0.8, 2.0
    y = np.zeros((40, 150))
    for step in range(1, 150):
        y[:, step] = phi * y[:, step - 1] + sigma * random.standard_normal(40)
    frame = pd.DataFrame({"s": np.repeat(np.arange(40), 150), "t": np.tile(np.arange(150), 40), "y": y.ravel() + 100})
    con.register("walks", frame)
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t SERIES BY s FEATURES (lags(1)) FROM walks"
        " VALIDATE ROLLING 3 HORIZON 6 WITH (horizon = 6, season_length = 1)"
    )
    rows = "SELECT step, avg(upper - lower) / 3.289707 FROM m_forecast(level := 0.9) GROUP BY step ORDER BY step"
    found = np.array([row[1] for row in con.execute(rows).fetchall()])
    np.testing.assert_allclose(found, sigma * np.sqrt(np.cumsum(phi ** (2 * np.arange(6)))), rtol=0.1)
    assert abs(con.execute("SELECT valid_coverage FROM m").fetchone()[0] - 0.9) < 0.03


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_intervals_of_short_random_walks_contain_what_they_say(con: grouplearn.Connection, strategy: str) -> None:
    steps = np.random.default_rng(7).standard_normal((100, 72))
    walks = {
        "s": np.repeat(np.arange(100), 72),
        "t": np.tile(np.arange(72), 100),
        "y": np.cumsum(steps, axis=1).ravel(),
    }
    con.register("walks", pd.DataFrame(walks))
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t FEATURES (lags(1, 2)) FROM (FROM walks WHERE t < 60)"
        f" GROUP BY s VALIDATE NONE WITH (horizon = 12, season_length = 1, strategy = '{strategy}')"
    )
    inside = "avg((y BETWEEN lower AND upper)::INTEGER)"
    found = con.execute(
        f"SELECT {inside}, {inside} FILTER (step > 8) FROM m_forecast(level := 0.9) JOIN walks USING (s, t)"
    )
    every, late = found.fetchall()[0]
    assert 0.87 < every < 0.94
    assert 0.82 < late < 0.94


def test_intervals_of_a_noisy_series_are_wider_than_those_of_others_in_its_model(con: grouplearn.Connection) -> None:
    noise = np.random.default_rng(3).standard_normal((10, 120)) * np.where(np.arange(10) == 0, 10, 1)[:, None]
    rows = {"s": np.repeat(np.arange(10), 120), "t": np.tile(np.arange(120), 10), "y": 50 + noise.ravel()}
    con.register("noisy", pd.DataFrame(rows))
    con.execute(
        "TRAIN MODEL m USING linear_regression PREDICT y ORDER BY t SERIES BY s FEATURES (lags(1)) FROM noisy VALIDATE NONE"
        " WITH (horizon = 2, season_length = 1, scale = 'none')"
    )
    found = con.execute(
        "SELECT avg(upper - lower) FROM m_forecast(level := 0.9) GROUP BY s = 0 ORDER BY s = 0"
    ).fetchall()
    assert found[1][0] > 5 * found[0][0]
    assert 3 < found[0][0] < 6  # 3.29 standard deviations
