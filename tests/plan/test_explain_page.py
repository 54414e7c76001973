"""EXPLAIN (FORMAT html): one well-formed page without script, whatever the names; and its Gantt chart."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grouplearn
from grouplearn.plan.explain.gantt import MOST_WORKERS, Bar, gantt, merged, text, ticks

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=1>',
    "a & b ' \" c",
    "]]>",
    "🙂 ü",
    "tab\there",
    "\x01\x0b",
]


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, 2 * i AS y FROM range(9000) AS r(i)")
        yield connection


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def page_of(con: grouplearn.Connection, statement: str) -> str:
    rows = con.execute(statement).fetchall()
    assert con.description[0][0] == "plan"
    assert len(rows) == 1
    page: str = rows[0][0]
    return page


def is_self_contained(page: str) -> None:
    tags = Tags(page)
    assert not set(tags.tags) & {"script", "img", "link", "iframe", "object"}
    assert not any(name.startswith("on") or name in ("src", "href") for name in tags.attributes)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_page_is_well_formed_and_has_a_bar_per_unit(con: grouplearn.Connection) -> None:
    page = page_of(
        con, "EXPLAIN (FORMAT html) TRAIN MODEL m USING linear_regression PREDICT y FROM t GROUP BY g VALIDATE NONE"
    )
    root = ET.fromstring(page)
    is_self_contained(page)
    (chart,) = root.iter(f"{SVG}svg")
    titles = [element.findtext(f"{SVG}title") for element in chart.iter(f"{SVG}rect")]
    assert [title.split(":")[:2] for title in sorted(titles)] == [
        [f"unit {number}", f" group {number}, 1 configuration"] for number in range(3)
    ]
    assert con.execute("SHOW MODELS").fetchall() == []


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_values_are_text(con: grouplearn.Connection, name: str) -> None:
    quoted, value = name.replace('"', '""'), name.replace("'", "''")
    con.execute(
        f"""CREATE TABLE named AS SELECT '{value}' AS "{quoted}", i AS x, i % 2 = 0 AS y FROM range(40) AS r(i)"""
    )
    page = page_of(
        con,
        f"""EXPLAIN (ANALYZE, FORMAT html) TRAIN MODEL "{quoted}" USING logistic_regression
        PREDICT CASE WHEN y THEN '{value}' ELSE 'no' END FEATURES (x) FROM named GROUP BY "{quoted}" """,
    )
    root = ET.fromstring(page)
    is_self_contained(page)
    assert len(list(root.iter(f"{SVG}svg"))) == 2
    shown = " ".join(text(name).split())
    if "&" not in shown and "�" not in shown:
        assert any(shown in (element.text or "") for element in root.iter())


def test_an_empty_plan_has_a_page_too(con: grouplearn.Connection) -> None:
    page = page_of(
        con,
        "EXPLAIN (FORMAT html) TRAIN MODEL m USING linear_regression PREDICT y FROM t GROUP BY g HAVING count(*) > 9999",
    )
    assert "No unit." in "".join(ET.fromstring(page).itertext())


def test_analyze_shows_both_schedules_on_one_scale(con: grouplearn.Connection) -> None:
    page = page_of(
        con,
        "EXPLAIN (ANALYZE, FORMAT html) TRAIN MODEL m USING linear_regression PREDICT y FROM t GROUP BY g VALIDATE NONE",
    )
    charts = list(ET.fromstring(page).iter(f"{SVG}svg"))
    axes = [[element.text for element in chart.iter(f"{SVG}text") if " s" in (element.text or "")] for chart in charts]
    assert axes[0] == axes[1]
    assert [len(list(chart.iter(f"{SVG}rect"))) for chart in charts] == [3, 3]
    assert con.execute("SELECT count(*) FROM m").fetchall() == [(3,)]


def test_ticks_are_round_and_few() -> None:
    assert ticks(0.0) == [0.0]
    assert ticks(7.0) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert ticks(0.9) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])


@given(st.floats(1e-9, 1e9))
def test_ticks_reach_almost_to_the_end(end: float) -> None:
    found = ticks(end)
    assert 2 <= len(found) <= 8
    assert found[-1] <= end * (1 + 1e-6)
    assert end - found[-1] < (found[1] - found[0]) * (1 + 1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e-3)), min_size=1, max_size=200),
    st.floats(0, 0.01),
)
def test_joined_bars_cover_the_same_time(widths: list[tuple[int, float]], least: float) -> None:
    ends = dict.fromkeys(range(4), 0.0)
    bars = []
    for number, (worker, width) in enumerate(widths):
        bars.append(Bar(worker, ends[worker], ends[worker] + width, 0, f"unit {number}"))
        ends[worker] += width
    joined = merged(bars, least)
    for worker in {bar.worker for bar in bars}:
        mine = [bar for bar in joined if bar.worker == worker]
        assert (mine[0].start, mine[-1].end) == (0.0, ends[worker])
        assert all(first.end == second.start for first, second in pairwise(mine))
        assert least == 0 or len(mine) <= 2 + 2 * ends[worker] / least  # two that stay apart take that long
    if least == 0:
        assert len(joined) == len(bars)


def test_a_chart_of_many_visible_units_is_drawn_more_coarsely() -> None:
    bars = [Bar(number % 48, number // 48, number // 48 + 0.9, number, "unit") for number in range(48 * 400)]
    chart = gantt(bars, 48, "many", 400.0)
    assert 1000 < chart.count("<rect") <= 6000
    assert "2 units" in chart or "4 units" in chart or "8 units" in chart


def test_a_chart_of_many_workers_and_units_stays_small() -> None:
    bars = [
        Bar(number % 1000, number // 1000, number // 1000 + 1.0, number, f"unit {number}") for number in range(100_000)
    ]
    chart = gantt(bars, 1000, "many", 100.0)
    assert f"<p>{1000 - MOST_WORKERS} more workers not drawn.</p>" in chart
    assert len(chart) < 2_000_000
    svg = ET.fromstring(re.sub(r"<p>.*", "", chart))
    assert svg.attrib["viewBox"] == f"0 0 900 {MOST_WORKERS * 24 + 30}"
