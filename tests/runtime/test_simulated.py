"""The schedule on a virtual clock."""

import math
from dataclasses import replace

import pytest

from grouplearn.learners.contract.access import AccessName
from grouplearn.runtime.simulated import Costs, Exchange, Timeline, simulate
from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.operators import OPERATORS
from grouplearn.schedule.operators import operator as operator_of
from grouplearn.schedule.sharded.partition import rows_in
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel
from grouplearn.schedule.workload import Workload

COSTS = [7.0, 6.0, 5.0, 4.0, 3.0, 3.0]


def units(costs: list[float]) -> list[Unit]:
    return [Unit(number, number, (0,), cost=cost) for number, cost in enumerate(costs)]


def test_one_worker_does_everything_one_after_another() -> None:
    timeline = simulate(GroupTaskParallel(units(COSTS)), 1, lambda group: 0.5)
    assert timeline.makespan == sum(COSTS) + 0.5 * len(COSTS)
    assert (timeline.idle_share, timeline.loads) == (0.0, 6)


def test_largest_first_on_two_workers() -> None:
    timeline = simulate(GroupTaskParallel(units(COSTS)), 2, lambda group: 0.0)
    # 7+4+3 and 6+5+3
    assert timeline.makespan == 14.0
    assert timeline.idle_share == 0.0
    assert [(each.worker, each.unit.id, each.start, each.end) for each in timeline.intervals[:3]] == [
        (0, 0, 0.0, 7.0),
        (1, 1, 0.0, 6.0),
        (1, 2, 6.0, 11.0),
    ]


def test_more_workers_than_work_idle() -> None:
    timeline = simulate(GroupTaskParallel(units([2.0, 1.0])), 4, lambda group: 1.0)
    assert timeline.makespan == 3.0
    assert timeline.idle_share == pytest.approx(1 - (2 + 1 + 2) / 12)


def test_idle_workers_help_with_what_can_be_shared() -> None:
    costs = Costs(shared=lambda unit: 0.8)

    def of(seconds: list[float], workers: int) -> Timeline:
        return simulate(GroupTaskParallel(units(seconds)), workers, lambda group: 1.0, costs=costs)

    alone = of([10.0], 4)  # 1 to load, 2 alone, 8 among four
    assert (alone.makespan, alone.helping) == (pytest.approx(1 + 2 + 8 / 4), 3)
    assert alone.idle_share == pytest.approx(1 - (1 + 10) / (4 * 5))
    both = of([10.0, 10.0], 2)
    assert (both.makespan, both.helping) == (11.0, 0)
    # Who ends first helps with what begins after that, not with what has begun.
    assert of([10.0, 2.0], 2).makespan == 11.0
    assert of([10.0, 6.0, 5.0], 2).helping == 0
    assert of([10.0], 1).helping == 0


def test_group_tasks_load_once_and_model_tasks_balance() -> None:
    grouped = [Unit(number, 0, (number,), cost=1.0) for number in range(4)]
    group = simulate(GroupTaskParallel(grouped), 4, lambda group: 1.0)
    model = simulate(ModelTaskParallel(grouped), 4, lambda group: 1.0)
    assert (group.loads, group.makespan) == (1, 5.0)
    assert (model.loads, model.makespan) == (4, 2.0)


def test_a_thousand_workers() -> None:
    costs = [1.0 + number % 7 for number in range(5000)]
    timeline = simulate(GroupTaskParallel(units(costs)), 1000, lambda group: 0.0)
    assert timeline.makespan <= sum(costs) / 1000 + max(costs)


def test_no_work_takes_no_time() -> None:
    assert simulate(GroupTaskParallel([]), 3, lambda group: 1.0).makespan == 0.0
    with pytest.raises(ValueError, match="at least one worker, not 0"):
        simulate(GroupTaskParallel([]), 0, lambda group: 1.0)


BLOCK = 10


def workload(access: AccessName, rows: tuple[int, ...], workers: int, epochs: int = 1, **more: bool) -> Workload:
    return Workload(access, rows, workers, epochs, BLOCK, **more)


def costs_of(work: Workload, **more: object) -> Costs:
    def share(group: int, blocks: BlockRange) -> float:
        return rows_in(blocks, work.rows[group], BLOCK) / work.rows[group]

    costs = Costs(share=share, row_bytes=lambda group: 8.0 * work.rows[group])
    return replace(costs, state_bytes=lambda unit: 100.0, sums_bytes=lambda unit: 10.0, **more)


def run(name: str, work: Workload, units: list[Unit], load: float = 0.0, **more: object) -> Timeline:
    return simulate(operator_of(name, units, work), work.workers, lambda group: load, costs=costs_of(work, **more))


def test_a_split_unit_takes_its_share_of_the_time_and_no_more_bytes_than_it_must() -> None:
    work = workload("algebraic", (40,), 2, epochs=3)
    timeline = run("gap", work, [Unit(0, 0, (0,), cost=20.0)], load=4.0)
    # Half of the loading, three epochs and a third of one for the metrics, on both workers at the same time.
    assert timeline.makespan == pytest.approx(4.0 / 2 + 20.0 / 2)
    assert timeline.idle_share == pytest.approx(0.0, abs=1e-9)
    # All rows once. Worker 0 makes the first state, which worker 1 takes for its sums and for the update; worker 0 takes
    # each of the three that worker 1 makes; its sums go to worker 1 three times, and those of the evaluation.
    states = [each for each in timeline.intervals if each.kind == "update"]
    assert [each.worker for each in states] == [1, 1, 1]
    assert timeline.network_bytes == 320 + 100 * (2 + 3) + 10 * (3 + 1)
    assert (timeline.loads, [each.kind for each in timeline.intervals].count("accumulate")) == (2, 6)


