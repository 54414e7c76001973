"""Generalised linear models as learners; subclasses add name, labels and which values these have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm, linear_model
from grouplearn.learners.linear.cost import GLM
from grouplearn.learners.linear.linear_learner import LinearStackLearner
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of


class GlmLearner(LinearStackLearner):
    """Minimises Σ wᵢ·loss(yᵢ, xᵢ'w + b) + l1·‖w‖₁ + ½·l2·‖w‖² over (w, b), for the loss of its ``family``.

    One epoch is one pass over the data, see ``glm``; the groups of a stack are solved in one call of a kernel, and what it does
    not end of few rows by another one, see ``few_rows``. Penalties and the reported weights are on the features as written.
    """

    solver: ClassVar[str] = "lbfgs"
    family: ClassVar[glm.Family]
    hyperparameters: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.LEARNING_RATE,
        linear_model.L1,
        linear_model.GLM_L2,
        linear_model.HISTORY,
        linear_model.TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 300
    cost: ClassVar[Cost] = GLM
    handles_sparse: ClassVar[bool] = True

    def check_labels(self, y: FloatArray, weight: FloatArray) -> None:
        """Raise ValueError, with a reason a user understands, for labels (...,) that the family cannot have."""
        del y, weight

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (history, fit_intercept): these set the shape of the state."""
        return tuple(config.get(each.name, each.default) for each in (linear_model.HISTORY, linear_model.FIT_INTERCEPT))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        return glm.init(problem, configs)

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid weights and a valid state of the solver."""
        return has_tensors_of(state, self.init(problem, configs)) and glm.has_solver(problem, configs, state)

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether the solver keeps a full Hessian per config: then small groups train together."""
        return glm.n_parameters(problem, configs) <= glm.DENSE_PARAMETERS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block in the first pass, the sums of losses and gradients later; see ``glm``.

        Raises ValueError in the first pass for labels that the family cannot have.
        """
        if "solver" not in state.tensors:
            self.check_labels(block.y, block.weight)
        return glm.accumulate(self.family, problem, configs, state, block)

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        return glm.merge(left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass; raises Diverged in the first one when the sums overflow."""
        return glm.step(self.family, problem, configs, state, sums)

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedLinear:
        """Return the models of every config on every group of a stack; see ``stacks.StackLearner``."""
        self.check_labels(stack.y, stack.weight)
        return glm.solve(self.family, problem, configs, stack, report, cancelled)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means or probabilities at the accepted parameters, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])
        return linear_model.inverse_link(problem.label, predictor, self.log_link)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` at its last accepted point."""
        del problem, configs
        return linear_model.artifact_of(state, index)
