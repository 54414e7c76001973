"""Training of one pack: what each access pattern does in an epoch, curves, early stopping.

A whole group and a group that is split between workers train by the same functions: a whole one calls them in a loop
(``fit_pack``), a split one through steps on several workers. The validation metric after an epoch comes from a pass over
held-out rows; where rows are split that pass is made together with the next epoch's, so the points of curves wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from grouplearn.data import shard
from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.kernels.library import asking
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Gang, Interrupted, Stop
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.state import Artifact, State, Tensors
from grouplearn.learners.contract.ways import (
    AlgebraicLearner,
    DataParallelLearner,
    Descended,
    RoundsLearner,
    SamplingLearner,
    SequentialLearner,
)
from grouplearn.learners.metrics import sums as metrics
from grouplearn.learners.metrics.deviances import row_losses, with_losses
from grouplearn.learners.metrics.sums import MetricSums
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.job import CurvePoint
from grouplearn.train.rounds import Rounds
from grouplearn.train.rows.prepare import Prepared

Scores = Callable[[Matrix], FloatArray]

#: Rows measured at a time at least, however long their labels.
_FEWEST_MEASURED = 256
#: Values, of every model, that rounds go through between two looks at what the run wishes: some tenths of a second.
_GONE_THROUGH = 1 << 24


@contextmanager
def kernels_hear(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let the kernels that this thread calls in the body raise Interrupted soon after ``cancelled()`` became true."""

    def look() -> None:
        if cancelled():
            raise Interrupted

    with asking(look):
        yield


@dataclass(frozen=True, slots=True)
class Pack:
    """What is trained: ``configs`` of one learner on one prepared group (or part of it), and when to stop.

    Training begins at ``start`` if there is one, and begins no further epoch once ``expired()``. With ``carries`` its
    results can be gone on from. ``keep`` is told between epochs how to find out what was reached, and writes it down when
    it is time. ``metrics`` are those of the finished models.
    """

    learner: Learner
    configs: tuple[Config, ...]
    prepared: Prepared
    metric: str
    patience: int | None
    report: Callable[[int], None]
    cancelled: Callable[[], bool]
    start: Training | None = None
    carries: bool = False
    expired: Callable[[], bool] = lambda: False
    keep: Callable[[Callable[[], Training]], None] = lambda _: None
    metrics: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise Interrupted when the run was cancelled."""
        if self.cancelled():
            raise Interrupted

    @property
    def judges(self) -> bool:
        """Whether there are held-out rows."""
        return self.prepared.facts.n_valid > 0


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


@dataclass(frozen=True, slots=True)
class Training:
    """A pack between two steps: ``epochs`` are complete, the last points of the configs ``waiting`` have no metric yet.

    A sequential epoch that is under way has ``visited`` some of the blocks with the configs ``active``; ``ended`` is the
    state before it and ``judged`` that state's metric on the held-out rows passed since.
    """

    state: State
    fits: tuple[Fit, ...]
    epochs: int = 0
    waiting: tuple[int, ...] = ()
    visited: int = 0
    active: tuple[int, ...] = ()
    ended: State | None = None
    judged: BlockSums[MetricSums] = field(default_factory=BlockSums)


@dataclass(frozen=True, slots=True)
class EpochSums:
    """The sums of some blocks in one epoch of an algebraic learner: of the learner, and of the metric that is waited for."""

    learner: BlockSums[Tensors] = field(default_factory=BlockSums)
    metric: BlockSums[MetricSums] = field(default_factory=BlockSums)


def fit_pack(pack: Pack) -> Training:
    """Train a pack on a whole group to its last epoch; raises Interrupted, and whatever the learner raises."""
    access = pack.learner.access
    if access.in_one_go:
        return fit_sampling(pack)
    if access.in_rounds:
        return _fit_rounds(pack)
    return _fit_sequential(pack, lambda training: visit(pack, training)) if access.visits else _fit_algebraic(pack)


def begin(pack: Pack) -> Training:
    """Return the training before the first epoch of this run."""
    pack.check()
    if pack.start is not None:
        return pack.start
    return Training(pack.learner.init(pack.prepared.problem, pack.configs), tuple(Fit() for _ in pack.configs))


def has_more(pack: Pack, training: Training) -> bool:
    """Return whether any config is to have a further epoch."""
    left = training.epochs < pack.prepared.problem.epochs and not training.state.done.all()
    return left and not pack.expired()


def accumulate(pack: Pack, training: Training, so_far: EpochSums | None = None) -> EpochSums:
    """Return ``so_far`` with the sums of the pack's blocks added; learners' sums are at the state, metrics at its models."""
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
    """Return the training after an algebraic epoch whose sums over all blocks are given.

    Configs that stop by the metric made in the same pass are part of the learner's sums, and so of its step: it is only
    afterwards that they are left alone. Their models are the frozen ones.
    """
    settled = settle(pack, training, waited_values(pack, training, sums.metric))
    if settled.state.done.all():
        return settled
    learner, problem = cast(AlgebraicLearner, pack.learner), pack.prepared.problem
    total = sums.learner.total(pack.prepared.n_blocks, learner.merge)
    if total is None:
        raise ValueError("there are no training rows")
    state = learner.step(problem, pack.configs, training.state, total)
    active = np.flatnonzero(~settled.state.done).tolist()
    state = replace(state, done=state.done | settled.state.done)
    return end_epoch(pack, replace(settled, state=state), active, learner.losses(state))


def visit(pack: Pack, training: Training) -> Training:
    """Return the training after a sequential learner visited the pack's blocks; the last of the group ends the epoch."""
    if not pack.prepared.train.n_blocks or not (training.visited or has_more(pack, training)):
        return training
    pack.check()
    if not training.visited:
        active = tuple(np.flatnonzero(~training.state.done).tolist())
        training = replace(training, active=active, ended=training.state if training.waiting else None)
    learner, rows = cast(SequentialLearner, pack.learner), pack.prepared.train.read()
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


