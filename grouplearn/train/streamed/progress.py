"""What is kept of a group whose rows pass once: sums of a learner of one pass, or states of a learner that visits rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from grouplearn.data.arrivals import BoolArray
from grouplearn.data.shard import Shard
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import AlgebraicLearner, SequentialLearner
from grouplearn.models.state import State, Tensors
from grouplearn.train.block_sums import BlockSums

#: Numbers of configurations that share what is kept.
Pack = tuple[int, ...]


class Progress(Protocol):
    """What is kept of one group."""

    def take(self, rows: Shard, held: BoolArray) -> None:
        """Take further rows, of which ``held`` (n,) are held out."""
        ...

    def reached(self, numbers: Sequence[int], *, of_all: bool) -> tuple[State, Tensors | None]:
        """Return the state of some configurations of one pack at the end, and the sums that it is made from, if it is.

        It has learned from all rows if ``of_all``, else from those that are not held out.
        """
        ...


def packs_of(learner: Learner, configs: Sequence[Config]) -> list[Pack]:
    """Return the configurations whose sums, or states, are made in one go: those that differ in late hyperparameters alone."""
    late = {each.name for each in learner.declaration.hyperparameters if each.late or not learner.declaration.one_pass}
    packs: dict[object, list[int]] = {}
    for number, config in enumerate(configs):
        early = tuple(sorted((name, value) for name, value in config.items() if name not in late))
        packs.setdefault((learner.pack_key(config), early), []).append(number)
    return [tuple(pack) for pack in packs.values()]


def new_progress(learner: Learner, problem: Problem, configs: Sequence[Config], packs: Sequence[Pack]) -> Progress:
    """Return the progress of a group before its first row."""
    of_packs = {pack: tuple(configs[number] for number in pack) for pack in packs}
    if learner.declaration.one_pass:
        return _Sums(cast(AlgebraicLearner, learner), problem, of_packs)
    return _States(cast(SequentialLearner, learner), problem, of_packs)


@dataclass(slots=True)
class _Sums:
    """The sums of blocks, of rows that are held out and of others, in the order in which they come."""

    learner: AlgebraicLearner
    problem: Problem
    packs: dict[Pack, tuple[Config, ...]]
    sums: dict[tuple[Pack, bool], BlockSums[Tensors]] = field(default_factory=dict)

    def take(self, rows: Shard, held: BoolArray) -> None:
        for is_held in (False, True):
            part = _only(rows, held == is_held)
            for pack in self.packs if part.n_rows else ():
                self._add(pack, is_held, part)

    def _add(self, pack: Pack, is_held: bool, rows: Shard) -> None:
        learner, configs = self.learner, self.packs[pack]
        own = learner.accumulate(self.problem, configs, learner.init(self.problem, configs), rows)
        before: BlockSums[Tensors] = self.sums.get((pack, is_held), BlockSums())
        self.sums[pack, is_held] = before.merged(BlockSums.of(before.n_blocks, own), learner.merge)

    def reached(self, numbers: Sequence[int], *, of_all: bool) -> tuple[State, Tensors | None]:
        pack, learner = _pack_of(self.packs, numbers), self.learner
        parts = (self.sums.get((pack, is_held)) for is_held in ((False, True) if of_all else (False,)))
        found = [part.total(part.n_blocks, learner.merge) for part in parts if part is not None]
        totals = [total for total in found if total is not None]
        if not totals:
            raise ValueError("there are no training rows")
        configs = [self.packs[pack][pack.index(number)] for number in numbers]
        total = totals[0] if len(totals) == 1 else learner.merge(*totals)
        return learner.step(self.problem, configs, learner.init(self.problem, configs), total), total


@dataclass(slots=True)
class _States:
    """Two states: one has visited all rows, the other those that are not held out."""

    learner: SequentialLearner
    problem: Problem
    packs: dict[Pack, tuple[Config, ...]]
    states: dict[tuple[Pack, bool], State] = field(default_factory=dict)

    def take(self, rows: Shard, held: BoolArray) -> None:
        for pack, configs in self.packs.items():
            for of_all in (False, True):
                part = rows if of_all else _only(rows, ~held)
                if part.n_rows:
                    before = self.states.get((pack, of_all)) or self.learner.init(self.problem, configs)
                    self.states[pack, of_all] = self.learner.train(self.problem, configs, before, part, 0)

    def reached(self, numbers: Sequence[int], *, of_all: bool) -> tuple[State, Tensors | None]:
        pack = _pack_of(self.packs, numbers)
        found = self.states.get((pack, of_all))
        if found is None:
            raise ValueError("there are no training rows")
        places = [pack.index(number) for number in numbers]
        tensors = {name: each[places] if len(each) == len(pack) else each for name, each in found.tensors.items()}
        return State(tensors, found.done[places]), None


def _pack_of(packs: dict[Pack, tuple[Config, ...]], numbers: Sequence[int]) -> Pack:
    return next(pack for pack in packs if numbers[0] in pack)


def _only(rows: Shard, chosen: BoolArray) -> Shard:
    if chosen.all():
        return rows
    return Shard(rows.x[chosen], rows.y[chosen], rows.weight[chosen])
