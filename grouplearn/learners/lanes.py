"""L-BFGS for many smooth convex models at once: lanes, each of which trains configs of one group one after another.

Coordinates are those in which the first Hessian is diagonal, s·``curvature`` + ``ridge``, so that it is inverted exactly
for any ridge; s follows the curvature that the last step met. A finished config hands its point and its memory on to
the next of its lane: with another ridge, a gradient difference y of step Δ becomes y + (ridge' − ridge)·Δ, exactly.
Groups whose lanes are finished leave the batch. L-BFGS: Liu & Nocedal 1989.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.base import Interrupted
from grouplearn.learners.row_loss import Rows

Array = npt.NDArray[Any]
IndexArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

#: Share of the predicted fall that a step must reach (Armijo).
_SUFFICIENT = 1e-4
#: Factor of a step that was too long, and how often before the lane gives up.
_SHORTER, _MAX_RETRIES = 0.3, 10
#: Rounding of an objective summed over rows, in units of the precision.
_ROUNDING = 4.0
#: The batch is compacted when no more than this share of it would be left.
_FULL = 0.8
#: A batch of fewer groups is not divided: each pass has its own cost.
_SPLIT = 48
#: Products of a step and its gradient difference below this say nothing.
_SMALLEST_PRODUCT = 1e-30
#: Bounds of s.
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-8, 1e8


@dataclass(frozen=True)
class Task:
    """What lanes minimise: Σ loss + ½ Σ ridge·u² per (group, config).

    ``rows`` of G groups; ``curvature`` (G, P) with P = K·p; ``ridge`` (G, C); ``penalised`` (P,) is 1, or 0 for an
    intercept; ``mixing`` (G, K, K) turns coordinates into the weights of outputs, None for one output. ``tolerance`` (C,)
    is the fall a step must promise to be taken, relative to the objective; ``epochs`` the most passes per config.
    """

    rows: Rows
    curvature: Array
    ridge: FloatArray
    penalised: Array
    mixing: Array | None
    tolerance: FloatArray
    epochs: int
    history: int

    def take(self, groups: IndexArray | slice) -> Task:
        """Return the task of some groups; those of a slice are not copied."""
        mixing = None if self.mixing is None else self.mixing[groups]
        rows = self.rows.take(groups)
        settings = (self.tolerance, self.epochs, self.history)
        return Task(rows, self.curvature[groups], self.ridge[groups], self.penalised, mixing, *settings)

    def evaluate(self, point: Array, ridge: Array) -> tuple[FloatArray, Array]:
        """Return the objective (G·M,) and gradient (G·M, P) at ``point`` (G·M, P), under ``ridge`` (G·M,)."""
        groups, size = self.curvature.shape
        shape = (groups, -1, self.rows.outputs, size // self.rows.outputs)
        weights = point.reshape(shape)
        if self.mixing is not None:
            weights = self.mixing[:, None] @ weights
        value, gradient = self.rows.evaluate(weights.reshape(groups, -1, shape[3]))
        if self.mixing is not None:
            gradient = self.mixing.transpose(0, 2, 1)[:, None] @ gradient.reshape(shape)
        slope = gradient.reshape(point.shape)
        pull = point * self.penalised
        pull *= ridge[:, None]
        slope += pull
        return value.reshape(-1) + 0.5 * np.einsum("ij,ij->i", pull, point), slope

    def hessian(self, point: Array, ridge: FloatArray) -> tuple[FloatArray, Array, Array]:
        """Return objective (G,), gradient (G, P) and Hessian (G, P, P) at ``point`` (G, P), which are weights."""
        value, gradient, hessian = self.rows.hessian(point.reshape(len(point), self.rows.outputs, -1))
        pull = ridge[:, None] * self.penalised
        np.einsum("gii->gi", hessian)[:] += pull
        pull *= point
        return value + 0.5 * np.einsum("ij,ij->i", pull, point), gradient.reshape(point.shape) + pull, hessian


@dataclass(frozen=True)
class Record:
    """What became of every (group, config): ``point`` (G, C, P), ``value``, ``epochs``, ``scale``, ``converged`` (G, C).

    ``curve`` has (epochs, G, C) objectives, NaN where not trained.
    """

    point: Array
    value: FloatArray
    epochs: npt.NDArray[np.int64]
    scale: FloatArray
    converged: BoolArray
    curve: FloatArray

    @classmethod
    def empty(cls, groups: int, configs: int, size: int, epochs: int) -> Record:
        """Return a record of nothing; its curve starts with room for a few epochs."""
        shape = (groups, configs)
        return cls(
            np.zeros((*shape, size)),
            np.full(shape, np.nan),
            np.zeros(shape, np.int64),
            np.ones(shape),
            np.zeros(shape, np.bool_),
            np.full((epochs, *shape), np.nan),
        )

    def in_order(self, configs: IndexArray) -> Record:
        """Return the record with the configs in another order."""
        return Record(
            self.point[:, configs],
            self.value[:, configs],
            self.epochs[:, configs],
            self.scale[:, configs],
            self.converged[:, configs],
            self.curve[:, :, configs],
        )

    def counted(self, group: IndexArray, config: IndexArray, which: BoolArray, value: FloatArray) -> Record:
        """Count a pass of the pairs (group, config) marked in ``which`` and note their objectives."""
        group, config = (np.broadcast_to(each, which.shape)[which] for each in (group, config))
        self.epochs[group, config] += 1
        number = self.epochs[group, config] - 1
        curve = self.curve
        while number.max(initial=0) >= len(curve):
            curve = np.concatenate([curve, np.full_like(curve, np.nan)])
        curve[number, group, config] = value[which]
        return replace(self, curve=curve)


@dataclass
class Lanes:
    """The lanes in the batch, in step: lane i trains config ``order[place[i]]`` of group ``group[i]``.

    ``passes`` counts those of its present config, ``retries`` the shortenings of its present step, whose derivative
    is ``slope``. ``changes``, ``bends`` (m, M, P) are steps and gradient differences, ``inverse`` 1 / (their products).
    """

    group: IndexArray
    place: IndexArray
    end: IndexArray
    ridge: Array
    curvature: Array
    scale: Array
    point: Array
    value: FloatArray
    gradient: Array
    step: Array
    slope: Array
    passes: npt.NDArray[np.int64]
    retries: npt.NDArray[np.int64]
    changes: Array
    bends: Array
    inverse: Array
    count: int = 0

    @property
    def alive(self) -> BoolArray:
        """Which lanes still have a config to train."""
        alive: BoolArray = self.place < self.end
        return alive

    def take(self, kept: IndexArray) -> Lanes:
        """Return some of the lanes."""
        parts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "count"}
        by_pair = ("changes", "bends", "inverse")
        chosen = {name: value[:, kept] if name in by_pair else value[kept] for name, value in parts.items()}
        return Lanes(**chosen, count=self.count)

    def slots(self) -> list[int]:
        """Return the places of the history that are filled, newest first."""
        length = len(self.inverse)
        return [(self.count - 1 - back) % length for back in range(min(self.count, length))]

    def remember(self, change: Array, bend: Array) -> Array:
        """Keep a step and its gradient difference and return their products (M,); where not positive, they are forgotten."""
        slot = self.count % len(self.inverse)
        product: Array = np.einsum("ij,ij->i", change, bend)
        useful = (product > _SMALLEST_PRODUCT) & (product < np.inf)
        self.changes[slot], self.bends[slot] = change, bend
        self.inverse[slot] = np.where(useful, 1.0 / np.where(useful, product, 1.0), 0.0)
        if not useful.all():
            self.changes[slot][~useful] = 0.0
            self.bends[slot][~useful] = 0.0
        self.count += 1
        return product

    def toward(self, lanes: IndexArray | slice, penalised: Array) -> Array:
        """Return the quasi-Newton steps of some lanes, by the two loops of L-BFGS around the diagonal first Hessian."""
        step = -self.gradient[lanes]
        diagonal = self.curvature[lanes] * self.scale[lanes, None]
        diagonal += self.ridge[lanes, None] * penalised
        memory = [
            (self.changes[slot][lanes], self.bends[slot][lanes], self.inverse[slot][lanes]) for slot in self.slots()
        ]
        shares, scratch = [], np.empty_like(step)
        for change, bend, inverse in memory:
            share = np.einsum("ij,ij->i", change, step)
            share *= inverse
            step -= np.multiply(bend, share[:, None], out=scratch)
            shares.append(share)
        step /= diagonal
        for (change, bend, inverse), share in zip(reversed(memory), reversed(shares), strict=True):
            share -= inverse * np.einsum("ij,ij->i", bend, step)
            step += np.multiply(change, share[:, None], out=scratch)
        return step


def chains(configs: int, per_group: int, groups: int) -> tuple[IndexArray, IndexArray]:
    """Return the first and the last place (exclusive) of each lane: the configs in order, cut into even runs."""
    cuts = np.linspace(0, configs, min(per_group, configs) + 1).astype(np.intp)
    return np.tile(cuts[:-1], groups), np.tile(cuts[1:], groups)


@dataclass(frozen=True)
class Watch:
    """Who is told of every further pass of a lane, and who may stop the training."""

    report: Callable[[int], None]
    cancelled: Callable[[], bool]


def train(task: Task, lanes: Lanes, order: IndexArray, record: Record, watch: Watch) -> Record:
    """Train the lanes to their ends and return the record, continued; raises Interrupted between passes."""
    while True:
        _finish(task, lanes, order, record)
        if not lanes.alive.any():
            return record
        if watch.cancelled():
            raise Interrupted
        parts = _compacted(task, lanes)
        if len(parts) > 1:
            for part_task, part in parts:
                record = train(part_task, part, order, record, watch)
            return record
        task, lanes = parts[0]
        alive = lanes.alive
        _advance(task, lanes)
        watch.report(int(alive.sum()))
        config = order[np.minimum(lanes.place, len(order) - 1)]
        record = record.counted(lanes.group, config, alive, lanes.value)


def _compacted(task: Task, lanes: Lanes) -> list[tuple[Task, Lanes]]:
    """Drop lanes that are over, and part the groups with many lanes left from those with few when that saves much.

    Within a batch every group has as many lanes as the group with most of them left.
    """
    alive = lanes.alive.reshape(len(task.ridge), -1)
    left = alive.sum(axis=1)
    order, groups = np.argsort(left, kind="stable"), int((left > 0).sum())
    if groups * left.max() > _FULL * alive.size:
        return [(task, lanes)]
    busy = order[len(left) - groups :]
    middle = groups // 2
    narrow, wide = int(left[busy[middle - 1]]), int(left.max())
    saved = middle * (wide - narrow) / (groups * wide)
    parts = (busy[:middle], busy[middle:]) if groups >= _SPLIT and saved > 1.0 - _FULL else (busy,)
    return [_part(task, lanes, alive, np.sort(part), int(left[part].max())) for part in parts]


def _part(task: Task, lanes: Lanes, alive: BoolArray, groups: IndexArray, width: int) -> tuple[Task, Lanes]:
    """Return the first ``width`` lanes that go on of each of some groups."""
    first = np.argsort(~alive[groups], axis=1, kind="stable")[:, :width]
    kept = lanes.take((groups[:, None] * alive.shape[1] + first).ravel())
    return (task if len(groups) == len(alive) else task.take(groups)), kept


def begin(
    task: Task, group: IndexArray, place: IndexArray, end: IndexArray, order: IndexArray, point: Array, scale: Array
) -> Lanes:
    """Return lanes at their starting ``point`` (M, P), where the objective has been evaluated; ``scale`` (M,) is s.

    The lanes of a group of ``task`` stand together; ``group`` is how the record numbers it.
    """
    n_lanes, size = point.shape
    kind = task.curvature.dtype
    per_group = n_lanes // len(task.ridge)
    own = np.repeat(np.arange(len(task.ridge)), per_group)
    ridge = task.ridge[own, order[place]].astype(kind)
    point = point.astype(kind)
    value, gradient = task.evaluate(point, ridge)
    changes, bends = np.zeros((2, task.history, n_lanes, size), kind)
    return Lanes(
        group=group,
        place=place.copy(),
        end=end,
        ridge=ridge,
        curvature=task.curvature[own],
        scale=scale.astype(kind),
        point=point,
        value=value,
        gradient=gradient,
        step=np.zeros_like(point),
        slope=np.zeros(n_lanes, kind),
        passes=np.zeros(n_lanes, np.int64),
        retries=np.zeros(n_lanes, np.int64),
        changes=changes,
        bends=bends,
        inverse=np.zeros((task.history, n_lanes), kind),
    )


def _finish(task: Task, lanes: Lanes, order: IndexArray, record: Record) -> None:
    """Aim every lane anew; those that are finished with a config are recorded and go on to their next."""
    step = lanes.toward(slice(None), task.penalised)
    slope = np.einsum("ij,ij->i", step, lanes.gradient)
    alive, repeated = lanes.alive, lanes.retries > 0
    config = order[np.minimum(lanes.place, len(order) - 1)]
    converged = (-0.5 * slope <= task.tolerance[config] * np.abs(lanes.value)) & (slope <= 0)
    over = (lanes.passes >= task.epochs) | (lanes.retries > _MAX_RETRIES) | ~(slope < 0) | ~np.isfinite(lanes.value)
    finished = np.flatnonzero(alive & ((converged & (lanes.passes > 0)) | over))
    # A step that was too long is tried again shorter; what the trial told is in the memory for later steps.
    again = np.flatnonzero(repeated)
    if again.size:
        step[again] = _SHORTER * lanes.step[again]
        slope[again] = _SHORTER * lanes.slope[again]
    lanes.step, lanes.slope = step, slope
    if finished.size:
        where = lanes.group[finished], config[finished]
        record.point[where] = lanes.point[finished]
        record.value[where] = np.where(np.isfinite(lanes.value[finished]), lanes.value[finished], np.nan)
        record.scale[where] = lanes.scale[finished]
        record.converged[where] = converged[finished]
        lanes.place[finished] += 1
        _next_config(task, lanes, order, finished[lanes.alive[finished]])
    if not lanes.alive.all():
        lanes.step[~lanes.alive] = 0.0


def _next_config(task: Task, lanes: Lanes, order: IndexArray, moved: IndexArray) -> None:
    """Let lanes go on with the ridge of their next config, at the point and with the memory that they have."""
    if not moved.size:
        return
    per_group = len(lanes.group) // len(task.ridge)
    ridge = task.ridge[moved // per_group, order[lanes.place[moved]]].astype(lanes.ridge.dtype)
    more = (ridge - lanes.ridge[moved])[:, None]
    penalised = lanes.point[moved] * task.penalised
    lanes.gradient[moved] += more * penalised
    lanes.value[moved] += 0.5 * more[:, 0] * np.einsum("ij,ij->i", penalised, penalised)
    lanes.ridge[moved] = ridge
    changes = lanes.changes[:, moved]
    bends = lanes.bends[:, moved] + more * (changes * task.penalised)
    product = np.einsum("kij,kij->ki", changes, bends)
    useful = (product > _SMALLEST_PRODUCT) & (lanes.inverse[:, moved] > 0)
    lanes.bends[:, moved] = np.where(useful[:, :, None], bends, 0.0)
    lanes.inverse[:, moved] = np.where(useful, 1.0 / np.where(useful, product, 1.0), 0.0)
    lanes.passes[moved], lanes.retries[moved] = 0, 0
    lanes.step[moved] = lanes.toward(moved, task.penalised)
    lanes.slope[moved] = np.einsum("ij,ij->i", lanes.step[moved], lanes.gradient[moved])


def _advance(task: Task, lanes: Lanes) -> None:
    """Evaluate every lane at the end of its step, and go there where that is lower."""
    trial = lanes.point + lanes.step
    value, gradient = task.evaluate(trial, lanes.ridge)
    product = lanes.remember(lanes.step, gradient - lanes.gradient)
    rounding = _ROUNDING * np.finfo(trial.dtype).eps * np.abs(lanes.value)
    accepted = (value <= lanes.value + _SUFFICIENT * lanes.slope + rounding) & np.isfinite(product)
    change = lanes.step * lanes.step
    along = np.einsum("ij,ij->i", change, lanes.curvature)
    scale = (product - lanes.ridge * (change @ task.penalised)) / np.where(along > 0, along, 1.0)
    useful = (along > 0) & (scale > _SMALLEST_SCALE) & (scale < _LARGEST_SCALE)
    lanes.scale = np.where(useful, scale, lanes.scale)
    lanes.passes += 1
    if accepted.all():
        lanes.point, lanes.value, lanes.gradient = trial, value, gradient
        lanes.retries[:] = 0
        return
    lanes.point = np.where(accepted[:, None], trial, lanes.point)
    lanes.gradient = np.where(accepted[:, None], gradient, lanes.gradient)
    lanes.value = np.where(accepted, value, lanes.value)
    lanes.retries = np.where(accepted, 0, lanes.retries + 1)
