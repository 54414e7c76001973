"""Structured coordinate descent on many workers: rounds over the cells of a group (Rendle, Fetterly, Shekita & Su 2016, 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grouplearn.schedule.messages import BlockRange, Unit
from grouplearn.schedule.rounds.cells import cell_length, work_items
from grouplearn.schedule.rounds.descent_progress import DescentProgress
from grouplearn.schedule.rounds.stages import Shares
from grouplearn.schedule.rounds.stealing import StealingQueues
from grouplearn.schedule.sharded.assignment import Assignment
from grouplearn.schedule.sharded.gap import place
from grouplearn.schedule.sharded.partition import blocks_of
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import UnitProgress
from grouplearn.schedule.task_parallel import tasks_by_group
from grouplearn.schedule.workload import Workload


class CoordinateDescent(ShardedOperator):
    """Partitions the groups among the workers by wrap-around; what fits stays whole, and split groups train in rounds.

    Groups are cut only between cells. The sums of a cell are the same on any worker, so models do not depend on the cuts,
    and a waiting worker may take over work items of one that is behind (4.4.1). Raises ValueError for learners that do not
    train in rounds.
    """

    name = "coordinate_descent"

    def __init__(self, units: Iterable[Unit], workload: Workload) -> None:
        if workload.access != "rounds":
            raise ValueError(f"only learners that go by rounds descend by coordinates, not {workload.access} ones")
        units = tuple(units)
        tasks, placement = tasks_by_group(units), place(units, workload)
        whole = [[tasks[item] for item, blocks in placed if blocks is None] for placed in placement.workers]
        shards: dict[int, Mapping[int, BlockRange]] = {}
        for group, cut in placement.shards().items():
            rows = workload.shared_rows_of(tasks[group].units[0])
            own = _between_cells(cut, blocks_of(rows, workload.block_rows))
            if len(own) > 1:
                shards[group] = own
            else:
                whole[next(iter(own))].append(tasks[group])
        split = [unit for group in shards for unit in tasks[group].units]

        def progress(unit: Unit, places: Mapping[int, BlockRange], products: Products) -> UnitProgress:
            shares = Shares(tuple(places), tuple(places.values()))
            return DescentProgress(unit, shares, workload, products, _items(unit, places, workload))

        queues = StealingQueues(0.0 if workload.rows_shared else workload.takeover_rounds)
        super().__init__(workload, Assignment(whole, split, shards, progress, steal=True), queues)


def _items(unit: Unit, places: Mapping[int, BlockRange], workload: Workload) -> Shares:
    """Return the work items of a unit's shares, in order of their blocks, each at the place of its share."""
    n_blocks = blocks_of(workload.shared_rows_of(unit), workload.block_rows)
    shares = sorted(places.items(), key=lambda each: each[1].first)
    most = {
        place_: workload.work_items if place_ >= 0 else 1 for place_, _ in shares
    }  # a whole group stays with its worker
    found = [(place_, item) for place_, own in shares for item in work_items(own, n_blocks, most[place_])]
    return Shares(tuple(place_ for place_, _ in found), tuple(item for _, item in found))


def _between_cells(shards: Mapping[int, BlockRange], n_blocks: int) -> dict[int, BlockRange]:
    """Return the shards of a group with each cut moved to the nearest end of a cell; empty shards are left out."""
    length, found = cell_length(n_blocks), {}
    last = max(shards.values(), key=lambda blocks: blocks.last).last

    def moved(cut: int) -> int:
        return n_blocks if cut == last else (2 * cut + length) // (2 * length) * length

    for place_, blocks in sorted(shards.items(), key=lambda each: each[1].first):
        own = BlockRange(moved(blocks.first), moved(blocks.last))
        if len(own) > 0:
            found[place_] = own
    return found
