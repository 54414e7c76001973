"""How learners train, by how they read rows: sums over rows, passes row by row, boosting, rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.ragged import Ragged
from grouplearn.data.shard import Shard, Stack, StoredShard, Totals
from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.access import BOOSTING, PASSES, ROUNDS, SUMS, AccessPattern
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Boosted, Gang, Stop
from grouplearn.learners.contract.cost import BatchCost, Cost
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.state import FloatArray, State, Tensors


@runtime_checkable
class AlgebraicLearner(Learner, Protocol):
    """Learns from sums over rows: an epoch is ``step(state, merge(accumulate(block) for each block))``."""

    access: ClassVar[AccessPattern] = SUMS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the sums of one block that the next step needs."""
        ...

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        ...

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one epoch; ``losses(state)`` then holds the objective per config."""
        ...


@runtime_checkable
class Solved(Protocol):
    """The finished models of a stack: G groups, each with the same C configs."""

    @property
    def loss(self) -> FloatArray:
        """The objective (G, C) at each model, NaN where there is none."""
        ...

    @property
    def epochs(self) -> npt.NDArray[np.int64]:
        """The passes over the rows (G, C) that each took."""
        ...

    @property
    def curve(self) -> FloatArray:
        """The objective (passes, G, C) after each of them, NaN once a model was finished."""
        ...

    @property
    def converged(self) -> npt.NDArray[np.bool_]:
        """Which models (G, C) ended because nothing was left to gain."""
        ...

    @property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Which groups (G,) have all their models; the others train alone, and say why."""
        ...

    def take(self, groups: npt.NDArray[Any]) -> Self:
        """Return the results of some groups, chosen or in that order."""
        ...

    def as_multiclass(self) -> Self:
        """Return models of two classes as ``Learner.as_multiclass`` does."""
        ...

    def tensors(self) -> Mapping[str, Ragged]:
        """Return the tensors of artifacts by name, those of all configs of the first group first."""
        ...


@runtime_checkable
class StackLearner(AlgebraicLearner, Protocol):
    """Trains every config on every group of a stack in one call, instead of epoch by epoch."""

    stacks: ClassVar[bool] = True

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether small groups of these configs may train together."""
        ...

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> Solved:
        """Return the models of ``configs`` for each group of ``stack``.

        ``problem`` is that of one group; all have equal (n_features, n_classes). A model does not
        depend on the other groups beyond rounding. ``report(n)`` is told of n further epochs, a model's epoch
        counting one. Raises Interrupted soon after ``cancelled()`` became true, and ValueError for labels that the
        learner cannot take.
        """
        ...

    def measure(
        self, problem: Problem, configs: Sequence[Config], stack: Stack, solved: Solved, wanted: Collection[str]
    ) -> Mapping[str, FloatArray]:
        """Return the ``wanted`` metrics, (G, C) each, of what ``solve`` returned on rows of the same groups.

        A metric is NaN where it is not defined, as in ``metrics.finish``.
        """
        ...


@runtime_checkable
class MomentsLearner(StackLearner, Protocol):
    """Needs nothing but moments of rows: folds cost no further pass."""

    has_moments: ClassVar[bool] = True

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups of a stack (G,) are to train alone: their ``sums`` do not say what their rows do."""
        ...

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> Solved:
        """Return the models from moments whose leading axes, any number, are in the result's place of G.

        For G groups with F folds: ``moments.fold_moments`` (G, F, ...) gives
        ``moments.leave_one_out`` (G, F + 1, ...), and ``weights`` are then (G, F + 1, C, k, d): of every fold's training
        rows, and last of all rows. Moments that are not finite or have no rows give NaN.
        """
        ...


@runtime_checkable
class SequentialLearner(Learner, Protocol):
    """Learns row by row (SGD)."""

    access: ClassVar[AccessPattern] = PASSES
    cost: ClassVar[Cost] = BatchCost()

    def train(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, epoch: int) -> State:
        """Return the state after one pass over the shard; the visiting order depends on (seed, epoch) alone."""
        ...


@runtime_checkable
class AveragingLearner(SequentialLearner, Protocol):
    """Learns row by row, and models that saw different rows of a group can be averaged, part by part.

    Here every tensor of ``averaged`` is averaged by weight and everything else is as in the first model; who keeps more says
    so in ``average``. The mean of parts is the part of the mean, to the bit, and the mean of equal models is that model.
    """

    averages: ClassVar[bool] = True
    #: Tensors of the state that are cut along their last axis: the parameters, and what the optimizer keeps of each.
    averaged: ClassVar[tuple[str, ...]]

    def part(self, state: State, number: int, of: int) -> Tensors:
        """Return the part ``number`` of ``of`` of a state; the first has everything that is not cut, and so ``losses``."""
        return averaging.cut(state.tensors, self.averaged, number, of)

    def average(self, parts: Sequence[Tensors], weights: Sequence[float]) -> Tensors:
        """Return the mean of the same part of several models, each weighted with the rows that it saw (sums of weights)."""
        return averaging.mean_of(parts, (*self.averaged, "loss"), weights)

    def of_parts(self, parts: Sequence[Tensors], done: npt.NDArray[np.bool_]) -> State:
        """Return the state of which these are all parts, in order."""
        return State(averaging.join(parts, self.averaged), done)

    def summed(self) -> tuple[str, ...]:
        """Return the tensors of which partitions push changes that add up (``averaging.with_push``): here all averaged ones."""
        return self.averaged


