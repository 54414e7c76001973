"""The schedule on a virtual clock."""

import pytest

from grouplearn.runtime.simulated import simulate
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.task_parallel import operator

COSTS = [7.0, 6.0, 5.0, 4.0, 3.0, 3.0]


def units(costs: list[float]) -> list[Unit]:
    return [Unit(number, number, (0,), cost=cost) for number, cost in enumerate(costs)]


def test_one_worker_does_everything_one_after_another() -> None:
    timeline = simulate(operator("group_task_parallel", units(COSTS)), 1, lambda group: 0.5)
    assert timeline.makespan == sum(COSTS) + 0.5 * len(COSTS)
    assert (timeline.idle_share, timeline.loads) == (0.0, 6)


def test_largest_first_on_two_workers() -> None:
    timeline = simulate(operator("group_task_parallel", units(COSTS)), 2, lambda group: 0.0)
    # 7+4+3 and 6+5+3
    assert timeline.makespan == 14.0
    assert timeline.idle_share == 0.0
    assert [(each.worker, each.unit.id, each.start, each.end) for each in timeline.intervals[:3]] == [
        (0, 0, 0.0, 7.0),
        (1, 1, 0.0, 6.0),
        (1, 2, 6.0, 11.0),
    ]


def test_more_workers_than_work_idle() -> None:
    timeline = simulate(operator("group_task_parallel", units([2.0, 1.0])), 4, lambda group: 1.0)
    assert timeline.makespan == 3.0
    assert timeline.idle_share == pytest.approx(1 - (2 + 1 + 2) / 12)


def test_group_tasks_load_once_and_model_tasks_balance() -> None:
    grouped = [Unit(number, 0, (number,), cost=1.0) for number in range(4)]
    group = simulate(operator("group_task_parallel", grouped), 4, lambda group: 1.0)
    model = simulate(operator("model_task_parallel", grouped), 4, lambda group: 1.0)
    assert (group.loads, group.makespan) == (1, 5.0)
    assert (model.loads, model.makespan) == (4, 2.0)


def test_a_thousand_workers() -> None:
    costs = [1.0 + number % 7 for number in range(5000)]
    timeline = simulate(operator("group_task_parallel", units(costs)), 1000, lambda group: 0.0)
    assert timeline.makespan <= sum(costs) / 1000 + max(costs)


def test_no_work_takes_no_time() -> None:
    assert simulate(operator("group_task_parallel", []), 3, lambda group: 1.0).makespan == 0.0
    with pytest.raises(ValueError, match="at least one worker, not 0"):
        simulate(operator("group_task_parallel", []), 0, lambda group: 1.0)
