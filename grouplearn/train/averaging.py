"""Steps of rounds: a pass of one partition, the mean of a part of what all partitions made, and a model of all parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract.state import State, Tensors
from grouplearn.learners.contract.ways import AveragingLearner
from grouplearn.learners.metrics import sums as metrics
from grouplearn.learners.metrics.sums import MetricSums
from grouplearn.schedule.messages import Part
from grouplearn.schedule.rounds.stages import neighbours
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.fit import blocks_visited
from grouplearn.train.pack import EpochSums, Pack, Training, end_epoch, judge_blocks, settle, waited_values

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A part of a model: of one partition, of the mean of some (``combined``), or of all: then of the next model.

    ``weight`` is that of the rows that it saw, 0 where there are none. The first part says which configs are ``done``, and
    has the metric's sums of held-out rows, ``judged``. ``head`` is how far training has come without its tensors: before the
    pass in the first part of the first partition, after it in that of the next model.
    """

    tensors: Tensors
    weight: float = 0.0
    done: npt.NDArray[np.bool_] | None = None
    judged: BlockSums[MetricSums] = field(default_factory=BlockSums)
    head: Training | None = None
    combined: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """A product that lies in pieces, of which others may take one alone."""

    pieces: tuple[Any, ...]

    def taken(self, piece: Part | None) -> Any:
        """Return what a step takes: one piece, or all."""
        return self if piece is None else self.pieces[piece.number]


def model(pack: Pack, takes: Sequence[Any]) -> Training:
    """Return the training that a step takes: whole, or in parts, together with what an update noted."""
    parts = _of_kind(takes, ModelPart)
    noted = [*_of_kind(takes, Training), *(each.pieces[-1] for each in _of_kind(takes, Pieces))]
    if not parts:
        return cast(Training, noted[0])
    # A last update that is taken with the parts of a newer model is of the one before: ``update`` looks for it itself.
    head = noted[-1] if noted else parts[0].head
    if head is None:
        raise ValueError("a model came without its head")
    tensors = [part.tensors for part in parts]
    return replace(head, state=_learner(pack).of_parts(tensors, head.state.done))


def work(pack: Pack, takes: Sequence[Any], partition: Part, pieces: int) -> Pieces:
    """Return the model after a pass over the partition's rows, in pieces; held-out rows judge the model before it."""
    training = model(pack, takes)
    if partition.number == 0 and training.epochs and pack.patience is None:
        pack.keep(lambda: training)
    pack.check()
    judged, rows = judge_blocks(pack, training), pack.prepared.train.read()
    state = blocks_visited(pack, _learner(pack), training, rows) if rows.n_rows else training.state
    weight = float(rows.weight.sum())
    head = _head(training) if partition.number == 0 else None
    parts = [ModelPart(_learner(pack).part(state, number, pieces), weight) for number in range(pieces)]
    parts[0] = replace(parts[0], done=state.done, judged=judged, head=head)
    return Pieces(tuple(parts))


def combine(pack: Pack, takes: Sequence[Any]) -> ModelPart:
    """Return the mean of what neighbouring partitions made."""
    return _mean(pack, _parts(takes))


def reduce(pack: Pack, takes: Sequence[Any]) -> ModelPart:
    """Return a part of the next model: the mean of the means of neighbours. The first part ends the epoch.

    Where every epoch is judged for early stopping, ``update`` ends it, as the best models so far are kept whole.
    """
    parts = _parts(takes)
    if not parts[0].combined:
        parts = [_mean(pack, [parts[number] for number in run]) for run in neighbours(len(parts))]
    found = _mean(pack, parts)
    if found.head is None or pack.patience is not None:
        return found
    return replace(found, head=_ended(pack, found), judged=BlockSums(), done=None)


def judge(pack: Pack, takes: Sequence[Any]) -> EpochSums:
    """Return the metric sums of a partition's held-out rows after an epoch, for early stopping."""
    training = model(pack, takes)
    return EpochSums(metric=judge_blocks(pack, replace(training, waiting=_active(training))))


def update(pack: Pack, takes: Sequence[Any]) -> Pieces:
    """Return how far training has come after an epoch that was judged: what partitions need to go on, and with it the best
    models so far.

    ``takes`` are the parts of the new model, the sums of all judges, and the update before (or the first state).
    """
    parts = _of_kind(takes, ModelPart)
    first, last = parts[0], takes[-1]
    noted = cast(Training, last.pieces[-1] if isinstance(last, Pieces) else last)
    done = noted.state.done | _either(first.done, noted.state.done)
    state = _learner(pack).of_parts([part.tensors for part in parts], done)
    active = _active(noted)
    ended = end_epoch(pack, replace(noted, state=state), active, pack.learner.losses(state))
    judged: BlockSums[MetricSums] = BlockSums()
    for sums in _of_kind(takes, EpochSums):
        judged = judged.merged(sums.metric, metrics.merge)
    settled = settle(pack, ended, waited_values(pack, ended, judged))
    pack.keep(lambda: settled)
    heavy = _head(settled)
    return Pieces((replace(heavy, fits=()), heavy))


def head_of(product: Any) -> Training | None:
    """Return how far training has come by a product that says so, else None."""
    if isinstance(product, Pieces):
        product = product.pieces[-1]
    head = product.head if isinstance(product, ModelPart) else product
    return head if isinstance(head, Training) else None


def _ended(pack: Pack, part: ModelPart) -> Training:
    """Return the head after an epoch, by the first part of the mean: its losses, and what the model before was judged."""
    before = cast(Training, part.head)
    settled = settle(pack, before, waited_values(pack, before, part.judged))
    done = settled.state.done | _either(part.done, settled.state.done)
    losses = pack.learner.losses(State(dict(part.tensors), done))
    return _head(end_epoch(pack, replace(settled, state=State({}, done)), _active(before), losses))


def _mean(pack: Pack, parts: Sequence[ModelPart]) -> ModelPart:
    """Return the mean of the same part of several models; those that saw no rows do not count."""
    judged: BlockSums[MetricSums] = BlockSums()
    for part in parts:
        judged = judged.merged(part.judged, metrics.merge)
    head = next((part.head for part in parts if part.head is not None), None)
    seen = [part for part in parts if part.weight > 0]
    if len(seen) < 2:
        only = seen[0] if seen else parts[0]
        return replace(only, judged=judged, head=head, combined=True)
    weights = [part.weight for part in seen]
    done = [part.done for part in seen if part.done is not None]
    return ModelPart(
        _learner(pack).average([part.tensors for part in seen], weights),
        sum(weights),
        np.any(done, axis=0) if done else None,
        judged,
        head,
        combined=True,
    )


def _learner(pack: Pack) -> AveragingLearner:
    if not pack.learner.averages:
        raise ValueError(f"models of {pack.learner.name} cannot be averaged")
    return cast(AveragingLearner, pack.learner)


def _parts(takes: Sequence[Any]) -> list[ModelPart]:
    """Return what a step takes, of which a model in one piece may have come as all its pieces."""
    return [each.pieces[0] if isinstance(each, Pieces) else each for each in takes]


def _of_kind(takes: Iterable[Any], kind: type[Kind]) -> list[Kind]:
    return [each for each in takes if isinstance(each, kind)]


def _head(training: Training) -> Training:
    return replace(training, state=State({}, training.state.done))


def _active(training: Training) -> tuple[int, ...]:
    return tuple(np.flatnonzero(~training.state.done).tolist())


def _either(done: npt.NDArray[np.bool_] | None, otherwise: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return otherwise if done is None else done
