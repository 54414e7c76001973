"""Steps of a parameter server: a partition's push, and a part of the model after some pushes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data.shard import FloatArray
from grouplearn.learners.contract import averaging as contract
from grouplearn.learners.contract.averaging import Names
from grouplearn.learners.contract.optional import stops_between_batches
from grouplearn.learners.contract.ways import AveragingLearner, BatchesLearner, Piece
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import State, Tensors
from grouplearn.schedule.messages import Part, Push, Step
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.pack import Pack, Training, has_more, judge_blocks, settle, waited_values
from grouplearn.train.sharded import averaging, partition_work
from grouplearn.train.sharded.averaging import ModelPart, Pieces


@dataclass(frozen=True, slots=True)
class ClockReport:
    """A partition's report on its ``clock``, counted from 0: the ``losses`` of rows of ``weight``, which configs are
    ``done`` and, at the beginning of an epoch, the scores of the pulled model on its held-out rows."""

    clock: int
    of: int
    losses: FloatArray
    weight: float
    done: npt.NDArray[np.bool_]
    judged: BlockSums[MetricSums] = field(default_factory=BlockSums)


@dataclass(frozen=True, slots=True)
class PushPart:
    """A part of a partition's push, weighted by its ``share``; the first has its note."""

    tensors: Tensors
    share: float
    note: ClockReport | None = None


@dataclass(frozen=True, slots=True)
class ServedPart(ModelPart):
    """A part of the model that partitions pull from and push to; ``begun``: epochs before the first clock.

    The first part's ``head`` is the progress of all partitions; ``notes`` are of clocks that some have not pushed yet.
    """

    begun: int = 0
    notes: tuple[ClockReport, ...] = ()


def work(pack: Pack, takes: Sequence[Any], step: Step) -> Pieces:
    """Return a partition's push after its rows of a clock, in pieces: the change to the model that it pulled.

    The first partition checkpoints the model with which it begins an epoch; a run resumed from it repeats that epoch's
    pushes. In resumed training, clocks beyond the last epoch change nothing.
    """
    pulled, begun = averaging.model(pack, takes), _begun(takes[0])
    partition, epoch = cast(Part, step.partition), begun + step.epoch
    if partition.number == 0 and step.stretch.number == 0 and pulled.epochs > begun:
        reached = replace(pulled, visited=0, active=(), losses=None)
        pack.keep(lambda: reached)
    pack.check()
    begins = step.stretch.number == 0 and (step.epoch > 0 or bool(pulled.waiting))
    judged: BlockSums[MetricSums] = judge_blocks(pack, _all_wait(pack, pulled)) if begins else BlockSums()
    before = _started(pack, pulled.state) if isinstance(takes[0], Training) else pulled.state
    if epoch >= pack.prepared.problem.epochs:
        return Pieces((PushPart({}, 0.0),) * step.pieces)
    made = partition_work.trained(pack, replace(pulled, epochs=epoch, state=before), step)
    share = made.rows.total_weight() / pack.prepared.train.totals.weight
    clock = step.epoch * step.stretch.of + step.stretch.number
    note = ClockReport(clock, partition.of, pack.learner.losses(made.state), made.weight, made.done, judged)
    learner, pieces = _learner(pack), [Piece(number, step.pieces) for number in range(step.pieces)]
    pushes = [
        PushPart(contract.changed(learner.part(before, *piece), made.piece(piece), learner.summed()), share)
        for piece in pieces
    ]
    pushes[0] = replace(pushes[0], note=note)
    return Pieces(tuple(pushes))


def push(pack: Pack, takes: Sequence[Any], step: Step) -> ServedPart:
    """Return a part of the model after some partitions' pushes, applied in order.

    The first part has the progress of all: an epoch ends with the last partition's last push.
    """
    *pushes, before = takes
    part = before if isinstance(before, ServedPart) else _first(pack, before, cast(Part, step.piece))
    learner, tensors = _learner(pack), part.tensors
    names = Names(learner.summed(), learner.averaged)
    for each in pushes:
        if each.share > 0:
            tensors = contract.with_push(tensors, each.tensors, each.share, names)
    part = replace(part, tensors=tensors)
    if part.head is None:
        return part
    return _noted(pack, part, [each.note for each in pushes if each.note is not None], step.stretch.of)


def whole_order(step: Step, takes: Sequence[Any]) -> tuple[Push, ...]:
    """Return all pushes that made the model that a step finishes; none if it resumed from an earlier run's checkpoint."""
    return () if any(isinstance(each, ServedPart) and each.begun for each in takes) else step.pushes


def _noted(pack: Pack, part: ServedPart, new: Sequence[ClockReport], rounds: int) -> ServedPart:
    """Return the first part with the notes of pushes; clocks that all partitions have pushed are completed in order."""
    head, notes = cast(Training, part.head), [*part.notes, *new]
    while head.visited or has_more(pack, head):
        clock = (head.epochs - part.begun) * rounds + head.visited
        found = [note for note in notes if note.clock == clock]
        if not found or len(found) < found[0].of:
            break
        notes = [note for note in notes if note.clock != clock]
        head = _clock_over(pack, head, found, rounds)
    return replace(part, head=head, notes=tuple(notes))


def _clock_over(pack: Pack, head: Training, notes: Sequence[ClockReport], rounds: int) -> Training:
    """Return the progress of all after a clock: curves get the mean loss of its pushes, and held-out rows score the epoch
    before, each partition's by the model that it pulled then."""
    active = head.active if head.visited else tuple(np.flatnonzero(~head.state.done).tolist())
    if head.waiting:
        judged: BlockSums[MetricSums] = BlockSums()
        for note in notes:
            judged = judged.merged(note.judged, metrics.merge)
        values = waited_values(pack, _all_wait(pack, head), judged)
        head = settle(pack, head, [values[index] for index in head.waiting])
    seen = [note for note in notes if note.weight > 0]
    done = np.any([head.state.done, *(note.done for note in seen)], axis=0)
    with np.errstate(all="ignore"):
        losses = np.average([note.losses for note in seen], axis=0, weights=[note.weight for note in seen])
    return averaging.round_ended(pack, averaging.in_epoch(head, losses, done, active), ends=head.visited + 1 == rounds)


def _all_wait(pack: Pack, training: Training) -> Training:
    """Return the training with all configs waiting for the metric, as only the slowest partition knows which ones do."""
    return replace(training, waiting=tuple(range(len(pack.configs))))


def _first(pack: Pack, first: Training, piece: Part) -> ServedPart:
    """Return a part of the initial model."""
    state, head = _started(pack, first.state), replace(first, state=State({}, first.state.done))
    tensors = _learner(pack).part(state, piece.number, piece.of)
    return ServedPart(tensors, head=head if piece.number == 0 else None, begun=first.epochs)


def _started(pack: Pack, state: State) -> State:
    """Return the initial model with what a learner sets from the labels, which is no change by a partition."""
    if not stops_between_batches(pack.learner):
        return state
    learner, prepared = cast(BatchesLearner, pack.learner), pack.prepared
    return State(
        dict(learner.started(prepared.problem, pack.configs, state.tensors, prepared.train.totals)), state.done
    )


def _begun(first: Any) -> int:
    return first.epochs if isinstance(first, Training) else cast(ServedPart, first).begun


def _learner(pack: Pack) -> AveragingLearner:
    return cast(AveragingLearner, pack.learner)
