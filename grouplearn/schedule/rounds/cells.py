"""Cells: runs of a group's blocks that are summed as one, so that sums have the same bits on any number of workers."""

from __future__ import annotations

import itertools
import math

from grouplearn.schedule.messages import BlockRange

#: Most cells of a group, unless the square root of its blocks is larger: a thousand workers then still have work.
MOST_CELLS = 64


def cells_of(n_blocks: int) -> list[BlockRange]:
    """Return the cells of a group of ``n_blocks`` blocks."""
    length = cell_length(n_blocks)
    return [BlockRange(first, min(first + length, n_blocks)) for first in range(0, n_blocks, length)]


def work_items(blocks: BlockRange, n_blocks: int, most: int) -> tuple[BlockRange, ...]:
    """Return a share of a group of ``n_blocks`` cut into work items: at most ``most``, of whole cells, of about equal size."""
    length = cell_length(n_blocks)
    cells = range(blocks.first, blocks.last, length)
    count = max(1, min(most, len(cells)))
    ends = [blocks.first + len(cells) * number // count * length for number in range(1, count)]
    return tuple(BlockRange(*each) for each in itertools.pairwise((blocks.first, *ends, blocks.last)))


def cell_length(n_blocks: int) -> int:
    """Return the number of blocks per cell of a group of ``n_blocks``; the last cell may have fewer."""
    return max(1, -(-n_blocks // max(MOST_CELLS, math.isqrt(n_blocks))))
