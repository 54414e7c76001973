"""Generalised linear models epoch by epoch: all configs of a pack in every pass, by proximal Newton steps.

One epoch is one pass over the data. It sums the objective, its gradient and, for configs that use them, second derivatives,
each config at its own trial point; whole groups use the same solver (``kernels.generalised_linear``). The first pass sums
moments instead. From these follow, in closed form, the objective and its derivatives at the start (zero weights, the mean
label as prediction), and how the solver centres and scales features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Shard, Stack
from grouplearn.kernels.library import Stopped, calling_back
from grouplearn.kernels.linear import few_rows as few_rows_kernel
from grouplearn.kernels.linear import generalised_linear as kernel
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.linear import few_rows, linear_model, offset
from grouplearn.learners.linear.least_squares import moments
from grouplearn.learners.linear.solved import SolvedLinear
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors

#: Up to this many parameters per config the solver uses second derivatives; above, a diagonal and its recent steps.
DENSE_PARAMETERS = 256


def init(problem: Problem, configs: Sequence[Config]) -> State:
    """Return zero weights and an unknown loss."""
    n = len(configs)
    tensors = {
        "weights": np.zeros((n, problem.n_outputs, problem.n_features)),
        "intercept": np.zeros((n, problem.n_outputs)),
        "loss": np.full(n, np.nan),
    }
    return State(tensors, np.zeros(n, dtype=bool))


def has_solver(problem: Problem, configs: Sequence[Config], state: State) -> bool:
    """Return whether the solver's tensors of each config, if it has begun, are valid."""
    solver = state.tensors.get("solver")
    return solver is None or (solver.shape[:1] == (len(configs),) and _form(problem, configs).are_sound(solver))


def accumulate(loss: Loss, problem: Problem, configs: Sequence[Config], state: State, block: Shard) -> Tensors:
    """Return the moments of one block in the first pass; later ``kernel.Form.sums`` of the configs that are not done."""
    if "solver" not in state.tensors:
        return block_moments(problem, configs, loss.targets(block.y, problem.n_outputs), block)
    given = (block.x, block.y, block.weight, loss.name, state.tensors["solver"])
    sums = dict(_form(problem, configs).sums(*given, np.flatnonzero(~state.done)))
    return {**sums, **few_rows.of_block(block)} if _goes_by_rows(loss, problem, configs, state) else sums


def _goes_by_rows(loss: Loss, problem: Problem, configs: Sequence[Config], state: State) -> bool:
    """Return whether the configs that are not done are after the pass from which on few rows are seen as they are."""
    form, penalties = _form(problem, configs), _penalties(configs)
    if problem.offset:
        return False
    passes, rows = form.progress(state.tensors["solver"], np.flatnonzero(~state.done))
    until = few_rows_kernel.epochs_until(loss.name, form.outputs, rows, form.columns, dense=form.dense)
    return passes == until > 0 and bool((penalties.l1 + penalties.l2 > 0).any())


def block_moments(problem: Problem, configs: Sequence[Config], targets: FloatArray, block: Shard) -> Tensors:
    """Return the moments of one block with its ``targets`` (n, t), and its numbers of rows and stored values."""
    gram = n_parameters(problem, configs) <= DENSE_PARAMETERS
    sums = moments.block_moments(block.x, targets, block.weight, gram)
    return {**sums, "rows": np.array([block.n_rows, block.x.size], float)}


def merge(left: Tensors, right: Tensors) -> Tensors:
    """Return the sums of both."""
    if "mean" in left:
        return {**moments.merge_moments(left, right), "rows": left["rows"] + right["rows"]}
    return {
        name: np.concatenate([value, right[name]])
        if name.startswith(few_rows.PREFIX)
        else np.asarray(value + right[name])
        for name, value in left.items()
    }


