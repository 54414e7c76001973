"""Learners by access pattern: sums over rows, passes row by row, boosting, rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, StoredShard, Totals
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.access import BOOSTING, PASSES, ROUNDS, SUMS, AccessPattern
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Boosted, Gang, Stop
from grouplearn.learners.contract.cost import BatchCost, Cost
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.state import FloatArray, State, Tensors


@runtime_checkable
class AlgebraicLearner(Learner, Protocol):
    """Learns from sums over rows: an epoch is ``step(state, merge(accumulate(block) for each block))``."""

    access: ClassVar[AccessPattern] = SUMS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the sums over one block that the next step needs."""
        ...

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        ...

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one epoch; ``losses(state)`` then holds the objective per config."""
        ...


@runtime_checkable
class SequentialLearner(Learner, Protocol):
    """Learns row by row (SGD)."""

    access: ClassVar[AccessPattern] = PASSES
    usual_cost: ClassVar[Cost] = BatchCost()

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass over the shard; the visiting order depends only on (seed, epoch)."""
        ...


@runtime_checkable
class AveragingLearner(SequentialLearner, Protocol):
    """Learns row by row, and models trained on different rows of a group can be averaged, part by part.

    By default every tensor of ``averaged`` is averaged by weight and everything else is the first model's; learners that
    keep more override ``average``. The mean of parts is bit for bit the part of the mean, and the mean of equal models is
    that model.
    """

    #: State tensors that are cut along their last axis: the parameters, and the optimizer's values for each.
    averaged: ClassVar[tuple[str, ...]]

    def part(self, state: State, number: int, of: int) -> Tensors:
        """Return part ``number`` of ``of`` of a state; the first has everything that is not cut, such as ``losses``."""
        return averaging.cut(state.tensors, self.averaged, number, of)

    def average(self, parts: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        """Return the mean of the same part of several models, each weighted with its rows (sums of weights)."""
        return averaging.mean_of(parts, (*self.averaged, "loss"), weights)

    def of_parts(self, parts: Sequence[Tensors], done: npt.NDArray[np.bool_]) -> State:
        """Return the state from all its parts in order."""
        return State(averaging.join(parts, self.averaged), done)

    def summed(self) -> tuple[str, ...]:
        """Return the tensors whose pushed changes are added (``averaging.with_push``): by default all averaged ones."""
        return self.averaged


class Visit(NamedTuple):
    """Rows of one block in an ``epoch``: places [start, stop) of the block's order in it.

    ``begins``: they are the first since the model was averaged, so that sums of losses restart.
    """

    epoch: int
    start: int
    stop: int
    begins: bool = True


class Piece(NamedTuple):
    """Part ``number``, from 0, of ``of`` parts of a state or of sums."""

    number: int
    of: int


@runtime_checkable
class BatchesLearner(AveragingLearner, Protocol):
    """Can stop after any batch to be averaged, and return gradients instead of models.

    A batch has ``batch_rows`` rows of one block, the same for all configs of a pack.
    """

    #: The state tensors that a model predicts with, which the steps of averaging change.
    parameters: ClassVar[tuple[str, ...]]

    def summed(self) -> tuple[str, ...]:
        """Return the tensors whose pushed changes are added: the parameters, not the optimizer's values."""
        return self.parameters

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass: by default ``train_batches``, which then gets several blocks in full."""
        return self.train_batches(problem, configs, state, shard, Visit(epoch, 0, shard.n_rows, begins=False))

    def batch_rows(self, config: Config) -> int:
        """Return the rows of a step."""
        ...

    def train_batches(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> State:
        """Return the state after some batches of a block; all batches of an epoch in order equal ``train``.

        ``losses`` then holds the mean objective of the rows since ``visit.begins``.
        """
        ...

    def gradient(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Return the gradient at the current models over the visited rows, as sums in double precision.

        ``gradient`` (..., p) is cut along its last axis like parameters; ``rows`` (1,) is their number.
        """
        ...

    def started(self, problem: Problem, configs: Sequence[Config], tensors: Tensors, whole: Totals) -> Tensors:
        """Return part of a state as it is before its first step, with what the learner initialises once from the labels."""
        del problem, configs, whole
        return tensors

    def stepped(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        sums: Tensors,
        whole: Totals,
        piece: Piece,
    ) -> State:
        """Return a piece of the state after one step by the mean gradient in ``sums``; finished configs do not change.

        ``state`` and ``sums`` have this piece of what is cut, and all else. ``losses`` then holds the objective before the
        step.
        """
        ...


def batch_rows(learner: Learner, configs: Sequence[Config]) -> tuple[int, ...]:
    """Return the batch size of each config, if the learner uses batches."""
    return tuple(map(learner.batch_rows, configs)) if isinstance(learner, BatchesLearner) else ()


@runtime_checkable
class DataParallelLearner(SequentialLearner, Protocol):
    """Learns row by row, also in a gang whose members have different rows: each batch is spread over all members."""

    def joined(self, gang: Gang) -> AbstractContextManager[Gang]:
        """Return the context that connects the members, within which the gang calls ``descend``."""
        ...

    def descend(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int, gang: Gang
    ) -> State:
        """Return the state after one pass of the gang over all its rows, the same for every member."""
        ...


@runtime_checkable
class SamplingLearner(Learner, Protocol):
    """Learns by boosting on (sampled) statistics."""

    access: ClassVar[AccessPattern] = BOOSTING

    def boost(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        shard: Shard | StoredShard,
        valid: Shard | StoredShard | None,
        stop: Stop,
        gang: Gang | None = None,
    ) -> tuple[State, Boosted]:
        """Run all rounds of every config; a round is one epoch of the curve. ``state`` is new, or a checkpoint.

        In a gang ``shard`` has this member's rows, ``valid`` all held-out rows; every member returns the same models. With
        ``stop.carries`` the returned state has what ``trial_state`` returns.
        """
        ...

    def continues(self, config: Config) -> bool:
        """Return whether ``trial_state`` returns states of such a config; else more rounds are trained from the first one."""
        del config
        return False

    def trial_state(self, state: State, index: int) -> State | None:
        """Return the state from which config ``index`` trains more rounds, bit for bit as in one training; None: from none."""
        del state, index
        return None

    def pack_state(self, states: Sequence[State]) -> State:
        """Return the state of a pack from those of its configs (``trial_state``)."""
        (state,) = states
        return state


def goes_on(learner: Learner, config: Config) -> bool:
    """Return whether a trial's training goes on from one rung of a search to the next, unless rungs are of rows."""
    return not isinstance(learner, SamplingLearner) or learner.continues(config)


class Round(NamedTuple):
    """The next round of a state: into how many ``columns`` its sums can be cut; whether it is the last of an epoch, after
    which ``losses`` are new; whether it ``prepares`` the first epoch; and whether the state is ``within_epoch``, after some
    of its rounds. ``descend`` takes only states between two epochs, where it is neither."""

    columns: int
    ends_epoch: bool = False
    prepares: bool = False
    within_epoch: bool = False


class Descended(NamedTuple):
    """A state some epochs later: the objective after each (epochs, C), and the epochs of each config (C,).

    ``models``: None, or a state of the models after each epoch, those of all configs that were not done after the first
    epoch first.
    """

    state: State
    curve: FloatArray
    epochs: npt.NDArray[np.int64]
    models: State | None = None


@runtime_checkable
class EpochsLearner(Learner, Protocol):
    """A sequential learner that runs several epochs over a block of rows in one call."""

    def train_epochs(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        block: Shard,
        epochs: range,
        *,
        keeps_models: bool,
    ) -> Descended:
        """Return the state after these epochs over the only block of a group, or sooner, when a config is done.

        It has the bits of as many calls of ``SequentialLearner.train``. With ``keeps_models`` the result has the models
        after each epoch.
        """
        ...


@runtime_checkable
class RoundsLearner(Learner, Protocol):
    """Learns in rounds: *work* on every shard, its sums merged, each part of them *reduced*, all parts *taken* (scd 3.2).

    A round is ``take(state, [reduce(sums of part) for each part])`` of the merged ``work`` of all shards. A shard is one
    cell of a group: cells depend only on the number of blocks, so that it does not matter who works on which. The sums'
    first axis is the round's columns: a part is some of them, wherever it is reduced.
    """

    access: ClassVar[AccessPattern] = ROUNDS

    def next_round(self, problem: Problem, configs: Sequence[Config], state: State) -> Round:
        """Return the next round."""
        ...

    def remember(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard | StoredShard) -> Any:
        """Return what is kept of a shard between rounds and used only by ``work`` and ``descend``: a cache that can be
        rebuilt from the state and the shard with the same bits."""
        ...

    def work(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
    ) -> Iterator[Tensors]:
        """Yield the sums of some shards in this round, each given with its memory; repeating it gives the same sums."""
        ...

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        ...

    def reduce(
        self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors, first: int, last: int
    ) -> Tensors:
        """Return the reduced ``sums`` of the round's columns [first, last)."""
        ...

    def take(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        parts: Sequence[Tensors],
        *,
        in_place: bool = False,
    ) -> State:
        """Return the state after the round, from all parts in the order of their columns.

        ``in_place``: nobody else has this state, so that the new one may use its memory.
        """
        ...

    def descend(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
        epochs: int,
    ) -> Descended:
        """Return the state after up to this many epochs on a group whose shards and memories are all here: bit for bit as
        round by round, without the overhead of rounds."""
        ...
