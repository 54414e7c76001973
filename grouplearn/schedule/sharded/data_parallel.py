"""Data parallelism: every group is cut over all workers, and all workers train one pack at a time."""

from __future__ import annotations

from collections.abc import Iterable

from grouplearn.schedule.messages import BlockRange, StepKind, Unit
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.gap import make_progress
from grouplearn.schedule.sharded.partition import blocks_of, cut_evenly
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.task_parallel import GroupTask, tasks_by_group
from grouplearn.schedule.workload import Workload


class DataParallel(ShardedOperator):
    """Groups one after another, the packs of a group one after another, each on all workers that have blocks of it.

    Algebraic: all workers' sums are merged at the end of every epoch, and all wait for that (the barrier of torch's
    DistributedDataParallel). Sequential: the workers ``descend`` together, batch by batch. Sampling: they ``boost``
    together. A group of a single block cannot be cut, nor can groups that train side by side in one unit: one worker runs
    their units, and the others wait.
    """

    name = "data_parallel"

    def __init__(self, units: Iterable[Unit], workload: Workload) -> None:
        tasks = tasks_by_group(units)
        whole: list[GroupTask] = []
        shards: dict[int, dict[int, BlockRange]] = {}
        for group, task in tasks.items():
            unit = task.units[0]
            rows = workload.rows_of(unit) if workload.access == "algebraic" else workload.shared_rows_of(unit)
            cuts = cut_evenly(blocks_of(rows, workload.block_rows), workload.workers)
            if len(cuts) == 1 or unit.stays_whole:
                whole.append(task)
            else:
                shards[group] = dict(enumerate(cuts))
        split = [unit for group in shards for unit in tasks[group].units]
        progress = make_progress(workload, eager=True) if workload.access == "algebraic" else None
        gang: StepKind = "descend" if workload.access == "sequential" else "boost"
        super().__init__(workload, Assignment([whole], split, shards, progress, gang, one_by_one=True))