def blocks_visited(pack: Pack, learner: SequentialLearner, training: Training, rows: Shard) -> State:
    """Return the state after a visit of the blocks, between which somebody may wish to stop."""
    if rows.n_blocks == 1:
        return learner.train(pack.prepared.problem, pack.configs, training.state, rows, training.epochs)
    state, rows = training.state, replace(rows, whole=rows.totals)
    for block in range(rows.first, rows.first + rows.n_blocks):
        pack.check()
        part = rows.part(block, block + 1)
        state = learner.train(pack.prepared.problem, pack.configs, state, part, training.epochs)
    return state


def settle(pack: Pack, training: Training, values: Sequence[float]) -> Training:
    """Return the training with the waiting points of curves complete, and configs done that stop early by them."""
    fits, done = list(training.fits), training.state.done.copy()
    reached = training.state if training.ended is None else training.ended
    for index, value in zip(training.waiting, values, strict=True):
        fits[index], stops = _judged(pack, fits[index], index, value, reached)
        done[index] |= stops
    return replace(training, state=replace(training.state, done=done), fits=tuple(fits), waiting=())


def waited_values(pack: Pack, training: Training, sums: BlockSums[MetricSums]) -> list[float]:
    """Return the metric of every waiting config from its sums over all held-out rows."""
    if not training.waiting:
        return []
    total = sums.total(pack.prepared.n_blocks, metrics.merge)
    if total is None:
        return [math.nan for _ in training.waiting]
    return [float(value) for value in metrics.finish(total, pack.metric)[pack.metric]]


def judge_blocks(pack: Pack, training: Training) -> BlockSums[MetricSums]:
    """Return the waiting configs' metric sums over the pack's held-out rows; nothing when nobody waits."""
    valid = pack.prepared.valid
    if valid is None or not training.waiting:
        return BlockSums()
    state = training.state if training.ended is None else training.ended
    return measure(pack, valid, pack_scores(pack, state, training.waiting), by_row=metrics.METRICS[pack.metric].by_row)


def pack_scores(pack: Pack, state: State, chosen: Sequence[int]) -> Scores:
    """Return the function from rows to the predictions of the configs at positions ``chosen``."""
    everything = len(chosen) == len(pack.configs)

    def scores(x: Matrix) -> FloatArray:
        all_scores = pack.learner.scores(pack.prepared.problem, pack.configs, state, x)
        return all_scores if everything else all_scores[:, list(chosen), :]

    return scores


