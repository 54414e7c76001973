"""Training of one pack: what an epoch is for each access pattern.

A whole group and one split between workers train by the same functions: the former calls them in a loop (``fit_pack``), the
latter through steps on several workers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.learners.contract.control import Gang, Stop
from grouplearn.learners.contract.optional import runs_epochs, trains_in_gangs
from grouplearn.learners.contract.ways import (
    AlgebraicLearner,
    DataParallelLearner,
    Descended,
    EpochsLearner,
    RoundsLearner,
    SamplingLearner,
    SequentialLearner,
)
from grouplearn.models.metrics import metrics
from grouplearn.models.state import State, Tensors
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.local_rounds import Cell, LocalRounds
from grouplearn.train.pack import (
    EpochSums,
    Fit,
    Pack,
    Training,
    begin,
    end_epoch,
    has_more,
    judge_blocks,
    judged_now,
    measure,
    settle,
    waited_values,
)
from grouplearn.train.results.trials import CurvePoint

#: Values, of all models, that rounds process between two checks for commands: some tenths of a second.
_GONE_THROUGH = 1 << 26


def fit_pack(pack: Pack) -> Training:
    """Train a pack on a whole group to its end; raises Interrupted, and any exception of the learner."""
    access = pack.learner.access
    if access.in_one_go:
        return fit_sampling(pack)
    if access.in_rounds:
        return _fit_rounds(pack)
    if not access.visits:
        return _fit_algebraic(pack)
    several = runs_epochs(pack.learner) and pack.patience is None and pack.prepared.n_blocks == 1
    return _fit_epochs(pack) if several else _fit_sequential(pack, lambda training: visit(pack, training))


def accumulate(pack: Pack, training: Training, so_far: EpochSums | None = None) -> EpochSums:
    """Return ``so_far`` with the sums of the pack's blocks added: the learner's at the state, metrics at its models."""
    so_far = EpochSums() if so_far is None else so_far
    metric = judge_blocks(pack, training).merged(so_far.metric, metrics.merge)
    learner = cast(AlgebraicLearner, pack.learner)
    return EpochSums(_learner_sums(pack, training.state).merged(so_far.learner, learner.merge), metric)


def merge_sums(pack: Pack, left: EpochSums, right: EpochSums) -> EpochSums:
    """Return the sums of the blocks of both."""
    learner = cast(AlgebraicLearner, pack.learner)
    metric = left.metric.merged(right.metric, metrics.merge)
    return EpochSums(left.learner.merged(right.learner, learner.merge), metric)


def update(pack: Pack, training: Training, sums: EpochSums) -> Training:
    """Return the training after an algebraic epoch, from the sums over all blocks.

    Configs that stop by the metric of the same pass are still in the learner's sums and step; they are frozen afterwards,
    with their frozen models.
    """
    settled = settle(pack, training, waited_values(pack, training, sums.metric))
    if settled.state.done.all():
        return settled
    learner, problem = cast(AlgebraicLearner, pack.learner), pack.prepared.problem
    found = (pack.before, sums.learner.total(pack.prepared.n_blocks, learner.merge))
    known = [each for each in found if each is not None]
    if not known:
        raise ValueError("there are no training rows")
    total = functools.reduce(learner.merge, known)
    state = learner.step(problem, pack.configs, training.state, total)
    active = np.flatnonzero(~settled.state.done).tolist()
    state = replace(state, done=state.done | settled.state.done)
    kept = total if learner.declaration.one_pass and pack.state_bytes is not None else None
    return end_epoch(pack, replace(settled, state=state, sums=kept), active, learner.losses(state))


def visit(pack: Pack, training: Training) -> Training:
    """Return the training after a sequential learner visited the pack's blocks; the group's last block ends the epoch."""
    if not pack.prepared.train.n_blocks or not (training.visited or has_more(pack, training)):
        return training
    pack.check()
    if not training.visited:
        active = tuple(np.flatnonzero(~training.state.done).tolist())
        training = replace(training, active=active, ended=training.state if training.waiting else None)
    learner, rows = cast(SequentialLearner, pack.learner), pack.prepared.train
    judged = training.judged.merged(judge_blocks(pack, training), metrics.merge)
    state = blocks_visited(pack, learner, training, rows)
    training = replace(training, state=state, judged=judged, visited=training.visited + rows.n_blocks)
    if training.visited < pack.prepared.n_blocks:
        return training
    stopped_before = training.state.done
    settled = settle(pack, training, waited_values(pack, training, judged))
    stopped = settled.state.done & ~stopped_before
    going_on = [index for index in training.active if not stopped[index]]
    settled = replace(settled, visited=0, active=(), ended=None, judged=BlockSums())
    return end_epoch(pack, settled, going_on, learner.losses(state))


def blocks_visited(pack: Pack, learner: SequentialLearner, training: Training, rows: Shard | StoredShard) -> State:
    """Return the state after visiting the blocks; between blocks it checks for interrupts."""
    if rows.n_blocks == 1:
        return learner.train(pack.prepared.problem, pack.configs, training.state, rows.read(), training.epochs)
    state, rows = training.state, replace(rows, whole=rows.totals)
    for block in range(rows.first, rows.first + rows.n_blocks):
        pack.check()
        part = rows.part(block, block + 1).read()
        state = learner.train(pack.prepared.problem, pack.configs, state, part, training.epochs)
    return state


def _learner_sums(pack: Pack, state: State) -> BlockSums[Tensors]:
    learner = cast(AlgebraicLearner, pack.learner)
    sums: BlockSums[Tensors] = BlockSums()
    for block in pack.prepared.train.blocks():
        pack.check()
        own = learner.accumulate(pack.prepared.problem, pack.configs, state, block.read()) if block.n_rows else None
        sums = sums.merged(BlockSums.of(block.first, own), learner.merge)
    return sums


def _fit_algebraic(pack: Pack) -> Training:
    """The metric is measured before the sums: if all configs stop by it, sums are not needed."""
    training = begin(pack)
    while has_more(pack, training):
        pack.check()
        metric = judge_blocks(pack, training)
        if pack.patience is not None:
            settled = settle(pack, training, waited_values(pack, training, metric))
            if settled.state.done.all():
                return settled
        training = update(pack, training, EpochSums(_learner_sums(pack, training.state), metric))
        training = training if pack.learner.declaration.one_pass else _kept(pack, training)
    return judged_now(pack, training)


def _fit_sequential(pack: Pack, epoch: Callable[[Training], Training]) -> Training:
    training = begin(pack)
    while has_more(pack, training):
        training = _kept(pack, judged_now(pack, epoch(training)))
    return training


def _fit_epochs(pack: Pack) -> Training:
    """Train a learner of several epochs in a call, with the metric of every epoch where rows are held out."""
    training, learner, problem = begin(pack), cast(EpochsLearner, pack.learner), pack.prepared.problem
    rows = pack.prepared.train.read()
    values = (rows.x.size + problem.n_features) * len(pack.configs) * problem.n_outputs
    while has_more(pack, training):
        pack.check()
        first = training.epochs
        epochs = range(first, min(problem.epochs, first + max(1, _GONE_THROUGH // max(1, values))))
        found = learner.train_epochs(problem, pack.configs, training.state, rows, epochs, keeps_models=pack.judges)
        training = _kept(pack, judged_now(pack, _end_epochs(pack, training, found, _curve_values(pack, found))))
    return training


def _curve_values(pack: Pack, found: Descended) -> FloatArray:
    """Return the metric on held-out rows after each epoch, like ``found.curve``; NaN of configs that were done before."""
    values, valid = np.full(found.curve.shape, np.nan), pack.prepared.valid
    if found.models is None or valid is None or len(values) == 1:  # the last epoch is judged by ``judged_now``
        return values
    kept = found.models

    def scores(x: Matrix) -> FloatArray:
        return pack.learner.scores(pack.prepared.problem, pack.configs, kept, x)

    sums = measure(pack, valid, scores, by_row=pack.family.named(pack.metric).by_row)
    total = sums.total(pack.prepared.n_blocks, metrics.merge)
    if total is not None:
        values[:, found.epochs > 0] = pack.family.finish(total, pack.metric)[pack.metric].reshape(len(values), -1)
    return values


def _fit_rounds(pack: Pack) -> Training:
    """Many epochs are one call if none needs to be looked at."""
    training = begin(pack)
    learner, problem = cast(RoundsLearner, pack.learner), pack.prepared.problem
    rounds = LocalRounds(learner, problem, pack.configs, pack.check)
    if not has_more(pack, training):
        return training
    cells = rounds.cells(training.state, pack.prepared.train)
    training = replace(training, state=rounds.prepared(training.state, cells))
    values = sum(rows.x.size for rows, _ in cells if isinstance(rows, Shard)) * len(pack.configs) * problem.n_outputs
    while has_more(pack, training):
        pack.check()
        if pack.prepared.train.directory or rounds.is_within_epoch(training.state):
            training = _kept(pack, judged_now(pack, _epoch_of_rounds(pack, training, rounds, cells)))
            continue
        together = 1 if pack.judges else max(1, _GONE_THROUGH // max(1, values))
        found = learner.descend(
            problem, pack.configs, training.state, cells, min(together, problem.epochs - training.epochs)
        )
        training = _kept(pack, judged_now(pack, _end_epochs(pack, training, found)))
    return training


def _epoch_of_rounds(pack: Pack, training: Training, rounds: LocalRounds, cells: Sequence[Cell]) -> Training:
    """Return the training at the end of the epoch, a round at a time: the kernel needs no more than one cell in memory.

    Each round may be long, so a checkpoint may be due before the epoch ends.
    """
    learner, active, state = rounds.learner, np.flatnonzero(~training.state.done).tolist(), training.state
    ended = False
    while not ended:
        ended = learner.next_round(rounds.problem, pack.configs, state).ends_epoch
        state = rounds.after_round(state, cells, in_place=state is not training.state)
        if not ended:
            _kept(pack, replace(training, state=state))
    return end_epoch(pack, replace(training, state=state), active, learner.losses(state))


def _end_epochs(pack: Pack, training: Training, found: Descended, values: FloatArray | None = None) -> Training:
    """Return the training some epochs later, as by ``end_epoch`` for each, with the ``values`` of their metric (epochs, C).

    A single epoch waits for its metric.
    """
    began, last = training.epochs, training.epochs + len(found.curve)
    if len(found.curve) == 1:
        active = np.flatnonzero(found.epochs).tolist()
        return end_epoch(pack, replace(training, state=found.state), active, found.curve[0])
    fits, done = list(training.fits), found.state.done.copy()
    for index, epochs in enumerate(found.epochs.tolist()):
        losses = found.curve[:epochs, index].tolist()
        judged = [math.nan] * epochs if values is None else values[:epochs, index].tolist()
        fit, points = (
            fits[index],
            [CurvePoint(began + n, *each) for n, each in enumerate(zip(losses, judged, strict=True), start=1)],
        )
        finite = not losses or math.isfinite(losses[-1])
        reached = began + epochs - (not finite) if epochs else fit.epochs
        fits[index] = Fit(reached, [*fit.curve, *points], None, fit.diverged or not finite)
        done[index] |= not finite
    pack.report(int(found.epochs.sum()))
    return replace(training, state=replace(found.state, done=done), fits=tuple(fits), epochs=last)


def _kept(pack: Pack, training: Training) -> Training:
    """Return the training, after a checkpoint if one is due."""
    pack.keep(lambda: training)
    return training


def fit_together(pack: Pack, gang: Gang) -> Training:
    """Train a pack as a member of a gang, with its own blocks and all held-out rows; all members get the same models."""
    if pack.learner.access.in_one_go:
        return fit_sampling(pack, gang)
    if not trains_in_gangs(pack.learner):
        raise ValueError(f"{pack.learner.declaration.name} cannot train one model on several workers at the same time")
    learner = cast(DataParallelLearner, pack.learner)
    with learner.joined(gang) as together:
        return _fit_sequential(pack, lambda training: _descend(pack, learner, training, together))


def _descend(pack: Pack, learner: DataParallelLearner, training: Training, gang: Gang) -> Training:
    prepared, active = pack.prepared, np.flatnonzero(~training.state.done).tolist()
    pack.check()
    start, rows = training.state, prepared.train.read()
    state = learner.descend(prepared.problem, pack.configs, start, rows, training.epochs, gang)
    return end_epoch(pack, replace(training, state=state), active, learner.losses(state))


def fit_sampling(pack: Pack, gang: Gang | None = None) -> Training:
    """Boost a pack to its last round."""
    learner, prepared, training = cast(SamplingLearner, pack.learner), pack.prepared, begin(pack)
    begun = training

    def keep(state: Callable[[], State]) -> None:
        pack.keep(lambda: replace(begun, state=state()))

    stop = Stop(pack.metric, pack.patience, pack.cancelled, pack.expired, keep, pack.carries)
    problem, start = prepared.problem, training.state
    state, boosted = learner.boost(problem, pack.configs, start, prepared.train, prepared.valid, stop, gang)
    fits = []
    for rounds, curve in zip(boosted.rounds, boosted.curves, strict=True):
        points = [CurvePoint(number, math.nan, float(value)) for number, value in enumerate(curve, start=1)]
        fits.append(Fit(rounds, points))
    pack.report(sum(boosted.rounds) - sum(fit.epochs for fit in begun.fits))
    return replace(training, state=state, fits=tuple(fits))
