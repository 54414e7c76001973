"""Learners of series: each series as alone, whatever the order of rows, the clock, the client or the file."""

from pathlib import Path

import duckdb
import numpy as np
import pytest
from helpers.dying_runs import answer, dies

import grouplearn
from grouplearn.learners import registry

#: Without arima, whose series take a second each, see tests/learners/test_arima.py, and deepar, see test_sampled_forecasts.py.
LEARNERS = [
    name
    for name, each in registry.LEARNERS.items()
    if each.declaration.takes_series and each.declaration.requires is None
]
DECOMPOSED = [*LEARNERS]
LEARNERS += ["linear_regression", "gbdt"]
SALES = (
    "CREATE TABLE sales AS SELECT s AS store, CAST(DATE '2016-03-01' + to_months(CAST(i AS INTEGER)) AS DATE) AS month,"
    " 50.0 + 10 * s + i / 2 + 8 * sin(2 * pi() * i / 12) + (i * 7919 + s * 104729) % 7 AS units"
    " FROM range(60) AS r(i), range(5) AS q(s) WHERE i < 60 - 3 * s AND (i + s) % 17 <> 5"
)
FORECAST = "SELECT * FROM {}_forecast(horizon := 8, level := 0.8, quantiles := [0.05, 0.5]) ORDER BY ALL"


@pytest.fixture
def con() -> grouplearn.Connection:
    connection = grouplearn.connect(progress=None)
    connection.execute(SALES)
    return connection


def train(con: grouplearn.Connection, name: str, learner: str, rest: str = "FROM sales GROUP BY store") -> None:
    con.execute(f"TRAIN MODEL {name} USING {learner} PREDICT units ORDER BY month {rest}")


def components(con: duckdb.DuckDBPyConnection, name: str) -> list[tuple]:
    return con.execute(f"FROM {name}_components() ORDER BY ALL").fetchall()


def forecasts(con: grouplearn.Connection, name: str) -> list[tuple]:
    return con.execute(FORECAST.format(name)).fetchall()


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_series_alone_is_as_among_others_and_in_any_order_of_rows(con: grouplearn.Connection, learner: str) -> None:
    train(con, "every", learner)
    train(con, "one", learner, "FROM sales WHERE store = 2 GROUP BY store")
    train(con, "shuffled", learner, "FROM (FROM sales ORDER BY hash(month, store)) GROUP BY store")
    found = forecasts(con, "every")
    assert len(found) == 40
    assert all(np.isfinite(row[3]) and row[4] <= row[3] <= row[5] for row in found)
    assert forecasts(con, "one") == [row for row in found if row[0] == 2]
    assert forecasts(con, "shuffled") == found
    if learner in DECOMPOSED:
        parts = components(con, "every")
        assert components(con, "one") == [row for row in parts if row[0] == 2]
        assert components(con, "shuffled") == parts


@pytest.mark.examples(3)
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_shifted_clock_and_other_types_of_time_give_the_same_forecasts(
    con: grouplearn.Connection, learner: str
) -> None:
    train(con, "dates", learner)
    expected = [row[3:] for row in forecasts(con, "dates")]
    season = "GROUP BY store WITH (season_length = 12, horizon = 24)"
    shifted = "CAST(month + INTERVAL 28 YEARS AS DATE) AS month"
    for name, time in {
        "later": shifted,
        "stamps": "CAST(month AS TIMESTAMP) AS month",
        "zoned": "CAST(month AS TIMESTAMP) AT TIME ZONE 'America/New_York' AS month",
        "numbers": "date_diff('month', DATE '1999-01-01', month) AS month",
        "ends": "last_day(month) AS month",
    }.items():
        con.execute("SET TimeZone = 'America/New_York'")
        train(con, name, learner, f"FROM (SELECT store, units, {time} FROM sales) {season}")
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        assert [row[3:] for row in forecasts(con, name)] == expected, name


