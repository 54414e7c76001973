"""In how many items a worker's share of a round is worth cutting, and what EXPLAIN says of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest
from helpers.plans import planned

from grouplearn.extract.counts.group_counts import GroupCount
from grouplearn.plan.epoch_rounds import describe_rounds, sizes_of
from grouplearn.plan.physical import MOST_ITEMS, TAKEOVER_EPOCHS, PhysicalPlan
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.facts import descent_facts

TRAIN = (
    "TRAIN MODEL m USING logistic_regression PREDICT y FEATURES (x, onehot(k)) FROM points "
    "WITH (operator = 'coordinate_descent', executor = '{}', workers = 4, l2 = 1)"
)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE points AS SELECT i * 37 % 101 AS x, 'c' || i % 9 AS k, i % 7 < 3 AS y FROM range(90) AS t(i)"
        )
        yield connection


def of_seconds(con: duckdb.DuckDBPyConnection, executor: str, seconds: float) -> PhysicalPlan:
    """Return a plan of 100 million rows whose only unit takes so many seconds."""
    physical = planned(con, TRAIN.format(executor))
    stats = replace(
        physical.stats, groups=tuple(GroupCount(*each)._replace(n_rows=10**8) for each in physical.stats.groups)
    )
    return replace(physical, stats=stats, units=(Unit(0, 0, (0,), cost=seconds),))


@pytest.mark.parametrize(("executor", "step"), [("local", 1e-3), ("ray", 3.5e-3)])
def test_items_take_a_twentieth_of_a_round_at_most(con: duckdb.DuckDBPyConnection, executor: str, step: float) -> None:
    found = []
    for seconds in (1e-3, 1.0, 100.0, 1e3, 1e5):
        physical = of_seconds(con, executor, seconds)
        items = physical.workload(4).work_items
        passes = physical.rates.of(physical.bound.learner.way).typical_epochs or 1
        assert (items - 1) * step <= 0.05 * seconds / passes / physical.epoch_rounds / 4
        assert physical.workload(1).work_items == 1
        found.append(items)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, MOST_ITEMS)


def test_items_whose_sums_are_large_are_fewer(con: duckdb.DuckDBPyConnection) -> None:
    """Each item makes sums of all columns of a block, and whoever reduces them takes those of all items."""
    narrow = of_seconds(con, "ray", 3e3)
    wide = replace(narrow, width=10**8)
    assert narrow.workload(4).work_items > wide.workload(4).work_items > 0


def test_only_learners_in_rounds_have_work_items(con: duckdb.DuckDBPyConnection) -> None:
    physical = planned(con, "TRAIN MODEL m USING kmeans FEATURES (x) FROM points WITH (workers = 4)")
    physical = replace(physical, units=tuple(replace(unit, cost=1e6) for unit in physical.units))
    assert physical.workload(4).work_items == 1


def test_threads_share_rows_and_processes_pay_for_what_they_take_over(con: duckdb.DuckDBPyConnection) -> None:
    local, ray = (of_seconds(con, executor, 1e3).workload(4) for executor in ("local", "ray"))
    assert (local.rows_shared, ray.rows_shared) == (True, False)
    assert ray.takeover_rounds == TAKEOVER_EPOCHS * ray.epoch_rounds


def test_explain_says_how_many_and_that_others_take_them_over(con: duckdb.DuckDBPyConnection) -> None:
    assert "work items" not in descent_facts(sizes_of(of_seconds(con, "ray", 1e-3), 4)).words
    words = descent_facts(sizes_of(of_seconds(con, "ray", 1e6), 4)).words
    assert words.endswith("; a worker's rows are 8 work items, which workers that wait take over")


def test_explain_says_what_becomes_of_machines_that_leave_a_cluster(con: duckdb.DuckDBPyConnection) -> None:
    """Those of this machine have nowhere to go."""
    here, there = (planned(con, TRAIN.format("ray"), **more) for more in ({}, {"address": "10.0.0.5:6379"}))
    leaving = "; workers of a machine that is to leave the cluster hand over what they have"
    assert describe_rounds(there, "coordinate_descent") == describe_rounds(here, "coordinate_descent") + leaving
    assert describe_rounds(there, "gap") == ""
