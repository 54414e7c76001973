"""Proximal Newton steps for the models of a stack with an l1 penalty, each group's configs one after another.

All groups step together: gradient and Hessian of the loss in one batched pass, then the minimum of their quadratic model
plus penalties by ``quadratic.minimise``, from where the config before ended. Lee, Sun & Saunders 2014.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners import quadratic
from grouplearn.learners.base import Interrupted
from grouplearn.learners.lanes import IndexArray, Record, Watch
from grouplearn.learners.row_loss import Rows

#: Share of the predicted fall that a step must reach (Armijo), and rounding of an objective, relative to it.
_SUFFICIENT, _ROUNDING = 1e-4, 1e-14
#: Added to the diagonal, relative to it: adding the same to all scores of a softmax leaves it alone.
_RIDGE = 1e-9
#: Halvings of a step before a config is left where it is, and rounds of each model's minimisation.
_MAX_RETRIES, _MODEL_ROUNDS = 30, 4


@dataclass(frozen=True)
class Problem:
    """Minimise Σ loss + Σ penalty·|u| + ½ Σ ridge·u² for ``rows`` of G groups.

    ``penalty`` and ``ridge`` (G, C, P) in the order of training, ``tolerance`` (C,) as in ``lanes.Task``.
    """

    rows: Rows
    penalty: FloatArray
    ridge: FloatArray
    tolerance: FloatArray
    epochs: int

    def take(self, groups: IndexArray) -> Problem:
        """Return the problem of some groups."""
        return replace(self, rows=self.rows.take(groups), penalty=self.penalty[groups], ridge=self.ridge[groups])


@dataclass
class _Models:
    """The model in training of each group (M,): its config, point (M, P), loss with derivatives there, and next step."""

    group: IndexArray
    config: IndexArray
    passes: IndexArray
    retries: IndexArray
    point: FloatArray
    loss: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    step: FloatArray
    slope: FloatArray
    promised: FloatArray

    def take(self, kept: IndexArray) -> _Models:
        """Return some of the models."""
        return _Models(*(getattr(self, each.name)[kept] for each in fields(self)))


def train(problem: Problem, start: FloatArray, record: Record, watch: Watch) -> Record:
    """Train every config of every group from ``start`` (G, P), and return the record; raises Interrupted."""
    groups = len(start)
    loss, gradient, hessian = _evaluate(problem.rows, start)
    config, passes, retries = np.zeros((3, groups), np.intp)
    slope, promised = np.zeros((2, groups))
    step = np.zeros_like(start)
    models = _Models(np.arange(groups), config, passes, retries, start, loss, gradient, hessian, step, slope, promised)
    everyone = np.arange(groups)
    _aim(problem, models, everyone)
    while True:
        if watch.cancelled():
            raise Interrupted
        accepted = _advance(problem, models)
        watch.report(len(accepted))
        value = _objective(problem, models, models.point, models.loss)
        record = record.counted(models.group, models.config, np.ones(len(value), np.bool_), value)
        _aim(problem, models, np.flatnonzero(accepted))
        problem, models = _finished(problem, models, value, record)
        if not len(models.group):
            return record


def _evaluate(rows: Rows, point: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return loss (M,), gradient (M, P) and Hessian (M, P, P), made definite."""
    loss, gradient, hessian = rows.hessian(point.reshape(len(point), rows.outputs, -1))
    diagonal = np.einsum("mii->mi", hessian)
    diagonal *= 1.0 + _RIDGE
    diagonal += diagonal == 0
    return loss, gradient.reshape(point.shape), hessian


def _objective(problem: Problem, models: _Models, point: FloatArray, loss: FloatArray) -> FloatArray:
    place = np.arange(len(point)), models.config
    penalties = problem.penalty[place] * np.abs(point) + 0.5 * problem.ridge[place] * point**2
    objective: FloatArray = loss + penalties.sum(axis=1)
    return objective


def _aim(problem: Problem, models: _Models, index: IndexArray) -> None:
    """Choose the steps of some models: to the minimum of the quadratic model plus penalties."""
    if not index.size:
        return
    penalty, ridge = problem.penalty[index, models.config[index]], problem.ridge[index, models.config[index]]
    point, matrix = models.point[index], models.hessian[index]
    np.einsum("mii->mi", matrix)[:] += ridge
    gradient = models.gradient[index] + ridge * point
    bent = quadratic.Dense(matrix)
    linear = bent.times(point) - gradient
    violation = np.abs(quadratic.subgradient(point, gradient, penalty)).max(axis=1, initial=0.0)
    accuracy = np.maximum(1e-3 * violation, 1e-14 * np.abs(linear).max(axis=1, initial=0.0))
    target, _ = quadratic.minimise(bent, linear, penalty, point, accuracy[:, None], _MODEL_ROUNDS)
    step = target - point
    slope = (gradient * step).sum(axis=1) + (penalty * (np.abs(target) - np.abs(point))).sum(axis=1)
    models.step[index], models.slope[index] = step, slope
    models.promised[index] = -slope - 0.5 * (step * bent.times(step)).sum(axis=1)
    models.retries[index] = 0


def _advance(problem: Problem, models: _Models) -> quadratic.BoolArray:
    """Evaluate the ends of all steps and go there where that is lower; return where, and halve the other steps."""
    length = 0.5**models.retries
    # A full step keeps the exact zeros of its target.
    trial = models.point + length[:, None] * models.step
    before = _objective(problem, models, models.point, models.loss)
    loss, gradient, hessian = _evaluate(problem.rows, trial)
    allowed = before + _SUFFICIENT * length * models.slope + _ROUNDING * np.abs(before)
    accepted = (_objective(problem, models, trial, loss) <= allowed) & np.isfinite(loss)
    models.point = np.where(accepted[:, None], trial, models.point)
    models.loss = np.where(accepted, loss, models.loss)
    models.gradient = np.where(accepted[:, None], gradient, models.gradient)
    models.hessian[accepted] = hessian[accepted]
    models.passes = models.passes + 1
    models.retries = np.where(accepted, 0, models.retries + 1)
    return accepted


def _finished(problem: Problem, models: _Models, value: FloatArray, record: Record) -> tuple[Problem, _Models]:
    """Record finished models, let their groups go on with the next config, and drop groups that have none left."""
    converged = (models.retries == 0) & (models.promised <= problem.tolerance[models.config] * np.abs(value))
    over = ~np.isfinite(value) | (models.retries > _MAX_RETRIES) | (models.passes >= problem.epochs)
    ended = np.flatnonzero(converged | over | ~(models.slope < 0))
    where = models.group[ended], models.config[ended]
    record.point[where] = models.point[ended]
    record.value[where] = np.where(np.isfinite(value[ended]), value[ended], np.nan)
    record.converged[where] = converged[ended]
    models.config = models.config.copy()
    models.config[ended] += 1
    models.passes[ended] = 0
    going = models.config < problem.penalty.shape[1]
    _aim(problem, models, ended[going[ended]])
    kept = np.flatnonzero(going)
    return (problem, models) if going.all() else (problem.take(kept), models.take(kept))
