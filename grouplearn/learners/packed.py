"""Generalised linear models with an l2 penalty, for every config of every group of a stack.

Each group's features are centred and rotated onto the eigenvectors of X'WX, where the first Hessian of every config is
diagonal and the penalty is unchanged. The models train in lanes in single precision (``lanes``); then every objective and
gradient is computed in double precision, and models that are not proven good enough go on in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners import epochwise, lanes, moments, newton, proximal
from grouplearn.learners.base import AlgebraicLearner, Config, Problem, Solved
from grouplearn.learners.padded import Padded
from grouplearn.learners.row_loss import Kernel, Rows

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]

#: Directions with less than this share (times d) of the largest eigenvalue of X'WX carry no information.
_NO_INFORMATION = 1e-14
#: Columns whose variances differ by more than this cannot share a rotation in double precision.
_LARGEST_SPREAD = 1e11
#: A model is good when its objective is provably within this share of the least one (strong convexity), or when
#: a quadratic of the mean curvature promises _MARGIN less: then curvatures may be ten thousand times smaller.
_PROVEN, _MARGIN = 1e-5, 1e-4
#: Times ``tolerance``, the largest such share where a statement asks for more than the default tolerance of 1e-8.
_LOOSER = 1e3
#: Lanes that go on in double precision end when a step promises less than this share of ``tolerance``.
_FINER = 1e-2
#: Scores (float64) held at a time.
_SCORES = 4_000_000
#: Rows of a group up to which models with l1 are worth a Hessian per step.
_HESSIAN_ROWS = 5_000
#: Elements of the rows (float64) that Newton steps hold at a time, to stay in the cache.
_NEWTON_ROWS = 200_000
#: Lanes of a group: more configs than these train one after another, each from the result of the one before.
_CHAINS = 12
#: Rows of a group from which on all its configs train side by side: more of them share each reading of the rows.
_MANY_ROWS = 1000
#: Passes of L-BFGS per config, and up to how many parameters the models that need more go on by Newton's method.
_PASSES, _NEWTON_PARAMETERS = 24, 128
#: Pairs of L-BFGS: with this first Hessian, more of them cost more than they save.
_HISTORY = 5


@dataclass(frozen=True)
class Family:
    """A loss: its kernel, the start of every output and the curvature of the loss there.

    ``start`` (G, K) are the scores at the start, ``coupling`` (G, K, K) the second derivative by them, ``label`` what the
    kernel needs per row, (G, K, n). ``single`` allows single precision.
    """

    kernel: Kernel
    start: FloatArray
    coupling: FloatArray
    label: FloatArray
    single: bool = True


@dataclass(frozen=True)
class Settings:
    """Per config ``l1``, ``l2`` and ``tolerance`` (C,); for all of them the rest."""

    l1: FloatArray
    l2: FloatArray
    tolerance: FloatArray
    fit_intercept: bool
    epochs: int
    history: int


@dataclass(frozen=True)
class Rotated:
    """A stack in the solver's coordinates: ``x`` (G, n, p) with a column of ones last if there is an intercept.

    ``basis`` (G, d, d) turns coordinates into weights and has zeros where a column has no information; ``spectrum``
    (G, p) is Σw·x² per coordinate; ``size`` (G,) divides the features.
    """

    x: FloatArray
    mean: FloatArray
    basis: FloatArray
    spectrum: FloatArray
    size: FloatArray


def rotate(stack: Padded, fit_intercept: bool) -> tuple[Rotated, BoolArray]:
    """Return the stack in the solver's coordinates, and for which groups these are accurate (G,)."""
    total = stack.weight.sum(axis=1)
    centre = (stack.weight[:, None, :] @ stack.x)[:, 0, :] / total[:, None]
    mean = centre if fit_intercept else np.zeros_like(centre)
    x = stack.x - mean[:, None, :]
    weighted = x if (stack.weight == 1).all() else x * stack.weight[:, :, None]
    gram = weighted.transpose(0, 2, 1) @ x
    square = np.einsum("gii->gi", gram).copy()
    finite = np.isfinite(gram).all(axis=(1, 2))
    square[~finite], gram[~finite] = 0.0, 0.0
    varies = moments.inverse_spread(square, mean, total) > 0
    least = np.where(varies, square, np.inf).min(axis=1, initial=np.inf)
    safe = finite & (square.max(axis=1, initial=0.0) <= _LARGEST_SPREAD * least)
    gram *= varies[:, :, None] & varies[:, None, :]
    spectrum, basis = np.linalg.eigh(gram)
    largest = spectrum.max(axis=1, initial=0.0)
    known = spectrum > _NO_INFORMATION * max(1, spectrum.shape[1]) * largest[:, None]
    safe &= _loses_nothing(gram, known)
    size = np.sqrt(np.where(largest > 0, largest / total, 1.0))
    basis = basis * (known / size[:, None])[:, None, :] * varies[:, :, None]
    rotated = np.zeros((*x.shape[:2], x.shape[2] + int(fit_intercept)))
    np.matmul(np.where(safe[:, None, None], x, 0.0) if not safe.all() else x, basis, out=rotated[:, :, : x.shape[2]])
    spectrum = np.where(known, spectrum / size[:, None] ** 2, 0.0)
    if fit_intercept:
        rotated[:, :, -1] = 1.0
        spectrum = np.concatenate([spectrum, total[:, None]], axis=1)
    return Rotated(rotated, mean, basis, spectrum, size), safe


