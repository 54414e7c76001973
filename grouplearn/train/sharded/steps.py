"""Steps of units whose group is split between workers: how products are made from those of other steps, and records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from grouplearn.models.metrics import metrics
from grouplearn.models.metrics.metrics import MetricSums
from grouplearn.models.state import Tensors
from grouplearn.schedule.messages import BlockRange, Part, Step, StepDone, Unit
from grouplearn.train.block_sums import BlockSums
from grouplearn.train.fit import accumulate, merge_sums, update, visit
from grouplearn.train.job import StepRecord, UnitResult
from grouplearn.train.pack import EpochSums, Pack, Training, begin, has_more, judge_blocks, settle, waited_values
from grouplearn.train.results.evaluation import Evaluation, conclude, evaluate
from grouplearn.train.results.trials import Trials
from grouplearn.train.sharded import averaging, pushing
from grouplearn.train.sharded.averaging import ModelPart, Pieces
from grouplearn.train.sharded.descent import Product, RoundPart, StateUpdate
from grouplearn.train.sharded.pushing import PushPart


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """A finished step: its product, or the unit's result if it was the last or failed; ``record`` says how it ran."""

    step: Step
    record: StepRecord
    product: Product | None = None
    result: UnitResult | None = None
    more: bool = True
    failed: bool = False

    @property
    def event(self) -> StepDone:
        """The event for the schedule."""
        return StepDone(self.record.worker, self.step, self.more, self.failed)


def make(pack: Pack, step: Step, takes: Sequence[Product]) -> Product:
    """Return the product of a step on the pack's blocks, from the products that it takes; not for ``finish`` and gangs."""
    match step.kind:
        case "init":
            return begin(pack)
        case "work" if step.averages.in_turns:
            return pushing.work(pack, takes, step)
        case "push":
            return pushing.push(pack, takes, step)
        case "work":
            return averaging.work(pack, takes, step)
        case "combine":
            return averaging.combine(pack, takes, step)
        case "reduce":
            return averaging.reduce(pack, takes, step)
        case "judge":
            return averaging.judge(pack, takes)
        case "update" if step.pieces > 1:
            return averaging.update(pack, takes)
        case "evaluate" if step.partition is not None:
            return evaluate(pack, averaging.model(pack, takes))
    return _make_of_state(pack, step, takes)


def _make_of_state(pack: Pack, step: Step, takes: Sequence[Product]) -> Product:
    training, others = cast(Training, takes[0]), takes[1:]
    match step.kind:
        case "accumulate":
            before = _sum_up(pack, cast(Sequence[EpochSums], others)) if others else None
            return accumulate(pack, training, before)
        case "update" if pack.learner.access.visits:
            return settle(pack, training, waited_values(pack, training, _judged(cast(Sequence[EpochSums], others))))
        case "update":
            return update(pack, training, _sum_up(pack, cast(Sequence[EpochSums], others)))
        case "train":
            return visit(pack, training)
        case "evaluate" if pack.learner.access.visits and has_more(pack, training):
            return EpochSums(metric=judge_blocks(pack, training))  # after an epoch, for early stopping
        case "evaluate":
            own = evaluate(pack, training)
            return merge_evaluations([own, *cast(Sequence[Evaluation], others)])
    raise ValueError(f"a step of kind {step.kind} makes no product")


def finish(pack: Pack, unit: Unit, takes: Sequence[Product]) -> Trials:
    """Return the trials of a unit from its last state, whole or in parts, and the sums of its evaluation."""
    evaluation = merge_evaluations(each for each in takes if isinstance(each, Evaluation))
    trials = conclude(pack, unit.configs, averaging.model(pack, takes), evaluation, pack.keeps_model, 0.0)
    return Trials.of(unit.group, trials, pack.metrics)


def merge_evaluations(evaluations: Iterable[Evaluation]) -> Evaluation:
    """Return the sums of all blocks."""
    merged = Evaluation()
    for evaluation in evaluations:
        merged = merged.merged(evaluation)
    return merged


def goes_on(pack: Pack, product: Product) -> bool:
    """Return whether, after a step that made ``product``, the unit needs a further epoch, or the epoch a further round."""
    if isinstance(product, RoundPart):
        return not product.ends_epoch
    head = averaging.head_of(product)
    return head is None or (isinstance(product, ModelPart) and head.visited > 0) or has_more(pack, head)


def taken_of(product: Product, piece: Part | None) -> Product:
    """Return what a step takes of a product: its piece if it is in pieces, else the whole."""
    if isinstance(product, Pieces) and piece is not None:
        taken: Product = product.taken(piece)
        return taken
    return product


