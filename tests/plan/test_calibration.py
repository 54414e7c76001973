"""Coefficients that are measured, kept in a file, corrected by runs, and used by later plans."""

import itertools
import json
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from helpers.plans import candidate, planned
from hypothesis import given
from hypothesis import strategies as st

import grouplearn
from grouplearn.bind.run import compatibility
from grouplearn.failures import NotMeasured, StatementInterrupted
from grouplearn.kernels.library import processor_seconds
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.plan import calibration
from grouplearn.plan.cost import pilot
from grouplearn.plan.cost.coefficients import Machine, Rates, corrected, default
from grouplearn.plan.explain import measured
from grouplearn.plan.explain.measured import MeasuredUnit, asked_for
from grouplearn.plan.operator_choice import choose
from grouplearn.plan.physical import plan
from grouplearn.runtime import calibrate
from grouplearn.runtime.calibrate import Sample, fitted
from grouplearn.runtime.worker import Worker
from grouplearn.statements.workflow import planning
from grouplearn.train.job import Job, UnitResult

KNOWN = replace(default("gbdt"), correction=2.0)


def test_nothing_is_stored_at_first() -> None:
    assert calibration.load() == Rates()
    assert calibration.forget() is False


def test_what_is_stored_is_loaded() -> None:
    calibration.store_learner("gbdt", KNOWN, "2026-01-31")
    calibration.store_machine(replace(Machine(), network=7e8))
    calibration.store_correction("mlp", 1.5)
    rates = calibration.load()
    assert rates.of("gbdt") == replace(KNOWN, correction=1.0)
    assert rates.of("mlp") == replace(default("mlp"), correction=1.5)
    assert rates.machine.network == 7e8
    assert rates.said("gbdt") == "calibrated on this machine on 2026-01-31"
    assert rates.said("mlp") == "defaults, times 1.5 after 1 run on this machine"
    assert calibration.forget() is True
    assert calibration.load() == Rates()


def test_the_file_is_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GROUPLEARN_CALIBRATION")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert calibration.path() == tmp_path / "grouplearn" / "calibration.json"
    calibration.store_correction("mlp", 1.5)
    assert [path.name for path in calibration.path().parent.iterdir()] == ["calibration.json"]
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", "~nobody.of.this.name/calibration.json")
    assert calibration.load() == Rates()


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        json.dumps({"version": 4, "machine": {}, "learners": {}}),
        json.dumps({"version": 3, "machine": {"warp": 1.0}, "learners": {}}),
        json.dumps({"version": 3, "machine": {"network": 0}, "learners": {}}),
        json.dumps({"version": 3, "machine": {}, "learners": {"mlp": {"correction": -1}}}),
        json.dumps({"version": 3, "machine": {}, "learners": {"mlp": {"row": "fast"}}}),
        json.dumps({"version": 3, "machine": {}, "learners": {"mlp": {"runs": [0]}}}),
        json.dumps({"version": 3, "machine": {}, "learners": {"mlp": {"runs": 3}}}),
        "[" * 100_000,
        b"\xff\xfe{",
    ],
    ids=lambda text: str(text[:70]),
)
def test_a_file_that_is_not_ours_is_refused_with_a_way_out(text: str | bytes) -> None:
    calibration.path().write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(NotMeasured, match=r"cannot be used: .*\n\nHint: RESET CALIBRATION removes it"):
        calibration.load()
    with grouplearn.connect(progress=False) as con:
        assert con.execute("RESET CALIBRATION").fetchall() == [("calibration is reset",)]


def test_what_was_measured_for_another_model_of_costs_is_measured_anew() -> None:
    old = {"version": 2, "machine": {"local_unit": 1e-5}, "learners": {"mlp": {"correction": 10.0, "runs": [10.0]}}}
    calibration.path().write_text(json.dumps(old))
    assert calibration.load() == Rates()
    calibration.store_correction("gbdt", 1.5)
    assert [*json.loads(calibration.path().read_text())["learners"]] == ["gbdt"]


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.001, 1000)), min_size=3, max_size=30))
def test_a_correction_is_a_clipped_median(pairs: list[tuple[float, float]]) -> None:
    factor = corrected(KNOWN, pairs).correction / KNOWN.correction
    ratios = sorted(measured / estimated for estimated, measured in pairs)
    assert min(10.0, max(0.1, ratios[0])) - 1e-9 <= factor <= max(0.1, min(10.0, ratios[-1])) + 1e-9


