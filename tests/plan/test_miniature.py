"""What is simulated of a plan: few tasks and steps, which tell how long all of them take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from helpers.plans import planned

from grouplearn.plan.miniature import MOST_STEPS, Miniature, miniature
from grouplearn.plan.physical import PhysicalPlan
from grouplearn.runtime.simulated import Timeline
from grouplearn.statements.workflow import planning

OPERATORS = ("group_task_parallel", "model_task_parallel", "gap", "data_parallel")


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE many AS SELECT (i * i) % 3001 AS g, i % 7 / 7 AS a, i % 3 > 1 AS y FROM range(30000) t(i);"
            "CREATE TABLE skewed AS SELECT i > 150000 AS g, i % 7 / 7 AS a, i % 3 > 1 AS y FROM range(200000) t(i)"
        )
        yield con


def whole(physical: PhysicalPlan) -> Miniature:
    return Miniature(physical, physical.epochs, len(physical.units))


@pytest.mark.parametrize("name", OPERATORS)
def test_bundles_of_groups_take_what_the_groups_take(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    alone = "WITH (early_stopping = 5)"  # else small groups are few units
    text = (
        f"TRAIN MODEL m USING gbdt PREDICT y FEATURES (a) FROM many GROUP BY g OVER GRID (num_leaves IN (4, 9)) {alone}"
    )
    physical = planned(connection, text, executor="ray", workers=4)
    small = miniature(physical, 4)
    assert len(small.physical.units) <= 1000 < len(physical.units)
    assert sum(small.tasks) == len(physical.stats.groups)
    assert sum(small.physical.stats.rows) == sum(physical.stats.rows)
    assert small.physical.serial_seconds == pytest.approx(physical.serial_seconds)

    def simulated(of: Miniature) -> Timeline:
        return planning._simulated(of, name, 4, of.load_seconds)

    few, every = simulated(small), simulated(whole(physical))
    assert few.makespan == pytest.approx(every.makespan, rel=0.02)
    assert few.loads == every.loads
    assert few.network_bytes == pytest.approx(every.network_bytes)
    assert max(few.peak_bytes) == pytest.approx(max(every.peak_bytes), rel=0.1)


@pytest.mark.parametrize("name", OPERATORS)
def test_few_epochs_tell_how_long_all_take(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    text = "TRAIN MODEL m USING mlp PREDICT y FEATURES (a) FROM skewed GROUP BY g OVER GRID (l2 IN (0, 1)) WITH (epochs = 400)"
    physical = planned(connection, text, executor="ray", workers=3)
    small = miniature(physical, 3)
    assert small.epochs < 400
    few = planning._candidate(small, name, 3, lambda: False)
    every = planning._candidate(whole(physical), name, 3, lambda: False)
    assert few.makespan == pytest.approx(every.makespan, rel=0.02)
    assert few.idle == pytest.approx(every.idle, abs=0.02)
    assert few.network_bytes == pytest.approx(every.network_bytes, rel=0.02)
    assert (few.units, few.loads, few.used) == (every.units, every.loads, every.used)


@pytest.mark.parametrize("learner", ["logistic_regression", "mlp"])
def test_what_is_simulated_does_not_grow_with_epochs(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    intervals: list[int] = []
    real = planning._simulated

    def counted(*given: Any) -> Timeline:
        timeline = real(*given)
        intervals.append(len(timeline.intervals))
        return timeline

    monkeypatch.setattr(planning, "_simulated", counted)
    text = f"TRAIN MODEL m USING {learner} PREDICT y FEATURES (a) FROM skewed GROUP BY g WITH (epochs = 100000)"
    choice = planning.choose(planned(connection, text, executor="ray", workers=2), lambda: False, every=True)
    assert len(intervals) >= len(choice.candidates)
    assert max(intervals) <= 2 * MOST_STEPS


def test_where_nothing_can_be_faster_nothing_else_is_simulated(connection: duckdb.DuckDBPyConnection) -> None:
    text = "TRAIN MODEL m USING {} PREDICT y FEATURES (a) FROM {} GROUP BY g"
    balanced = planned(connection, text.format("gbdt", "many"), workers=2)
    assert [each.operator for each in planning.choose(balanced, lambda: False).candidates] == ["group_task_parallel"]
    assert planning.choose(balanced, lambda: False, every=True).operator == "group_task_parallel"
    skewed = planned(connection, text.format("logistic_regression", "skewed") + " OVER GRID (l2 IN (1, 2))", workers=2)
    assert len(planning.choose(skewed, lambda: False).candidates) > 1
