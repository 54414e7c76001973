"""A stack trained epoch by epoch: for what has no batched solver of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grouplearn.learners.base import AlgebraicLearner, Config, Interrupted, Problem, Solved
from grouplearn.learners.lanes import Watch
from grouplearn.learners.padded import Padded


def solve(
    learner: AlgebraicLearner, problem: Problem, configs: Sequence[Config], stack: Padded, watch: Watch
) -> Solved:
    """Return the models of ``configs`` for each group, by ``accumulate`` and ``step`` on (group, config) rows."""
    shape = (stack.n_groups, len(configs))
    everyone = tuple(configs) * stack.n_groups
    state = learner.init(problem, everyone)
    epochs, curve = np.zeros(len(everyone), np.int64), []
    for _ in range(problem.epochs):
        active = ~state.done
        if not active.any():
            break
        if watch.cancelled():
            raise Interrupted
        state = learner.step(problem, everyone, state, learner.accumulate(problem, everyone, state, stack))
        epochs += active
        curve.append(np.where(active, learner.losses(state), np.nan).reshape(shape))
        watch.report(int(active.sum()))
    return Solved(
        state.tensors["weights"].reshape(*shape, problem.n_outputs, problem.n_features),
        state.tensors["intercept"].reshape(*shape, problem.n_outputs),
        learner.losses(state).reshape(shape),
        epochs.reshape(shape),
        np.array(curve),
        state.done.reshape(shape),
    )


def solve_alike(
    learner: AlgebraicLearner, problem: Problem, configs: Sequence[Config], stack: Padded, watch: Watch
) -> Solved:
    """Return the models of ``configs`` for each group, together if no group breaks the stack, else each alone.

    A group that breaks has no models, and disturbs no other.
    """
    if learner.gathers(problem, configs):
        try:
            return solve(learner, problem, configs, stack, watch)
        except ArithmeticError:
            pass
    results = []
    for group in range(stack.n_groups):
        alone = Padded(stack.x[[group]], stack.y[[group]], stack.weight[[group]])
        try:
            results.append(solve(learner, problem, configs, alone, watch))
        except ArithmeticError:
            results.append(nothing(problem, len(configs)))
    return joined(results)


def nothing(problem: Problem, configs: int) -> Solved:
    """Return the result of one group all of whose models diverged in their first pass."""
    outputs, unknown = problem.n_outputs, np.full((1, configs), np.nan)
    weights = np.full((1, configs, outputs, problem.n_features), np.nan)
    intercept, epochs = np.full((1, configs, outputs), np.nan), np.ones((1, configs), np.int64)
    return Solved(weights, intercept, unknown, epochs, unknown[None], np.zeros((1, configs), np.bool_))


def joined(parts: Sequence[Solved]) -> Solved:
    """Return the results of several stacks as those of one."""
    passes = max(len(part.curve) for part in parts)
    curves = [
        np.concatenate([part.curve, np.full((passes - len(part.curve), *part.loss.shape), np.nan)]) for part in parts
    ]
    return Solved(
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.intercept for part in parts]),
        np.concatenate([part.loss for part in parts]),
        np.concatenate([part.epochs for part in parts]),
        np.concatenate(curves, axis=1),
        np.concatenate([part.converged for part in parts]),
    )


def taken(solved: Solved, groups: npt.NDArray[np.intp]) -> Solved:
    """Return the results of some groups, in that order."""
    return Solved(
        solved.weights[groups],
        solved.intercept[groups],
        solved.loss[groups],
        solved.epochs[groups],
        solved.curve[:, groups],
        solved.converged[groups],
    )


def of_configs(solved: Solved, configs: npt.NDArray[np.intp]) -> Solved:
    """Return the results of some configs, in that order."""
    return _turned(taken(_turned(solved), configs))


def over_configs(parts: Sequence[Solved], places: Sequence[npt.NDArray[np.intp]]) -> Solved:
    """Return results for different configs of the same groups as one; part i has the configs at ``places[i]``."""
    back = np.argsort(np.concatenate(places))
    turned = joined([_turned(part) for part in parts])
    return _turned(taken(turned, back))


def _turned(solved: Solved) -> Solved:
    """Return the result with groups and configs exchanged."""
    return Solved(
        solved.weights.swapaxes(0, 1),
        solved.intercept.swapaxes(0, 1),
        solved.loss.T,
        solved.epochs.T,
        solved.curve.swapaxes(1, 2),
        solved.converged.T,
    )
