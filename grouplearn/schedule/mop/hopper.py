"""Model hopper parallelism: rows stay where they are, packs hop over them (Nakandala, Zhang and Kumar 2020, 3 and 5)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.mop.hop_progress import HopProgress, Route, Routed
from grouplearn.schedule.mop.open_shop import Visit, planned
from grouplearn.schedule.mop.planned_hops import PlannedHops
from grouplearn.schedule.mop.random_hops import RandomHops
from grouplearn.schedule.sharded.assignment import Assignment, MakeProgress
from grouplearn.schedule.sharded.gap import place
from grouplearn.schedule.sharded.partition import Partition
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.step_queues import StepQueues
from grouplearn.schedule.sharded.steps.unit_progress import Sequential, SingleState
from grouplearn.schedule.task_parallel import GroupTask, tasks_by_group
from grouplearn.schedule.visit_order import visits
from grouplearn.schedule.workload import Workload

Shards = Mapping[int, Mapping[int, BlockRange]]


class Mop(ShardedOperator):
    """Partitions the groups as gap does; the packs of a split group hop from shard to shard, one shard at a time.

    Invariants, checked at every transition (3.1): (1) completeness: in an epoch a pack is trained on every shard once; (2)
    isolation: it is trained in one place at a time; (3) exclusive access: a worker does one thing at a time; (4) a unit
    that has begun is not preempted. A pack waits only for the end of its own epoch. Work of a lost worker is repeated
    elsewhere, from the newest state that still exists (5.6).

    ``workload.hops``: ``randomized`` lets an idle worker take any available pack; ``vector`` and ``exact`` follow a plan
    made from estimated durations; ``recorded`` visits are repeated on any number of workers. Whole groups on one worker
    stay there for all epochs. Raises ValueError for learners that are not sequential.
    """

    name = "mop"

    def __init__(self, units: Iterable[Unit], workload: Workload) -> None:
        if workload.access != "sequential":
            raise ValueError(f"only sequential learners hop, not {workload.access} ones")
        units = tuple(units)
        tasks = tasks_by_group(units)
        placement = place(units, replace(workload, group_isolation=False))
        shards: Shards = {**placement.shards(), **_hopped_before(placement, tasks, workload)}
        whole = [[tasks[item] for item, _ in placed if item not in shards] for placed in placement.workers]
        split = [unit for group in shards for unit in tasks[group].units]
        repeats = workload.hops.recorded is not None
        progress, queues = _repeated(workload) if repeats else _scheduled(split, shards, workload)
        assignment = Assignment(whole, split, shards, progress, steal=True, replicas=workload.hops.replicas)
        super().__init__(workload, assignment, queues(assignment.groups_at))


def hopping_shards(units: Iterable[Unit], workload: Workload) -> Shards:
    """Return the shards of every split group, by place; they do not depend on its packs."""
    return place(units, replace(workload, group_isolation=False)).shards()


def _hopped_before(placement: Partition, tasks: Mapping[int, GroupTask], workload: Workload) -> Shards:
    """Return the whole groups whose units repeat visits, each as a single shard in its place."""
    recorded = workload.hops.recorded or {}
    return {
        item: {worker: BlockRange(0, workload.blocks_of(tasks[item].units[0]))}
        for worker, placed in enumerate(placement.workers)
        for item, blocks in placed
        if blocks is None and any(unit.id in recorded for unit in tasks[item].units)
    }


MakeQueues = Callable[[Mapping[int, Sequence[int]]], StepQueues]


def _scheduled(split: Sequence[Unit], shards: Shards, workload: Workload) -> tuple[MakeProgress, MakeQueues]:
    """Return the progress and queues of units whose visits the scheduler chooses."""
    hops = workload.hops
    plan = None if hops.scheduler == "randomized" else planned(hops.scheduler, _seconds(split, shards, workload))
    routes = {} if plan is None else _routes(plan, split, shards)

    def progress(unit: Unit, places: Mapping[int, BlockRange], products: Products) -> SingleState:
        every, evaluate = workload.epochs, workload.evaluate_epochs
        if any(each < 0 for each in places):  # a whole group on one worker
            return Sequential(unit, places, every, products, evaluate)
        if plan is None:
            return HopProgress(unit, places, every, products, evaluate)
        return Routed(unit, places, every, products, lambda _epoch: routes[unit.id], evaluate)

    if plan is None:
        return progress, lambda groups_at: RandomHops(groups_at, hops.seed)
    visits_in_order = plan
    return progress, lambda _groups_at: PlannedHops(visits_in_order)


def _repeated(workload: Workload) -> tuple[MakeProgress, MakeQueues]:
    """Return the progress and queues of units that repeat an earlier run's visits, wherever the rows are now."""
    recorded = workload.hops.recorded or {}

    def progress(unit: Unit, places: Mapping[int, BlockRange], products: Products) -> SingleState:
        @functools.cache
        def route(epoch: int) -> Route:
            runs = recorded.get(unit.id, {}).get(epoch)
            return visits(places) if runs is None else _cut((*runs, *_missing(runs, places)), places)

        return Routed(unit, places, workload.epochs, products, route, workload.evaluate_epochs)

    return progress, lambda _groups_at: StepQueues()


def _cut(runs: Sequence[BlockRange], places: Mapping[int, BlockRange]) -> Route:
    """Return runs of blocks, in order, cut at the shard boundaries of ``places``."""
    shards = sorted(places.items(), key=lambda each: each[1].first)
    return tuple(
        (place, BlockRange(max(run.first, shard.first), min(run.last, shard.last)))
        for run in runs
        for place, shard in shards
        if run.first < shard.last and shard.first < run.last
    )


def _missing(runs: Sequence[BlockRange], places: Mapping[int, BlockRange]) -> list[BlockRange]:
    """Return the blocks missing in ``runs``, in order: those of an epoch in which the unit failed."""
    seen = {block for run in runs for block in range(run.first, run.last)}
    every = sorted(block for shard in places.values() for block in range(shard.first, shard.last))
    return [BlockRange(block, block + 1) for block in every if block not in seen]


def _seconds(split: Sequence[Unit], shards: Shards, workload: Workload) -> dict[Visit, float]:
    """Return the estimated seconds of every sub-epoch."""
    return {
        (unit.id, place): workload.cost(unit, "train", blocks)
        for unit in split
        for place, blocks in shards[unit.group].items()
    }


def _routes(plan: Sequence[Visit], split: Sequence[Unit], shards: Shards) -> dict[int, Route]:
    groups = {unit.id: unit.group for unit in split}
    routes: dict[int, list[tuple[int, BlockRange]]] = {}
    for unit, where in plan:
        routes.setdefault(unit, []).append((where, shards[groups[unit]][where]))
    return {unit: tuple(route) for unit, route in routes.items()}