def test_moving_products_takes_time() -> None:
    work, units = workload("sequential", (20,), 2, group_isolation=False), [Unit(0, 0, (0,), cost=0.0)]
    timeline = run("gap", work, units, bandwidth=50.0, latency=0.5)
    # A state of 100 bytes hops to worker 1 (2.5 s), from there to worker 0 for the evaluation (2.5 s), and with the sums
    # of worker 1 to the finish (110 bytes, 2.7 s).
    assert timeline.makespan == pytest.approx(2.5 + 2.5 + 2.7)
    assert [(each.kind, each.worker) for each in timeline.intervals if each.kind == "train"] == [
        ("train", 0),
        ("train", 1),
    ]


@pytest.mark.parametrize(("access", "kind"), [("sampling", "boost"), ("sequential", "descend")])
def test_a_gang_starts_when_all_have_loaded_and_ends_with_the_slowest(access: AccessName, kind: str) -> None:
    work = workload(access, (50,), 2)
    units = [Unit(0, 0, (0,), cost=10.0), Unit(1, 0, (1,), cost=10.0)]
    rounds = Exchange(n_bytes=30.0, rounds=4)
    timeline = run("data_parallel", work, units, load=5.0, exchange=lambda step: rounds, bandwidth=10.0, latency=0.25)
    # Shards of 2 and 3 blocks: loading takes 2 and 3 s, training 4 and 6 s, exchanging 3 s and 4 rounds of 0.25 s.
    assert [(each.kind, each.worker, each.start, each.end) for each in timeline.intervals] == [
        (kind, 0, 3.0, 13.0),
        (kind, 1, 3.0, 13.0),
        (kind, 0, 13.0, 23.0),
        (kind, 1, 13.0, 23.0),
    ]
    assert timeline.network_bytes == 400 + 4 * 30
    assert timeline.peak_bytes == (160.0, 240.0)


def test_memory_is_rows_and_products_until_they_go() -> None:
    groups = [Unit(0, 0, (0,), cost=2.0), Unit(1, 1, (0,), cost=1.0)]
    work = workload("algebraic", (10, 5), 1)
    # The rows of a group, and the state of its unit while that trains.
    assert run("group_task_parallel", work, groups).peak_bytes == (80.0 + 100.0,)
    split = run("gap", workload("algebraic", (40,), 2, epochs=2), [Unit(0, 0, (0,), cost=1.0)])
    # Half of the rows; on worker 1 two states, the sums of an epoch, and those of worker 0 while they are merged.
    assert split.peak_bytes[1] == pytest.approx(160 + 100 + 10 + 10 + 100)
    assert split.peak_bytes[0] < split.peak_bytes[1]


#: Operators that run every access pattern.
IN_ORDER = [name for name in OPERATORS if name not in ("mop", "averaging", "parameter_server", "coordinate_descent")]
SHARES = [0.26, *(0.74 / math.fsum(1 / each for each in range(1, 18)) / each for each in range(1, 18))]


@pytest.mark.parametrize("access", ["algebraic", "sequential", "sampling"])
def test_gap_beats_what_loads_again_what_is_skewed_and_what_waits(access: AccessName) -> None:
    """The shape of kingpin's Country: 18 groups, the largest 26% (Li and Kumar 2021, 3.3)."""
    rows = tuple(round(share * 20_000) for share in SHARES)
    work = workload(access, rows, 8, epochs=10, group_isolation=False)
    units = [
        Unit(12 * group + pack, group, (pack,), cost=each / 100)
        for group, each in enumerate(rows)
        for pack in range(12)
    ]
    seconds = {}
    for name in [*IN_ORDER, *(("mop", "averaging", "parameter_server") if access == "sequential" else ())]:
        timeline = simulate(
            operator_of(name, units, work),
            8,
            lambda group: rows[group] / 50,
            costs=costs_of(work, overhead=lambda step: 0.05),
        )
        assert timeline.makespan * 8 >= sum(unit.cost for unit in units)
        seconds[name] = timeline.makespan
    assert seconds["gap"] < 0.75 * seconds["group_task_parallel"]
    assert seconds["gap"] < 0.9 * seconds["model_task_parallel"]
    # Every pass begins at the first block, so packs of one group, one behind the other, begin late.
    assert seconds["gap"] < (1.15 if access == "sequential" else 1.05) * min(seconds.values())


def test_a_thousand_workers_and_split_groups() -> None:
    rows = tuple(1 + number * 7919 % 97 for number in range(5_000))
    units = [Unit(number, number, (0,), cost=float(each)) for number, each in enumerate(rows)]
    timeline = run("gap", workload("algebraic", rows, 1000), units)
    assert timeline.makespan <= 1.5 * sum(rows) / 1000