@pytest.mark.examples(3)
@pytest.mark.parametrize("learner", LEARNERS)
def test_every_client_and_every_copy_forecasts_alike(con: grouplearn.Connection, learner: str, tmp_path: Path) -> None:
    path = str(tmp_path / "sales.duckdb")
    with grouplearn.connect(path, progress=None) as own:
        own.execute(SALES)
        train(own, "m", learner)
        found = forecasts(own, "m")
        predicted = own.execute(
            "SELECT store, month, prediction, lower, upper FROM m_predict(sales) ORDER BY ALL"
        ).fetchall()
        calls = own.execute("SELECT store, month, predict_value('m', sales) FROM sales ORDER BY ALL").fetchall()
        assert calls == [row[:3] for row in predicted]
        own.execute(f"EXPORT MODEL m TO '{tmp_path / 'native'}'")
        own.execute(f"EXPORT MODEL m TO '{tmp_path / 'script'}' (FORMAT sql)")
        own.execute(f"IMPORT MODEL copy FROM '{tmp_path / 'native'}'")
        assert forecasts(own, "copy") == found
        parts = components(own, "m") if learner in DECOMPOSED else None
        assert parts is None or components(own, "copy") == parts
    with duckdb.connect(path) as plain:
        assert plain.execute(FORECAST.format("m")).fetchall() == found
        assert parts is None or components(plain, "m") == parts
        again = plain.execute(
            "SELECT store, month, prediction, lower, upper FROM m_predict(sales) ORDER BY ALL"
        ).fetchall()
        np.testing.assert_allclose(
            np.array([row[2:] for row in again], float), np.array([row[2:] for row in predicted], float), rtol=1e-12
        )
    with duckdb.connect() as elsewhere:
        elsewhere.execute((tmp_path / "script" / "model.sql").read_text())
        assert elsewhere.execute(FORECAST.format("m")).fetchall() == found
        assert parts is None or components(elsewhere, "m") == parts


@pytest.mark.examples(3)
@pytest.mark.parametrize("learner", LEARNERS)
def test_windows_are_judged_by_models_of_what_lies_before(con: grouplearn.Connection, learner: str) -> None:
    def judged(name: str, source: str, windows: str) -> np.ndarray:
        train(con, name, learner, f"FROM {source} GROUP BY store VALIDATE ROLLING {windows}")
        return np.array(con.execute(f"SELECT valid_mae, valid_rmse FROM {name} ORDER BY store").fetchall())

    con.execute("CREATE VIEW ends AS SELECT *, max(month) OVER (PARTITION BY store) AS last FROM sales")
    con.execute("CREATE VIEW early AS FROM ends WHERE month <= last - INTERVAL 6 MONTHS")
    apart = judged("a", "sales", "1 HORIZON 6"), judged("b", "early", "1 HORIZON 6")
    np.testing.assert_allclose(judged("twice", "sales", "2 HORIZON 6"), np.mean(apart, axis=0), rtol=1e-12)
    late = "month > last - INTERVAL 9 MONTHS AND month <= last - INTERVAL 6 MONTHS"
    poisoned = f"(SELECT * REPLACE (if({late}, 1e9, units) AS units) FROM ends)"
    gap = judged("clean", "sales", "1 HORIZON 6 GAP 3")
    assert (judged("poisoned", poisoned, "1 HORIZON 6 GAP 3") == gap).all()


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        *((learner, "") for learner in DECOMPOSED),
        ("theta", ", variant = 'standard'"),
        ("croston", ", variant = 'tsb'"),
        ("exponential_smoothing", ", errors = 'multiplicative', trend = 'damped', seasonality = 'multiplicative'"),
        ("exponential_smoothing", ", errors = 'multiplicative', trend = 'additive', seasonality = 'additive'"),
        ("exponential_smoothing", ", errors = 'multiplicative', trend = 'damped', seasonality = 'none'"),
    ],
)
def test_a_series_goes_on_as_a_longer_horizon_would_have_stored(
    con: grouplearn.Connection, learner: str, options: str
) -> None:
    # Among them a series that is constant, one of three values, and one with a strong season of two positive years.
    con.execute(
        "CREATE VIEW every AS SELECT store, month, units + 30 * (month(month) = 7 AND store = 1)::INTEGER AS units FROM sales"
        " UNION ALL SELECT 7, month, 4 FROM sales WHERE store = 0"
        " UNION ALL SELECT 8, month, units FROM sales WHERE store = 0 AND month < DATE '2016-06-01'"
    )
    for name, horizon in (("short", 5), ("long", 48)):
        train(con, name, learner, f"FROM every GROUP BY store VALIDATE NONE WITH (horizon = {horizon}{options})")
    called = "SELECT store, unnest(forecast('short', s, {}, 0.8), recursive := true) FROM (SELECT DISTINCT store FROM every) AS s"
    same = "SELECT store, step, time::DATE, prediction, lower, upper FROM ({}) ORDER BY store, step"
    stored = "FROM {}_forecast(level := 0.8) ORDER BY store, step"
    assert con.execute(same.format(called.format(5))).fetchall() == con.execute(stored.format("short")).fetchall()
    found, expected = (con.execute(each).fetchall() for each in (same.format(called.format(48)), stored.format("long")))
    assert len(found) == 7 * 48
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    numbers = (np.array([row[3:] for row in each], float) for each in (found, expected))
    np.testing.assert_allclose(*numbers, rtol=1e-9)


