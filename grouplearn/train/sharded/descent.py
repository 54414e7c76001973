"""Steps of a learner in rounds on a split group: sums of cells, the reduction of some columns, the end of an epoch.

A worker remembers from round to round its state of a unit, and what the learner keeps of each cell, so that it takes only
the parts made in the last round. A worker that is new to a unit begins with the last state that an ``update`` made, after an
epoch or within a long one, and takes the parts of all rounds since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.ways import RoundsLearner
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import State, Tensors
from grouplearn.schedule.messages import BlockRange, EpochRound, Part, Step
from grouplearn.schedule.rounds.cells import cells_of
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.local_rounds import Cell, part_of, parts_of
from grouplearn.train.pack import EpochSums, Pack, Training, end_epoch, judge_blocks, settle, waited_values
from grouplearn.train.results.evaluation import Evaluation, evaluate
from grouplearn.train.rows.prepare import GroupOutline
from grouplearn.train.sharded.averaging import ModelPart, Pieces
from grouplearn.train.sharded.pushing import PushPart

#: The pieces of an update: the StateUpdate for workers that have the rounds, curves and best models so far, and the state.
_NEWS, _CURVES, _STATE = (Part(number, 3) for number in range(3))


@dataclass(frozen=True, slots=True)
class RoundPart:
    """A part of a round's reduced columns, possibly empty; ``ends_epoch``: it was the epoch's last round."""

    tensors: Tensors
    ends_epoch: bool


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """State ``number`` of a unit, for workers that have all ``rounds`` since the one before but the last: the ``parts`` of that
    one, and the training without its tensors."""

    number: int
    parts: tuple[Tensors, ...]
    rounds: int
    head: Training


#: The products of steps of a split group.
Product = Training | EpochSums | Evaluation | ModelPart | Pieces | PushPart | RoundPart | StateUpdate


class Takes:
    """The inputs of a step, fetched on demand; ``fetched`` counts bytes from other workers."""

    def __init__(self, fetch: Callable[[int, Part | None], tuple[Product, int]]) -> None:
        self._fetch = fetch
        self.fetched = 0

    def of(self, number: int, piece: Part | None = None) -> Any:
        """Return input ``number`` of the step, or a piece of it."""
        product, n_bytes = self._fetch(number, piece)
        self.fetched += n_bytes
        return product


@dataclass
class WorkerState:
    """A worker's state of a unit: ``rounds`` after the one that step ``origin`` made, which is the unit's state ``number``.

    ``done`` says which configs are done. ``own`` whether no product has the state's memory, so that rounds may change it.
    ``curves`` is the training with its curves, if they were taken. ``cells`` by number, with what is remembered of each.
    """

    origin: int = -1
    number: int = -1
    rounds: int = 0
    state: State | None = None
    done: npt.NDArray[np.bool_] | None = None
    own: bool = False
    curves: Training | None = None
    cells: dict[int, Cell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundStep:
    """A step of a pack that trains in rounds, on the worker's state ``reached``; ``cells`` are all cells with rows."""

    pack: Pack
    step: Step
    takes: Takes
    reached: WorkerState
    cells: Sequence[BlockRange]

    def make(self) -> Product:
        """Return the step's product; for ``finish``, the training and all sums of its evaluation."""
        match self.step.kind:
            case "work":
                return self._work()
            case "reduce":
                return self._reduce()
            case "judge":
                return EpochSums(metric=judge_blocks(self.pack, self._judged()))
            case "update":
                return self._update()
            case "evaluate":
                return evaluate(self.pack, self._training())
        raise ValueError(f"a step of kind {self.step.kind} makes no product")

    def finished(self) -> list[Product]:
        """Return the inputs of ``finish``: the training, and the sums of all evaluations."""
        evaluations = range(self._n_model, len(self.step.takes))
        return [self._training(), *(self.takes.of(number) for number in evaluations)]

    # The steps

    def _work(self) -> Pieces:
        state, learner = self._state(), self._learner
        sums: BlockSums[Tensors] = BlockSums()
        numbers = self._own_cells()
        cells = [self._cell(number, state) for number in numbers]
        self.pack.check()
        for number, own in zip(numbers, learner.work(*self._about, state, cells), strict=True):
            sums = sums.merged(BlockSums.of(number, own), learner.merge)
            self.pack.check()
        expected = learner.next_round(*self._about, state)
        if expected.within_epoch and self.step.partition is not None and self.step.partition.number == 0:
            self.pack.keep(self._training)  # scd 4.3: the master's checkpoint after every iteration
        cuts = parts_of(expected.columns, self.step.pieces)
        parts = [EpochSums(sums.each(partial(part_of, cut=cut, n_parts=len(cuts)))) for cut in cuts]
        return Pieces((*parts, *(EpochSums() for _ in range(self.step.pieces - len(parts)))))

    def _reduce(self) -> RoundPart:
        state, learner, part = self._state(), self._learner, self.step.piece or Part(0, 1)
        expected = learner.next_round(*self._about, state)
        cuts = parts_of(expected.columns, part.of)
        if part.number >= len(cuts):
            return RoundPart({}, expected.ends_epoch)
        sums: BlockSums[Tensors] = BlockSums()
        for number in range(self._n_model, len(self.step.takes)):
            own: EpochSums = _only(self.takes.of(number, part))
            sums = sums.merged(own.learner, learner.merge)
        total = sums.total(len(self.cells), learner.merge)
        if total is None:
            raise ValueError("there are no training rows")
        found = learner.reduce(*self._about, state, total, *cuts[part.number])
        return RoundPart(found, expected.ends_epoch)

    def _judged(self) -> Training:
        """Return the models after the epoch, which wait for their metric."""
        state, done = self._state(), cast("npt.NDArray[np.bool_]", self.reached.done)
        return Training(state, (), waiting=tuple(np.flatnonzero(~done).tolist()))

    def _update(self) -> Pieces:
        """Return the training after an epoch, or within a long one; of the two steps that make it, the first reports it."""
        pack, state, before = self.pack, self._state(), self._curves()
        if self.step.partition is not None and self.step.partition.number:
            pack = replace(pack, report=lambda _: None, keep=lambda _: None)
        last: list[RoundPart] = [self.takes.of(self._n_model - number) for number in range(self._place.parts, 0, -1)]
        if not last[-1].ends_epoch:
            return self._pieces(replace(before, state=state), last)
        active = np.flatnonzero(~before.state.done).tolist()
        ended = end_epoch(pack, replace(before, state=state), active, pack.learner.losses(state))
        judged: BlockSums[MetricSums] = BlockSums()
        for number in range(self._n_model, len(self.step.takes)):
            judged = judged.merged(self.takes.of(number).metric, metrics.merge)
        if judged.subtrees:
            ended = settle(pack, ended, waited_values(pack, ended, judged))
        pack.keep(lambda: ended)
        return self._pieces(ended, last)

    def _pieces(self, ended: Training, last: Sequence[RoundPart]) -> Pieces:
        at, self.reached.own = self._place, False
        parts = tuple(part.tensors for part in last if part.tensors)
        curves = replace(ended, state=State({}, ended.state.done))
        news = StateUpdate(self.reached.number + 1, parts, at.number, replace(curves, fits=()))
        return Pieces((news, curves, replace(ended, fits=())))

    # The worker's state

    def _state(self) -> State:
        """Return the state that the step needs; the worker keeps it."""
        found, at = self.reached, self._place
        if found.origin != self.step.takes[0] or found.rounds > at.number or found.state is None:
            self._begin_from_origin()
        while found.rounds < at.number:
            first = 1 + found.rounds * at.parts
            parts = [self.takes.of(number).tensors for number in range(first, first + at.parts)]
            found.state = self._taken([part for part in parts if part])
            found.rounds += 1
        return cast(State, found.state)

    def _begin_from_origin(self) -> None:
        found = self.reached
        origin = self.takes.of(0, _NEWS)
        if isinstance(origin, StateUpdate):
            if not self._follows(origin):
                found.state, found.own = self.takes.of(0, _STATE).state, False
            elif found.rounds < origin.rounds:
                found.state = self._taken(origin.parts)
            found.state = replace(cast(State, found.state), done=origin.head.state.done)
            found.curves, found.number = None, origin.number
        else:  # the initial state, in one piece
            found.state, found.curves, found.number = origin.state, origin, 0
            found.own = False
        found.done = cast(State, found.state).done
        found.origin, found.rounds = self.step.takes[0], 0

    def _follows(self, news: StateUpdate) -> bool:
        """Whether the worker's state lacks at most the last round before the new one."""
        found = self.reached
        near = found.state is not None and found.number + 1 == news.number
        return near and found.rounds in (news.rounds - 1, news.rounds)

    def _taken(self, parts: Sequence[Tensors]) -> State:
        found = self.reached
        state = self._learner.take(*self._about, cast(State, found.state), parts, in_place=found.own)
        found.own = True
        return state

    def _curves(self) -> Training:
        """Return the training after the last epoch, without its tensors."""
        if self.reached.curves is None:
            self.reached.curves = self.takes.of(0, _CURVES)
        return cast(Training, self.reached.curves)

    def _training(self) -> Training:
        """Return the training after the last epoch, or within the next."""
        state = self._state()
        return replace(self._curves(), state=state)

    # The step's inputs

    @property
    def _learner(self) -> RoundsLearner:
        return cast(RoundsLearner, self.pack.learner)

    @property
    def _about(self) -> tuple[Any, Any]:
        return self.pack.prepared.problem, self.pack.configs

    @property
    def _place(self) -> EpochRound:
        if self.step.round is None:
            raise ValueError(f"step {self.step.id} is of no round")
        return self.step.round

    @property
    def _n_model(self) -> int:
        """The number of the step's inputs that describe the model."""
        return 1 + self._place.number * self._place.parts

    def _own_cells(self) -> list[int]:
        rows = self.pack.prepared.train
        first, last = rows.first, rows.first + rows.n_blocks
        return [number for number, cell in enumerate(self.cells) if first <= cell.first and cell.last <= last]

    def _cell(self, number: int, state: State) -> Cell:
        if number not in self.reached.cells:
            cell = self.cells[number]
            rows = self.pack.prepared.train.part(cell.first, cell.last)
            self.reached.cells[number] = (rows, self._learner.remember(*self._about, state, rows))
        return self.reached.cells[number]


def cells_with_rows(decided: GroupOutline) -> list[BlockRange]:
    """Return the cells of a group that have training rows, in order."""
    cuts = decided.train_cuts
    return [each for each in cells_of(decided.n_blocks) if cuts[each.last] > cuts[each.first]]


def own_blocks(decided: GroupOutline, step: Step) -> BlockRange:
    """Return the blocks of the cells that begin in a step's share; the last one also has those beyond the schedule's count."""
    if step.blocks is None or step.partition is None:
        return BlockRange(0, 0)
    ends_last = step.partition.number + 1 == step.partition.of
    end = decided.n_blocks if ends_last else step.blocks.last
    own = [each for each in cells_of(decided.n_blocks) if step.blocks.first <= each.first < end]
    return BlockRange(own[0].first, own[-1].last) if own else BlockRange(decided.n_blocks, decided.n_blocks)


def _only(product: Any) -> Any:
    """Return a piece of a product; a product in one piece may have been fetched in pieces."""
    return product.pieces[0] if isinstance(product, Pieces) else product
