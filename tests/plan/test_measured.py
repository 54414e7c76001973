"""EXPLAIN ANALYZE: what is put beside the estimate, and what it leads to."""

import json
from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from helpers.plans import candidate, planned

import grouplearn
from grouplearn.plan import calibration
from grouplearn.plan.cost.coefficients import default
from grouplearn.plan.explain.facts import histogram
from grouplearn.plan.explain.measured import MeasuredStep, Side, compare
from grouplearn.plan.operator_choice import choose

ANALYZE = (
    "EXPLAIN {options} TRAIN MODEL delays USING gbdt PREDICT late FEATURES (* EXCLUDE carrier) FROM flights "
    "GROUP BY carrier OVER GRID (num_leaves IN (7, 15)) KEEP ALL WITH (num_iterations = 20, workers = 2)"
)


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute(
            "CREATE TABLE flights AS SELECT ['AA', 'UA', 'UA', 'UA', 'WN'][1 + i % 5] AS carrier, i % 24 AS hour, "
            "(i * 37 % 101) / 20 AS distance, (i * 53 % 97) / 20 AS delay, distance + delay > 4 AS late "
            "FROM range(20000) AS r(i)"
        )
        yield connection


def test_parts_by_hand() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT i % 3 AS g, i AS x, i AS y FROM range(9000) AS r(i)")
        physical = planned(
            con, "TRAIN MODEL m USING linear_regression PREDICT y FROM t GROUP BY g VALIDATE NONE WITH (workers = 2)"
        )
        choice = choose(physical, [candidate("group_task_parallel", 3.0, units=3, loads=3, idle=0.25)], False)
        # Unit 1 was of two groups, so it has two rows.
        ran = [
            MeasuredStep(0, 0, 1.0, 3.0),
            MeasuredStep(1, 1, 1.0, 2.0),
            MeasuredStep(1, 1, 1.0, 2.0),
            MeasuredStep(2, 1, 3.0, 5.0),
        ]
        measured = compare(physical, choice, ran, default("linear_regression"), {})
    # Of 2 workers x 4 s, 2 + 1 + 2 s were busy.
    assert measured.measured == Side(makespan=4.0, idle=1 - 5 / 8, workers=2, units=3, work=5.0, median=2.0, worst=2.0)
    assert (measured.estimated.makespan, measured.estimated.idle, measured.estimated.units) == (3.0, 0.25, 3)
    assert [(bar.worker, bar.start, bar.end) for bar in measured.bars] == [(0, 1.0, 3.0), (1, 1.0, 2.0), (1, 3.0, 5.0)]
    lost = compare(
        physical, choice, [*ran, MeasuredStep(2, 0, 3.0, 4.0, kind="lost")], default("linear_regression"), {}
    )
    assert lost.measured == replace(measured.measured, idle=1 - 6 / 8)
    assert [bar.kind for bar in lost.bars] == ["unit", "unit", "lost", "unit"]
    assert measured.ratio is None  # each was estimated at less than 10 ms


def test_analyze_trains_and_compares(con: grouplearn.Connection) -> None:
    document = json.loads(con.execute(ANALYZE.format(options="(ANALYZE, FORMAT json)")).fetchall()[0][0])
    assert con.execute("SELECT carrier, count(*) FROM delays GROUP BY ALL ORDER BY ALL").fetchall() == [
        ("AA", 2),
        ("UA", 2),
        ("WN", 2),
    ]
    units, first, last = con.execute(
        "SELECT count(DISTINCT unit), min(started), max(ended) FROM grouplearn.units"
    ).fetchall()[0]
    estimated, measured = document["estimated"], document["measured"]
    assert estimated["units"] == measured["units"] == units
    assert measured["makespan_seconds"] == pytest.approx(last - first)
    assert estimated["makespan_seconds"] == next(
        each["makespan_seconds"] for each in document["operators"] if each["chosen"]
    )
    assert 0 <= measured["idle_share"] < 1
    assert measured["longest_unit_seconds"] >= measured["median_unit_seconds"] > 0
    ratio = document["measured_over_estimated"]
    assert 0.1 <= ratio <= 10
    assert calibration.load().of("gbdt").correction == pytest.approx(ratio, rel=0.1)
    assert con.execute("FROM delays_predict(flights)").fetchone()


def test_a_correction_changes_later_estimates(con: grouplearn.Connection) -> None:
    def makespan() -> float:
        document = json.loads(con.execute(ANALYZE.format(options="(FORMAT json)")).fetchall()[0][0])
        return float(document["operators"][0]["makespan_seconds"])

    before = makespan()
    calibration.store_correction("gbdt", 3.0)
    assert 2 * before < makespan() <= 3.1 * before


def test_analyze_is_undone_with_its_transaction(con: grouplearn.Connection) -> None:
    con.begin()
    con.execute(ANALYZE.format(options="ANALYZE")).fetchall()
    con.rollback()
    assert con.execute("SHOW MODELS").fetchall() == []


def test_analyze_needs_a_database_that_can_be_written(tmp_path: object) -> None:
    path = f"{tmp_path}/t.duckdb"
    with grouplearn.connect(path, progress=False) as con:
        con.execute("CREATE TABLE t AS SELECT i AS x, i AS y FROM range(20) AS r(i)")
    with grouplearn.connect(path, read_only=True, progress=False) as con:
        con.execute("EXPLAIN TRAIN MODEL m USING linear_regression PREDICT y FROM t").fetchall()
        with pytest.raises(
            grouplearn.Error, match="is read-only: a model cannot be stored in it, so nothing was trained"
        ):
            con.execute("EXPLAIN ANALYZE TRAIN MODEL m USING linear_regression PREDICT y FROM t")


def test_a_correction_that_cannot_be_kept_is_said(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", "/proc/nowhere/calibration.json")
    lines = [line for (line,) in con.execute(ANALYZE.format(options="ANALYZE")).fetchall()]
    assert "cannot be stored in /proc/nowhere/calibration.json" in " ".join(lines[-4:])
    assert con.execute("SELECT count(*) FROM delays").fetchall() == [(6,)]


def test_a_histogram_has_a_bar_per_doubling() -> None:
    assert histogram([1, 2, 3, 9]) == "1 |▄█·▄| 9"
    assert histogram([7]) == "7 |█| 7"
    assert histogram([1] * 1000 + [1024]) == "1 |█·········▁| 1,024"
