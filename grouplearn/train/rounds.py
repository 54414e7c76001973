"""Rounds over a whole group: work on every cell, sums merged, parts reduced and taken.

A cell is a run of the group's blocks: there are ``MOST_CELLS`` at most, cut by the number of blocks alone, so that sums over a
cell, and over cells in the fixed tree of ``block_sums``, are the same whoever works on which of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from grouplearn.data.shard import Shard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.state import State, Tensors
from grouplearn.learners.contract.ways import RoundsLearner
from grouplearn.schedule.messages import Blocks
from grouplearn.train.block_sums import BlockSums

#: A group has so many cells at most.
MOST_CELLS = 64

Cell = tuple[Shard, Any]


def cells_of(n_blocks: int) -> list[Blocks]:
    """Return the cells of a group of so many blocks."""
    length = max(1, -(-n_blocks // MOST_CELLS))
    return [Blocks(first, min(first + length, n_blocks)) for first in range(0, n_blocks, length)]


@dataclass(frozen=True, slots=True)
class Rounds:
    """A pack's rounds in this process; ``check`` raises Interrupted when the run was cancelled."""

    learner: RoundsLearner
    problem: Problem
    configs: tuple[Config, ...]
    check: Callable[[], None]

    def cells(self, state: State, rows: Shard) -> list[Cell]:
        """Return the cells of a whole group, with what is remembered of each; those without rows are left out."""
        parts = [rows.part(each.first, each.last) for each in cells_of(rows.n_blocks)]
        kept = [part for part in parts if part.n_rows]
        if not kept:
            raise ValueError("there are no training rows")
        return [(part, self.learner.remember(self.problem, self.configs, state, part)) for part in kept]

    def prepared(self, state: State, cells: Sequence[Cell]) -> State:
        """Return the state after the rounds that come before the first epoch."""
        while self.learner.next_round(self.problem, self.configs, state).prepares:
            state = self.after_round(state, cells)
        return state

    def after_epoch(self, state: State, cells: Sequence[Cell], n_parts: int = 1) -> State:
        """Return the state after one epoch, round by round, and after what comes before the first."""
        ends = False
        while not ends:
            ends = self.learner.next_round(self.problem, self.configs, state).ends_epoch
            state = self.after_round(state, cells, n_parts)
        return state

    def after_round(self, state: State, cells: Sequence[Cell], n_parts: int = 1) -> State:
        """Return the state after one round, whose columns are reduced in so many parts."""
        learner, problem, configs = self.learner, self.problem, self.configs
        sums: BlockSums[Tensors] = BlockSums()
        for number, (rows, memory) in enumerate(cells):
            self.check()
            own = learner.work(problem, configs, state, rows, memory)
            sums = sums.merged(BlockSums.of(number, own), learner.merge)
        total = sums.total(len(cells), learner.merge)
        if total is None:
            raise ValueError("there are no training rows")
        columns = learner.next_round(problem, configs, state).columns
        cuts = np.linspace(0, columns, min(n_parts, columns) + 1).astype(int).tolist()
        parts = []
        for first, last in itertools.pairwise(cuts):
            own = total if len(cuts) == 2 else {name: value[first:last] for name, value in total.items()}
            parts.append(learner.reduce(problem, configs, state, own, first, last))
        return learner.take(problem, configs, state, parts)