def test_what_a_correction_ignores() -> None:
    assert corrected(KNOWN, [(1.0, 2.0), (1.0, 2.0)]) == KNOWN  # two units are too few
    assert corrected(KNOWN, [(0.001, 1.0)] * 100) == KNOWN  # so short that the clock is most of it
    assert corrected(KNOWN, [(1.0, 3.0), (1.0, 3.0), (1.0, 3.0), (1.0, 500.0)]).correction == 6.0
    assert corrected(KNOWN, [(1.0, 500.0)] * 3).correction == 20.0


def test_the_fit_finds_the_coefficients_that_made_the_times() -> None:
    samples = [
        Sample(rows * width * configs, rows * configs, configs * passes, passes, rows * width, configs, 1, 0.0)
        for rows in (10, 100, 1000)
        for width in (2, 16)
        for configs in (1, 6)
        for passes in (1, 5)
    ]
    true = replace(KNOWN, gradient=2e-8, row=3e-8, update=1e-5, step=1e-4, read=4e-8, config=5e-4, group=2e-3)
    timed = [
        replace(
            each,
            seconds=true.gradient * each.gradient
            + true.row * each.row
            + true.update * each.update
            + true.step * each.step
            + true.read * each.read
            + true.config * each.config
            + true.group * each.group,
        )
        for each in samples
    ]
    found = fitted(timed)
    for name in ("gradient", "row", "update", "step", "read", "config", "group"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-4)


def test_calibrate_measures_and_later_plans_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "SHAPES", ((64, 4, 1, 2), (256, 4, 2, 2), (256, 8, 2, 4)))
    with grouplearn.connect(progress=False) as con:
        rows = con.execute("CALIBRATE LEARNER linear_regression").fetchall()
        rows = [row for row in rows if row[0] == "linear_regression"]
        assert [row[1] for row in rows] == ["gradient", "row", "update", "step", "read", "config", "group"]
        assert all(row[3] >= 0 for row in rows)
        assert any(row[3] > 0 for row in rows)
        con.execute("CREATE TABLE t AS SELECT i AS x, 2 * i AS y FROM range(100) AS r(i)")
        lines = con.execute("EXPLAIN TRAIN MODEL m USING linear_regression PREDICT y FROM t").fetchall()
        assert any("calibrated on this machine on 20" in line for (line,) in lines)
        con.execute("RESET CALIBRATION")
        lines = con.execute("EXPLAIN TRAIN MODEL m USING linear_regression PREDICT y FROM t").fetchall()
        assert any("defaults, within" in line for (line,) in lines)


def test_calibrate_covers_the_machine_and_every_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "SHAPES", ((64, 4, 1, 2), (128, 4, 2, 2)))
    monkeypatch.setattr(calibrate, "_TRANSFERRED", 1 << 20)
    with grouplearn.connect(progress=False) as con:
        rows = con.execute("CALIBRATE").fetchall()
    ways = [way for name in registry.LEARNERS for way in registry.ways(registry.learner(name))]
    assert {row[0] for row in rows} == {"machine", *(way.way for way in ways)}
    assert all(row[3] > 0 for row in rows if row[0] == "machine" and row[1] != "encode")
    assert set(calibration.load().calibrated) == {way.way for way in ways if not way.cost.unmeasured}


