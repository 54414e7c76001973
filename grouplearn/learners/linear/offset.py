"""An offset is the last feature column, whose weight is 1: a known part of the score, which is neither learned nor penalised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray, Matrix, Shard, Stack
from grouplearn.kernels.algebra import exponential
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.losses.loss import Loss
from grouplearn.models.state import State, Tensors

#: The tensor of a state with the offset that all rows of a group have, 0 if it varies.
_CONSTANT = "constant_offset"


def held(problem: Problem) -> int:
    """Return the column of the offset, -1 without one."""
    return problem.n_features - 1 if problem.offset else -1


def of_rows(x: Matrix) -> FloatArray:
    """Return the offsets (n,) of rows."""
    column = x[:, -1]
    return np.asarray(column if isinstance(column, np.ndarray) else column.toarray().ravel(), np.float64)


def fixed(problem: Problem, weights: FloatArray) -> FloatArray:
    """Return weights (..., d) with that of the offset 1."""
    if not problem.offset:
        return weights
    found = weights.copy()
    found[..., -1] = 1.0
    return found


def taken_off(problem: Problem, rows: Shard) -> Shard:
    """Return rows for least squares: labels less the offset, whose column is 0."""
    if not problem.offset:
        return rows
    if isinstance(rows.x, np.ndarray):
        x = rows.x.copy()
        x[:, -1] = 0
    else:
        x = rows.x.copy()
        x.data = np.where(x.indices == x.shape[1] - 1, 0.0, x.data)
    return replace(rows, x=x, y=rows.y - of_rows(rows.x))


def stack_taken_off(problem: Problem, stack: Stack) -> Stack:
    """Return a stack for least squares, see ``taken_off``."""
    if not problem.offset:
        return stack
    x = stack.x.copy()
    x[:, -1] = 0
    return replace(stack, x=x, y=stack.y - of_rows(stack.x))


def beginning(problem: Problem, loss: Loss, stack: Stack, fit_intercept: bool) -> tuple[FloatArray, FloatArray]:
    """Return weights (G, 1, d) and intercepts (G, 1) of groups to begin at: the offset, and the mean label by the intercept.

    For a log link this is log(Σ ωy / Σ ω·exp(offset)); for others the score of the mean label less the mean offset.
    """
    weights, intercept = np.zeros((stack.n_groups, 1, problem.n_features)), np.zeros((stack.n_groups, 1))
    weights[:, :, -1] = 1.0
    if not fit_intercept:
        return weights, intercept
    offsets = of_rows(stack.x)
    total, labels = _sums(stack, stack.weight), _sums(stack, stack.weight * stack.y)
    with np.errstate(all="ignore"):
        if loss.log_link:
            largest = offsets.max(initial=0.0)
            exposed = _sums(stack, stack.weight * exponential(offsets - largest))
            intercept[:, 0] = loss.scores(loss.mean((labels / exposed)[:, None], True))[:, 0] - largest
        else:
            mean = loss.mean((labels / total)[:, None], True)
            intercept[:, 0] = loss.scores(mean)[:, 0] - _sums(stack, stack.weight * offsets) / total
    return weights, np.where(np.isfinite(intercept), intercept, 0.0)


def _sums(stack: Stack, values: FloatArray) -> FloatArray:
    """Return the sums (G,) of values of rows over groups."""
    of = np.repeat(np.arange(stack.n_groups), stack.sizes)
    return np.asarray(np.bincount(of, values, stack.n_groups), np.float64)


def settled(
    problem: Problem, stack: Stack, weights: FloatArray, intercept: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return models (G, C, 1, d) and (G, C, 1) with the weight 1 of the offset.

    The solver gives no weight to an offset that is the same in all rows of a group: its intercept then has it, too.
    """
    if not problem.offset:
        return weights, intercept
    first = stack.x[np.minimum(stack.start[:-1], len(stack.x) - 1), -1] if len(stack.x) else np.zeros(stack.n_groups)
    missing = weights[..., -1] == 0
    return fixed(problem, weights), intercept - np.where(missing, np.asarray(first, np.float64)[:, None, None], 0.0)


def begun(problem: Problem, state: State, sums: Tensors, fit_intercept: bool) -> State:
    """Return a state at the offset, where the first pass has taken moments; the intercept makes up for its mean."""
    mean, varies = float(sums["mean"][-1]), float(sums["square"][-1]) > 0
    tensors = {
        **state.tensors,
        "weights": fixed(problem, state.tensors["weights"]),
        "intercept": state.tensors["intercept"] - (mean if fit_intercept else 0.0),
        _CONSTANT: np.full(len(state.done), 0.0 if varies or not fit_intercept else mean),
    }
    return replace(state, tensors=tensors)


def stepped(problem: Problem, tensors: Tensors, active: npt.NDArray[np.intp]) -> Tensors:
    """Return the weights and intercepts after a step of the ``active`` models, see ``settled``."""
    intercept = tensors["intercept"].copy()
    intercept[active] -= tensors[_CONSTANT][active, None]
    return {"weights": fixed(problem, tensors["weights"]), "intercept": intercept}