def _loses_nothing(gram: FloatArray, known: BoolArray) -> BoolArray:
    """Return for which groups (G,) every direction of unit-spread columns is among the ``known`` of the columns as written.

    A day beside a time in seconds has nothing that is its own on the scale of the seconds, and much on its own scale.
    """
    square = np.einsum("gii->gi", gram)
    doubtful = np.flatnonzero(known.sum(axis=1) < (square > 0).sum(axis=1))
    loses_nothing = np.ones(len(gram), np.bool_)
    if doubtful.size:
        root = np.sqrt(np.where(square[doubtful] > 0, square[doubtful], 1.0))
        share = np.linalg.eigvalsh(gram[doubtful] / (root[:, :, None] * root[:, None, :]))
        informative = share > _NO_INFORMATION * share.shape[1] * share[:, -1:]
        loses_nothing[doubtful] = informative.sum(axis=1) <= known[doubtful].sum(axis=1)
    return loses_nothing


def solve_safely(
    learner: AlgebraicLearner,
    problem: Problem,
    configs: Sequence[Config],
    stack: Padded,
    settings: Settings,
    family: Callable[[Padded, bool], Family],
    watch: lanes.Watch,
) -> Solved:
    """Return the models of every group; where columns differ too much in scale for a rotation, on columns of unit spread."""
    # A model that overflows ends as NaN, without warnings.
    with np.errstate(all="ignore"):
        if settings.l1.any():
            return _scaled(learner, problem, configs, stack, settings, family, watch)
        rotated, safe = rotate(stack, settings.fit_intercept)
        solved = solve(stack, rotated, family(stack, settings.fit_intercept), settings, watch)
        odd = np.flatnonzero(~safe)
        if not odd.size:
            return solved
        rest = Padded(stack.x[odd], stack.y[odd], stack.weight[odd])
        others = _scaled(learner, problem, configs, rest, settings, family, watch)
    place = np.arange(stack.n_groups)
    place[odd] = stack.n_groups + np.arange(odd.size)
    return epochwise.taken(epochwise.joined([solved, others]), place)