class Visit(NamedTuple):
    """Rows of one block in an ``epoch``: those at the places ``start`` to ``stop`` (half-open) of the order that it has there.

    ``begins``: they are the first that a model sees since it was averaged; losses are summed anew.
    """

    epoch: int
    start: int
    stop: int
    begins: bool = True


class Piece(NamedTuple):
    """The part ``number``, from 0 on, of ``of`` parts of a state or of sums."""

    number: int
    of: int


@runtime_checkable
class BatchesLearner(AveragingLearner, Protocol):
    """Can stop after any batch to be averaged, and hand over gradients in place of models.

    A batch is of ``batch_rows`` rows of one block, the same for all configs of a pack.
    """

    in_batches: ClassVar[bool] = True
    #: The tensors of the state that are what a model predicts with: the steps of averaging move these.
    parameters: ClassVar[tuple[str, ...]]

    def summed(self) -> tuple[str, ...]:
        """Return the tensors of which partitions push changes that add up: the parameters, and not what an optimizer keeps."""
        return self.parameters

    def batch_rows(self, config: Config) -> int:
        """Return the rows of a step."""
        ...

    def train_batches(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> State:
        """Return the state after the batches of one block that are visited: all of an epoch, in order, are ``train``.

        ``losses`` then holds the mean objective of the rows since ``visit.begins``.
        """
        ...

    def gradient(
        self, problem: Problem, configs: Sequence[Config], state: State, block: Shard, visit: Visit
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Return what is sent of the rows visited, at the models as they are: sums over rows in double precision.

        ``gradient`` (..., p) is cut along its last axis as parameters are, ``rows`` (1,) how many there are.
        """
        ...

    def started(self, problem: Problem, configs: Sequence[Config], tensors: Tensors, whole: Totals) -> Tensors:
        """Return a part of a state as its first step begins from it: with what the learner sets by the labels, once."""
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
        """Return a piece of the state after one step by the mean gradient of ``sums``; configs that are done stay as they are.

        ``state`` and ``sums`` have this piece of what is cut, and all else. ``losses`` then holds the objective before the step.
        """
        ...


def batch_rows(learner: Learner, configs: Sequence[Config]) -> tuple[int, ...]:
    """Return the rows of a batch of each config, where the learner goes by batches."""
    return tuple(map(learner.batch_rows, configs)) if isinstance(learner, BatchesLearner) else ()


@runtime_checkable
class DataParallelLearner(SequentialLearner, Protocol):
    """Learns row by row, and in a gang whose members have different rows: each batch is spread over all of them."""

    in_gangs: ClassVar[bool] = True

    def joined(self, gang: Gang) -> AbstractContextManager[Gang]:
        """Return the connection to the other members, and the gang that descends within it."""
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
    in_gangs: ClassVar[bool] = True

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
        """Run all rounds of every config; one round is one epoch of the curve. ``state`` is new, or one that was kept.

        In a gang ``shard`` is this member's rows, ``valid`` all held-out rows; every member returns the same models.
        """
        ...


class Round(NamedTuple):
    """What a state in training asks of the shards next: into how many ``columns`` its sums can be cut; whether it is the last
    of an epoch, after which ``losses`` are new; and whether it ``prepares`` the first, before which nobody can ``descend``."""

    columns: int
    ends_epoch: bool = False
    prepares: bool = False


class Descended(NamedTuple):
    """A state some epochs later: the objective after each of them (epochs, C), and how many each config took (C,)."""

    state: State
    curve: FloatArray
    epochs: npt.NDArray[np.int64]


@runtime_checkable
class RoundsLearner(Learner, Protocol):
    """Learns in rounds: each is *work* on every shard, its sums merged, each part of them *reduced*, all parts *taken* (scd 3.2).

    A round is ``take(state, [reduce(sums of part) for each part])`` of the merged ``work`` of all shards. A shard is one cell of
    a group: cells are cut by a rule of the number of blocks alone, so that who works on which of them changes no bit. Sums have
    the columns of the round as their first axis: a part is some of them, wherever it is reduced.
    """

    access: ClassVar[AccessPattern] = ROUNDS

    def next_round(self, problem: Problem, configs: Sequence[Config], state: State) -> Round:
        """Return what comes next."""
        ...

    def remember(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard | StoredShard) -> Any:
        """Return what is kept of a shard between rounds, which only ``work`` and ``descend`` touch: a cache of what follows from
        the state and the shard, so that one that is lost is made anew with the same bits."""
        ...

    def work(
        self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard | StoredShard, memory: Any
    ) -> Tensors:
        """Return one shard's sums in this round; work that is done twice gives the same."""
        ...

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        ...

    def reduce(
        self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors, first: int, last: int
    ) -> Tensors:
        """Return what becomes of the round's columns ``first`` to ``last`` (half-open), of which ``sums`` are."""
        ...

    def take(self, problem: Problem, configs: Sequence[Config], state: State, parts: Sequence[Tensors]) -> State:
        """Return the state after the round from all parts, in the order of their columns; it says which round comes next."""
        ...

    def descend(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
        epochs: int,
    ) -> Descended:
        """Return the state after up to so many epochs on a group whose shards and memories are all here: the same bits as
        round by round, without what a round costs besides its work."""
        ...
