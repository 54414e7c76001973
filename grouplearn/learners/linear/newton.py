"""Newton's method for linear models: a pass sums losses, gradients and second derivatives; small groups in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.learners.contract.config import Config, Hyperparameter, Value
from grouplearn.learners.contract.cost import Cost
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import glm, linear_model, one_against_rest
from grouplearn.learners.linear.cost import GLM, ONE_BY_ONE
from grouplearn.learners.linear.linear_learner import LinearStackLearner
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.losses.hinge import HINGE
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import Artifact, State, Tensors, has_tensors_of

_NO_SECOND_DERIVATIVES = "Newton's method needs its second derivatives"


class NewtonSolver(LinearStackLearner):
    """Proximal Newton steps, with second derivatives or, if a model has many weights, with a diagonal and recent steps (L-BFGS).

    One epoch is one pass over the data, see ``glm``; the groups of a stack are solved in one call of a kernel, and what it does
    not end of few rows by another one, see ``few_rows``. Penalties and the reported weights are on the features as written.
    """

    solver: ClassVar[str] = "lbfgs"
    summary: ClassVar[str] = ", with L1 and L2 penalties, by Newton's method"
    options: ClassVar[tuple[Hyperparameter, ...]] = (
        linear_model.LEARNING_RATE,
        linear_model.L1,
        linear_model.GLM_L2,
        linear_model.HISTORY,
        linear_model.TOLERANCE,
        linear_model.FIT_INTERCEPT,
    )
    default_epochs: ClassVar[int | None] = 300
    usual_cost: ClassVar[Cost] = GLM
    needs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"coupling": _NO_SECOND_DERIVATIVES, "mean_loss": "Newton's method needs its mean at the start"}
    )

    def _cost(self) -> Cost | None:
        return ONE_BY_ONE if any(loss.by_class for loss in self.usable_losses) else None

    def _trainer(self, problem: Problem, config: Config) -> tuple[Any, Loss]:
        """Return the module that trains a pack of such configs, and their loss."""
        loss = self.loss(problem.label, config)
        return (one_against_rest if loss.by_class else glm), loss

    def pack_key(self, config: Config) -> tuple[Value, ...]:
        """Return (history, fit_intercept), which set the shape of the state, and the loss, if configs choose it."""
        shape = (linear_model.HISTORY, linear_model.FIT_INTERCEPT)
        return (*(config.get(each.name, each.default) for each in shape), *self.chosen_loss(config))

    def init(self, problem: Problem, configs: Sequence[Config]) -> State:
        """Return zero weights and an unknown loss."""
        return glm.init(problem, configs)

    def starts_warm(self, configs: Sequence[Config]) -> bool:
        """Return whether no loss is the hinge, whose kink is approached by smooth losses in as many epochs from anywhere."""
        return HINGE.name not in (config.get("loss") for config in configs)

    def warm(self, problem: Problem, configs: Sequence[Config], model: Artifact) -> State | None:
        """Return the state that begins at the weights of a model; None if it has others."""
        begun = self.init(problem, configs)
        given = {name: np.repeat(each[None], len(configs), axis=0) for name, each in model.tensors.items()}
        state = replace(begun, tensors={**begun.tensors, **given})
        return state if has_tensors_of(state, begun) else None

    def resumes(self, problem: Problem, configs: Sequence[Config], state: State) -> bool:
        """Return whether the stored tensors are valid weights and a valid state of the solver."""
        trainer, _ = self._trainer(problem, configs[0])
        begun = self.init(problem, configs)
        return has_tensors_of(state, begun) and bool(trainer.has_solver(problem, configs, state))

    def gathers(self, problem: Problem, configs: Sequence[Config]) -> bool:
        """Return whether the solver keeps a full Hessian per config: then small groups train together."""
        by_class = self.loss(problem.label, configs[0]).by_class
        one = one_against_rest.of_two(problem) if by_class else problem
        return glm.n_parameters(one, configs) <= glm.DENSE_PARAMETERS

    def accumulate(self, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
        """Return the moments of one block in the first pass, the sums of losses and gradients later; see ``glm``.

        Raises ValueError in the first pass for labels that have no loss.
        """
        trainer, loss = self._trainer(problem, configs[0])
        if "solver" not in state.tensors:
            self.check_labels(loss, block.y, block.weight)
        sums: Tensors = trainer.accumulate(loss, problem, configs, state, block)
        return sums

    def merge(self, left: Tensors, right: Tensors) -> Tensors:
        """Return the sums of both."""
        return glm.merge(left, right)

    def step(self, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
        """Return the state after one pass; raises Diverged in the first one when the sums overflow."""
        if glm.starts_in_vain(problem, configs, state, sums):
            begun = self.init(problem, configs)
            return replace(begun, tensors={**begun.tensors, "loss": state.tensors["loss"]})
        trainer, loss = self._trainer(problem, configs[0])
        stepped: State = trainer.step(loss, problem, configs, state, sums)
        return stepped

    def solve(
        self,
        problem: Problem,
        configs: Sequence[Config],
        stack: Stack,
        report: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> SolvedLinear:
        """Return the models of every config on every group of a stack; see ``stacks.StackLearner``."""
        chosen = [self.chosen_loss(config) for config in configs]
        parts: dict[tuple[int, ...], SolvedLinear] = {}
        for each in dict.fromkeys(chosen):
            places = tuple(place for place, other in enumerate(chosen) if other == each)
            own = [configs[place] for place in places]
            trainer, loss = self._trainer(problem, own[0])
            self.check_labels(loss, stack.y, stack.weight)
            parts[places] = trainer.solve(loss, problem, own, stack, report, cancelled)
        return SolvedLinear.of_configs(parts)

    def scores(self, problem: Problem, configs: Sequence[Config], state: State, x: Matrix) -> FloatArray:
        """Return the predicted means or probabilities at the accepted parameters, shape (n, n_configs, n_outputs)."""
        del configs
        predictor = linear_model.linear_predictor(x, state.tensors["weights"], state.tensors["intercept"])
        return linear_model.inverse_link(problem.label, predictor, self.declaration.log_link)

    def finalize(self, problem: Problem, configs: Sequence[Config], state: State, index: int) -> Artifact:
        """Return ``weights`` (k, d) and ``intercept`` (k,) of config ``index`` at its last accepted point."""
        del problem, configs
        return linear_model.artifact_of(state, index)
