"""A pack in training: the progress of its configs, curves, the metric on held-out rows, early stopping.

The validation metric after an epoch needs a pass over held-out rows. If rows are split between workers, that pass is
combined with the next epoch's, so the last point of a curve has no metric until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from grouplearn.data import shard
from grouplearn.data.shard import FloatArray, Matrix, Shard, StoredShard
from grouplearn.kernels.library import calling_back
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.control import Interrupted
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.standard_errors import ErrorOptions
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.deviances import row_losses, with_losses
from grouplearn.models.metrics.metric import Family
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import Artifact, State, Tensors
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.results.trials import CurvePoint
from grouplearn.train.rows.prepare import Prepared

Scores = Callable[[Matrix], FloatArray]

#: Fewest rows measured at a time, however long their labels.
_FEWEST_MEASURED = 256


@contextmanager
def cancellable_kernels(cancelled: Callable[[], bool]) -> Iterator[None]:
    """Let kernels called in the body by this thread raise Interrupted soon after ``cancelled()`` became true."""

    def look() -> None:
        if cancelled():
            raise Interrupted

    with calling_back(look):
        yield


@dataclass(frozen=True, slots=True)
class Pack:
    """What is trained: ``configs`` of one learner on one prepared group (or part of it), and when to stop.

    Training begins at ``start`` if given, and begins no further epoch once ``expired()``. With ``carries`` its results
    contain what trials continue from. ``keep`` is called between epochs with a function that returns the progress, and
    writes a checkpoint when one is due. ``metrics`` are those of the finished models, on held-out rows and, if asked for, on
    training rows. ``state_bytes`` as in ``Job``. ``before`` are sums over earlier rows, to which a learner of one pass adds.
    ``keeps_model``: its models are part of the results.
    ``errors`` says which standard errors its models have, None if none.
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
    measures_training_rows: bool = True
    state_bytes: int | None = None
    before: Tensors | None = None
    keeps_model: bool = True
    errors: ErrorOptions | None = None

    def check(self) -> None:
        """Raise Interrupted if the run was cancelled."""
        if self.cancelled():
            raise Interrupted

    @property
    def family(self) -> Family:
        """The metrics of its models."""
        return registry.output_class(self.learner, self.prepared.problem.label).metrics

    @property
    def judges(self) -> bool:
        """Whether there are held-out rows."""
        return self.prepared.facts.n_valid > 0


@dataclass
class Fit:
    """One config of a pack during training.

    ``epochs`` counts the epochs of the model; ``artifact`` is the best model so far, with early stopping.
    """

    epochs: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    artifact: Artifact | None = None
    diverged: bool = False
    best: float = math.nan


@dataclass(frozen=True, slots=True)
class Training:
    """A pack between two steps: ``epochs`` are complete, the last points of the configs ``waiting`` have no metric yet.

    An unfinished sequential epoch has ``visited`` some of the blocks with the configs ``active``; ``ended`` is the state
    before it and ``judged`` that state's metric on the held-out rows passed since. An epoch of several rounds has
    ``visited`` some of these, with mean ``losses``. ``sums`` are those of a learner of one pass whose state is kept.
    """

    state: State
    fits: tuple[Fit, ...]
    epochs: int = 0
    waiting: tuple[int, ...] = ()
    visited: int = 0
    active: tuple[int, ...] = ()
    ended: State | None = None
    judged: BlockSums[MetricSums] = field(default_factory=BlockSums)
    losses: FloatArray | None = None
    sums: Tensors | None = None


@dataclass(frozen=True, slots=True)
class EpochSums:
    """The sums of some blocks in one epoch of an algebraic learner: the learner's, and those of the awaited metric."""

    learner: BlockSums[Tensors] = field(default_factory=BlockSums)
    metric: BlockSums[MetricSums] = field(default_factory=BlockSums)


def begin(pack: Pack) -> Training:
    """Return the training before the first epoch of this run."""
    pack.check()
    if pack.start is not None:
        return pack.start
    return Training(pack.learner.init(pack.prepared.problem, pack.configs), tuple(Fit() for _ in pack.configs))


def has_more(pack: Pack, training: Training) -> bool:
    """Return whether any config needs a further epoch."""
    left = training.epochs < pack.prepared.problem.epochs and not training.state.done.all()
    return left and not pack.expired()


