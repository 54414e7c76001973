"""Model averaging: every partition trains a copy of the model, and training continues with their mean (Zhang et al. 2019,
MLlib*)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import BlockRange, Part, Unit
from grouplearn.schedule.rounds import stages
from grouplearn.schedule.rounds.round_progress import RoundProgress
from grouplearn.schedule.rounds.stages import Shares, Stage
from grouplearn.schedule.sharded.assignment import Assignment, MakeProgress
from grouplearn.schedule.sharded.partition import GroupSize, blocks_of, cut_evenly, largest_first, rows_in
from grouplearn.schedule.sharded.sharded_operator import ShardedOperator
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import Sequential, UnitProgress
from grouplearn.schedule.task_parallel import GroupTask, tasks_by_group
from grouplearn.schedule.workload import Workload


class Averaging(ShardedOperator):
    """Cuts the rows of every group into ``workload.averages.partitions`` runs of blocks, at most one for each block.

    In a round all partitions train the same model, each on its rows of an epoch or of some batches. The next model is the
    mean of theirs, weighted by their rows; or they send gradients at the common model, which takes one step along the mean
    gradient. Nothing goes through a driver: with ``scatter`` every place reduces one part of the parameters and takes all
    parts, so that 2 m (k - 1) / k bytes reach each of k workers, m the bytes of a model. Models depend on the partitions,
    never on which workers have them. Groups of one block, and groups that train side by side, stay whole.
    Raises ValueError for learners that are not sequential.
    """

    name = "averaging"

    def __init__(self, units: Iterable[Unit], workload: Workload) -> None:
        if workload.access != "sequential":
            raise ValueError(f"only models of sequential learners are averaged, not of {workload.access} ones")
        workload = replace(workload, averages=self._averages(workload))
        tasks = tasks_by_group(units)
        shares = {
            group: cut
            for number, (group, task) in enumerate(sorted(tasks.items()))
            if (cut := _shares(task, workload, number)) is not None
        }
        split = [unit for group in shares for unit in tasks[group].units]
        placed = {group: _placed(cut) for group, cut in shares.items()}
        whole = _whole({group: task for group, task in tasks.items() if group not in shares}, workload)
        # In every round all partitions wait for the last one, so no small group may train in between.
        jobs = Assignment(
            whole, split, placed, _progress_of_split(shares, workload, self._split), steal=True, by_epochs_from=1
        )
        super().__init__(workload, jobs)

    @staticmethod
    def _averages(workload: Workload) -> Averages:
        """Return the options of rounds that this operator uses."""
        return replace(workload.averages, staleness=0)

    @staticmethod
    def _split(unit: Unit, shares: Shares, workload: Workload, products: Products) -> UnitProgress:
        """Return the progress of a split unit."""
        rounds = rounds_of_epoch(shares.blocks, unit, workload)
        make_round = partial(_round, shares, workload, unit, rounds)
        return RoundProgress(unit, shares, workload.epochs, products, make_round, rounds)


#: Makes the progress of a split unit.
SplitProgress = Callable[[Unit, Shares, Workload, Products], UnitProgress]


def _shares(task: GroupTask, workload: Workload, turn: int) -> Shares | None:
    """Return the partitions of a group and their places; None where it stays whole.

    With more partitions than workers, neighbours share a place. With fewer, ``turn`` is the place of the first partition,
    so that groups do not all begin at the same worker.
    """
    unit, workers = task.units[0], workload.workers
    cuts = partitions_of(unit, workload)
    if len(cuts) < 2 or unit.stays_whole:
        return None
    if len(cuts) >= workers:
        return Shares(tuple(number * workers // len(cuts) for number in range(len(cuts))), cuts)
    return Shares(tuple((number + turn) % workers for number in range(len(cuts))), cuts)


def _placed(shares: Shares) -> Mapping[int, BlockRange]:
    """Return the blocks at each place, whose partitions are neighbours."""
    runs: defaultdict[int, list[BlockRange]] = defaultdict(list)
    for place, blocks in zip(shares.places, shares.blocks, strict=True):
        runs[place].append(blocks)
    return {place: BlockRange(found[0].first, found[-1].last) for place, found in runs.items()}


def _whole(tasks: Mapping[int, GroupTask], workload: Workload) -> list[list[GroupTask]]:
    """Return the tasks that stay whole, by the worker that begins with them."""
    items = [GroupSize(group, workload.rows_of(task.units[0]), splittable=False) for group, task in tasks.items()]
    placed = largest_first(items, {group: task.cost for group, task in tasks.items()}, workload.workers)
    return [[tasks[item] for item, _ in mine] for mine in placed.workers]


def _progress_of_split(shares: Mapping[int, Shares], workload: Workload, split: SplitProgress) -> MakeProgress:
    def progress(unit: Unit, places: Mapping[int, BlockRange], products: Products) -> UnitProgress:
        if any(place < 0 for place in places):  # a whole group on one worker
            return Sequential(unit, places, workload.epochs, products, workload.evaluate_epochs)
        return split(unit, shares[unit.group], workload, products)

    return progress


def partitions_of(unit: Unit, workload: Workload) -> tuple[BlockRange, ...]:
    """Return the nonempty blocks of each partition of a unit's rows."""
    return cut_evenly(blocks_of(workload.shared_rows_of(unit), workload.block_rows), workload.averages.partitions)


def rounds_of_epoch(partitions: Sequence[BlockRange], unit: Unit, workload: Workload) -> int:
    """Return the number of rounds in an epoch: in each, the partition with most batches processes as many as were asked for.

    A batch has rows of one block, as many as the unit's configs say.
    """
    asked, rows = workload.averages.batches, workload.shared_rows_of(unit)
    if not asked:
        return 1
    size = workload.batch_rows[unit.configs[0]]
    full = -(-workload.block_rows // size)

    def batches(blocks: BlockRange) -> int:
        last = rows_in(BlockRange(blocks.last - 1, blocks.last), rows, workload.block_rows)
        return (len(blocks) - 1) * full + -(-last // size)

    return max(1, -(-max(map(batches, partitions)) // asked))


def _round(shares: Shares, workload: Workload, unit: Unit, rounds: int, number: int) -> list[Stage]:
    """Return the stages of a round.

    The centre of a tree or star changes from unit to unit and, unless it needs the previous model, from round to round.
    """
    averages, judged = workload.averages, workload.evaluate_epochs
    stretch, turn = Part(number % rounds, rounds), unit.id + (0 if averages.from_before else number)
    light = judged and stretch.number == 0
    work = stages.work(shares, stages.pieces_of(averages.reduce, len(shares)), light, stretch)
    reduced = stages.reduce(shares, averages, turn, stretch)
    if not judged or stretch.number + 1 < rounds:
        return [work, *reduced]
    centre = shares.places[turn % len(shares)]
    return [work, *reduced, stages.evaluations("judge", shares), Stage((stages.RoundTask("update", centre, pieces=2),))]