@pytest.mark.examples(4)
@pytest.mark.parametrize(
    ("errors", "trend", "seasonality"),
    [
        ("A", "none", "A"),
        ("A", "damped", "A"),
        ("M", "A", "M"),
        ("M", "damped", "M"),
        ("M", "A", "A"),
        ("A", "A", "none"),
    ],
)
def test_components_are_the_states_of_statsforecast(
    con: grouplearn.Connection, errors: str, trend: str, seasonality: str
) -> None:
    ets = pytest.importorskip("statsforecast.ets")
    words = {"A": "additive", "M": "multiplicative"}
    wanted = ", ".join(
        f"{name} = '{words.get(each, each)}'"
        for name, each in {"errors": errors, "trend": trend, "seasonality": seasonality}.items()
    )
    train(
        con, "m", "exponential_smoothing", f"FROM sales WHERE store = 0 AND month >= DATE '2018-01-01' WITH ({wanted})"
    )
    parameters, state = con.execute(
        "SELECT vector FROM grouplearn.factors WHERE part IN ('parameters', 'state') ORDER BY part"
    ).fetchall()
    # A missing value counts as forecast.
    rows = con.execute(
        "SELECT prediction + remainder, level, trend, season FROM m_components() JOIN m_fitted() USING (month)"
    ).fetchall()
    y, *found = np.array(rows, float).T
    alpha, beta, gamma, phi = (max(each, 0.0) for each in parameters[0][1:5])
    phi = phi if trend == "damped" else 1.0
    first = [
        found[0][0],
        *([] if trend == "none" else [found[1][0] / phi]),
        *([] if seasonality == "none" else found[2][11::-1]),
    ]
    kinds = errors, "N" if trend == "none" else "A", "N" if seasonality == "none" else seasonality
    _, _, states, _ = ets.pegelsresid_C(y, 12, np.array(first), *kinds, trend == "damped", alpha, beta, gamma, phi, 3)
    np.testing.assert_allclose(found[0], states[:-1, 0], rtol=1e-6)
    if trend != "none":
        np.testing.assert_allclose(found[1], states[:-1, 1] * phi, rtol=1e-6)
    if seasonality != "none":
        np.testing.assert_allclose(found[2], states[:-1, -1], rtol=1e-6)
    last = states[-1]
    seasons = [] if seasonality == "none" else last[: -1 - 12 : -1]
    np.testing.assert_allclose(state[0], [*last[: 1 + (trend != "none")], *seasons], rtol=1e-6)


def test_a_run_that_died_is_resumed_with_the_same_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sales.duckdb"
    answer(path, SALES)
    statement = "TRAIN MODEL m USING theta PREDICT units ORDER BY month FROM sales GROUP BY store"
    shown = "SELECT * FROM m_components() ORDER BY ALL"
    expected = answer(path, statement, shown)
    answer(path, "DROP MODEL m")
    dies(path, monkeypatch, f"{statement} WITH (durable = true, operator = 'group_task_parallel')", units=1)
    assert answer(path, "RESUME MODEL m", shown) == expected