def test_calibrate_goes_on_where_one_way_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are measured and kept, and the row of the one says why it is not."""
    monkeypatch.setattr(calibrate, "SHAPES", ((64, 4, 1, 2),))
    monkeypatch.setattr(calibrate, "_TRANSFERRED", 1 << 20)
    solve = calibrate.train_unit

    def failing(job: Job, *rest: Any) -> UnitResult:
        result = solve(job, *rest)
        ended = [replace(trial, status="failed", reason="no luck") for trial in result.trials]
        return replace(result, trials=tuple(ended)) if job.configs[0].get("solver") in diverge else result

    monkeypatch.setattr(calibrate, "train_unit", failing)
    why = "linear_regression by sgd cannot be calibrated: no luck"
    with grouplearn.connect(progress=False) as con:
        diverge = {"sgd"}
        for statement in ("CALIBRATE", "CALIBRATE LEARNER linear_regression"):
            rows = con.execute(statement).fetchall()
            assert [row for row in rows if row[5] and row[0].startswith("linear_r")] == [
                ("linear_regression by sgd", None, None, None, None, why)
            ]
            assert "linear_regression by coordinate_descent" in {row[0] for row in rows if row[5] is None}
        assert "linear_regression" in calibration.load().calibrated
        assert "linear_regression by sgd" not in calibration.load().calibrated
        diverge = {"sgd", "coordinate_descent", None, "moments"}
        with pytest.raises(grouplearn.Error, match="linear_regression cannot be calibrated: no luck"):
            con.execute("CALIBRATE LEARNER linear_regression")


@pytest.mark.parametrize("way", registry.ways(registry.learner("poisson_regression")), ids=lambda way: way.way)
def test_the_defaults_learn_from_every_shape(way: Learner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_MOST_REPEATS", 1)
    for shape in calibrate.SHAPES:
        assert calibrate._measure(way, shape, lambda: False).seconds > 0


def test_an_interrupted_calibration_keeps_nothing() -> None:
    with pytest.raises(StatementInterrupted, match="nothing was stored"):
        calibrate.measure_learner(registry.learner("linear_regression"), lambda: True)
    assert calibration.load() == Rates()


@pytest.fixture
def runs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPLEARN_CALIBRATE_RUNS")
    monkeypatch.setattr(measured, "PILOT_SECONDS", 1e-5)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1e-5)


TRAIN = "TRAIN OR REPLACE MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g"


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 5 AS g, i % 7 AS x, i % 11 AS y FROM range(50000) AS r(i)")
        yield connection


def said(con: grouplearn.Connection) -> str:
    (line,) = (
        line for (line,) in con.execute(f"EXPLAIN {TRAIN}").fetchall() if "estimates of linear_regression" in line
    )
    return line.partition(": ")[2]


@pytest.mark.usefixtures("runs_count")
def test_every_run_corrects_later_estimates_and_explain_says_so(con: grouplearn.Connection) -> None:
    assert said(con) == "defaults, within a factor of about 5; CALIBRATE measures this machine"
    con.execute(TRAIN)
    factor = calibration.load().of("linear_regression").correction
    assert factor != 1.0
    assert said(con) == f"defaults, times {factor:.2g} after 1 run on this machine"
    for _ in range(calibration.MOST_RUNS):
        con.execute(TRAIN)
    runs = calibration.load().runs["linear_regression"]
    assert len(runs) == calibration.MOST_RUNS
    assert calibration.load().of("linear_regression").correction == statistics.median(runs)
    assert "after 8 runs on this machine, which took " in said(con)
    calibration.store_learner("linear_regression", default("linear_regression"), "2026-01-31")
    assert said(con) == "calibrated on this machine on 2026-01-31"  # of other coefficients, those runs say nothing


@pytest.mark.usefixtures("runs_count")
@pytest.mark.parametrize("workers", [1, 2])
def test_time_that_others_take_corrects_nothing(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """A machine that is busy with other work is not slow: by wall time corrections were ten, and plans for a cluster."""
    statement, ticks = f"{TRAIN} WITH (workers = {workers})", defaultdict[int, Iterator[float]](itertools.count)

    def ticking() -> float:
        return next(ticks[threading.get_ident()]) / 16

    monkeypatch.setattr("grouplearn.runtime.worker.processor_seconds", ticking)
    con.execute(statement)
    alone = calibration.load().of("linear_regression").correction
    run = Worker._run

    def waits(*given: Any) -> Any:
        time.sleep(0.2)
        return run(*given)

    monkeypatch.setattr(Worker, "_run", waits)
    calibration.forget()
    con.execute(statement)
    assert calibration.load().of("linear_regression").correction == alone


def test_processor_seconds_are_none_of_others() -> None:
    began = processor_seconds()
    time.sleep(0.5)
    assert processor_seconds() - began < 0.25


def test_runs_ask_for_what_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grouplearn.plan.packing.MOST_BOOSTED_VALUES", 0)  # each group is a unit
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE t AS SELECT i % 400 AS g, i AS x, i AS y FROM range(80000) AS r(i)")
        physical = planned(plain, TRAIN.replace("linear_regression", "gbdt"), workers=1)
        stops = planned(plain, TRAIN.replace("linear_regression", "gbdt") + " WITHIN 1 HOUR", workers=1)
    choice = choose(physical, [candidate("group_task_parallel", 1.0, units=400, loads=0)], False)
    assert max(unit.cost for unit in physical.units) < 0.1
    took = {unit.id: MeasuredUnit(3 * unit.cost, 100) for unit in physical.units}
    assert asked_for(physical, choice, took) == pytest.approx(3)
    assert asked_for(physical, choice, took | {0: MeasuredUnit(100.0, 100)}) == pytest.approx(3)  # one was disturbed
    assert asked_for(physical, choice, {unit: took[unit] for unit in range(300)}) == pytest.approx(3)  # some are lost
    assert asked_for(physical, choice, {}) is None
    assert asked_for(stops, choice, took) is None


def test_a_run_repeated_asks_for_the_same_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """What loading is estimated to take is not corrected: beside it, a run asked for a tenth of the last correction each time."""
    monkeypatch.setattr("grouplearn.plan.packing.MOST_BOOSTED_VALUES", 0)
    statement = TRAIN.replace("linear_regression", "gbdt")
    rates, asked = Rates(), []
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE t AS SELECT i % 400 AS g, i AS x, i AS y FROM range(80000) AS r(i)")
        first = planned(plain, statement, workers=1)
    took = {unit.id: MeasuredUnit(unit.cost, 100) for unit in first.units}
    loads = replace(Machine(), load=10 * max(unit.cost for unit in first.units))
    for _ in range(6):
        physical = plan(first.bound, first.stats, replace(rates, machine=loads))
        choice = choose(physical, [candidate("group_task_parallel", 1.0, units=400, loads=400)], False)
        factor = asked_for(physical, choice, took)
        assert factor is not None
        asked.append(factor)
        rates = Rates({"gbdt": replace(rates.of("gbdt"), correction=factor)})
    assert asked == pytest.approx([0.5] * 6)


def test_epochs_that_rows_ask_for_are_no_correction() -> None:
    """Of a learner that decides itself when it ends: others would be planned as if they took as many."""
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE t AS SELECT i % 4 AS g, i AS x, i % 3 = 0 AS y FROM range(2000000) AS r(i)")
        physical = planned(plain, TRAIN.replace("linear_regression", "logistic_regression"), workers=1)
    choice = choose(physical, [candidate("group_task_parallel", 1.0, units=4, loads=0)], False)
    known = default("logistic_regression")
    assert known.typical_epochs is not None
    assert [physical.seconds_of(unit, known.typical_epochs) for unit in physical.units] == pytest.approx(
        [physical.seconds_of(unit) for unit in physical.units], rel=1e-12
    )
    for factor, epochs in ((1.0, 90), (3.0, 90), (1.0, 2)):
        took = {unit.id: MeasuredUnit(factor * physical.seconds_of(unit, epochs), epochs) for unit in physical.units}
        assert asked_for(physical, choice, took) == pytest.approx(factor)
    longer = physical.seconds_of(physical.units[0], 90) / physical.units[0].cost
    assert 5 < longer < 9


@pytest.mark.usefixtures("runs_count")
def test_what_cannot_be_kept_does_not_matter_to_train(
    con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPLEARN_CALIBRATION", "/proc/nowhere/calibration.json")
    con.execute(TRAIN)
    assert con.execute("SELECT count(*) FROM m").fetchall() == [(5,)]


def test_runs_keep_nothing_where_they_shall_not(con: grouplearn.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "PILOT_SECONDS", 1e-5)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1e-5)
    con.execute(TRAIN)
    assert not calibration.path().exists()


@pytest.mark.parametrize("learner", ["linear_regression", "logistic_regression", "gbdt", "mlp"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_no_model_depends_on_a_correction(learner: str, factor: float) -> None:
    with duckdb.connect() as plain:
        plain.execute(
            "CREATE TABLE t AS SELECT greatest(0, i // 1000 - 50) AS g, i % 7 AS x, i % 11 > 4 AS y FROM range(70000) r(i)"
        )
        label = "y" if learner != "linear_regression" else "x + 1 AS y"
        text = f"TRAIN MODEL m USING {learner} PREDICT {label} FEATURES (x) FROM t GROUP BY g"
        before = planned(plain, text, workers=2)
    known = Rates(learners={learner: replace(default(learner), correction=factor)})
    after = plan(before.bound, before.stats, known)
    ours, theirs = ([replace(unit, cost=0.0) for unit in each.units] for each in (before, after))
    assert ours == theirs
    chosen = planning.choose(after, lambda: False)
    assert not compatibility.changes_models(chosen.operator, after.bound.learner)