def settle(pack: Pack, training: Training, values: Sequence[float]) -> Training:
    """Return the training with waiting points of curves completed, and configs that stop early by them done."""
    if not training.waiting:
        return training
    fits, done = list(training.fits), training.state.done.copy()
    reached = training.state if training.ended is None else training.ended
    for index, value in zip(training.waiting, values, strict=True):
        fits[index], stops = _judged(pack, fits[index], index, value, reached)
        done[index] |= stops
    return replace(training, state=replace(training.state, done=done), fits=tuple(fits), waiting=())


def waited_values(pack: Pack, training: Training, sums: BlockSums[MetricSums]) -> list[float]:
    """Return the metric of every waiting config, from its sums over all held-out rows."""
    if not training.waiting:
        return []
    total = sums.total(pack.prepared.n_blocks, metrics.merge)
    if total is None:
        return [math.nan for _ in training.waiting]
    return [float(value) for value in pack.family.finish(total, pack.metric)[pack.metric]]


def judge_blocks(pack: Pack, training: Training) -> BlockSums[MetricSums]:
    """Return the waiting configs' metric sums over the pack's held-out rows; None if no config waits."""
    valid = pack.prepared.valid
    if valid is None or not training.waiting:
        return BlockSums()
    state = training.state if training.ended is None else training.ended
    return measure(
        pack, valid, pack_scores(pack, state, training.waiting), by_row=pack.family.named(pack.metric).by_row
    )


def pack_scores(pack: Pack, state: State, chosen: Sequence[int]) -> Scores:
    """Return a function that predicts rows with the configs at positions ``chosen``."""
    everything = len(chosen) == len(pack.configs)

    def scores(x: Matrix) -> FloatArray:
        all_scores = pack.learner.scores(pack.prepared.problem, pack.configs, state, x)
        return all_scores if everything else all_scores[:, list(chosen), :]

    return scores


def measure(pack: Pack, rows: Shard | StoredShard, scores: Scores, by_row: bool = True) -> BlockSums[MetricSums]:
    """Return the metric sums of ``rows`` by block; blocks of more than ``BLOCK_ROWS`` label values are processed in runs.

    Only areas need values per row: without ``by_row`` these are dropped, and not sent between workers.
    """
    problem, losses = pack.prepared.problem, row_losses((*pack.metrics, pack.metric), pack.configs[0])
    sums: BlockSums[MetricSums] = BlockSums()
    for block in rows.blocks():
        total = None
        most = max(_FEWEST_MEASURED, shard.BLOCK_ROWS // problem.label_length)
        for run in (each.read() for each in block.blocks(most)):
            pack.check()
            predicted = scores(run.x)
            own = metrics.measure(pack.family, problem.n_classes, predicted, run.y, run.weight, problem.n_unseen)
            own = with_losses(own, losses, predicted, run.y, run.weight)
            own = own if by_row else own.without_rows()
            total = own if total is None else metrics.merge(total, own)
        sums = sums.merged(BlockSums.of(block.first, total), metrics.merge)
    return sums


def diverged(learner: Learner) -> str:
    """Return the reason of a trial whose objective became infinite."""
    names = [each.name for each in learner.declaration.hyperparameters if each.remedy == "lower"]
    lower = f"lower {' or '.join(names)}, or " if names else ""
    hint = f"{lower}bring the features to one scale, as zscore(...) does"
    return f"diverged: the objective became infinite; hint: {hint}"


def judged_now(pack: Pack, training: Training) -> Training:
    """Return the training of a whole group with the points of curves completed."""
    return settle(pack, training, waited_values(pack, training, judge_blocks(pack, training)))


def end_epoch(pack: Pack, training: Training, active: Sequence[int], losses: FloatArray) -> Training:
    """Return the training with a further point on the curves of ``active``, which wait for its metric if there is one."""
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
    """Return one config with the metric of its last point; and whether it must stop."""
    last = fit.curve[-1]
    point = CurvePoint(last.epoch, last.train_loss, value)
    fit = Fit(fit.epochs, [*fit.curve[:-1], point], fit.artifact, fit.diverged, fit.best)
    if not math.isfinite(point.train_loss):
        return fit, True
    if pack.patience is None or math.isnan(value):
        # NaN says nothing about when to stop.
        if fit.artifact is None:
            fit.epochs = point.epoch
        return fit, False
    if math.isnan(fit.best) or _better(pack, value, fit.best):
        artifact = pack.learner.finalize(pack.prepared.problem, pack.configs, state, index)
        return replace(fit, best=value, epochs=point.epoch, artifact=artifact), False
    return fit, point.epoch - fit.epochs >= pack.patience


def _better(pack: Pack, value: float, than: float) -> bool:
    return value > than if pack.family.named(pack.metric).greater_is_better else value < than
