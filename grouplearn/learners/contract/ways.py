"""How learners train, by how they read rows: sums over rows, passes row by row, boosting, rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import Shard, Stack, StoredShard
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


@runtime_checkable
class MomentsLearner(StackLearner, Protocol):
    """Needs nothing but moments of rows: folds cost no further pass."""

    has_moments: ClassVar[bool] = True

    def unclear(self, configs: Sequence[Config], sums: Tensors, stack: Stack) -> npt.NDArray[np.bool_]:
        """Return which groups of a stack (G,) are to train alone: their ``sums`` do not say what their rows do."""
        ...

    def solve_moments(self, problem: Problem, configs: Sequence[Config], sums: Tensors) -> Solved:
        """Return the models from moments whose leading axes, any number, are in the result's place of G.

        For G groups with F folds: one ``moments.stack_moments`` of the folds' rows, reshaped to (G, F, ...), gives
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

    def remember(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard) -> Any:
        """Return what is kept of a shard between rounds, which only ``work`` and ``descend`` touch: a cache of what follows from
        the state and the shard, so that one that is lost is made anew with the same bits."""
        ...

    def work(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard, memory: Any) -> Tensors:
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
        cells: Sequence[tuple[Shard, Any]],
        epochs: int,
    ) -> Descended:
        """Return the state after up to so many epochs on a group whose shards and memories are all here: the same bits as
        round by round, without what a round costs besides its work."""
        ...


def _lengthened(curve: FloatArray, passes: int) -> FloatArray:
    """Return a curve (n, G, C) of so many passes, without numbers after its last."""
    return np.concatenate([curve, np.full((passes - len(curve), *curve.shape[1:]), np.nan)])


@dataclass(frozen=True, slots=True)
class Solved:
    """The finished models of a stack: G groups, each with the same C configs.

    ``weights`` (G, C, k, d) and ``intercept`` (G, C, k); ``loss`` (G, C) is the objective there, NaN where a model
    diverged; ``epochs`` (G, C) counts the passes over the rows that each took; ``curve`` (passes, G, C) is the objective
    after each of them, NaN once a model was finished. ``converged`` (G, C): it ended because nothing was left to gain.
    """

    weights: FloatArray
    intercept: FloatArray
    loss: FloatArray
    epochs: npt.NDArray[np.int64]
    curve: FloatArray
    converged: npt.NDArray[np.bool_]

    def take(self, groups: npt.NDArray[Any]) -> Solved:
        """Return the results of some groups, chosen or in that order."""
        return Solved(
            self.weights[groups],
            self.intercept[groups],
            self.loss[groups],
            self.epochs[groups],
            self.curve[:, groups],
            self.converged[groups],
        )

    @classmethod
    def of_configs(cls, parts: Mapping[tuple[int, ...], Solved]) -> Solved:
        """Return as one the results of some configs each, by their places among all."""
        if len(parts) == 1:
            return next(iter(parts.values()))
        order = np.argsort([place for places in parts for place in places])
        passes = max(len(part.curve) for part in parts.values())
        curves = [_lengthened(part.curve, passes) for part in parts.values()]

        def placed(name: str) -> npt.NDArray[Any]:
            return np.concatenate([getattr(part, name) for part in parts.values()], axis=1)[:, order]

        return cls(
            placed("weights"),
            placed("intercept"),
            placed("loss"),
            placed("epochs"),
            np.concatenate(curves, axis=2)[:, :, order],
            placed("converged"),
        )

    @classmethod
    def joined(cls, parts: Sequence[Solved]) -> Solved:
        """Return the results of several stacks as those of one."""
        if len(parts) == 1:
            return parts[0]
        passes = max(len(part.curve) for part in parts)
        curves = [_lengthened(part.curve, passes) for part in parts]
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.intercept for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate([part.epochs for part in parts]),
            np.concatenate(curves, axis=1),
            np.concatenate([part.converged for part in parts]),
        )
