"""Steps of model averaging: a partition's model or gradient, the mean of a part over all partitions, the joined model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from grouplearn.learners.contract import averaging
from grouplearn.learners.contract.optional import can_be_averaged
from grouplearn.learners.contract.ways import AveragingLearner, BatchesLearner, Piece
from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import FloatArray, State, Tensors
from grouplearn.schedule.messages import Part, Step
from grouplearn.schedule.rounds.stages import neighbours
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.pack import EpochSums, Pack, Training, end_epoch, judge_blocks, settle, waited_values
from grouplearn.train.sharded import partition_work
from grouplearn.train.sharded.partition_work import Work

Kind = TypeVar("Kind")

#: Prefix of state tensors with the velocity of a parameter.
_VELOCITY = "velocity of "


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A part of a model: of one partition, of the mean of some (``combined``), or of the next model.

    ``weight`` is the weight of its rows, 0 for none; if gradients are sent, ``tensors`` are sums. ``done`` says which
    configs are done. The first part has ``judged``, the metric sums of held-out rows. ``head`` is the training without its
    tensors: the first partition's first part has it as it was before the pass, the next model's as it is after it.
    ``velocity`` is the last round's change of each parameter, with outer momentum.
    """

    tensors: Tensors
    weight: float = 0.0
    done: npt.NDArray[np.bool_] | None = None
    velocity: Tensors = field(default_factory=dict)
    judged: BlockSums[MetricSums] = field(default_factory=BlockSums)
    head: Training | None = None
    combined: bool = False


@dataclass(frozen=True, slots=True)
class Pieces:
    """A product in pieces, which can be fetched separately."""

    pieces: tuple[Any, ...]

    def taken(self, piece: Part | None) -> Any:
        """Return what a step takes: one piece, or all."""
        return self if piece is None else self.pieces[piece.number]


def model(pack: Pack, takes: Sequence[Any]) -> Training:
    """Return the training that a step takes, whole or joined from parts, with the note of the last update."""
    parts = _of_kind(takes, ModelPart)
    noted = [*_of_kind(takes, Training), *(each.pieces[-1] for each in _of_kind(takes, Pieces))]
    if not parts:
        return cast(Training, noted[0])
    # An update fetched with parts of a newer model belongs to the model before; ``update`` handles that itself.
    head = noted[-1] if noted else parts[0].head
    if head is None:
        raise ValueError("a model came without its head")
    return replace(head, state=_joined(pack, parts, head.state.done))


def work(pack: Pack, takes: Sequence[Any], step: Step) -> Pieces:
    """Return a partition's product after its rows of the round, in pieces: the model after a pass over them, or gradient sums.

    Held-out rows score the model before the pass.
    """
    training, first = model(pack, takes), step.partition is None or step.partition.number == 0
    if first and training.epochs and not training.visited and pack.patience is None:
        pack.keep(lambda: training)
    pack.check()
    judged = judge_blocks(pack, training)
    bare = replace(training, state=State(_without_velocity(training.state)[0], training.state.done))
    made = partition_work.gradients if step.averages.of_gradients else partition_work.trained
    found: Work = made(pack, bare, step)
    pieces = (found.piece(Piece(number, step.pieces)) for number in range(step.pieces))
    parts = [ModelPart(piece, found.weight, found.done) for piece in pieces]
    parts[0] = replace(parts[0], judged=judged, head=_head(training) if first else None)
    return Pieces(tuple(parts))


def combine(pack: Pack, takes: Sequence[Any], step: Step) -> ModelPart:
    """Return the mean (or for gradients the sum) of neighbouring partitions."""
    return _combined(pack, _parts(takes), step)


def reduce(pack: Pack, takes: Sequence[Any], step: Step) -> ModelPart:
    """Return a part of the next model: the mean of the neighbours' means, or one step by the mean gradient.

    The first part ends the round and, if it is the last, the epoch. With early stopping ``update`` ends the epoch instead,
    as the best models so far are kept whole.
    """
    before, averages = None, step.averages
    if averages.from_before:
        *takes, before = takes
    parts = _parts(takes)
    if not parts[0].combined:
        parts = [_combined(pack, [parts[number] for number in run], step) for run in neighbours(len(parts))]
    found = _combined(pack, parts, step)
    if before is not None:
        found = _moved(pack, _part_of(pack, before, step), found, step)
    if found.head is None:
        return found
    ends = step.stretch.number + 1 == step.stretch.of
    if pack.patience is not None:
        return found if ends else replace(found, head=_in_epoch(pack, found, found.head))
    return replace(found, head=_ended(pack, found, ends), judged=BlockSums())


