"""``con.model("m")``: its tables, the numbers that are drawn, the plots and the report."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import numpy as np
import pytest

import grouplearn
from grouplearn.catalog.overview import Overview, drawn
from grouplearn.frontends.notebook.model_table import relation_html, rendered
from grouplearn.frontends.report import command as report_command
from grouplearn.frontends.report.drawing import (
    GREY,
    AxisRange,
    Line,
    aligned,
    bars,
    histogram,
    lines,
    number,
    rounded,
    sparkline,
    thinned,
)

NASTY = '<script>alert(1)</script> & "o\'hara" ]]>\x01'
VOID = frozenset({"meta", "br", "hr", "img", "input", "link"})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "shop.duckdb"
    rng = np.random.default_rng(5)
    n = 600
    data = {
        "region": np.array(["north", "south", NASTY])[np.arange(n) % 3],
        "price": rng.uniform(size=n),
        "held": np.arange(n) % 4 == 0,
        "noise": rng.normal(scale=0.2, size=n),
        "number": np.arange(n) % 3,
    }
    with grouplearn.connect(path, progress=None) as con:
        con.register("data", data)
        con.execute(
            "CREATE TABLE sales AS SELECT * REPLACE (region::VARCHAR AS region), (1 + number) * price + noise AS units,"
            " units > 1 AS late FROM data"
        )
        con.execute("INSERT INTO sales SELECT 'island', 1, i = 0, 0, 9, 2, true FROM range(4) AS r(i)")
        con.execute(
            "TRAIN MODEL demand USING linear_regression PREDICT units FEATURES (price, noise) FROM sales"
            " GROUP BY ROLLUP (region) OVER GRID (l2 IN (0, 5)) VALIDATE WHERE held"
        )
        con.execute(
            "TRAIN MODEL late USING logistic_regression PREDICT late FEATURES (price) FROM sales GROUP BY region"
            " OVER GRID (l2 IN (0, 5)) OPTIMIZE auc WITH (epochs = 20)"
        )
        con.execute('TRAIN MODEL "<odd> name" USING gbdt PREDICT units FEATURES (price, noise) FROM sales')
    return path


@pytest.fixture
def con(path: Path) -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(path, read_only=True, progress=None) as connection:
        yield connection


class WellFormed(HTMLParser):
    """Checks that elements nest, and that nothing runs or is loaded from elsewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed", "img", "link", "base")
        for name, value in attributes:
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "data")
            assert name != "href" or (value or "").startswith("#")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def overview_of(con: grouplearn.Connection, name: str) -> Overview:
    with con.model(name).overview() as found:
        return found


def test_a_model_is_found_by_its_name_in_sql(con: grouplearn.Connection, path: Path) -> None:
    names = ("demand", "Demand", "main.demand", 'shop.main."demand"')
    assert {con.model(name).name for name in names} == {"demand"}
    assert con.model("<odd> name").name == con.model('"<odd> name"').name == "<odd> name"
    assert (
        repr(con.model("demand"))
        == "<grouplearn.Model demand: linear_regression of units, 5 groups, 10 trials, 0 failed>"
    )
    with pytest.raises(grouplearn.BindError) as error:
        con.model("demands")
    assert str(error.value).startswith('unknown model "demands"\nModels: ')
    assert str(error.value).endswith('Hint: Did you mean "demand"?')
    assert "LINE" not in str(error.value)
    con.close()
    with duckdb.connect(str(path), read_only=True) as plain:
        assert grouplearn.model(plain, "demand").trials.count("*").fetchall() == [(10,)]


def test_its_tables_are_relations(con: grouplearn.Connection) -> None:
    model = con.model("demand")
    assert model.statement.startswith("TRAIN MODEL demand\nUSING linear_regression")
    assert model.trials.filter("is_best").count("*").fetchall() == [(5,)]
    assert {"feature", "weight", "standard_error"} <= {*model.weights.columns}
    assert {row[0] for row in model.importance.project("feature").fetchall()} == {"price", "noise"}
    assert model.curves.columns[-1] == "valid_rmse"
    assert "worker" in model.schedule.columns