def step(loss: Loss, problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> State:
    """Return the state after one pass: steps accepted or shortened, next trial points chosen.

    Raises Diverged in the first pass when the sums overflow.
    """
    form = _form(problem, configs)
    if "solver" not in state.tensors:
        moments.require_finite(sums)
        given, seen = state, sums
        state, sums = _begun(loss, configs, state, sums, form)
        if given.tensors["weights"].any() or given.tensors["intercept"].any():
            return _placed(form, state, sums)
        if problem.offset:
            return _placed(form, offset.begun(problem, state, seen, form.fit_intercept), sums)
    active = np.flatnonzero(~state.done)
    chosen = [configs[place] for place in active.tolist()]
    rates = linear_model.column(chosen, linear_model.LEARNING_RATE)
    stepped = form.step(
        loss.name, state.tensors["solver"], _penalties(chosen), rates, sums, active, offset.held(problem)
    )
    tensors, done = {**state.tensors, "solver": stepped.models}, state.done.copy()
    for name, value in zip(("weights", "intercept", "loss"), stepped[1:], strict=False):
        tensors[name] = tensors[name].copy()
        tensors[name][active] = value
    if problem.offset:
        tensors |= offset.stepped(problem, tensors, active)
    done[active] = stepped.finished
    if few_rows.NAMES[0] in sums:
        _solve_on_rows(loss.name, configs, sums, tensors, done)
    return State(tensors, done)


def _placed(form: kernel.EpochModels, state: State, sums: kernel.Sums) -> State:
    """Return a state whose models are first evaluated at its weights, not at zero."""
    given = zip(*(state.tensors[name] for name in ("solver", "weights", "intercept")), strict=True)
    models = np.stack([form.place(*each) for each in given])
    loss = form.objective_without_weights(state.tensors["solver"], sums)
    return replace(state, tensors={**state.tensors, "solver": models, "loss": loss})


def starts_in_vain(problem: Problem, configs: Sequence[Config], state: State, sums: Tensors) -> bool:
    """Return whether the weights with which a state began have no finite objective."""
    solver = state.tensors.get("solver")
    if solver is None or not _form(problem, configs).has_made_no_step(solver):
        return False
    return not all(np.isfinite(each).all() for name, each in sums.items() if name.startswith("sums"))


def _solve_on_rows(
    loss: str, configs: Sequence[Config], sums: Tensors, tensors: dict[str, Any], done: npt.NDArray[np.bool_]
) -> None:
    """Solve what has penalties and is not ``done`` on its rows; where that does not end, training goes on as it did."""
    penalties = _penalties(configs)
    left = np.flatnonzero(~done & (penalties.l1 + penalties.l2 > 0))
    if not left.size:
        return
    *found, converged = few_rows.solve(sums, loss, has_intercept(configs), few_rows.some_of(penalties, left))
    for name, value in zip(("weights", "intercept", "loss"), found, strict=True):
        tensors[name][left[converged]] = value[converged]
    done[left[converged]] = True


def _begun(
    loss: Loss, configs: Sequence[Config], state: State, sums: Tensors, form: kernel.EpochModels
) -> tuple[State, kernel.Sums]:
    """Return the state before the first step and the sums there: at zero weights both follow from the moments."""
    if loss.coupling is None or loss.mean_loss is None:
        raise TypeError(f"Newton's method does not train by {loss.name}")
    mean = loss.mean(sums["target_mean"], form.fit_intercept)
    residual = mean - sums["target_mean"][: len(mean)]
    known = (loss.scores(mean), residual, float(loss.mean_loss(sums["target_mean"], mean)), loss.coupling(mean))
    model, at_start = form.begin(loss.name, sums, tuple(sums["rows"].tolist()), *known)
    models = model if len(configs) == 1 else np.repeat(model, len(configs), axis=0)  # a copy takes long if wide
    tensors = {**state.tensors, "solver": models}
    by_config = {name: np.repeat(at_start[name], len(configs), axis=0) for name in ("sums", "curvature")}
    return State(tensors, state.done), {**by_config, "sampled": at_start["sampled"]}


def solve(
    loss: Loss,
    problem: Problem,
    configs: Sequence[Config],
    stack: Stack,
    report: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> SolvedLinear:
    """Return the models of a stack; configs that differ only in what the solver ignores (learning_rate) are solved once.

    They begin at the weights in the ``before`` of the stack. Raises Interrupted.
    """
    shape = (stack.n_groups, len(configs))
    solved = SolvedLinear(
        np.empty((*shape, problem.n_outputs, problem.n_features)),
        np.empty((*shape, problem.n_outputs)),
        np.empty(shape),
        np.empty(shape, np.int64),
        np.empty((0, *shape)),
        np.empty(shape, np.bool_),
    )
    curve, before = solved.curve, stack.before or {}
    with_intercept = linear_model.column(configs, linear_model.FIT_INTERCEPT)
    for fit_intercept in np.unique(with_intercept):
        places = np.flatnonzero(with_intercept == fit_intercept)
        first, of = _distinct([configs[place] for place in places.tolist()])
        chosen = [configs[place] for place in places[first].tolist()]
        begin = (before["weights"], before["intercept"]) if before else None
        if problem.offset and begin is None:
            begin = offset.beginning(problem, loss, stack, bool(fit_intercept))
        try:
            models = kernel.solve(
                stack.x,
                stack.y,
                stack.weight,
                stack.start,
                loss=loss.name,
                outputs=problem.n_outputs,
                fit_intercept=bool(fit_intercept),
                penalties=_penalties(chosen),
                epochs=problem.epochs,
                report=report,
                cancelled=cancelled,
                begin=begin,
                held=offset.held(problem),
            )
            with calling_back(_raising(cancelled)):
                if not problem.offset:
                    models = few_rows.finish(
                        models, stack, loss.name, bool(fit_intercept), _penalties(chosen), problem.epochs
                    )
        except Stopped:
            raise Interrupted from None
        weights, intercept = offset.settled(problem, stack, models.weights, models.intercept)
        solved.weights[:, places], solved.intercept[:, places] = weights[:, of], intercept[:, of]
        solved.loss[:, places], solved.epochs[:, places] = models.value[:, of], models.passes[:, of]
        solved.converged[:, places] = models.converged[:, of]
        longer = max(0, len(models.curve) - len(curve))
        curve = np.concatenate([curve, np.full((longer, *shape), np.nan)])
        curve[: len(models.curve), :, places] = models.curve[:, :, of]
    return replace(solved, curve=curve)


def _raising(cancelled: Callable[[], bool]) -> Callable[[], None]:
    """Return what kernels ask: it raises Stopped once ``cancelled()``."""

    def look() -> None:
        if cancelled():
            raise Stopped

    return look


def _penalties(configs: Sequence[Config]) -> kernel.GlmPenalties:
    columns = (linear_model.L1, linear_model.GLM_L2, linear_model.TOLERANCE)
    return kernel.GlmPenalties(*(linear_model.column(configs, each) for each in columns))


def _distinct(configs: Sequence[Config]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of configs with distinct penalties and tolerances, and for every config which of these it equals."""
    known: dict[tuple[float, ...], int] = {}
    columns = _penalties(configs)
    values = zip(columns.l1.tolist(), columns.l2.tolist(), columns.tolerance.tolist(), strict=True)
    of = np.array([known.setdefault(value, len(known)) for value in values], np.intp)
    return np.unique(of, return_index=True)[1], of


def _form(problem: Problem, configs: Sequence[Config]) -> kernel.EpochModels:
    """Return the shape of a model in training."""
    history = int(linear_model.column(configs[:1], linear_model.HISTORY)[0])
    dense = n_parameters(problem, configs) <= DENSE_PARAMETERS
    return kernel.EpochModels(problem.n_features, problem.n_outputs, has_intercept(configs), history, dense)


def n_parameters(problem: Problem, configs: Sequence[Config]) -> int:
    """Return the number of weights of a config, intercepts included."""
    return problem.n_outputs * (problem.n_features + int(has_intercept(configs)))


def has_intercept(configs: Sequence[Config]) -> bool:
    """Return whether the models of a pack have an intercept."""
    return bool(linear_model.column(configs[:1], linear_model.FIT_INTERCEPT)[0])
