"""A gang shares the rows that train: members without any would wait for each other until they are ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.split_jobs import BLOCK, CASES, split_job

from grouplearn.data.shard import Shard, StoredShard
from grouplearn.models.label import TWO_CLASSES
from grouplearn.runtime.worker import Worker, _with_own_blocks, outline_or_failed
from grouplearn.schedule.messages import BlockRange, Operator, RunStep, Step, Unit, WorkerReady
from grouplearn.schedule.sharded.data_parallel import DataParallel
from grouplearn.schedule.sharded.gap import Gap
from grouplearn.schedule.workload import Workload
from grouplearn.train.job import Job
from grouplearn.train.rows.counted import with_training_rows
from grouplearn.train.rows.prepare import GroupOutline

WORKERS = 8


def mostly_held_out(folds: int = 0) -> Job:
    """A group of 580 rows, of which the first 100 train, or most of which are in one fold."""
    a_job = split_job("gbdt", TWO_CLASSES, ({},), folds=folds)
    split = np.where(np.arange(a_job.dataset.n_rows) < 150, 0, 1)
    return replace(a_job, dataset=replace(a_job.dataset, split=split.astype(np.int16)))


def workload(a_job: Job) -> Workload:
    rows = tuple(group.n_rows for group in a_job.groups)
    return Workload("sampling", rows, WORKERS, 1, BLOCK)


def gang(machine: Operator) -> list[Step]:
    orders = [order for worker in range(WORKERS) for order in machine.on(WorkerReady(worker))]
    return [order.step for order in orders if isinstance(order, RunStep)]


def member(a_job: Job, step: Step, decided: GroupOutline) -> Shard | StoredShard:
    """Return the training rows of a member that has loaded the blocks that the schedule spoke of."""
    worker = Worker(a_job)
    worker.load(step.unit.group, step.blocks)
    return worker.part(_with_own_blocks(step, decided), decided, BlockRange(0, decided.n_blocks)).train


@pytest.mark.parametrize("operator", [DataParallel, Gap])
@pytest.mark.parametrize("folds", [0, 2])
def test_every_member_of_a_gang_has_rows_to_train_on(operator: type[DataParallel | Gap], folds: int) -> None:
    a_job = mostly_held_out(folds)
    units = [Unit(number, 1, (0,), fold) for number, fold in enumerate(range(-1, folds))]
    steps = gang(operator(units, with_training_rows(workload(a_job), a_job)))
    assert 1 < len(steps) <= WORKERS
    for unit in units:
        decided = outline_or_failed(a_job, unit)
        assert isinstance(decided, GroupOutline)
        parts = [member(a_job, step, decided) for step in steps]
        assert all(isinstance(part, Shard) and part.n_rows for part in parts)
        assert sum(part.n_rows for part in parts) == decided.facts.n_train


def test_too_many_members_say_so() -> None:
    a_job = mostly_held_out()
    decided = outline_or_failed(a_job, Unit(0, 1, (0,)))
    assert isinstance(decided, GroupOutline)
    step = Step(0, Unit(0, 1, (0,)), "boost", rank=0, size=9)
    with pytest.raises(ValueError, match="9 workers cannot train one model together on 4 blocks of training rows"):
        _with_own_blocks(step, decided)


def test_sums_are_shared_by_all_rows() -> None:
    a_job = CASES["linear"]
    work = replace(workload(a_job), access="algebraic")
    assert with_training_rows(work, a_job) is work