def measure(pack: Pack, rows: Shard | StoredShard, scores: Scores, by_row: bool = True) -> BlockSums[MetricSums]:
    """Return the metric sums of ``rows`` by block; a block of more than ``BLOCK_ROWS`` label values is passed a run at a time.

    Only areas need what sums keep of each row: without ``by_row`` it is left out, and does not move between workers.
    """
    problem, losses = pack.prepared.problem, row_losses((*pack.metrics, pack.metric), pack.configs[0])
    sums: BlockSums[MetricSums] = BlockSums()
    for block in rows.blocks():
        total = None
        most = max(_FEWEST_MEASURED, shard.BLOCK_ROWS // problem.label_length)
        for run in (each.read() for each in block.blocks(most)):
            pack.check()
            predicted = scores(run.x)
            own = metrics.measure(problem.task, problem.n_classes, predicted, run.y, run.weight, problem.n_unseen)
            own = with_losses(own, losses, predicted, run.y, run.weight)
            own = own if by_row else own.without_rows()
            total = own if total is None else metrics.merge(total, own)
        sums = sums.merged(BlockSums.of(block.first, total), metrics.merge)
    return sums


def _learner_sums(pack: Pack, state: State) -> BlockSums[Tensors]:
    learner = cast(AlgebraicLearner, pack.learner)
    sums: BlockSums[Tensors] = BlockSums()
    for block in pack.prepared.train.blocks():
        pack.check()
        own = learner.accumulate(pack.prepared.problem, pack.configs, state, block.read()) if block.n_rows else None
        sums = sums.merged(BlockSums.of(block.first, own), learner.merge)
    return sums


def diverged(learner: Learner) -> str:
    """Return the reason of a trial whose objective became infinite."""
    names = {parameter.name for parameter in learner.hyperparameters}
    lower = "lower learning_rate, or " if "learning_rate" in names else ""
    hint = f"{lower}bring the features to one scale, as zscore(...) does"
    return f"diverged: the objective became infinite; hint: {hint}"


def _fit_algebraic(pack: Pack) -> Training:
    """The metric is measured before the sums: where all configs stop by it, these are not needed."""
    training = begin(pack)
    while has_more(pack, training):
        pack.check()
        metric = judge_blocks(pack, training)
        if pack.patience is not None:
            settled = settle(pack, training, waited_values(pack, training, metric))
            if settled.state.done.all():
                return settled
        training = _kept(pack, update(pack, training, EpochSums(_learner_sums(pack, training.state), metric)))
    return judged_now(pack, training)


def _fit_sequential(pack: Pack, epoch: Callable[[Training], Training]) -> Training:
    training = begin(pack)
    while has_more(pack, training):
        training = _kept(pack, judged_now(pack, epoch(training)))
    return training


def _fit_rounds(pack: Pack) -> Training:
    """Many epochs are one call where nobody looks at each."""
    training = begin(pack)
    learner, problem = cast(RoundsLearner, pack.learner), pack.prepared.problem
    rounds = Rounds(learner, problem, pack.configs, pack.check)
    if not has_more(pack, training):
        return training
    cells = rounds.cells(training.state, pack.prepared.train.read())
    training = replace(training, state=rounds.prepared(training.state, cells))
    values = sum(rows.x.size for rows, _ in cells) * len(pack.configs) * problem.n_outputs
    while has_more(pack, training):
        pack.check()
        together = 1 if pack.judges else max(1, _GONE_THROUGH // max(1, values))
        found = learner.descend(
            problem, pack.configs, training.state, cells, min(together, problem.epochs - training.epochs)
        )
        training = _kept(pack, judged_now(pack, _end_epochs(pack, training, found)))
    return training


def _end_epochs(pack: Pack, training: Training, found: Descended) -> Training:
    """Return the training some epochs later, of which the metric waits for the last: but for this, as ``end_epoch`` of each."""
    began, last = training.epochs, training.epochs + len(found.curve)
    if len(found.curve) == 1:
        active = np.flatnonzero(found.epochs).tolist()
        return end_epoch(pack, replace(training, state=found.state), active, found.curve[0])
    fits, done = list(training.fits), found.state.done.copy()
    for index, epochs in enumerate(found.epochs.tolist()):
        losses = found.curve[:epochs, index].tolist()
        fit, points = fits[index], [CurvePoint(began + n, loss, math.nan) for n, loss in enumerate(losses, start=1)]
        finite = not losses or math.isfinite(losses[-1])
        reached = began + epochs - (not finite) if epochs else fit.epochs
        fits[index] = Fit(reached, [*fit.curve, *points], None, fit.diverged or not finite)
        done[index] |= not finite
    pack.report(int(found.epochs.sum()))
    return replace(training, state=replace(found.state, done=done), fits=tuple(fits), epochs=last)


def _kept(pack: Pack, training: Training) -> Training:
    """Return the training, written down if it is time."""
    pack.keep(lambda: training)
    return training


def judged_now(pack: Pack, training: Training) -> Training:
    """Return the training of a whole group with the points of curves complete."""
    return settle(pack, training, waited_values(pack, training, judge_blocks(pack, training)))


def end_epoch(pack: Pack, training: Training, active: Sequence[int], losses: FloatArray) -> Training:
    """Return the training with a further point on the curves of ``active``; they wait for its metric if there is one."""
    fits, done = list(training.fits), training.state.done.copy()
    for index in active:
        point = CurvePoint(training.epochs + 1, float(losses[index]), math.nan)
        fit = fits[index]
        fits[index] = Fit(fit.epochs, [*fit.curve, point], fit.artifact, fit.diverged, fit.best)
        if not math.isfinite(point.train_loss):
            fits[index].diverged, done[index] = fits[index].artifact is None, True
    pack.report(len(active))
    state = replace(training.state, done=done)
    ended = replace(training, state=state, fits=tuple(fits), epochs=training.epochs + 1, waiting=tuple(active))
    return ended if pack.judges else settle(pack, ended, [math.nan for _ in active])


def _judged(pack: Pack, fit: Fit, index: int, value: float, state: State) -> tuple[Fit, bool]:
    """Return one config with the metric on its last point; and whether the config is to stop."""
    last = fit.curve[-1]
    point = CurvePoint(last.epoch, last.train_loss, value)
    fit = Fit(fit.epochs, [*fit.curve[:-1], point], fit.artifact, fit.diverged, fit.best)
    if not math.isfinite(point.train_loss):
        return fit, True
    if pack.patience is None or math.isnan(value):
        # A metric that is not a number says nothing about when to stop.
        if fit.artifact is None:
            fit.epochs = point.epoch
        return fit, False
    if math.isnan(fit.best) or _better(pack.metric, value, fit.best):
        artifact = pack.learner.finalize(pack.prepared.problem, pack.configs, state, index)
        return replace(fit, best=value, epochs=point.epoch, artifact=artifact), False
    return fit, point.epoch - fit.epochs >= pack.patience


def _better(metric: str, value: float, than: float) -> bool:
    return value > than if metrics.METRICS[metric].greater_is_better else value < than


def fit_together(pack: Pack, gang: Gang) -> Training:
    """Train a pack as one member of a gang, each with blocks of its own and all held-out rows; all get the same models."""
    if pack.learner.access.in_one_go:
        return fit_sampling(pack, gang)
    if not pack.learner.in_gangs:
        raise ValueError(f"{pack.learner.name} cannot train one model on several workers at the same time")
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

    stop = Stop(pack.metric, pack.patience, pack.cancelled, pack.expired, keep)
    problem, start = prepared.problem, training.state
    state, boosted = learner.boost(problem, pack.configs, start, prepared.train, prepared.valid, stop, gang)
    fits = []
    for rounds, curve in zip(boosted.rounds, boosted.curves, strict=True):
        points = [CurvePoint(number, math.nan, float(value)) for number, value in enumerate(curve, start=1)]
        fits.append(Fit(rounds, points))
    pack.report(sum(boosted.rounds))
    return replace(training, state=state, fits=tuple(fits))
