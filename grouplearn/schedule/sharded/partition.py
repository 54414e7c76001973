"""Distributes rows to workers: wrap-around partitioning over runs of blocks (Li and Kumar 2021, 4.4 and 4.7)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grouplearn.schedule.messages import BlockRange


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The rows of a group, or of small groups that stay together (not ``splittable``)."""

    id: int
    rows: int
    splittable: bool = True


class PlacedGroup(NamedTuple):
    """A group, or some of its blocks, on a worker; ``blocks`` is None for a whole group."""

    group: int
    blocks: BlockRange | None


@dataclass(frozen=True, slots=True)
class Partition:
    """What each worker holds, in order, and the intended maximum of rows per worker, ``capacity``."""

    workers: tuple[tuple[PlacedGroup, ...], ...]
    capacity: float

    def shards(self) -> dict[int, dict[int, BlockRange]]:
        """Return for every split group the blocks of each worker that holds some."""
        shards: dict[int, dict[int, BlockRange]] = {}
        for worker, placed in enumerate(self.workers):
            for group, blocks in placed:
                if blocks is not None:
                    shards.setdefault(group, {})[worker] = blocks
        return shards


def blocks_of(rows: int, block_rows: int) -> int:
    """Return the number of blocks that ``rows`` rows are cut into; the last one may be shorter."""
    return -(-rows // block_rows)


def cut_evenly(blocks: int, shards: int) -> tuple[BlockRange, ...]:
    """Cut ``blocks`` blocks into ``shards`` runs that differ by at most one block; there are never more runs than blocks."""
    shards = max(1, min(shards, blocks))
    return tuple(BlockRange(blocks * each // shards, blocks * (each + 1) // shards) for each in range(shards))


def wrap_around(groups: Sequence[GroupSize], workers: int, block_rows: int, relaxed: bool = False) -> Partition:
    """Fill one worker after another up to C* rows; what does not fit goes to the next worker (Algorithm 1).

    C* = max(n / p, max n_i) (equation 2), so that no group is on two workers for longer than one pass over it takes. With
    ``relaxed``, C* = n / p: a group may be spread over many workers that work on it at the same time. Cut k is the legal
    cut (the end of a block or group) nearest to k C*, so that rounding does not accumulate: if all groups are splittable,
    no worker has more than C* and one block. Raises ValueError for fewer than one worker.
    """
    _check(workers)
    total = sum(group.rows for group in groups)
    # In units of 1/p row, so that k C* is exact.
    capacity = total if relaxed else max(total, workers * max((group.rows for group in groups), default=0))
    placed: list[list[PlacedGroup]] = [[] for _ in range(workers)]
    worker = end = 0
    for group in groups:
        start, end = end, end + group.rows
        blocks, begun = blocks_of(group.rows, block_rows), 0
        while worker < workers - 1 and (worker + 1) * capacity < end * workers:
            cut = max(begun, _nearest_cut((worker + 1) * capacity - start * workers, workers, group, block_rows))
            if cut > begun:
                placed[worker].append(_piece(group, begun, cut, blocks))
            begun, worker = cut, worker + 1
        if begun < blocks or not blocks:
            placed[worker].append(_piece(group, begun, blocks, blocks))
    return Partition(tuple(map(tuple, placed)), capacity / workers)


def constrained_wrap_around(groups: Iterable[GroupSize], workers: int, block_rows: int) -> Partition:
    """Cut group i into max(1, round(n_i p / n)) equal shards, largest group first, each to the emptiest worker (Algorithm 2).

    Shards of one group go to different workers. A group of fewer blocks has a shard per block. Raises ValueError for fewer
    than one worker.
    """
    _check(workers)
    by_size = sorted(groups, key=lambda group: (-group.rows, group.id))
    total = sum(group.rows for group in by_size)
    emptiest = [(0, worker) for worker in range(workers)]
    placed: list[list[PlacedGroup]] = [[] for _ in range(workers)]
    for group in by_size:
        blocks = blocks_of(group.rows, block_rows)
        shards = cut_evenly(blocks, shard_count(group.rows, total, workers) if group.splittable else 1)
        takers = [heapq.heappop(emptiest) for _ in shards]
        for (filled, worker), shard in zip(takers, shards, strict=True):
            placed[worker].append(_piece(group, shard.first, shard.last, blocks))
            heapq.heappush(emptiest, (filled + rows_in(shard, group.rows, block_rows), worker))
    return Partition(tuple(map(tuple, placed)), total / workers)


def largest_first(groups: Iterable[GroupSize], seconds: Mapping[int, float], workers: int) -> Partition:
    """Put whole groups, in decreasing order of ``seconds``, each on the worker with least to do (LPT, Graham 1969).

    Raises ValueError for fewer than one worker.
    """
    _check(workers)
    by_cost = sorted(groups, key=lambda group: (-seconds[group.id], group.id))
    least = [(0.0, worker) for worker in range(workers)]
    placed: list[list[PlacedGroup]] = [[] for _ in range(workers)]
    for group in by_cost:
        busy, worker = heapq.heappop(least)
        placed[worker].append(PlacedGroup(group.id, None))
        heapq.heappush(least, (busy + seconds[group.id], worker))
    return Partition(tuple(map(tuple, placed)), sum(group.rows for group in by_cost) / workers)


def shard_count(rows: int, total: int, workers: int) -> int:
    """Return max(1, round(n_i p / n)), halves rounded up."""
    return max(1, (2 * rows * workers + total) // (2 * total)) if total else 1


def rows_in(blocks: BlockRange | None, rows: int, block_rows: int) -> int:
    """Return how many of a group's ``rows`` rows are in ``blocks`` (None: all)."""
    return rows if blocks is None else min(rows, blocks.last * block_rows) - min(rows, blocks.first * block_rows)


def _check(workers: int) -> None:
    if workers < 1:
        raise ValueError(f"rows need at least one worker, not {workers}")


def _piece(group: GroupSize, first: int, last: int, blocks: int) -> PlacedGroup:
    return PlacedGroup(group.id, None if (first, last) == (0, blocks) else BlockRange(first, last))


def _nearest_cut(wanted: int, scale: int, group: GroupSize, block_rows: int) -> int:
    """Return the number of blocks before the legal cut of ``group`` nearest to row ``wanted / scale``."""
    blocks = blocks_of(group.rows, block_rows)
    below = min(max(0, wanted) // (scale * block_rows), blocks - 1) if group.splittable else 0
    above = below + 1 if group.splittable else blocks
    middle = scale * (below * block_rows + min(group.rows, above * block_rows))
    return below if 2 * wanted <= middle else above
