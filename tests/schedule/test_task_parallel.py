"""Task parallelism, instruction by instruction; under any order of events it is tested with the other operators."""

import pytest
from helpers.schedule_cluster import Cluster, Rules

from grouplearn.schedule.invariants import BrokenSchedule
from grouplearn.schedule.messages import (
    Finish,
    Instruction,
    Load,
    Release,
    Run,
    Unit,
    UnitDone,
    WorkerLost,
    WorkerReady,
)
from grouplearn.schedule.task_parallel import GroupTaskParallel, ModelTaskParallel, TaskParallel

UNITS = [
    Unit(0, group=0, configs=(0,), cost=1.0),
    Unit(1, group=0, configs=(1,), cost=1.0),
    Unit(2, group=1, configs=(0,), cost=5.0),
    Unit(3, group=2, configs=(0,), cost=1.5),
]


def sequence(tasks: type[TaskParallel]) -> list[Instruction]:
    """The instructions that one worker gets, to the end."""
    machine, running, seen = tasks(UNITS), [], []
    news: list[Instruction] = list(machine.on(WorkerReady(0)))
    while news:
        seen += news
        running = [each for each in news if isinstance(each, Run)]
        news = list(machine.on(UnitDone(0, running[-1].unit))) if running else []
    return seen


def test_groups_go_largest_first_and_are_loaded_once() -> None:
    assert sequence(GroupTaskParallel) == [
        *(Load(0, 1), Run(0, UNITS[2]), Release(0, 1)),
        *(Load(0, 0), Run(0, UNITS[0]), Run(0, UNITS[1]), Release(0, 0)),
        *(Load(0, 2), Run(0, UNITS[3]), Release(0, 2)),
        Finish(),
    ]


def test_models_go_largest_first_and_load_for_themselves() -> None:
    assert sequence(ModelTaskParallel) == [
        *(Load(0, 1), Run(0, UNITS[2]), Release(0, 1)),
        *(Load(0, 2), Run(0, UNITS[3]), Release(0, 2)),
        *(Load(0, 0), Run(0, UNITS[0]), Release(0, 0)),
        *(Load(0, 0), Run(0, UNITS[1]), Release(0, 0)),
        Finish(),
    ]


def test_folds_of_a_group_are_not_interleaved() -> None:
    units = [Unit(number, 0, (number,), fold) for number, fold in enumerate((1, -1, 0, 1, 0, -1))]
    cluster = Cluster(GroupTaskParallel(units), Rules(lambda unit: 1))
    cluster.join(0)
    while cluster.running:
        cluster.complete(0)
    assert [unit.fold for unit in cluster.done] == [-1, -1, 0, 0, 1, 1]


def test_what_a_lost_worker_had_left_goes_to_one_that_waits() -> None:
    machine = GroupTaskParallel(UNITS[:2])
    assert machine.on(WorkerReady(0)) == (Load(0, 0), Run(0, UNITS[0]))
    assert machine.on(WorkerReady(1)) == ()
    assert machine.on(UnitDone(0, UNITS[0])) == (Run(0, UNITS[1]),)
    assert machine.on(WorkerLost(0)) == (Load(1, 0), Run(1, UNITS[1]))
    assert machine.on(UnitDone(1, UNITS[1])) == (Release(1, 0), Finish())
    assert machine.on(WorkerReady(2)) == ()


def test_no_units_finish_with_the_first_worker() -> None:
    assert ModelTaskParallel([]).on(WorkerReady(0)) == (Finish(),)


def test_impossible_events_are_refused() -> None:
    machine = ModelTaskParallel(UNITS)
    machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 joined twice"):
        machine.on(WorkerReady(0))
    with pytest.raises(BrokenSchedule, match="worker 0 was not running unit 3"):
        machine.on(UnitDone(0, UNITS[3]))
    with pytest.raises(BrokenSchedule, match="worker 7 was not there to be lost"):
        machine.on(WorkerLost(7))
    with pytest.raises(BrokenSchedule, match="unit 0 was given twice"):
        ModelTaskParallel([UNITS[0], UNITS[0]])
