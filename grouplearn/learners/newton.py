"""Damped Newton steps in double precision for the models of a stack that L-BFGS leaves unfinished.

Where classes are nearly separated few rows carry the curvature, and no Hessian of the start resembles that of the end.
There a step costs as much as some ten passes of L-BFGS and saves more. The decrement ½g'H⁻¹g that ends it bounds the
distance to the optimum: Boyd & Vandenberghe 2004, section 9.5.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Interrupted
from grouplearn.learners.lanes import Array, BoolArray, IndexArray, Record, Task, Watch
from grouplearn.learners.quadratic import solve_each

#: Share of the predicted fall that a step must reach (Armijo), and rounding of an objective, relative to it.
_SUFFICIENT, _ROUNDING = 1e-4, 1e-14
#: Added to the diagonal, relative to it: adding the same to all scores of a softmax leaves it alone.
_RIDGE = 1e-10
#: Halvings of one step before a model is left where it is.
_MAX_RETRIES = 30


@dataclass
class _Models:
    """Pairs (``group``, ``config``) of the record, all (M,): the ``point`` (M, P) each has reached, and its step."""

    group: IndexArray
    config: IndexArray
    ridge: FloatArray
    point: FloatArray
    value: FloatArray
    step: FloatArray
    slope: FloatArray
    retries: IndexArray

    def take(self, kept: IndexArray) -> _Models:
        """Return some of the models."""
        return _Models(*(getattr(self, each.name)[kept] for each in fields(self)))


def train(task: Task, group: IndexArray, config: IndexArray, record: Record, watch: Watch) -> Record:
    """Train the pairs (group, config), both (M,), to the end; ``task`` has the rows of ``group``, in that order.

    Raises Interrupted between passes.
    """
    nothing = np.zeros(len(group))
    point = record.point[group, config]
    ridge = task.ridge[np.arange(len(group)), config]
    models = _Models(
        group, config, ridge, point, nothing + np.inf, np.zeros_like(point), nothing, np.zeros(len(group), np.intp)
    )
    while True:
        if watch.cancelled():
            raise Interrupted
        watch.report(len(models.group))
        ended, record = _pass(task, models, record)
        if ended.all():
            return record
        if ended.any():
            kept = np.flatnonzero(~ended)
            task, models = task.take(kept), models.take(kept)


def _pass(task: Task, models: _Models, record: Record) -> tuple[BoolArray, Record]:
    """Evaluate the ends of all steps, go there where that is lower, choose the next; return who has ended."""
    trial = models.point + models.step
    value, gradient, hessian = task.hessian(trial, models.ridge)
    allowed = models.value + _SUFFICIENT * models.slope
    lower = (value <= np.where(np.isfinite(allowed), allowed + _ROUNDING * np.abs(allowed), np.inf)) & np.isfinite(
        value
    )
    step = _toward(hessian, gradient)
    models.point = np.where(lower[:, None], trial, models.point)
    models.value = np.where(lower, value, models.value)
    models.step = np.where(lower[:, None], step, 0.5 * models.step)
    models.slope = np.where(lower, np.einsum("ij,ij->i", step, gradient), 0.5 * models.slope)
    models.retries = np.where(lower, 0, models.retries + 1)
    record = record.counted(models.group, models.config, np.ones(lower.shape, np.bool_), models.value)
    at_end = lower & (-0.5 * models.slope <= task.tolerance[models.config] * np.abs(models.value))
    epochs = record.epochs[models.group, models.config]
    ended = at_end | ~(models.slope < 0) | (models.retries > _MAX_RETRIES) | (epochs >= task.epochs)
    where = models.group[ended], models.config[ended]
    record.point[where], record.value[where] = models.point[ended], models.value[ended]
    record.converged[where] = at_end[ended]
    return ended, record


def _toward(hessian: Array, gradient: Array) -> Array:
    """Return −H⁻¹g, (M, P)."""
    diagonal = np.einsum("mii->mi", hessian)
    diagonal *= 1.0 + _RIDGE
    diagonal += diagonal == 0
    return solve_each(hessian, -gradient[:, :, None])[:, :, 0]
