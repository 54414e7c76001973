"""Pictures of forecasts: history, mean and intervals are those of the table and of ``m_forecast``, in plots and reports."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest
from test_model import WellFormed

import grouplearn
from grouplearn.frontends.report.times import marks

SALES = (
    "CREATE TABLE sales AS SELECT 'store ' || s AS store, s % 2 = 0 AS big,"
    " CAST(DATE '2020-01-01' + to_months(CAST(i AS INTEGER)) AS DATE) AS month,"
    " 100.0 + 20 * s + 15 * sin(2 * pi() * i / 12) + (i * 7919 + s * 104729) % 13 AS units"
    " FROM range(60) AS t(i), range(1, 9) AS u(s)"
)
TRAIN = "TRAIN MODEL {} USING seasonal_naive PREDICT units ORDER BY month FROM {} WITH (horizon = 6)"


@pytest.fixture(scope="module")
def con() -> Iterator[grouplearn.Connection]:
    import matplotlib as mpl

    mpl.use("agg")
    with grouplearn.connect(progress=None) as connection:
        connection.execute(SALES)
        connection.execute(TRAIN.format("demand", "sales WHERE units > 0 GROUP BY store"))
        yield connection


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def lines(axes: object) -> dict[str, list[tuple]]:
    """The points of each line of a picture, by its label."""
    return {line.get_label(): [*zip(line.get_xdata(), line.get_ydata(), strict=True)] for line in axes.lines}


def test_a_picture_has_the_rows_the_forecasts_and_their_intervals(con: grouplearn.Connection) -> None:
    axes = con.model("demand").plot.forecast(groups="store 3", levels=[0.5, 0.9], past=20)
    drawn = lines(axes)
    rows = con.execute("SELECT month::TIMESTAMP, units FROM sales WHERE store = 'store 3' ORDER BY month").fetchall()
    assert drawn["history"] == rows[-20:]
    found = con.execute(
        "SELECT month::TIMESTAMP, prediction, lower, upper FROM demand_forecast() WHERE store = 'store 3' ORDER BY step"
    ).fetchall()
    assert drawn["forecast"] == [rows[-1], *(row[:2] for row in found)]
    widest, narrowest = (fan.get_paths()[0].vertices[:, 1] for fan in axes.collections)
    assert widest.max() == pytest.approx(max(row[3] for row in found))
    assert narrowest.max() < widest.max()
    assert {x for x, _ in drawn["end of training"]} == {dt.datetime(2024, 12, 1)}
    assert axes.get_title() == "demand: forecast, store = store 3"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "history", "forecast", "50% interval", "90% interval", "end of training",
    ]  # fmt: skip


def test_without_groups_the_first_are_drawn_and_the_title_says_so(con: grouplearn.Connection) -> None:
    several = con.model("demand").plot.forecast()
    assert [axes.get_title() for axes in several] == [f"store = store {number}" for number in range(1, 7)]
    assert several[0].figure.get_suptitle() == "demand: forecast of units, 6 of 8 series"
    two = con.model("demand").plot.forecast(groups=["store 8", "store 2"], horizon=2)
    assert [axes.get_title() for axes in two] == ["store = store 8", "store = store 2"]
    assert [len(lines(axes)["forecast"]) for axes in two] == [3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": "store 33"}, 'model "demand" has no forecasts of "store 33"\n\nHint: Did you mean "store 3"?'),
        ({"groups": [None]}, 'no forecasts of "NULL"\n\nHint: FROM "demand" says which groups have a model.'),
        ({"groups": ("store 3", 1)}, "has 1 key, and groups names one by 2\n\nHint: groups = ['store 1']"),
        ({"levels": [95]}, "levels are probabilities between 0 and 1"),
        ({"horizon": 7}, "the model has forecasts of 6 steps"),
    ],
)
def test_what_cannot_be_drawn_says_why(con: grouplearn.Connection, options: dict, message: str) -> None:
    with pytest.raises(duckdb.Error, match=re.escape(message)):
        con.model("demand").plot.forecast(**options)


def test_axes_are_for_one_series(con: grouplearn.Connection) -> None:
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    assert con.model("demand").plot.forecast(ax=axes, groups="store 1") is axes
    with pytest.raises(grouplearn.ProgrammingError, match="ax is for one series, and these are 6"):
        con.model("demand").plot.forecast(ax=axes)


def past(axes: object) -> str:
    return next(iter(lines(axes)))


def test_the_past_is_read_again_where_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sources = {"(FROM sales)": True, "read_csv('sales.csv')": True, "frame": True, "kept": True, "gone": False}
    with grouplearn.connect(progress=None) as own:
        own.execute(SALES)
        own.execute("COPY sales TO 'sales.csv'; CREATE TEMP TABLE kept AS FROM sales; CREATE TABLE gone AS FROM sales")
        frame = own.sql("FROM sales").to_arrow_table()  # noqa: F841 - the statement reads it
        for number, source in enumerate(sources):
            own.execute(TRAIN.format(f"m{number}", f"{source} GROUP BY big, store"))
        own.execute("DROP TABLE gone")
        own.begin()  # what cannot be read must not end the user's transaction
        own.execute("INSERT INTO sales SELECT * REPLACE (units + 1 AS units) FROM sales LIMIT 1")
        found = []
        for number in range(len(sources)):
            found.append(past(own.model(f"m{number}").plot.forecast(groups=(True, "store 2"))))  # noqa: PERF401, of this frame
        pages = [own.model("m2").report(), own.model("m4").report()]
        own.commit()
    assert found == ["history" if there else "fitted" for there in sources.values()]
    assert ["cannot be read any more" in page for page in pages] == [False, True]


def test_a_statement_of_a_stranger_reads_no_files(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("month,units\n2020-01-01,1\n2020-02-01,2\n2020-03-01,1\n2020-04-01,2\n")
    path = tmp_path / "strange.duckdb"
    with grouplearn.connect(path, progress=None) as own:
        own.execute(TRAIN.format("m", f"read_csv('{tmp_path}/secret.csv')"))
        assert past(own.model("m").plot.forecast()) == "history"
    with grouplearn.connect(path, read_only=True, progress=None) as own:
        assert past(own.model("m").plot.forecast()) == "fitted"
        own.execute("SET grouplearn_trust = true")
        assert past(own.model("m").plot.forecast()) == "history"


def test_rows_after_the_end_of_training_are_drawn_beside_the_forecasts() -> None:
    with grouplearn.connect(progress=None) as own:
        own.execute(SALES)
        own.execute(TRAIN.format("m", "sales GROUP BY store"))
        later = "SELECT * REPLACE (CAST(month + INTERVAL 10 MONTHS AS DATE) AS month) FROM sales"
        own.execute(f"INSERT INTO sales {later} WHERE month > DATE '2024-05-01'")
        drawn = lines(own.model("m").plot.forecast(groups="store 1"))
    assert drawn["end of training"][0][0] == dt.datetime(2024, 12, 1)
    assert drawn["history"][-1][0] == drawn["forecast"][-1][0] == dt.datetime(2025, 6, 1)


def test_times_are_drawn_by_the_clock_of_their_zone_and_numbers_as_numbers() -> None:
    with grouplearn.connect(progress=None) as own:
        own.execute("SET TimeZone = 'America/New_York'")
        own.execute(
            "CREATE TABLE t AS SELECT (TIMESTAMP '2024-01-01 05:00' + to_hours(i)) AT TIME ZONE 'America/New_York' AS moment,"
            " i AS number, i % 24 AS units FROM range(72) AS r(i)"
        )
        for order, first in (("moment", dt.datetime(2024, 1, 4, 5)), ("number", 72.0)):
            own.execute(f"TRAIN OR REPLACE MODEL m USING seasonal_naive PREDICT units ORDER BY {order} FROM t")
            own.execute("SET TimeZone = 'Asia/Tokyo'")
            drawn = lines(own.model("m").plot.forecast())
            assert drawn["forecast"][1][0] == first
            assert drawn["history"][-1][1] == 23
            own.execute("SET TimeZone = 'America/New_York'")
            WellFormed(own.model("m").report())


def test_other_learners_and_models_without_groups_say_why_there_is_no_picture(con: grouplearn.Connection) -> None:
    con.execute("TRAIN MODEL line USING linear_regression PREDICT units FEATURES (big) FROM sales GROUP BY store")
    con.execute(TRAIN.format("empty", "sales WHERE month = DATE '2020-01-01' AND store = 'store 1'"))
    for name, message in {"line": "the learner makes no forecasts", "empty": "no group has a model"}.items():
        assert con.model(name).plot.forecast().texts[0].get_text().startswith(message)
        assert "<h2>Forecasts</h2>" not in con.model(name).report()


def test_a_report_has_a_picture_of_each_series_best_first(con: grouplearn.Connection) -> None:
    page = con.model("demand").report()
    WellFormed(page)
    section = page[page.index('<section id="forecasts">') : page.index('<section id="curves">')]
    assert "Steps of 1 month, seasons of 12 steps, forecasts of 6 steps." in section
    best = con.execute("SELECT store FROM demand WHERE is_best ORDER BY valid_mase, store").fetchall()
    assert re.findall(r"<h3>store = (store \d) <small>mase [\d.]+</small>", section) == [row[0] for row in best]
    assert section.count("<polygon") == 3 * 8
    assert section.count("<title>history</title>") == section.count("<title>end of training</title>") == 8
    assert {"2023", "2024"} <= set(re.findall(r">(\d{4})</text>", section))


def test_a_report_of_many_series_has_the_best_and_the_worst() -> None:
    with grouplearn.connect(progress=None) as own:
        own.execute(
            "CREATE TABLE t AS SELECT g, i, (i * 7919 * (g + 1)) % (3 + g) AS y FROM range(40) AS a(g), range(30) AS b(i)"
        )
        own.execute("TRAIN MODEL m USING theta PREDICT y ORDER BY i FROM t GROUP BY g")
        page = own.model("m").report()
        ranked = [row[0] for row in own.execute("SELECT g FROM m WHERE is_best ORDER BY valid_mase, g").fetchall()]
    assert [int(found) for found in re.findall(r"<h3>g = (\d+) ", page)] == [*ranked[:6], *ranked[-6:]]
    assert "These are 12 of 40 series" in page


@pytest.mark.parametrize(
    ("first", "last", "shown"),
    [
        ("2020-03-05", "2025-01-01", ["2022", "2024"]),
        ("2024-01-01", "2024-06-30", ["2024-01", "2024-04"]),
        ("2024-01-01", "2024-02-10", ["2024-01-04", "2024-01-18", "2024-02-01"]),
        ("2024-01-01 00:10", "2024-01-01 01:00", ["01-01 00:15", "01-01 00:30", "01-01 00:45", "01-01 01:00"]),
        ("2024-01-01 00:00:10", "2024-01-01 00:00:25", ["00:00:10", "00:00:15", "00:00:20", "00:00:25"]),
        ("0900-01-01", "2900-01-01", ["1000", "1500", "2000", "2500"]),
    ],
)
def test_ticks_of_times_are_round(first: str, last: str, shown: list[str]) -> None:
    found = marks(dt.datetime.fromisoformat(first), dt.datetime.fromisoformat(last))
    assert [text for _, text in found] == shown
    assert np.all(np.diff([place for place, _ in found]) > 0)
    assert marks(1.0, 9.0) is None