def product_bytes(product: Product) -> int:
    """Return the bytes of a product's tensors, which are sent if another worker takes it."""
    match product:
        case Training():
            states = [state for state in (product.state, product.ended) if state is not None]
            frozen = [fit.artifact for fit in product.fits if fit.artifact is not None]
            held = [each.tensors for each in states] + [dict(each.tensors) for each in frozen]
            return sum(_tensor_bytes(each) for each in held) + _metric_bytes(product.judged)
        case EpochSums():
            sums = [subtree.sums for subtree in product.learner.subtrees if subtree.sums is not None]
            return sum(_tensor_bytes(each) for each in sums) + _metric_bytes(product.metric)
        case Evaluation():
            errors = sum(subtree.sums.nbytes for subtree in product.errors.subtrees if subtree.sums is not None)
            return errors + sum(_metric_bytes(each) for each in (product.train, product.valid, product.waiting))
        case ModelPart():
            head = 0 if product.head is None else product_bytes(product.head)
            return _tensor_bytes(product.tensors) + _metric_bytes(product.judged) + head
        case RoundPart():
            return _tensor_bytes(product.tensors)
        case PushPart():
            judged = 0 if product.note is None else _metric_bytes(product.note.judged)
            return _tensor_bytes(product.tensors) + judged
        case StateUpdate():
            return sum(_tensor_bytes(each) for each in product.parts)
        case Pieces():
            return sum(product_bytes(each) for each in product.pieces)


def _sum_up(pack: Pack, parts: Sequence[EpochSums]) -> EpochSums:
    total = EpochSums()
    for part in parts:
        total = merge_sums(pack, total, part)
    return total


def _judged(parts: Sequence[EpochSums]) -> BlockSums[MetricSums]:
    total: BlockSums[MetricSums] = BlockSums()
    for part in parts:
        total = total.merged(part.metric, metrics.merge)
    return total


def _metric_bytes(sums: BlockSums[MetricSums]) -> int:
    return sum(subtree.sums.nbytes for subtree in sums.subtrees if subtree.sums is not None)


def _tensor_bytes(tensors: Tensors) -> int:
    return sum(int(tensor.nbytes) for tensor in tensors.values())


class StepLog:
    """The records of steps by unit, which complete the results of split units."""

    def __init__(self) -> None:
        self._records: dict[int, list[StepRecord]] = defaultdict(list)
        self._closed: set[int] = set()
        self._rounds: dict[tuple[int, int, str, int], list[int]] = defaultdict(list)

    def add(self, answer: StepAnswer) -> UnitResult | None:
        """Record a finished step; return the unit's result if this step was the first to make one."""
        unit = answer.step.unit
        if answer.step.stretch.of > 1 or answer.step.round is not None or answer.step.kind == "push":
            self._note_round(answer)
        else:
            self._records[unit.id].append(answer.record)
        if answer.result is None or unit.id in self._closed:
            return None
        self._closed.add(unit.id)
        return self._complete(answer.result, answer.record)

    def _note_round(self, answer: StepAnswer) -> None:
        """Add the record of a step of one of many rounds of an epoch.

        A worker's steps of one kind on blocks that touch have one record, which begins with the first and lasts as long as
        all together.
        """
        record = answer.record
        key = (answer.step.unit.id, record.worker, record.kind, record.epoch)
        records = self._records[answer.step.unit.id]
        place = next((each for each in self._rounds[key] if _touch(records[each].blocks, record.blocks)), None)
        if place is None:
            self._rounds[key].append(len(records))
            records.append(record)
            return
        before = records[place]
        records[place] = replace(
            before,
            blocks=_around(before.blocks, record.blocks),
            ended=before.ended + record.ended - record.started,
            fetched=before.fetched + record.fetched,
            loaded=before.loaded + record.loaded,
            processor=before.processor + record.processor,
        )

    def _complete(self, result: UnitResult, last: StepRecord) -> UnitResult:
        records = tuple(self._records[result.unit.id])
        seconds = sum(record.ended - record.started for record in records) / max(1, len(result.trials))
        return replace(
            result,
            trials=replace(result.trials, seconds=np.full(len(result.trials), seconds)),
            worker=last.worker,
            started=min(record.started for record in records),
            ended=last.ended,
            steps=records,
            loaded=sum(record.loaded for record in records),
        )


def _touch(one: BlockRange | None, other: BlockRange | None) -> bool:
    """Whether no block lies between these; between a worker's own and those that it took over there may be some."""
    if one is None or other is None or not len(one) or not len(other):
        return True
    return one.first <= other.last and other.first <= one.last


def _around(one: BlockRange | None, other: BlockRange | None) -> BlockRange | None:
    """Return the run of blocks that contains both."""
    if one is None or other is None:
        return one or other
    return BlockRange(min(one.first, other.first), max(one.last, other.last))
