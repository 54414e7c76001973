"""How good predictions are, in the page and in plots: of held-out rows, or of labelled rows of any table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.metrics import confusion_matrix, log_loss, roc_auc_score

import grouplearn

mpl.use("agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    with grouplearn.connect(progress=False) as con:
        con.execute("""
            CREATE TABLE t AS
            SELECT i AS id, i % 3 AS g, hash(i) % 1000 / 100 AS x, 2 * x + hash(i, 1) % 10 AS y, y > 14 AS big,
                   ['a', 'b', 'c'][1 + floor(x / 4)::INTEGER] AS c
            FROM range(900) AS r(i)
        """)
        kept = "GROUP BY ROLLUP (g) WITH (keep_held_out = true)"
        con.execute(f"TRAIN MODEL two USING logistic_regression PREDICT big FEATURES (x) FROM t {kept}")
        con.execute(f"TRAIN MODEL three USING gbdt PREDICT c FEATURES (x, id) FROM t {kept}")
        con.execute(f"TRAIN MODEL numbers USING linear_regression PREDICT y FEATURES (x) FROM t {kept}")
        con.execute("TRAIN MODEL plain USING logistic_regression PREDICT big FEATURES (x) FROM t")
        con.execute("TRAIN MODEL clusters USING kmeans FEATURES (zscore(x)) FROM t GROUP BY ROLLUP (g) WITH (k = 2)")
        yield con


def held_out(con: Any, model: str, *columns: str) -> list[Any]:
    query = f"SELECT {', '.join(columns)} FROM {model}_held_out WHERE model_level = 'g'"
    return [np.array(column) for column in zip(*con.execute(query).fetchall(), strict=True)]


def test_the_page_judges_held_out_rows_against_a_baseline(con: Any) -> None:
    label, prediction, probability = held_out(con, "two", "label", "prediction", "probability")
    page = con.model("two").report()
    matrix = confusion_matrix(label, prediction)
    assert [f"{n:,} <small>" in page for n in matrix.ravel() if n] == [True] * int((matrix > 0).sum())
    assert f"area {roc_auc_score(label, probability):.4g}" in page
    (group,) = held_out(con, "two", "g")
    rates = [label[group == own].mean() for own in group]
    assert f"<b>{log_loss(label, rates):.4g}</b>" in page
    assert f"<b>{log_loss(label, probability):.4g}</b>" in page
    assert page.index("Held-out rows</h2>") < page.index("Importance</h2>") < page.index("Best per group</h2>")


def test_the_baseline_of_numbers_is_the_mean_of_each_group(con: Any) -> None:
    group, label = held_out(con, "numbers", "g", "label")
    means = {own: label[group == own].mean() for own in set(group.tolist())}
    rmse = np.sqrt(np.mean([(value - means[own]) ** 2 for own, value in zip(group.tolist(), label, strict=True)]))
    page = con.model("numbers").report()
    assert f"<b>{rmse:.4g}</b>" in page
    assert "Predicted and observed" in page
    assert "ROC" not in page


def test_a_page_without_held_out_rows_says_how_to_keep_them(con: Any) -> None:
    page = con.model("plain").report()
    assert "WITH (keep_held_out = true)" in page
    assert "ROC" not in page


def test_segments_are_in_the_units_of_the_columns(con: Any) -> None:
    page = con.model("clusters").report()
    value = con.execute("SELECT value_original FROM clusters_centroids WHERE g = 0 AND cluster = 1").fetchall()[0][0]
    assert f">{value:.3f}<" in page
    assert '<span class="all">all</span>' in page[page.index("Segments</h2>") : page.index("Best per group</h2>")]


@pytest.mark.parametrize("rows", [None, "t", "(FROM t WHERE id < 300)", "frame"])
def test_plots_of_two_classes(con: Any, rows: str | None) -> None:
    frame = con.execute("FROM t LIMIT 200").df()
    plot = con.model("two").plot
    count = {None: 90, "t": 900, "frame": len(frame)}.get(rows, 300)
    numbers = [int(each.get_text().split("\n")[0].replace(",", "")) for each in plot.confusion(rows).texts]
    assert sum(numbers) == count
    assert plot.roc(rows).get_title().startswith("ROC (area 0.9")
    assert len(plot.pr(rows).lines[0].get_xdata()) > 10
    assert len(plot.lift(rows).patches) == 10
    assert len(plot.calibration(rows).lines[0].get_xdata()) == 10


def test_plots_say_what_a_model_has(con: Any) -> None:
    assert len(con.model("three").plot.confusion().texts) >= 3
    with pytest.raises(grouplearn.Error, match=r'model "three" has confusion\(\)'):
        con.model("three").plot.roc()
    with pytest.raises(grouplearn.Error, match="has no plot of predictions beside labels"):
        con.model("clusters").plot.confusion()
    with pytest.raises(grouplearn.Error, match='model "plain" keeps no held-out rows'):
        con.model("plain").plot.roc()
    with pytest.raises(grouplearn.Error, match="nowhere"):
        con.model("plain").plot.roc("nowhere")
    assert con.model("plain").plot.roc("t").get_title().startswith("ROC")
