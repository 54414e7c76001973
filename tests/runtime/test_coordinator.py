"""The coordinator: what the schedule hears, what is given up, what is counted; without a cluster."""

from __future__ import annotations

from typing import Any

from helpers.runtime_jobs import Watcher

from grouplearn.data.files.plain_values import to_bytes
from grouplearn.runtime.ray.coordinator import UNIT_ATTEMPTS, Coordinator
from grouplearn.runtime.ray.supervised.pipe import (
    Absent,
    Happened,
    Joined,
    Leaving,
    Lost,
    RunEvents,
    StepEnded,
    UnitEnded,
)
from grouplearn.schedule.messages import Dismiss, Finish, Instruction, Run, RunStep, Step, Unit
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.task_parallel import ModelTaskParallel
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import StepRecord, UnitResult
from grouplearn.train.results.trials import DONE, Trials
from grouplearn.train.sharded.steps import StepAnswer

UNITS = [Unit(0, 0, (0,), cost=2.0), Unit(1, 1, (0,), cost=1.0)]


def coordinated(operator: Any = None) -> tuple[Coordinator, Watcher]:
    watcher = Watcher()
    return Coordinator(operator or ModelTaskParallel(UNITS), watcher, began=0.0), watcher


def told(
    coordinator: Coordinator, *happened: Happened, epochs: tuple[tuple[int, int], ...] = ()
) -> tuple[Instruction, ...]:
    return coordinator.take(RunEvents(0, happened, epochs))


def given(orders: tuple[Instruction, ...]) -> list[tuple[int, int]]:
    return [(each.worker, each.unit.id) for each in orders if isinstance(each, Run)]


def done(worker: int, unit: Unit) -> UnitEnded:
    return UnitEnded(worker, to_bytes(UnitResult(unit, Trials.alike(unit.groups, (0,), DONE), worker=worker)))


def test_units_go_to_workers_that_join_and_results_are_read_afterwards() -> None:
    coordinator, watcher = coordinated()
    assert given(told(coordinator, Joined(0), Joined(1))) == [(0, 0), (1, 1)]
    orders = told(coordinator, done(1, UNITS[1]), done(0, UNITS[0]), epochs=((0, 3), (7, 9)))
    assert coordinator.finished
    assert Finish() in orders
    assert watcher.epochs == 3, "of units that this run has"
    assert not watcher.units
    coordinator.catch_up()
    assert watcher.units == [1, 0]
    assert [result.unit.id for result in coordinator.results] == [0, 1]
    assert coordinator.next_worker == 2


def test_a_lost_unit_runs_elsewhere_and_its_result_tells_of_it() -> None:
    coordinator, watcher = coordinated()
    told(coordinator, Joined(0), Joined(1))
    assert given(told(coordinator, Lost((0,), kept=True), done(1, UNITS[1]))) == [(1, 0)]
    assert watcher.lost == [0]
    told(coordinator, done(1, UNITS[0]))
    coordinator.catch_up()
    (lost,) = coordinator.results[0].lost
    assert (lost.worker, lost.epoch, lost.blocks) == (0, None, None)
    assert not coordinator.results[1].lost


def test_a_unit_that_takes_its_worker_down_every_time_is_given_up() -> None:
    coordinator, watcher = coordinated()
    for worker in range(UNIT_ATTEMPTS):
        assert given(told(coordinator, Joined(worker))) == [(worker, 0)]
        told(coordinator, Lost((worker,), kept=True))
    assert given(told(coordinator, Joined(3))) == [(3, 1)], "the worker goes on with the next unit"
    assert coordinator.results[0].trials[0].reason == (
        "the worker process died 3 times while training it (out of memory?)"
    )
    assert len(coordinator.results[0].lost) == UNIT_ATTEMPTS
    assert watcher.lost == [0] * UNIT_ATTEMPTS