def test_levels_are_judged_on_the_rows_they_held_out(con: grouplearn.Connection) -> None:
    finest, pooled = overview_of(con, "demand").by_level()
    query = "SELECT sqrt(avg((units - prediction) ** 2)), count(*) FROM {} WHERE held"
    own = con.execute(query.format("demand_predict(sales)")).fetchone()
    con.execute(
        "CREATE TEMP TABLE all_rows AS SELECT 'nowhere' AS region, price, noise, held, units FROM sales"
    )  # so that every row falls back on the model of all rows
    one = con.execute(query.format("demand_predict(all_rows)")).fetchone()
    assert (finest.merged, finest.rows) == pytest.approx(own, rel=1e-9)
    assert (pooled.merged, pooled.rows) == pytest.approx(one, rel=1e-9)
    assert (finest.groups, finest.modelled, finest.exact, pooled.name) == (4, 4, True, "()")


def test_metrics_that_do_not_follow_from_groups_are_not_called_exact(con: grouplearn.Connection) -> None:
    (level,) = overview_of(con, "late").by_level()
    rows = con.execute(
        "SELECT valid_auc, g.n_valid FROM late JOIN grouplearn.groups AS g ON g.keys[1] = region"
        " WHERE is_best AND g.model = (SELECT model FROM grouplearn.models WHERE model_name = 'late')"
    ).fetchall()
    assert not level.exact
    assert level.merged == pytest.approx(sum(auc * n for auc, n in rows) / sum(n for _, n in rows))


def test_importances_are_mean_shares_of_groups(con: grouplearn.Connection) -> None:
    found = overview_of(con, "demand").importance(10)
    weights = con.execute(
        "SELECT feature, weight FROM demand_weights JOIN demand USING (region, model_level, l2)"
        " WHERE is_best AND model_level = 'region' AND feature <> '(intercept)' ORDER BY region"
    ).fetchall()
    of = {
        name: np.array([abs(weight) for feature, weight in weights if feature == name]) for name in ("price", "noise")
    }
    total = of["price"] + of["noise"]
    shares = {name: np.where(total > 0, sizes / np.where(total > 0, total, 1), 0).mean() for name, sizes in of.items()}
    assert {each.feature: each.share for each in found} == pytest.approx(shares)
    signed = [weight for feature, weight in weights if feature == "price"]
    assert next(each.weight for each in found if each.feature == "price") == pytest.approx(np.median(signed))


def test_a_curve_is_the_metric_or_else_the_loss_and_never_one_point() -> None:
    assert drawn([(1, 5.0, 0.5), (2, math.nan, 0.7)]) == ("valid", [(1, 0.5), (2, 0.7)])
    assert drawn([(1, 5.0, None), (2, 4.0, None), (3, math.inf, 0.7)]) == ("train", [(1, 5.0), (2, 4.0)])
    assert drawn([(1, 5.0, 0.9)]) == drawn([]) == ("", [])


def test_a_group_that_has_ended_keeps_its_last_value_in_the_range(con: grouplearn.Connection) -> None:
    with grouplearn.connect(progress=None) as own:
        own.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, i * 7919 % 101 / 101 AS x, i % 5 > 2 AS y FROM range(300) AS r(i)"
        )
        own.execute(
            "TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t GROUP BY g VALIDATE SAMPLE 20% WITH (epochs = 4)"
        )
        curves = "grouplearn.curves WHERE group_id = "
        own.execute(f"DELETE FROM {curves} 0 AND epoch > 2; DELETE FROM {curves} 1 AND epoch < 4")
        found = overview_of(own, "m").curve_range()
        values = dict(own.execute(f"SELECT epoch, valid_metric FROM {curves} 2").fetchall())
        (last,) = own.execute(f"SELECT valid_metric FROM {curves} 0 AND epoch = 2").fetchone()
        page = own.model("m").report()
    assert [(row[0], row[4]) for row in found] == [(epoch, 2) for epoch in range(1, 5)]  # group 1 has no curve
    assert found[3][2] == pytest.approx((last + values[4]) / 2)
    assert "1 group had one epoch and no curve" in page


