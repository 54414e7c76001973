"""Coordinate descent for the linear learners; subclasses declare the loss, the allowed labels and the starting point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.kernels.linear.losses import Loss
from grouplearn.learners.contract.config import Config, Hyperparameter, Value, solver_named
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.ways import Descended, Round, RoundsLearner
from grouplearn.learners.linear import linear_model
from grouplearn.learners.linear.coordinate_descent import options, soundness, survey
from grouplearn.learners.linear.coordinate_descent import rounds as coordinates
from grouplearn.learners.linear.cost import COORDINATES
from grouplearn.learners.linear.linear_learner import LinearLearner
from grouplearn.models.state import Artifact, State, Tensors

#: Hyperparameters whose values the configs of a pack share.
_SHAPED_BY = (options.BLOCKS, linear_model.FIT_INTERCEPT, options.SELECTION, options.ACCELERATION)
SOLVER = solver_named("coordinate_descent", "Rendle, Fetterly, Shekita & Su 2016")


class CoordinateDescentLearner(LinearLearner, RoundsLearner):
    """Minimises Σ wᵢ·loss(yᵢ, xᵢ'w + b) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b), one block of columns after the other.

    One round updates one block of columns, usually an item of FEATURES, all its columns at once; see ``rounds``. The
    objective never rises.
    """

    solver: ClassVar[str] = "coordinate_descent"
    l2: ClassVar[Hyperparameter] = linear_model.GLM_L2
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        SOLVER,
        linear_model.L1,
        linear_model.GLM_L2,
        options.TOLERANCE,
        options.BLOCKS,
        options.SELECTION,
        options.ACCELERATION,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 1000
    cost: ClassVar[Cost] = COORDINATES
    handles_sparse: ClassVar[bool] = True

    def loss_of(self, problem: Problem) -> Loss:
        """Return the loss of each row, by its name in the kernels."""
        raise NotImplementedError

    def targets(self, problem: Problem, y: FloatArray) -> FloatArray:
        """Return the values (n, t) that the survey averages."""
        raise NotImplementedError

    def level(self, problem: Problem, observed: FloatArray, with_intercept: bool) -> FloatArray:
        """Return the score (K,) from which all rows start, from the averages of the targets (t,)."""
        raise NotImplementedError

    def check_labels(self, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError, with a reason a user understands, for labels (...,) that the loss cannot have."""
        del y, weight

    def explained(self, configs: Sequence[Config]) -> list[str]:
        """Return how many configs choose which item is next, as a line for EXPLAIN; nothing if none does."""
        choosing = sum(options.chooses([config]) for config in configs)
        if not choosing:
            return []
        of = (
            ""
            if choosing == len(configs) == 1
            else f" in {choosing} of {len(configs)} configurations, each a pack of its own"
        )
        return [f"selection = 'greedy'{of}: next is the item from which most is expected, by what it gained"]

    def knows_its_end(self, state: State, index: int) -> bool:
        """Return whether the gradient shows convergence, which requires a penalty; small gains are no proof, as they may
        last for thousands of epochs."""
        return coordinates.knows_its_end(state, index)

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (blocks, fit_intercept, selection, acceleration): these set the shape of the state.

        Where blocks are chosen by their gains, each config has its own order and forms its own pack: the key is all
        hyperparameters.
        """
        key = tuple(config.get(each.name, each.default) for each in _SHAPED_BY)
        if not options.chooses([config]):
            return key
        return (*key, *(config.get(each.name, each.default) for each in self.hyperparameters))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        return coordinates.init(problem, configs, self.loss_of(problem))

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid for these configs and columns."""
        return soundness.is_sound(state, self.init(problem, configs), configs, problem.n_features)

    def next_round(self, problem: Problem, configs: Sequence[Config], state: State) -> Round:
        """Return how many columns the next round has, and whether it ends an epoch."""
        del problem, configs
        return coordinates.next_round(state)

    def remember(self, problem: Problem, configs: Sequence[Config], state: State, shard: Shard | StoredShard) -> Any:
        """Return an empty memory; the first round that needs it fills it."""
        del problem, configs, state, shard
        return coordinates.Memory()

    def work(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
    ) -> Iterator[Tensors]:
        """Yield each shard's sums: of the survey, of a block, or of the end of an epoch.

        Raises ValueError in the survey for labels that the loss cannot have.
        """
        if coordinates.is_surveyed(state):
            yield from coordinates.work(self._group(problem, configs, state), state, cells)
            return
        for shard, _ in cells:
            y, weight = shard.labels()
            self.check_labels(y, weight)
            yield survey.survey(problem, configs, self.targets(problem, y), weight, shard)

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
        if coordinates.is_surveyed(state):
            return coordinates.take(self._group(problem, configs, state), state, parts, in_place=in_place)
        with_intercept = options.has_intercept(configs)
        level = self.level(problem, parts[0]["target_mean"], with_intercept)
        return survey.begin(problem, configs, state, parts[0], level, self.loss_of(problem))

    def descend(
        self,
        problem: Problem,
        configs: Sequence[Config],
        state: State,
        cells: Sequence[tuple[Shard | StoredShard, Any]],
        epochs: int,
    ) -> Descended:
        """Return the state after at most ``epochs`` epochs in one call of a kernel, and the objective after each."""
        return coordinates.descend(self._group(problem, configs, state), state, cells, epochs)

    def _group(self, problem: Problem, configs: Sequence[Config], state: State) -> Any:
        return coordinates.group_of(problem, configs, state, self.loss_of(problem), self.l2)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means or probabilities after the last epoch, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, *coordinates.models(state))
        return linear_model.inverse_link(problem.label, predictor, self.log_link)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` after its last epoch."""
        del problem, configs
        weights, intercept = coordinates.models(state)
        return Artifact("tensors", {"weights": weights[index].copy(), "intercept": intercept[index].copy()})