def test_a_lost_cluster_counts_for_half() -> None:
    coordinator, watcher = coordinated()
    for number in range(2 * UNIT_ATTEMPTS):
        assert given(told(coordinator, Joined(number))) == [(number, 0)]
        coordinator.cluster_lost(kept=True)
    assert given(told(coordinator, Joined(coordinator.next_worker))) == [(coordinator.next_worker - 1, 1)]
    assert watcher.units == [0]


def test_what_a_schedule_gives_to_workers_that_are_gone_too_is_no_attempt() -> None:
    coordinator, watcher = coordinated()
    told(coordinator, Joined(0), Joined(1), done(1, UNITS[1]))
    told(coordinator, Lost((0, 1), kept=True))  # the first loss gives unit 0 to worker 1
    assert watcher.lost == [0]
    assert given(told(coordinator, Joined(2))) == [(2, 0)]


def test_others_do_the_share_of_a_worker_that_does_not_come() -> None:
    """A gap schedule waits for all of its workers; one that is absent counts as having been there."""
    units = [Unit(0, 0, (0,), cost=1.0)]
    coordinator, watcher = coordinated(Gap(units, Workload("algebraic", (40,), 2, 1, 10)))

    def ended(step: Step) -> StepEnded:
        record = StepRecord(step.id, step.kind, step.epoch, step.blocks, 0, 0.0, 0.0)
        result = UnitResult(step.unit, Trials.alike(step.unit.groups, (0,), DONE)) if step.kind == "finish" else None
        return StepEnded(StepAnswer(step, record, result=result, more=False))

    orders = [*told(coordinator, Joined(0)), *told(coordinator, Absent(1))]
    seen = []
    while not coordinator.finished:
        (step,) = [each.step for each in orders if isinstance(each, RunStep) and each.worker == 0]
        seen.append(step.kind)
        orders = [*told(coordinator, ended(step))]
    assert seen == ["init", "accumulate", "accumulate", "update", "evaluate", "evaluate", "finish"]
    assert watcher.units == [0]
    assert not watcher.lost


def test_products_are_known_until_they_are_discarded_or_lost() -> None:
    units = [Unit(0, 0, (0,), cost=1.0)]
    coordinator, _ = coordinated(Gap(units, Workload("algebraic", (40,), 2, 3, 10)))
    orders = [*told(coordinator, Joined(0)), *told(coordinator, Joined(1))]
    (start,) = [each for each in orders if isinstance(each, RunStep)]
    record = StepRecord(start.step.id, "init", 0, None, start.worker, 0.0, 0.0)
    told(coordinator, StepEnded(StepAnswer(start.step, record)))
    assert coordinator.made == {start.step.id: start.worker}
    coordinator.cluster_lost(kept=True)
    assert coordinator.made == {start.step.id: start.worker}
    coordinator.cluster_lost(kept=False)
    assert coordinator.made == {}


def test_who_is_to_leave_ends_its_unit_and_goes_and_no_work_is_lost() -> None:
    coordinator, watcher = coordinated()
    told(coordinator, Joined(0), Joined(1))
    assert told(coordinator, Leaving((0, 7), kept=False)) == ()
    orders = told(coordinator, done(0, UNITS[0]), Joined(2))
    assert Dismiss(0) in orders
    assert given(orders) == []
    told(coordinator, done(1, UNITS[1]))
    coordinator.catch_up()
    assert coordinator.finished
    assert not watcher.lost
    assert not any(result.lost for result in coordinator.results)


def test_of_a_cluster_that_is_lost_who_had_left_is_not_lost_again() -> None:
    units = [*UNITS, Unit(2, 2, (0,), cost=0.5)]
    coordinator, _ = coordinated(ModelTaskParallel(units))
    told(coordinator, Joined(0), Joined(1), Leaving((0, 1), kept=True))
    told(coordinator, done(0, UNITS[0]))
    coordinator.cluster_lost(kept=False)
    assert given(told(coordinator, Joined(2))) == [(2, 1)]