def test_failures_are_counted_by_reason(con: grouplearn.Connection) -> None:
    (failure,) = overview_of(con, "late").failures(10)
    assert (failure.trials, failure.groups, failure.examples) == (2, 1, ((0, ("island",)),))
    assert failure.reason.startswith("the label is true in all of")


def test_plots_are_drawn_from_the_catalog(con: grouplearn.Connection) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    late = con.model("late").plot
    curves = late.curves()
    assert curves.get_title() == "late: learning curves"
    assert sorted(text.get_text() for text in curves.get_legend().get_texts())[1:] == [
        "region = north",
        "region = south",
    ]
    stored = con.execute("SELECT train_loss FROM late_curves JOIN late USING (region, model_level, l2) WHERE is_best"
                         " AND region = 'north' ORDER BY epoch").fetchall()  # fmt: skip
    drawn = next(line for line in curves.lines if line.get_label() == "region = north")
    assert list(drawn.get_ydata()) == [row[0] for row in stored]
    with pyplot.style.context("dark_background"):
        (whiskers,) = con.model("demand").plot.importance().collections
    assert tuple(whiskers.get_color()[0][:3]) == (1, 1, 1)  # not black on black
    bars = con.model("demand").plot.importance()
    assert {label.get_text() for label in bars.get_yticklabels()} == {"noise", "price"}
    assert bars.patches[0].get_width() < bars.patches[1].get_width()
    _, axes = pyplot.subplots()
    assert late.schedule(ax=axes) is axes
    assert len(axes.patches) >= 1
    assert any("region = north" in entry.get_text() for entry in axes.get_legend().get_texts())
    assert con.model("<odd> name").plot.curves().texts[0].get_text().startswith("no learning curves")
    pyplot.close("all")