def judge(pack: Pack, takes: Sequence[Any]) -> EpochSums:
    """Return the metric sums of a partition's held-out rows after an epoch, for early stopping."""
    training = model(pack, takes)
    return EpochSums(metric=judge_blocks(pack, replace(training, waiting=_trained(training))))


def update(pack: Pack, takes: Sequence[Any]) -> Pieces:
    """Return the training after an evaluated epoch: what partitions need to continue, and the best models so far.

    ``takes`` are the parts of the new model, all metric sums, and the previous update (or the first state).
    """
    parts = _of_kind(takes, ModelPart)
    first, last = parts[0], takes[-1]
    noted = cast(Training, last.pieces[-1] if isinstance(last, Pieces) else last)
    done = noted.state.done | _either(first.done, noted.state.done)
    state = _joined(pack, parts, done)
    ended = end_epoch(
        pack, replace(noted, state=state), _active(noted), _mean_losses(pack.learner.losses(state), first.head)
    )
    judged: BlockSums[MetricSums] = BlockSums()
    for sums in _of_kind(takes, EpochSums):
        judged = judged.merged(sums.metric, metrics.merge)
    settled = settle(pack, ended, waited_values(pack, ended, judged))
    pack.keep(lambda: settled)
    heavy = _head(settled)
    return Pieces((replace(heavy, fits=()), heavy))


def head_of(product: Any) -> Training | None:
    """Return the head of the training that a product contains, else None."""
    if isinstance(product, Pieces):
        product = product.pieces[-1]
    head = product.head if isinstance(product, ModelPart) else product
    return head if isinstance(head, Training) else None


def _ended(pack: Pack, part: ModelPart, ends: bool) -> Training:
    """Return the head after a round, from the first part of the mean: with the scores of the previous model and, if the
    epoch ``ends``, the losses."""
    before = cast(Training, part.head)
    settled = settle(pack, before, waited_values(pack, before, part.judged))
    return round_ended(pack, _in_epoch(pack, part, settled, _trained(before)), ends)


def round_ended(pack: Pack, after: Training, ends: bool) -> Training:
    """Return the head after a round whose losses it already has, and after the epoch if that ``ends``."""
    if not ends:
        return after
    over = replace(after, visited=0, active=(), losses=None)
    return _head(end_epoch(pack, over, after.active, cast(FloatArray, after.losses)))


def _in_epoch(pack: Pack, part: ModelPart, before: Training, active: tuple[int, ...] | None = None) -> Training:
    """Return the head after a round within an epoch."""
    done = before.state.done | _either(part.done, before.state.done)
    losses = pack.learner.losses(State(dict(part.tensors), done))
    return in_epoch(before, losses, done, _trained(before) if active is None else active)


def in_epoch(before: Training, losses: FloatArray, done: npt.NDArray[np.bool_], active: tuple[int, ...]) -> Training:
    """Return the head after a round with these losses, in which the configs ``active`` trained."""
    losses = _mean_losses(losses, before)
    return replace(before, state=State({}, done), visited=before.visited + 1, active=active, losses=losses)


def _mean_losses(losses: FloatArray, head: Training | None) -> FloatArray:
    """Return the mean losses of an epoch's rounds so far, as each round has about as many rows."""
    if head is None or head.losses is None:
        return losses
    with np.errstate(all="ignore"):
        mean: FloatArray = head.losses + (losses - head.losses) / (head.visited + 1)
    return mean


def _combined(pack: Pack, parts: Sequence[ModelPart], step: Step) -> ModelPart:
    """Return the mean of the same part of several models, or the sum of gradients, without partitions that have no rows."""
    judged: BlockSums[MetricSums] = BlockSums()
    for part in parts:
        judged = judged.merged(part.judged, metrics.merge)
    head = next((part.head for part in parts if part.head is not None), None)
    seen = [part for part in parts if part.weight > 0]
    if len(seen) < 2:
        only = seen[0] if seen else parts[0]
        return replace(only, judged=judged, head=head, combined=True)
    weights, tensors = [part.weight for part in seen], [part.tensors for part in seen]
    done = [part.done for part in seen if part.done is not None]
    return ModelPart(
        partition_work.added(tensors) if step.averages.of_gradients else _learner(pack).average(tensors, weights),
        sum(weights),
        np.any(done, axis=0) if done else None,
        judged=judged,
        head=head,
        combined=True,
    )