def _scaled(
    learner: AlgebraicLearner,
    problem: Problem,
    configs: Sequence[Config],
    stack: Padded,
    settings: Settings,
    family: Callable[[Padded, bool], Family],
    watch: lanes.Watch,
) -> Solved:
    """Return models on columns of unit spread: those with few parameters and rows by Hessians, the others epoch by epoch."""
    parameters = problem.n_outputs * (problem.n_features + 1)
    finite = bool(np.isfinite(np.square(stack.x).sum()))
    if parameters > _NEWTON_PARAMETERS or stack.x.shape[1] > _HESSIAN_ROWS or not finite:
        return epochwise.solve_alike(learner, problem, configs, stack, watch)
    run = max(1, _NEWTON_ROWS // max(1, stack.x[0].size))
    parts = []
    for first in range(0, stack.n_groups, run):
        groups = slice(first, first + run)
        part = Padded(stack.x[groups], stack.y[groups], stack.weight[groups])
        parts.append(solve_scaled(part, family(part, settings.fit_intercept), settings, watch))
    return epochwise.joined(parts)


def solve_scaled(stack: Padded, family: Family, settings: Settings, watch: lanes.Watch) -> Solved:
    """Return the models of every group, with l1 or without, by proximal Newton steps on columns of unit spread."""
    total = stack.weight.sum(axis=1)
    centre = (stack.weight[:, None, :] @ stack.x)[:, 0, :] / total[:, None]
    mean = centre if settings.fit_intercept else np.zeros_like(centre)
    x = stack.x - mean[:, None, :]
    square = np.einsum("gn,gnd,gnd->gd", stack.weight, x, x)
    inverse = moments.inverse_spread(square, mean, total) * np.sqrt(total)[:, None]
    x *= inverse[:, None, :]
    if settings.fit_intercept:
        x = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2)
    outputs = family.start.shape[1]
    rows = Rows(_signed(x, stack, family), family.label, stack.weight, family.kernel, outputs)
    order = np.lexsort((-settings.l2, -settings.l1))
    scale = np.concatenate([inverse, np.zeros((len(inverse), int(settings.fit_intercept)))], axis=1)
    scale = np.tile(scale, outputs)[:, None, :]
    problem = proximal.Problem(
        rows,
        settings.l1[order, None] * scale,
        settings.l2[order, None] * scale**2,
        settings.tolerance[order],
        settings.epochs,
    )
    start = np.zeros((len(x), outputs, x.shape[2]))
    if settings.fit_intercept:
        start[:, :, -1] = family.start
    record = lanes.Record.empty(len(x), len(order), scale.shape[2], min(settings.epochs, 32))
    record = proximal.train(problem, start.reshape(len(x), -1), record, watch)
    record = record.in_order(np.argsort(order))
    basis = np.eye(mean.shape[1]) * inverse[:, None, :]
    return _solved(mean, basis, outputs, record, settings.epochs)


def solve(stack: Padded, rotated: Rotated, family: Family, settings: Settings, watch: lanes.Watch) -> Solved:
    """Return the models of every config on every group of ``stack``; raises Interrupted between passes."""
    task = _task(stack, rotated, family, settings)
    order = np.argsort(-settings.l2, kind="stable")
    record = _first(task, family, order, settings, watch)
    record = _proven(task, record, order, watch)
    if task.mixing is not None:
        record = _mixed(task.mixing, record)
    return _solved(rotated.mean, rotated.basis, task.rows.outputs, record, settings.epochs)


def _task(stack: Padded, rotated: Rotated, family: Family, settings: Settings) -> lanes.Task:
    """Return what the lanes minimise; the rotated rows become its rows, with the signs that the kernel wants."""
    groups, outputs = family.start.shape
    x = _signed(rotated.x, stack, family)
    coupling, mixing = family.coupling[:, :, 0], None
    if outputs > 1:
        coupling, mixing = np.linalg.eigh(family.coupling)
        # The same change of all scores leaves the softmax alone: there the gradient is zero and any curvature will do.
        coupling = np.where(coupling > 1e-9 * coupling[:, -1:], coupling, coupling[:, -1:])
    curvature = (coupling[:, :, None] * rotated.spectrum[:, None, :]).reshape(groups, -1)
    features = rotated.mean.shape[1]
    penalised = np.tile((np.arange(rotated.x.shape[2]) < features).astype(np.float64), outputs)
    return lanes.Task(
        rows=Rows(x, family.label, stack.weight, family.kernel, outputs),
        curvature=np.where(curvature > 0, curvature, 1.0),
        ridge=settings.l2[None, :] / rotated.size[:, None] ** 2,
        penalised=penalised,
        mixing=mixing,
        tolerance=settings.tolerance,
        epochs=settings.epochs,
        history=min(settings.history, _HISTORY),
    )


