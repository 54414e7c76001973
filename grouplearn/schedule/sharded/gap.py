"""Gradient accumulation parallelism: what fits stays whole, and only split groups communicate (Li and Kumar 2021, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.sharded.assignment import Assignment, MakeProgress
from grouplearn.schedule.sharded.partition import (
    GroupSize,
    Partition,
    constrained_wrap_around,
    largest_first,
    rows_in,
    wrap_around,
)
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import Algebraic, Sequential, SingleState
from grouplearn.schedule.task_parallel import GroupTask, tasks_by_group
from grouplearn.schedule.workload import Workload


class Gap(ShardedOperator):
    """Partitions the groups among the workers by wrap-around and runs every unit where its rows are.

    Algebraic: the capacity is n / p, and sums are passed on lazily; if no cut saves time, groups stay whole. Sequential:
    states hop, and the capacity is C* of equation 2 with group isolation, else n / p. Sampling: constrained wrap-around,
    and a split group's workers boost together. Groups that train side by side in one unit stay together.
    ``steal``: see WholeWork.
    """

    name = "gap"

    def __init__(self, units: Iterable[Unit], workload: Workload, steal: bool = True) -> None:
        units = tuple(units)
        tasks = tasks_by_group(units)
        placement = place(units, workload)
        shards = placement.shards()
        whole = [[tasks[item] for item, blocks in placed if blocks is None] for placed in placement.workers]
        split = [unit for group in shards for unit in tasks[group].units]
        progress = None if workload.access == "sampling" else make_progress(workload)
        isolated = workload.access == "sequential" and workload.group_isolation
        super().__init__(workload, Assignment(whole, split, shards, progress, "boost", steal, isolated))


def place(units: Iterable[Unit], workload: Workload) -> Partition:
    """Return the worker of every group that has units, or of its blocks; groups of one unit count as its first group.

    Models from sums do not depend on the cuts, so no group is cut if whole groups, largest first, are estimated to be
    faster on the same workers: wrap-around cuts up to p - 1 groups even where whole ones would balance.
    """
    units = tuple(units)
    rows_of = workload.shared_rows_of if workload.access == "rounds" else workload.rows_of
    items = {unit.group: GroupSize(unit.group, rows_of(unit), not unit.stays_whole) for unit in units}
    in_order = [items[group] for group in sorted(items)]
    if workload.access == "sampling":
        shared = [replace(items[unit.group], rows=workload.shared_rows_of(unit)) for unit in units]
        return constrained_wrap_around(dict.fromkeys(shared), workload.workers, workload.block_rows)
    relaxed = workload.access != "sequential" or not workload.group_isolation
    cut = wrap_around(in_order, workload.workers, workload.block_rows, relaxed)
    if workload.access == "sequential" or not cut.shards():
        return cut
    tasks = tasks_by_group(units)
    whole = largest_first(in_order, {group: task.cost for group, task in tasks.items()}, workload.workers)
    return whole if _makespan(whole, tasks, workload) < _makespan(cut, tasks, workload) else cut


def _makespan(placement: Partition, tasks: Mapping[int, GroupTask], workload: Workload) -> float:
    """Return the estimated seconds of the busiest worker: its units, its shares of split ones, and the overhead of steps.

    Large whole units on a worker with a shard also run in steps, so that the shard's steps need not wait for them.
    """

    def takes(unit: Unit, blocks: BlockRange | None, beside: bool) -> float:
        rows = workload.rows_of(unit)
        here = rows_in(blocks, rows, workload.block_rows)
        alone = workload.solving_of(unit)
        seconds = (unit.cost - alone) * (here / rows if rows else 1.0) + alone
        if blocks is not None or (beside and not unit.stays_whole and workload.blocks_of(unit) > 1):
            seconds += workload.split_seconds + workload.split_row_seconds * here * len(unit.configs)
        return seconds

    def busy(placed: Sequence[tuple[int, BlockRange | None]]) -> float:
        beside = any(blocks is not None for _, blocks in placed)
        return sum(takes(unit, blocks, beside) for item, blocks in placed for unit in tasks[item].units)

    return max(map(busy, placement.workers))


def make_progress(workload: Workload, eager: bool = False) -> MakeProgress:
    """Return the function that makes the progress of a split unit, by access pattern."""

    def progress(unit: Unit, shards: Mapping[int, BlockRange], products: Products) -> SingleState:
        if workload.access == "sequential":
            return Sequential(unit, shards, workload.epochs, products, workload.evaluate_epochs)
        return Algebraic(unit, shards, workload.epochs, products, eager)

    return progress
