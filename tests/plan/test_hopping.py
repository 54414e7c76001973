"""What the planner does for packs that hop: enough of them, no more, and something else where there are too few."""

from collections.abc import Iterator

import duckdb
import pytest
from helpers.plans import candidate, planned

from grouplearn.plan.hopping_packs import cut_packs, planned_for
from grouplearn.plan.operator_choice import choose
from grouplearn.plan.physical import PhysicalPlan

TRAIN = (
    "TRAIN MODEL m USING mlp PREDICT y FEATURES (x) FROM t GROUP BY g "
    "OVER GRID (learning_rate IN (0.1, 0.01, 0.001, 0.0001)) WITH (operator = 'mop'{more})"
)


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i < 200 AS g, i AS x, i % 2 = 0 AS y FROM range(100000) AS r(i)")
    yield connection
    connection.close()


def plan_of(con: duckdb.DuckDBPyConnection, more: str = "", workers: int = 2) -> PhysicalPlan:
    return planned(con, TRAIN.format(more=more), workers=workers)


@pytest.mark.parametrize(
    ("packs", "wanted", "cut"),
    [
        ([(0, 1, 2, 3)], 1, ((0, 1, 2, 3),)),
        ([(0, 1, 2, 3)], 2, ((0, 1), (2, 3))),
        ([(0, 1, 2, 3, 4)], 3, ((0,), (1, 2), (3, 4))),
        ([(0, 2), (1, 3)], 2, ((0, 2), (1, 3))),
        ([(0, 1, 2, 3), (4,)], 3, ((0, 1), (2, 3), (4,))),
        ([(0, 1)], 9, ((0,), (1,))),
        ([], 3, ()),
    ],
)
def test_packs_are_cut_evenly_and_no_more_than_needed(
    packs: list[tuple[int, ...]], wanted: int, cut: tuple[tuple[int, ...], ...]
) -> None:
    assert cut_packs(packs, wanted) == cut


@pytest.mark.parametrize(("workers", "sizes"), [(1, [4]), (2, [2, 2]), (5, [1, 1, 1, 1])])
def test_a_split_group_has_a_pack_for_each_of_its_shards(
    con: duckdb.DuckDBPyConnection, workers: int, sizes: list[int]
) -> None:
    plan = planned_for(plan_of(con, workers=workers), "mop", workers)
    by_group = [[unit for unit in plan.units if unit.group == group] for group in range(2)]
    large = max(range(2), key=lambda group: plan.stats.groups[group].n_rows)
    assert sorted(len(unit.configs) for unit in by_group[large]) == sizes
    assert [len(unit.configs) for unit in by_group[1 - large]] == [4], "a group that stays whole keeps its pack"
    assert [unit.id for unit in plan.units] == list(range(len(plan.units)))
    assert planned_for(plan, "mop", workers).units == plan.units
    assert planned_for(plan, "gap", workers) is plan


def test_too_few_packs_hop_all_the_same_and_the_plan_says_what_is_faster(con: duckdb.DuckDBPyConnection) -> None:
    plan = plan_of(con, ", executor = 'ray'", workers=8)
    few, together = candidate("mop", 4.0, units=3), candidate("data_parallel", 2.0, units=2)
    choice = choose(plan, [few, together], ray_installed=True)
    assert choice.operator == "mop"
    assert choice.why == "as asked; 3 packs cannot keep 8 workers busy: data_parallel takes 2 s and mop 4 s"
    slow = candidate("data_parallel", 5.0, units=2)
    assert choose(plan, [few, slow], ray_installed=True).why == "as asked; 3 packs cannot keep 8 workers busy"
    enough = candidate("mop", 4.0, units=8)
    assert choose(plan, [enough, together], ray_installed=True).why == "as asked"


def test_what_does_not_run_here_is_no_faster(con: duckdb.DuckDBPyConnection) -> None:
    few, together = candidate("mop", 4.0, units=3), candidate("data_parallel", 2.0, units=2)
    choice = choose(plan_of(con, ", executor = 'local'", workers=8), [few, together], ray_installed=True)
    assert choice.operator == "mop"
    assert choice.why == "as asked; 3 packs cannot keep 8 workers busy"