def test_without_matplotlib_a_plot_says_what_to_install(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(grouplearn.MissingDependency, match=r'pip install "grouplearn\[plot\]"'):
        con.model("demand").plot.curves()


@pytest.mark.parametrize("name", ["demand", "late", "<odd> name"])
def test_a_report_is_one_page_whose_data_is_only_text(con: grouplearn.Connection, name: str) -> None:
    page = con.model(name).report()
    WellFormed(page)
    assert "url(" not in page
    assert "@import" not in page
    assert "\x01" not in page
    for section in ("Best per group", "Failures", "Schedule"):
        assert f"<h2>{section}</h2>" in page
    assert ("<h2>Pooled and per group</h2>" in page) == (name == "demand")
    assert ("&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in page) == (name != "<odd> name")


KINDS = {
    "rounds": "USING mlp PREDICT x + z AS y FEATURES (x) FROM t GROUP BY g OVER HYPERBAND (l2 BETWEEN 0 AND 1) WITH (epochs = 3)",
    "folds": "USING linear_regression PREDICT x + z AS y FEATURES (x) FROM t GROUP BY CUBE (g, k) VALIDATE FOLDS 3",
    "classes": "USING logistic_regression PREDICT c FEATURES (x) FROM t GROUP BY ROLLUP (g) OVER GRID (l2 IN (1, 2)) OPTIMIZE f1",
    "all failed": "USING logistic_regression PREDICT x > 5 AS never FEATURES (z) FROM t GROUP BY g",
    "weights": "USING poisson_regression PREDICT c FEATURES (x) FROM t GROUP BY GROUPING SETS ((g), ()) WITH (weight = 1 + c)",
    "one name": "USING linear_regression PREDICT x FEATURES (z) FROM t GROUP BY g AS l2 OVER GRID (l2 IN (0, 1))",
    "trees": "USING gbdt PREDICT c FEATURES (x) FROM t GROUP BY g OVER GRID (num_leaves IN (4, 8)) KEEP BEST 1",
    "nothing held out": "USING logistic_regression PREDICT z > 1 FEATURES (x) FROM t GROUP BY ROLLUP (g) VALIDATE NONE",
}


@pytest.mark.examples(2)
@pytest.mark.parametrize("kind", KINDS)
def test_models_of_every_kind_are_shown_and_reported(kind: str) -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 4 AS g, if(i % 5 = 0, NULL, 'k' || i % 2) AS k, i % 3 AS c,"
            " i * 7919 % 1000 / 1000 AS x, i * 104729 % 1000 / 500 AS z FROM range(400) AS r(i)"
        )
        trained = con.sql(f'TRAIN MODEL "{kind}" {KINDS[kind]}')
        for relation in (trained, con.sql(f'FROM "{kind}"')):
            WellFormed(relation_html(relation) or "<no model table>")
        page = con.model(kind).report()
        WellFormed(page)
        assert ("No group has a model." in page) == (kind == "all failed")
        assert ("<h2>Pooled and per group</h2>" in page) == ("ROLLUP" in KINDS[kind] or kind in ("folds", "weights"))
        assert ("on the same rows" in page) == (kind == "folds")
        assert ("No rows were held out" in page) == (kind in ("weights", "nothing held out"))


def test_a_report_compares_levels_and_names_failures(con: grouplearn.Connection) -> None:
    finest, pooled = overview_of(con, "demand").by_level()
    verdict = "Models of their own do better" if finest.merged < pooled.merged else "The coarsest models do better"
    page = con.model("demand").report()
    assert f"{verdict}: rmse (held-out) {number(finest.merged)} per region, {number(pooled.merged)} pooled" in page
    assert "region = island" in con.model("late").report()


def test_a_report_of_ten_thousand_groups_says_what_it_leaves_out() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i // 8 AS g, i * 7919 % 101 AS x, x + i * 104729 % 13 AS y FROM range(80000) AS r(i)"
        )
        con.execute(
            "TRAIN MODEL many USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"
            " VALIDATE SAMPLE 10%"
        )
        page = con.model("many").report()
    WellFormed(page)
    assert len(page) < 200_000
    assert "The best 50 and the worst 50 of 10,000, by rmse (held-out); the 9,900 in between are left out" in page
    assert page.count("<tr>") < 150


