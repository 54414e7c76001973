"""Training of one pack on one shard: the loops of each access pattern, curves, early stopping, metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard
from grouplearn.learners import metrics
from grouplearn.learners.base import (
    Access,
    AlgebraicLearner,
    Artifact,
    Config,
    Interrupted,
    Learner,
    SamplingLearner,
    SequentialLearner,
    State,
    Stop,
    Tensors,
)
from grouplearn.runtime.job import CurvePoint
from grouplearn.runtime.prepare import Prepared

Advance = Callable[[State, int], State]


@dataclass(frozen=True, slots=True)
class Pack:
    """What is trained: ``configs`` of one learner on one prepared group, and when to stop."""

    learner: Learner
    configs: tuple[Config, ...]
    prepared: Prepared
    metric: str
    patience: int | None
    report: Callable[[int], None]
    cancelled: Callable[[], bool]

    def check(self) -> None:
        """Raise Interrupted when the run was cancelled."""
        if self.cancelled():
            raise Interrupted


@dataclass
class Fit:
    """One config of a pack as training goes on.

    ``epochs`` counts the epochs that made the model; ``artifact`` is the frozen best so far under early stopping.
    """

    epochs: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    artifact: Artifact | None = None
    diverged: bool = False
    best: float = math.nan


def fit_pack(pack: Pack) -> tuple[State, tuple[Fit, ...]]:
    """Train a pack from its first to its last epoch; raises Interrupted, and whatever the learner raises."""
    match pack.learner.access:
        case Access.ALGEBRAIC:
            algebraic = cast(AlgebraicLearner, pack.learner)
            return _iterate(pack, lambda state, _: _algebraic_epoch(pack, algebraic, state), algebraic.losses)
        case Access.SEQUENTIAL:
            sequential = cast(SequentialLearner, pack.learner)
            return _iterate(
                pack, lambda state, epoch: _sequential_epoch(pack, sequential, state, epoch), sequential.losses
            )
        case Access.SAMPLING:
            return _boost(pack, cast(SamplingLearner, pack.learner))


def _algebraic_epoch(pack: Pack, learner: AlgebraicLearner, state: State) -> State:
    """Sums are merged from the first block to the last, so they do not depend on who computed them."""
    problem, total = pack.prepared.problem, None
    for block in pack.prepared.train.blocks():
        pack.check()
        sums: Tensors = learner.accumulate(problem, pack.configs, state, block)
        total = sums if total is None else learner.merge(total, sums)
    if total is None:
        raise ValueError("there are no training rows")
    return learner.step(problem, pack.configs, state, total)


def _sequential_epoch(pack: Pack, learner: SequentialLearner, state: State, epoch: int) -> State:
    return learner.train(pack.prepared.problem, pack.configs, state, pack.prepared.train, epoch)


def _iterate(pack: Pack, advance: Advance, losses: Callable[[State], FloatArray]) -> tuple[State, tuple[Fit, ...]]:
    problem, valid = pack.prepared.problem, pack.prepared.valid
    state = pack.learner.init(problem, pack.configs)
    fits = tuple(Fit() for _ in pack.configs)
    for epoch in range(problem.epochs):
        active = np.flatnonzero(~state.done).tolist()
        if not active:
            break
        pack.check()
        state = advance(state, epoch)
        loss = losses(state)
        values = _valid_metric(pack, valid, state, active)
        stopped = state.done.copy()
        for index, value in zip(active, values, strict=True):
            stopped[index] |= _record(pack, fits[index], state, index, CurvePoint(epoch + 1, float(loss[index]), value))
        state = replace(state, done=stopped)
        pack.report(len(active))
    return state, fits


def diverged(learner: Learner) -> str:
    """Return the reason of a trial whose objective became infinite."""
    names = {parameter.name for parameter in learner.hyperparameters}
    hint = "lower learning_rate" if "learning_rate" in names else "bring the features to one scale, as zscore(...) does"
    return f"diverged: the objective became infinite; hint: {hint}"


def _valid_metric(pack: Pack, valid: Shard | None, state: State, active: Sequence[int]) -> list[float]:
    if valid is None:
        return [math.nan for _ in active]
    return [measured[pack.metric] for measured in evaluate(pack, valid, state, active, only=pack.metric)]


def _record(pack: Pack, fit: Fit, state: State, index: int, point: CurvePoint) -> bool:
    """Note one epoch of one config; return whether the config is to stop."""
    fit.curve.append(point)
    if not math.isfinite(point.train_loss):
        fit.diverged = fit.artifact is None
        return True
    if pack.patience is None or math.isnan(point.valid_metric):
        # A metric that is not a number says nothing about when to stop.
        if fit.artifact is None:
            fit.epochs = point.epoch
        return False
    if math.isnan(fit.best) or _better(pack.metric, point.valid_metric, fit.best):
        fit.best, fit.epochs = point.valid_metric, point.epoch
        fit.artifact = pack.learner.finalize(pack.prepared.problem, pack.configs, state, index)
        return False
    return point.epoch - fit.epochs >= pack.patience


def _better(metric: str, value: float, than: float) -> bool:
    return value > than if metrics.METRICS[metric].greater_is_better else value < than


def _boost(pack: Pack, learner: SamplingLearner) -> tuple[State, tuple[Fit, ...]]:
    prepared = pack.prepared
    pack.check()
    state = pack.learner.init(prepared.problem, pack.configs)
    stop = Stop(pack.metric, pack.patience, pack.cancelled)
    state, boosted = learner.boost(prepared.problem, pack.configs, state, prepared.train, prepared.valid, stop)
    fits = []
    for rounds, curve in zip(boosted.rounds, boosted.curves, strict=True):
        points = [CurvePoint(number, math.nan, float(value)) for number, value in enumerate(curve, start=1)]
        fits.append(Fit(rounds, points))
    pack.report(sum(boosted.rounds))
    return state, tuple(fits)


def evaluate(
    pack: Pack, shard: Shard, state: State, chosen: Sequence[int], only: str | None = None
) -> list[dict[str, float]]:
    """Return every metric of the task (or one) for the configs at positions ``chosen`` in the pack's present state."""
    problem, everything = pack.prepared.problem, len(chosen) == len(pack.configs)

    def scores(x: Matrix) -> FloatArray:
        all_scores = pack.learner.scores(problem, pack.configs, state, x)
        return all_scores if everything else all_scores[:, chosen, :]

    return _measure(pack, shard, scores, len(chosen), only)


def evaluate_artifacts(pack: Pack, shard: Shard, artifacts: Sequence[Artifact]) -> list[dict[str, float]]:
    """Return every metric of the task for finished models."""
    task = pack.prepared.problem.task

    def scores(x: Matrix) -> FloatArray:
        return np.stack([pack.learner.score(task, artifact, x) for artifact in artifacts], axis=1)

    return _measure(pack, shard, scores, len(artifacts))


def _measure(
    pack: Pack, shard: Shard, scores: Callable[[Matrix], FloatArray], n_configs: int, only: str | None = None
) -> list[dict[str, float]]:
    problem, total = pack.prepared.problem, None
    for block in shard.blocks():
        pack.check()
        sums = metrics.measure(problem.task, problem.n_classes, scores(block.x), block.y, block.weight)
        total = sums if total is None else metrics.merge(total, sums)
    if total is None or not n_configs:
        return [{} for _ in range(n_configs)]
    finished = metrics.finish(total, only)
    return [{name: float(values[index]) for name, values in finished.items()} for index in range(n_configs)]
