"""Units that are made when they are looked at, and plans of many groups that look at few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from helpers.plans import planned

from grouplearn.plan import packing, physical
from grouplearn.plan import units as units_module
from grouplearn.plan.miniature import MOST_UNITS
from grouplearn.plan.units import alike
from grouplearn.schedule.messages import Unit
from grouplearn.statements.workflow import planning

STATEMENTS = {
    "packs and folds": "USING gbdt PREDICT y FEATURES (a) FROM {} GROUP BY g OVER GRID (num_leaves IN (4, 9)) VALIDATE FOLDS 3",
    "batched solves": "USING logistic_regression PREDICT y FEATURES (a) FROM {} GROUP BY ROLLUP (g) OVER GRID (l2 IN (0, 1))",
    "side by side": "USING mlp PREDICT y FEATURES (a) FROM {} GROUP BY g",
    "a search": "USING logistic_regression PREDICT y FEATURES (a) FROM {} GROUP BY g OVER HYPERBAND (l2 BETWEEN 0.1 AND 1)",
    "nothing": "USING gbdt PREDICT y FEATURES (a) FROM (FROM {} LIMIT 0) GROUP BY g",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        for name, groups in (("few", 50), ("many", 6001)):
            con.execute(
                f"CREATE TABLE {name} AS SELECT i % {groups} AS g, i % 7 / 7 AS a, i % 3 > 1 AS y "
                f"FROM range({10 * groups}) t(i)"
            )
        yield con


@pytest.mark.parametrize("what", STATEMENTS)
def test_units_are_a_sequence_of_what_is_alike(connection: duckdb.DuckDBPyConnection, what: str) -> None:
    physical = planned(connection, "TRAIN MODEL m " + STATEMENTS[what].format("few"))
    units, listed = physical.units, tuple(physical.units)
    assert [unit.id for unit in units] == list(range(len(units)))
    assert listed == tuple(units[number] for number in range(len(units))) == units[:]
    assert units == listed
    assert units[-1:] == listed[-1:]
    found, same = physical.alike, alike(listed, physical.stats.rows)
    assert sum(len(tasks.first) * len(tasks.groups) for tasks in found) == len(listed)
    assert physical.serial_seconds == pytest.approx(sum(unit.cost for unit in listed))
    for ours, theirs in zip(found, same, strict=True):
        assert (ours.first, ours.groups) == (theirs.first, theirs.groups)
        for mine, yours in (
            (ours.rows, theirs.rows),
            (ours.seconds, theirs.seconds),
            (ours.side_by_side, theirs.side_by_side),
        ):
            np.testing.assert_array_equal(mine, yours)
        assert [[unit.stays_whole for unit in ours.units(task)] for task in range(len(ours.groups))] == [
            [whole] * len(ours.first) for whole in ours.whole.tolist()
        ]


@pytest.mark.examples(4)
@pytest.mark.parametrize("what", [each for each in STATEMENTS if each != "nothing"])
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_planning_makes_no_object_per_group(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, what: str, executor: str
) -> None:
    counts: Counter[str] = Counter()

    def made(*given: Any) -> Unit:
        counts["units"] += 1
        return Unit(*given)

    simulated = planning._simulated

    def ran(*given: Any) -> Any:
        timeline = simulated(*given)
        counts["intervals"] = max(counts["intervals"], len(timeline.intervals))
        return timeline

    monkeypatch.setattr(units_module, "Unit", made)
    monkeypatch.setattr(planning, "_simulated", ran)
    text = "TRAIN MODEL m " + STATEMENTS[what].format("many")
    physical = planned(connection, text, executor=executor, workers=8)
    planning.choose(physical, lambda: False, every=True)
    assert len(physical.stats.groups) > 6000
    assert counts["units"] <= 1000
    assert counts["intervals"] <= 1.5 * MOST_UNITS


@pytest.mark.parametrize(
    ("groups", "rows", "units"),
    [
        (3, 20, 1),  # 32 values each, of which a unit takes 128 groups
        (50, 20, 1),
        (300, 20, 3),
        (300, 2_000, 8),
        (3, 5_000, 3),
    ],
)
def test_small_groups_of_little_work_share_a_unit(
    monkeypatch: pytest.MonkeyPatch, groups: int, rows: int, units: int
) -> None:
    monkeypatch.setattr(packing, "LEAST_GATHERED_VALUES", 4_096)
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT i % {groups} AS g, i % 7 AS a, i AS y FROM range({groups * rows}) r(i)")
        plan = planned(
            con, "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t GROUP BY g VALIDATE NONE"
        )
    assert len(plan.units) == units
    assert sorted(group for unit in plan.units for group in unit.groups) == list(range(groups))


@pytest.mark.parametrize(("rows", "units"), [(64, 1), (65, 20)])
def test_a_group_of_more_than_a_block_is_a_unit_of_its_own(
    monkeypatch: pytest.MonkeyPatch, rows: int, units: int
) -> None:
    monkeypatch.setattr(physical, "BLOCK_ROWS", 64)
    monkeypatch.setattr(packing, "LEAST_GATHERED_VALUES", 1 << 20)
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE t AS SELECT i % 20 AS g, i % 7 AS a, i AS y FROM range({20 * rows}) r(i)")
        plan = planned(
            con, "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (a) FROM t GROUP BY g VALIDATE NONE"
        )
    assert len(plan.units) == units