def _signed(x: FloatArray, stack: Padded, family: Family) -> FloatArray:
    """Return ``x``, overwritten: padding becomes zero, and rows have the sign that a binary kernel wants."""
    real = stack.weight > 0
    sign = family.kernel.sign(family.label)
    sign = real.astype(np.float64) if sign is None else np.where(real, sign, 0.0)
    x *= sign[:, :, None]
    return x


def _single(task: lanes.Task) -> lanes.Task:
    rows = task.rows
    x, label, weight = (each.astype(np.float32) for each in (rows.x, rows.label, rows.weight))
    mixing = None if task.mixing is None else task.mixing.astype(np.float32)
    return replace(
        task,
        rows=Rows(x, label, weight, rows.kernel, rows.outputs),
        curvature=task.curvature.astype(np.float32),
        penalised=task.penalised.astype(np.float32),
        mixing=mixing,
    )


def _first(
    task: lanes.Task, family: Family, order: lanes.IndexArray, settings: Settings, watch: lanes.Watch
) -> lanes.Record:
    """Train every config from its group's start, or from the result of the config before it in ``order``."""
    groups, configs = task.ridge.shape
    size = task.curvature.shape[1]
    start = np.zeros((groups, task.rows.outputs, size // task.rows.outputs))
    if settings.fit_intercept:
        scores = family.start[:, :, None]
        start[:, :, -1:] = scores if task.mixing is None else task.mixing.transpose(0, 2, 1) @ scores
    per_group = _CHAINS if task.rows.x.shape[1] < _MANY_ROWS else configs
    place, end = lanes.chains(configs, per_group, groups)
    per_group = len(place) // groups
    record = lanes.Record.empty(groups, configs, size, min(settings.epochs, 32))
    group = np.repeat(np.arange(groups), per_group)
    point = np.repeat(start.reshape(groups, size), per_group, axis=0)
    chosen = _single(task) if family.single else task
    if size <= _NEWTON_PARAMETERS:
        chosen = replace(chosen, epochs=min(chosen.epochs, _PASSES))
    begun = lanes.begin(chosen, group, place, end, order, point, np.ones(len(group)))
    return lanes.train(chosen, begun, order, record, watch)


def _proven(task: lanes.Task, record: lanes.Record, order: lanes.IndexArray, watch: lanes.Watch) -> lanes.Record:
    """Put the exact objectives into the record, and train on in double precision where the least one may be lower."""
    good = np.zeros(task.ridge.shape, np.bool_)
    for chunk in _chunks(task, task.ridge.shape[1], np.arange(len(task.ridge))):
        groups = slice(chunk[0], chunk[-1] + 1)
        part = task.take(groups)
        ridge = part.ridge.ravel()
        value, gradient = part.evaluate(record.point[groups].reshape(len(ridge), -1), ridge)
        squares, pull = gradient**2, ridge[:, None] * task.penalised
        curvature = np.repeat(part.curvature, part.ridge.shape[1], axis=0)
        curvature *= record.scale[groups].reshape(-1, 1)
        # Where there is no penalty the curvature stands in for its bound.
        proof = 0.5 * (squares / np.where(pull > 0, pull, curvature)).sum(axis=1)
        near = 0.5 * (squares / (curvature + pull)).sum(axis=1)
        shape = part.ridge.shape
        value = np.where(np.isfinite(record.value[groups]), value.reshape(shape), np.nan)
        record.value[groups] = value
        bound = np.minimum(_PROVEN, _LOOSER * part.tolerance) * np.abs(value)
        small = (near.reshape(shape) <= 0.1 * bound) & (proof.reshape(shape) <= bound)
        small |= near.reshape(shape) <= _MARGIN * bound
        good[groups] = small & record.converged[groups]
    open_ended = ~good & np.isfinite(record.value) & (record.epochs < task.epochs)
    return _train_on(task, record, order, open_ended, watch)


def _train_on(
    task: lanes.Task, record: lanes.Record, order: lanes.IndexArray, chosen: BoolArray, watch: lanes.Watch
) -> lanes.Record:
    """Train the (group, config) pairs ``chosen`` on from where the record has them."""
    if not chosen.any():
        return record
    if task.curvature.shape[1] > _NEWTON_PARAMETERS:
        return _by_lanes(task, record, order, chosen, watch)
    if task.mixing is None:
        return _by_newton(task, record, chosen, watch)
    plain = _by_newton(replace(task, mixing=None), _mixed(task.mixing, record), chosen, watch)
    return _mixed(task.mixing.transpose(0, 2, 1), plain)


def _by_newton(task: lanes.Task, record: lanes.Record, chosen: BoolArray, watch: lanes.Watch) -> lanes.Record:
    group, config = np.nonzero(chosen)
    run = max(1, _NEWTON_ROWS // max(1, task.rows.x[0].size))
    for first in range(0, len(group), run):
        pairs = slice(first, first + run)
        # The rows of a long group are not copied.
        part = task.take(group[pairs]) if run > 1 else task.take(slice(group[first], group[first] + 1))
        record = newton.train(part, group[pairs], config[pairs], record, watch)
    return record


def _by_lanes(
    task: lanes.Task, record: lanes.Record, order: lanes.IndexArray, chosen: BoolArray, watch: lanes.Watch
) -> lanes.Record:
    busy, width = np.flatnonzero(chosen.any(axis=1)), int(chosen.sum(axis=1).max())
    task = replace(task, tolerance=task.tolerance * _FINER)
    for groups in _chunks(task, width, busy):
        # The chosen configs of a group come first; lanes beyond their number are over before they begin.
        place = np.argsort(~chosen[groups][:, order], axis=1, kind="stable")[:, :width]
        end = place + np.take_along_axis(chosen[groups][:, order], place, axis=1)
        group, config = np.repeat(groups, width), order[place.ravel()]
        part, point, scale = task.take(groups), record.point[group, config], record.scale[group, config]
        resumed = lanes.begin(part, group, place.ravel(), end.ravel(), order, point, scale)
        resumed.passes = record.epochs[group, config]
        record = lanes.train(part, resumed, order, record, watch)
    return record


def _mixed(mixing: Array, record: lanes.Record) -> lanes.Record:
    """Return the record with ``mixing`` (G, K, K) applied to the outputs of every point."""
    point = record.point.reshape(*record.value.shape, mixing.shape[1], -1)
    return replace(record, point=(mixing[:, None] @ point).reshape(record.point.shape))


def _chunks(task: lanes.Task, width: int, groups: lanes.IndexArray) -> Iterator[lanes.IndexArray]:
    """Yield groups in runs whose scores for ``width`` configs fit the scratch memory."""
    each = width * task.rows.outputs * task.rows.x.shape[1]
    run = max(1, _SCORES // max(1, each))
    for first in range(0, len(groups), run):
        yield groups[first : first + run]


def _solved(mean: FloatArray, basis: FloatArray, outputs: int, record: lanes.Record, limit: int) -> Solved:
    """Return the record on the features as written: weights = basis · coordinates. ``limit`` is that of epochs."""
    groups, configs = record.value.shape
    features = mean.shape[1]
    point = record.point.reshape(groups, configs, outputs, -1)
    weights = point[..., :features].reshape(groups, configs * outputs, features) @ basis.transpose(0, 2, 1)
    intercept = np.zeros((groups, configs, outputs))
    if point.shape[3] > features:
        intercept = point[..., -1] - (weights @ mean[:, :, None]).reshape(groups, configs, outputs)
    passes = int(record.epochs.max(initial=1))
    return Solved(
        weights.reshape(groups, configs, outputs, features),
        intercept,
        record.value,
        record.epochs,
        record.curve[:passes],
        # What ended before the limit of epochs had no step left that leads down.
        record.converged | (record.epochs < limit),
    )