def _moved(pack: Pack, before: ModelPart, found: ModelPart, step: Step) -> ModelPart:
    """Return a part of the next model, made from the one ``before`` by one step along gradients, with momentum.

    If a learner initialises a parameter before its first step, momentum starts there.
    """
    learner, done = cast(BatchesLearner, pack.learner), cast(npt.NDArray[np.bool_], found.done)
    tensors = found.tensors
    if step.averages.of_gradients:
        state, whole = State(dict(before.tensors), done), pack.prepared.train.totals
        if found.weight > 0:
            state = learner.stepped(pack.prepared.problem, pack.configs, state, tensors, whole, _piece(step))
        tensors, done = state.tensors, state.done
    if not step.averages.momentum:
        return replace(found, tensors=tensors, done=done)
    start = learner.started(pack.prepared.problem, pack.configs, before.tensors, pack.prepared.train.totals)
    moved, velocity = dict(tensors), {}
    for name in learner.parameters:
        if name in tensors:
            push = averaging.Momentum(step.averages.momentum, before.velocity.get(name))
            moved[name], velocity[name] = averaging.pushed(start[name], tensors[name], push, done)
    return replace(found, tensors=moved, done=done, velocity=velocity)


def _part_of(pack: Pack, before: Any, step: Step) -> ModelPart:
    """Return a step's part of the previous model, cut from it if that is the first model, which is whole."""
    if isinstance(before, ModelPart):
        return before
    state, learner = cast(Training, before).state, _learner(pack)
    tensors, velocity = _without_velocity(state)
    whole = learner.part(State(tensors, state.done), 0, 1)
    cut, cut_too = (partition_work.every_piece(each, learner.averaged, _piece(step)) for each in (whole, velocity))
    return ModelPart(cut, done=state.done, velocity=cut_too)


def _joined(pack: Pack, parts: Sequence[ModelPart], done: npt.NDArray[np.bool_]) -> State:
    """Return the state from all its parts, with velocities."""
    learner = _learner(pack)
    state = learner.of_parts([part.tensors for part in parts], done)
    wide = [name for name in parts[0].velocity if name in learner.averaged]
    velocity = averaging.join([part.velocity for part in parts], wide)
    return State({**state.tensors, **{_VELOCITY + name: tensor for name, tensor in velocity.items()}}, state.done)


def _without_velocity(state: State) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Return the tensors of a learner's state and, separately, the velocity of each parameter."""
    tensors = {name: tensor for name, tensor in state.tensors.items() if not name.startswith(_VELOCITY)}
    found = {name: tensor for name, tensor in state.tensors.items() if name.startswith(_VELOCITY)}
    return tensors, {name.removeprefix(_VELOCITY): tensor for name, tensor in found.items()}


def _piece(step: Step) -> Piece:
    return Piece(0, 1) if step.piece is None else Piece(step.piece.number, step.piece.of)


def _learner(pack: Pack) -> AveragingLearner:
    if not can_be_averaged(pack.learner):
        raise ValueError(f"models of {pack.learner.declaration.name} cannot be averaged")
    return cast(AveragingLearner, pack.learner)


def _parts(takes: Sequence[Any]) -> list[ModelPart]:
    """Return the model parts that a step takes; a model in one piece may have been fetched in pieces."""
    return [each.pieces[0] if isinstance(each, Pieces) else each for each in takes]


def _of_kind(takes: Iterable[Any], kind: type[Kind]) -> list[Kind]:
    return [each for each in takes if isinstance(each, kind)]


def _head(training: Training) -> Training:
    return replace(training, state=State({}, training.state.done))


def _trained(training: Training) -> tuple[int, ...]:
    """Return the configs that train in the current epoch, or else in the next."""
    return training.active if training.visited else _active(training)


def _active(training: Training) -> tuple[int, ...]:
    return tuple(np.flatnonzero(~training.state.done).tolist())


def _either(done: npt.NDArray[np.bool_] | None, otherwise: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return otherwise if done is None else done