@pytest.mark.parametrize("learner", ["linear_regression", "gbdt", "poisson_regression"])
def test_no_row_of_the_gap_trains_a_learner_of_rows(con: grouplearn.Connection, learner: str) -> None:
    # Rows of tables are steps: the months that have one.
    con.execute(
        "CREATE VIEW ends AS SELECT *, row_number() OVER (PARTITION BY store ORDER BY month DESC) AS back FROM sales"
    )
    poisoned = "if(back BETWEEN 7 AND 9, 1e9, units) AS units"

    def judged(name: str, units: str) -> list[tuple]:
        con.execute(
            f"TRAIN MODEL {name} USING {learner} PREDICT units FEATURES (year(month) AS y, month(month) AS m)"
            f" FROM (SELECT store, month, {units} FROM ends) GROUP BY store VALIDATE ROLLING 1 BY month HORIZON 6 GAP 3"
        )
        return con.execute(f"SELECT store, valid_mae, valid_rmse FROM {name} ORDER BY store").fetchall()

    assert judged("clean", "units") == judged("poisoned", poisoned)


def test_short_series_have_as_many_windows_as_they_have(con: grouplearn.Connection) -> None:
    con.execute("CREATE TABLE short AS FROM sales WHERE store = 0 OR month < DATE '2016-12-01'")
    train(con, "m", "seasonal_naive", "FROM short GROUP BY store VALIDATE ROLLING 4 HORIZON 4 WITH (season_length = 1)")
    found = con.execute("SELECT store, valid_mae IS NOT NULL, error FROM m ORDER BY store").fetchall()
    assert found[0] == (0, True, None)
    assert all(judged and error.startswith("validated on") for _, judged, error in found[1:])


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
@pytest.mark.parametrize("learner", ["linear_regression", "gbdt", "mlp"])
def test_other_plans_for_the_steps_to_come_forecast_as_if_they_were_trained_with(
    con: grouplearn.Connection, learner: str, strategy: str, tmp_path: Path
) -> None:
    """Rows without a label do not train, so that a model of other ones is the same model."""
    train_on = (
        "SERIES BY store FEATURES (lags(1, 2, 12), rolling_mean(3), onehot(offer), price) FROM (FROM {}) VALIDATE NONE"
        f" WITH (horizon = 6, differences = [1], strategy = '{strategy}'{', epochs = 3' if learner == 'mlp' else ''})"
    )
    con.execute(
        "CREATE TABLE usual AS SELECT *, month(month) % 3 AS price, ['no', 'half', 'two'][1 + month(month) % 3] AS offer"
        " FROM (FROM sales UNION ALL SELECT store, unnest(generate_series(max(month) + INTERVAL 1 MONTH, max(month) +"
        " INTERVAL 6 MONTHS, INTERVAL 1 MONTH))::DATE, NULL FROM sales GROUP BY store)"
    )
    con.execute(
        "CREATE TABLE other AS SELECT * REPLACE (if(units IS NULL, 7 - price, price) AS price,"
        " if(units IS NULL, 'half', offer) AS offer) FROM usual"
    )
    train(con, "m", learner, train_on.format("usual"))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}'")
    con.execute(f"IMPORT MODEL n FROM '{tmp_path / 'm'}'")
    lists = (
        "SELECT store, time, prediction, lower, upper FROM (SELECT store, unnest(forecast('{}', list(p ORDER BY hash(p))),"
        " recursive := true) FROM (FROM {} WHERE units IS NULL) AS p GROUP BY store) ORDER BY ALL"
    )
    stored = "SELECT store, CAST(month AS VARCHAR), prediction, lower, upper FROM {}_forecast() ORDER BY ALL"
    known = con.execute(stored.format("m")).fetchall()
    assert len(known) == 30
    assert con.execute(lists.format("m", "usual")).fetchall() == known
    train(con, "o", learner, train_on.format("other"))
    planned = con.execute(lists.format("n", "other")).fetchall()
    assert planned == con.execute(stored.format("o")).fetchall()
    assert planned != known
