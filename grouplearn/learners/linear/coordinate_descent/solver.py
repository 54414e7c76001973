"""Coordinate descent for linear models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Descended, Round, RoundsLearner
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.coordinate_descent import block_rounds, hyperparameters, state_checks, survey
from grouplearn.learners.linear.cost import COORDINATES
from grouplearn.learners.linear.linear_learner import LinearLearner
from grouplearn.learners.linear.one_against_rest import labels_of
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import Artifact, State, Tensors

#: Hyperparameters whose values the configs of a pack share.
_SHAPED_BY = (
    hyperparameters.BLOCKS,
    linear_model.FIT_INTERCEPT,
    hyperparameters.SELECTION,
    hyperparameters.ACCELERATION,
)


class CoordinateDescentSolver(LinearLearner, RoundsLearner):
    """Coordinate descent, one block of columns after the other.

    One round updates one block of columns, usually an item of FEATURES, all its columns at once; see ``block_rounds``. The
    objective never rises. For half the squared error a round on a pure block is its exact minimum (scd equation 3). The
    weights of a column of a softmax change together, each at most half as far as it could alone.
    """

    solver: ClassVar[str] = "coordinate_descent"
    source: ClassVar[str] = "Rendle, Fetterly, Shekita & Su 2016"
    summary: ClassVar[str] = ", by coordinate descent on blocks of columns"
    options: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.L1,
        linear_model.GLM_L2,
        hyperparameters.TOLERANCE,
        hyperparameters.BLOCKS,
        hyperparameters.SELECTION,
        hyperparameters.ACCELERATION,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 1000
    usual_cost: ClassVar[Cost] = COORDINATES
    needs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"is_smooth": "coordinate descent stops at its kinks, before the minimum; train it with another solver"}
    )

    def _targets(self, loss: Loss, problem: Problem, y: FloatArray) -> FloatArray:
        """Return the values (n, t) that the survey averages."""
        if not loss.by_class:
            return np.ascontiguousarray(loss.targets(y, problem.n_outputs))
        parts = [loss.targets(labels, 1) for labels in labels_of(problem, y)]
        return np.ascontiguousarray(np.concatenate(parts, axis=-1))

    def explained(self, configs: Sequence[Config]) -> list[str]:
        """Return how many configs choose which item is next, as a line for EXPLAIN; nothing if none does."""
        choosing = sum(hyperparameters.chooses([config]) for config in configs)
        if not choosing:
            return []
        of = (
            ""
            if choosing == len(configs) == 1
            else f" in {choosing} of {len(configs)} configurations, each a pack of its own"
        )
        return [f"selection = 'greedy'{of}: next is the item from which most is expected, by what it gained"]

    def proves_convergence(self, state: State, index: int) -> bool:
        """Return whether the gradient shows convergence, which requires a penalty; small gains are no proof, as they may
        last for thousands of epochs."""
        return block_rounds.proves_convergence(state, index)

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (blocks, fit_intercept, selection, acceleration), which set the shape of the state, and the loss, if configs
        choose it.

        Where blocks are chosen by their gains, each config has its own order and forms its own pack: the key is all
        hyperparameters.
        """
        key = (*(config.get(each.name, each.default) for each in _SHAPED_BY), *self.chosen_loss(config))
        if not hyperparameters.chooses([config]):
            return key
        return (*key, *(config.get(each.name, each.default) for each in self.declaration.hyperparameters))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        return block_rounds.init(problem, configs, self.loss(problem.label, configs[0]))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid for these configs and columns."""
        return state_checks.is_sound(state, self.init(problem, configs), configs, problem.n_features)

    def next_round(self, problem: Problem, configs: Sequence[Config], state: State) -> Round:
        """Return how many columns the next round has, and whether it ends an epoch."""
        del problem, configs
        return block_rounds.next_round(state)

    def remember(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard | StoredShard) -> Any:
        """Return an empty memory; the first round that needs it fills it."""
        del problem, configs, state, shard
        return block_rounds.Memory()

    def work(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
    ) -> Iterator[Tensors]:
        """Yield each shard's sums: of the survey, of a block, or of the end of an epoch.

        Raises ValueError in the survey for labels that have no loss.
        """
        if block_rounds.is_surveyed(state):
            yield from block_rounds.work(self._group(problem, configs, state), state, cells)
            return
        loss = self.loss(problem.label, configs[0])
        for shard, _ in cells:
            y, weight = shard.labels()
            self.check_labels(loss, y, weight)
            yield survey.survey(problem, configs, self._targets(loss, problem, y), weight, shard)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        return survey.merge(left, right)

    def reduce(
        self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors, first: int, last: int
    ) -> Tensors:
        """Return the sums unchanged: a block's weights, and the next block, follow from the sums of all its columns."""
        del problem, configs, state, first, last
        return sums

    def take(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        parts: Sequence[Tensors],
        *,
        in_place: bool = False,
    ) -> State:
        """Return the state after the round; raises Diverged after the survey where sums overflow."""
        if block_rounds.is_surveyed(state):
            return block_rounds.take(self._group(problem, configs, state), state, parts, in_place=in_place)
        with_intercept = hyperparameters.has_intercept(configs)
        loss = self.loss(problem.label, configs[0])
        level = loss.scores(loss.mean(parts[0]["target_mean"], with_intercept))
        if not with_intercept:  # any equal scores have the mean of a softmax
            level = np.zeros_like(level)
        return survey.begin(problem, configs, state, parts[0], level, loss)

    def descend(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
        epochs: int,
    ) -> Descended:
        """Return the state after at most ``epochs`` epochs in one call of a kernel, and the objective after each."""
        return block_rounds.descend(self._group(problem, configs, state), state, cells, epochs)

    def _group(self, problem: Problem, configs: Sequence[Config], state: State) -> Any:
        return block_rounds.group_of(problem, configs, state, self.loss(problem.label, configs[0]), self.objective.l2)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means or probabilities after the last epoch, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, *block_rounds.models(state))
        return linear_model.inverse_link(problem.label, predictor, self.declaration.log_link)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` after its last epoch."""
        del problem, configs
        weights, intercept = block_rounds.models(state)
        return Artifact("tensors", {"weights": weights[index].copy(), "intercept": intercept[index].copy()})