def test_the_report_command(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.html"
    command = [sys.executable, "-c", "import sys; from grouplearn.frontends.shell.shell import main; sys.exit(main())"]
    run = subprocess.run([*command, "report", str(path), "demand", "-o", str(out)], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert re.fullmatch(rf"{re.escape(str(out))}: \d+ kB\n", run.stdout)
    WellFormed(out.read_text(encoding="utf-8"))
    assert report_command.main([str(path), "main.late", "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert report_command.main([str(path), "demands"]) == 1
    assert 'Did you mean "demand"?' in capsys.readouterr().err
    assert report_command.main([str(tmp_path / "no.duckdb"), "demand"]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert report_command.main([str(path), "demand", "-o", str(tmp_path / "no" / "x.html")]) == 1
    assert capsys.readouterr().err == f'Cannot write "{tmp_path}/no/x.html": No such file or directory\n'
    for wrong in ([], [str(path)], [str(path), "demand", "-o"], [str(path), "demand", "-x"]):
        assert report_command.main(wrong) == 2
        assert capsys.readouterr().err.startswith("Usage: grouplearn report FILE MODEL")


def test_without_a_name_the_page_is_written_beside(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert report_command.main([str(path), "demand"]) == 0
    assert Path("demand.html").exists()


def test_a_model_table_has_best_trials_first_and_curves(con: grouplearn.Connection) -> None:
    page = relation_html(con.sql("FROM late"))
    assert page is not None
    WellFormed(page)
    rows = page.split("<tr")[2:]
    kinds = ["best" if 'class="best"' in row else "failed" if 'class="failed"' in row else "" for row in rows]
    assert kinds == ["best"] * 3 + [""] * 3 + ["failed"] * 2
    assert [row.count("<svg") for row in rows] == [1] * 6 + [0] * 2
    assert "valid_auc ↑" in page
    assert "<script" not in page
    assert "the label is true in all of" in page


def test_a_users_order_is_kept(con: grouplearn.Connection) -> None:
    page = relation_html(con.sql("SELECT region, l2, status FROM late WHERE region = 'north' ORDER BY l2 DESC")) or ""
    assert re.findall(r">(\d\.\d)</td>", page) == ["5.0", "0.0"]
    assert page.count("<svg") == 2


def test_what_is_no_model_table_is_shown_as_ever(con: grouplearn.Connection) -> None:
    for query in ("SELECT 1 AS a", "SHOW MODELS", "FROM late_curves", "FROM sales", "SELECT region, l2 FROM late"):
        assert relation_html(con.sql(query)) is None


def test_a_trained_relation_is_a_model_table() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i % 2 AS g, i % 7 AS x, i % 3 > 0 AS y FROM range(100) AS r(i)")
        trained = con.sql(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM t GROUP BY g WITH (epochs = 9)"
        )
        assert (relation_html(trained) or "").count("<svg") == 2
        assert rendered(trained, con.native, con.model("m")._stored)
        assert con.model("m")._repr_html_().count('class="best"') == 2


def test_a_rollback_leaves_a_relation_without_a_model(con: grouplearn.Connection) -> None:
    with grouplearn.connect(progress=None) as own:
        own.execute("CREATE TABLE t AS SELECT i % 2 AS g, i % 7 AS x, i % 3 AS y FROM range(100) AS r(i)")
        own.begin()
        own.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g")
        model = own.model("m")
        own.rollback()
        with pytest.raises(grouplearn.BindError):
            own.model("m")
        assert model.name == "m"


def test_pictures_leave_out_what_is_not_a_number() -> None:
    assert sparkline([1.0], "one") == ""
    assert sparkline([None, math.nan, math.inf, 2.0], "one") == ""
    assert sparkline([3.0, None, 1.0], "a<b").count("<polyline") == 1
    assert "a&lt;b" in sparkline([3.0, 1.0], "a<b")
    assert GREY in sparkline([3.0, 1.0], "loss", colour=GREY)
    assert histogram([1.0, 1.0, 1.0], "same", "x", "n") == ""
    assert sum(map(int, re.findall(r"<title>(\d+)</title>", histogram([0, 1, 1, 5.0, math.nan], "h", "x", "n")))) == 4
    assert lines([Line([])], "none", "x", "y") == ""
    flat = lines([Line([(1, 2.0), (2, 2.0)])], "flat", "x", "y")
    assert "nan" not in flat


def test_long_curves_are_thinned_with_both_ends() -> None:
    points = [(x, float(x)) for x in range(10_000)]
    thin = thinned(points)
    assert (len(thin), thin[0], thin[-1]) == (160, points[0], points[-1])


def test_numbers_of_a_column_have_as_many_decimals() -> None:
    assert aligned([0.9646, 0.95, None, 0.0]) == ["0.9646", "0.9500", "-", "0"]
    assert aligned([12.345, 5234.0, 0.001]) == ["12.35", "5,234.00", "0.001"]
    assert aligned([1234567.0, 2.0, math.inf]) == ["1,234,567", "2", "inf"]
    assert aligned([1.2e-9, 3.0e-9]) == ["1.2e-09", "3e-09"]
    assert aligned([]) == []
    assert aligned([None, 0.0]) == ["-", "0"]


def test_axes_have_round_numbers() -> None:
    page = lines([Line([(1, 0.5), (17, 0.9646)])], "auc", "epoch", "")
    assert re.findall(r'text-anchor="(?:end|middle)">([\d.]+)<', page) == ["0.6", "0.8", "5", "10", "15"]
    assert re.findall(r'text-anchor="middle">([\d.]+)<', lines([Line([(1, 0.5), (2, 1.0)])], "", "", "")) == ["1", "2"]
    counts = histogram([0.69, 0.91, 0.93, 0.96], "auc", "auc", "groups")
    assert ">0.9<" in counts


def test_numbers_have_four_digits() -> None:
    assert [number(value) for value in (0.123456, 1234.5, 0, 1.2e-9, None, math.nan)] == [
        "0.1235", "1,234", "0", "1.2e-09", "-", "-",
    ]  # fmt: skip


def test_the_last_interval_of_a_histogram_holds_the_greatest_value() -> None:
    page = histogram([0.76, 0.87, 0.91, 0.92, 0.93, 0.97, 1.0, 1.0], "auc", "auc (held-out)", "groups")
    edges = re.findall(r'text-anchor="middle">([\d.]+)<', page)
    assert (edges[0], edges[-1]) == ("0.75", "1")
    assert re.findall(r"<title>(\d+)</title>", page) == ["1", "0", "1", "3", "3"]


def test_marks_of_an_axis_differ() -> None:
    page = lines([Line([(1, 434.2001), (2, 434.2004)])], "loss", "epoch", "")
    marks = re.findall(r'text-anchor="end">([\d.]+)<', page)
    assert len(marks) == len(set(marks)) > 1


def test_small_curves_share_a_scale_that_one_diverging_group_does_not_flatten() -> None:
    curves = [[(1, 0.5), (15, 0.2)], [(1, 0.4), (9, 0.3)]] * 6
    assert AxisRange.shared(curves) == AxisRange((1, 0.2), (15, 0.5))
    assert AxisRange.shared([]) is None
    wide = AxisRange.shared([*curves, [(1, 0.5), (9, 1e9)]])
    assert wide is not None
    assert (wide.high, wide.holds(curves[0]), wide.holds([(9, 1e9)])) == ((15, 0.5), True, False)
    pictures = [lines([Line(curve)], "", "epoch", "", shared=wide) for curve in (*curves, [(1, 0.5), (9, 1e9)])]
    assert len({tuple(re.findall(r'text-anchor="end">([\d.]+)<', picture)) for picture in pictures}) == 1
    heights = [float(y) for picture in pictures for y in re.findall(r"points.*?,([\d.]+)\"", picture)]
    assert all(0 <= y <= 170 for y in heights)


def test_long_labels_stand_above_their_bars_uncut() -> None:
    long = "wind_speed_in_miles_per_hour_at_departure"
    assert f">{long}<title>" in bars([(long, 0.7, 0, 0, "70%"), ("b", 0.3, 0, 0, "30%")], "importance")
    assert 'text-anchor="end">b<' in bars([("b", 0.3, 0, 0, "30%")], "importance")


@pytest.fixture(scope="module")
def failing() -> Iterator[grouplearn.Connection]:
    """Two models whose pooled ones fail, or are judged on fewer rows."""
    with grouplearn.connect(progress=None) as con:
        con.execute(
            "CREATE TABLE t AS SELECT i % 3 AS g, i * 7919 % 101 / 101 AS x, x + i % 5 > 2.3 AS y, i % 4 = 0 AS held"
            " FROM range(300) AS r(i)"
        )
        con.execute("INSERT INTO t SELECT 9, 0.5, NULL, false")
        con.execute(
            "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x) FROM t GROUP BY ROLLUP (g)"
            " OVER GRID (l2 IN (0.1, 1), fit_intercept IN (true)) VALIDATE WHERE held ON NULL LABEL ERROR OPTIMIZE log_loss"
        )
        yield con


def test_a_failed_pooled_model_stands_at_the_top_with_its_reason(failing: grouplearn.Connection) -> None:
    page = failing.model("m").report()
    WellFormed(page)
    top = page[: page.index('class="tiles"')]
    assert "<b>No model of all rows</b>: the label is NULL in 1 of 301 rows" in top
    assert "Levels are judged on different rows" not in page  # the other level has none
    table = relation_html(failing.sql("FROM m")) or ""
    WellFormed(table)
    assert table.index("No model of all rows") < table.index("<table>")


def test_levels_on_different_rows_say_so_and_on_the_same_do_not(failing: grouplearn.Connection) -> None:
    train = "TRAIN OR REPLACE MODEL levels USING linear_regression PREDICT x FEATURES (held) FROM t {} GROUP BY ROLLUP (g) {}"
    for condition, having, differ in (("", "", False), ("", "HAVING max(g) <> 1", True), ("WHERE g < 9", "", False)):
        failing.execute(train.format(condition, having) + " VALIDATE WHERE held")
        page = failing.model("levels").report()
        assert ("judged on different rows" in page) == differ, (condition, having)


def heads(page: str) -> list[str]:
    return re.findall(r"<th[^>]*>(\w+)", page)


def test_a_model_table_begins_with_the_metric_and_has_no_constant_columns(failing: grouplearn.Connection) -> None:
    page = relation_html(failing.sql("FROM m WHERE status = 'done'")) or ""
    assert heads(page)[:3] == ["g", "valid_log_loss", "curve"]
    assert not {"fit_intercept", "model_level", "n_skipped", "status", "error"} & set(heads(page))
    assert "the same in every row: model_level = g, fit_intercept = true" in page
    chosen = (
        relation_html(
            failing.sql("SELECT g, l2, fit_intercept, model_level, status, valid_log_loss FROM m WHERE status = 'done'")
        )
        or ""
    )
    assert heads(chosen) == [
        "g",
        "l2",
        "fit_intercept",
        "model_level",
        "curve",
        "status",
        "valid_log_loss",
    ]  # as the user chose


def test_counts_come_behind_metrics_and_a_metric_that_nothing_has_is_not_first(failing: grouplearn.Connection) -> None:
    names = heads(relation_html(failing.sql("FROM m")) or "")
    assert names.index("n_train") > names.index("valid_auc")
    failing.execute(
        "TRAIN OR REPLACE MODEL alone USING linear_regression PREDICT x FEATURES (held) FROM t VALIDATE NONE"
    )
    assert heads(relation_html(failing.sql("FROM alone")) or "")[0] == "train_rmse"


def test_what_is_constant_is_so_in_all_rows_and_not_in_those_shown() -> None:
    with grouplearn.connect(progress=None) as con:
        con.execute("CREATE TABLE t AS SELECT i // 8 AS g, i % 7 AS x, i % 5 AS y FROM range(480) AS r(i)")
        con.execute("INSERT INTO t SELECT 99, i, i FROM range(20) AS r(i)")
        con.execute("TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g")
        page = relation_html(con.sql("FROM m ORDER BY g")) or ""
    assert "n_rows" in heads(page)  # 8 in each of the first 50
    assert "status" not in heads(page)


def test_a_report_leaves_out_what_is_the_same_for_all(failing: grouplearn.Connection) -> None:
    page = failing.model("m").report()
    table = page[page.index('<section id="groups">') : page.index('<section id="levels">')]
    assert heads(table)[:3] == ["g", "log_loss", "rows"]
    assert not {"fit_intercept", "status"} & set(heads(table))
    assert "The same for all: " in table
    assert "fit_intercept true" in table


def test_the_schedule_has_a_legend(failing: grouplearn.Connection) -> None:
    page = failing.model("m").report()
    schedule = page[page.index('<section id="schedule">') :]
    (names,) = re.findall(r'<p class="grouplearn-legend">(.*?)</p>', schedule)
    shown = set(re.findall(r'fill="(hsl[^"]*)"', schedule))
    assert shown <= set(re.findall(r"background: (hsl[^;]*);", names))
    assert "g = 0" in names


def test_values_with_many_digits_are_rounded_with_a_hint() -> None:
    assert [rounded(value) for value in ("0.03886303977238025", "0.1", "1e-05", "3.5e-06", "7.123456789e-06", None)] == [
        "0.03886", "0.1", "1e-05", "3.5e-06", "7.123e-06", None,
    ]  # fmt: skip
