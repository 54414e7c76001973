"""Rounds over a whole group in this process: work on every cell, merge the sums, reduce them, take the result.

A cell is a run of the group's blocks that depends only on their number, so that sums over cells, merged in the fixed tree
of ``block_sums``, are the same whoever works on them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grouplearn.data.shard import Shard, StoredShard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import RoundsLearner
from grouplearn.models.state import State, Tensors
from grouplearn.schedule.rounds.cells import cells_of
from grouplearn.train.block_sums import BlockSums

Cell = tuple[Shard | StoredShard, Any]


class ColumnRange(NamedTuple):
    """The columns [first, last) of a round."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LocalRounds:
    """A pack's rounds in this process; ``check`` raises Interrupted if the run was cancelled."""

    learner: RoundsLearner
    problem: Problem
    configs: tuple[Config, ...]
    check: Callable[[], None]

    def cells(self, state: State, rows: Shard | StoredShard) -> list[Cell]:
        """Return the cells of a whole group that have rows, each with its memory."""
        parts = [rows.part(each.first, each.last) for each in cells_of(rows.n_blocks)]
        kept = [part for part in parts if part.n_rows]
        if not kept:
            raise ValueError("there are no training rows")
        return [(part, self.learner.remember(self.problem, self.configs, state, part)) for part in kept]

    def prepared(self, state: State, cells: Sequence[Cell]) -> State:
        """Return the state after the rounds that precede the first epoch."""
        while self.learner.next_round(self.problem, self.configs, state).prepares:
            state = self.after_round(state, cells)
        return state

    def is_within_epoch(self, state: State) -> bool:
        """Return whether some rounds of an epoch are done, but not all: the state of a checkpoint may be one."""
        return self.learner.next_round(self.problem, self.configs, state).within_epoch

    def after_round(self, state: State, cells: Sequence[Cell], n_parts: int = 1, *, in_place: bool = False) -> State:
        """Return the state after one round, whose columns are reduced in this many parts; ``in_place``: nobody else has it."""
        learner, problem, configs = self.learner, self.problem, self.configs
        sums: BlockSums[Tensors] = BlockSums()
        self.check()
        for number, own in enumerate(learner.work(problem, configs, state, cells)):
            sums = sums.merged(BlockSums.of(number, own), learner.merge)
            self.check()
        total = sums.total(len(cells), learner.merge)
        if total is None:
            raise ValueError("there are no training rows")
        cuts = parts_of(learner.next_round(problem, configs, state).columns, n_parts)
        parts = [
            learner.reduce(problem, configs, state, part_of(total, cut, len(cuts)), cut.first, cut.last) for cut in cuts
        ]
        return learner.take(problem, configs, state, parts, in_place=in_place)


def parts_of(columns: int, n_parts: int) -> list[ColumnRange]:
    """Return the columns of each part of a round, in at most this many parts."""
    cuts = np.linspace(0, columns, min(n_parts, columns) + 1).astype(int).tolist()
    return [ColumnRange(*cut) for cut in itertools.pairwise(cuts)]


def part_of(sums: Tensors, cut: ColumnRange, n_parts: int) -> Tensors:
    """Return the sums of some columns of a round; if it has one part, all sums."""
    return sums if n_parts == 1 else {name: value[cut.first : cut.last] for name, value in sums.items()}
