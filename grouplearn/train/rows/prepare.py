"""From dataset rows to a learner's input: training and validation shards of one group, encoders fitted, rows checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.data import encoders, shard
from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.frequency import Frequency
from grouplearn.data.shard import Codes, Matrix, RowNumbers, Shard, StoredShard, Totals
from grouplearn.data.split import FINAL
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import Problem
from grouplearn.schedule.messages import BlockRange, Part, Step
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.rows.chosen import ChosenRows, encode_rows, feature_blocks, replays
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.used import GroupedRows, RowFacts, class_factors, forget


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group, or some of its blocks, (in one fold) ready to train.

    ``judged`` are the training rows without class weights, as metrics need them. ``valid`` has the held-out rows, in as
    many pieces as there are blocks; None if there are none.
    """

    train: Shard | StoredShard
    valid: Shard | StoredShard | None
    judged: Shard | StoredShard
    problem: Problem
    facts: GroupFacts
    n_blocks: int = 1

    def part(self, blocks: BlockRange) -> Prepared:
        """Return these blocks, all of which must be here."""
        if (blocks.first, blocks.last) == (self.train.first, self.train.first + self.train.n_blocks):
            return self
        train = self.train.part(blocks.first, blocks.last)
        judged = train if self.judged is self.train else self.judged.part(blocks.first, blocks.last)
        valid = None if self.valid is None else self.valid.part(blocks.first, blocks.last)
        return replace(self, train=train, valid=valid, judged=judged)


@dataclass(frozen=True, slots=True)
class GroupOutline:
    """What is decided about a group (in one fold) before it is split: workers encode its blocks by it independently.

    ``train_rows`` and ``valid_rows`` are the used dataset rows in order, ``place`` as in ``GroupedRows``; block b has
    training rows ``train_cuts[b]`` to ``train_cuts[b + 1]``, and the held-out rows between those of ``valid_cuts``.
    ``numbering`` (C,) are the numbers of classes in the group, and ``class_factors`` their weights.
    """

    train_rows: RowNumbers
    valid_rows: RowNumbers
    train_cuts: tuple[int, ...]
    valid_cuts: tuple[int, ...]
    numbering: FloatArray
    class_factors: FloatArray | None
    dense_columns: int
    totals: Totals
    problem: Problem
    facts: GroupFacts
    place: RowNumbers | None = None

    @property
    def n_blocks(self) -> int:
        """Number of blocks of the group."""
        return len(self.train_cuts) - 1

    def clipped(self, blocks: BlockRange | None) -> BlockRange:
        """Return those of ``blocks`` that the group has (a schedule may count rows that are not used)."""
        if blocks is None:
            return BlockRange(0, 0)
        return BlockRange(min(blocks.first, self.n_blocks), min(blocks.last, self.n_blocks))

    def partition(self, part: Part) -> BlockRange:
        """Return one of several equal runs of the existing blocks; the last may be empty."""
        cuts = cut_evenly(self.n_blocks, part.of)
        return cuts[part.number] if part.number < len(cuts) else BlockRange(self.n_blocks, self.n_blocks)

    def blocks_of(self, step: Step) -> BlockRange:
        """Return the group's blocks for a step."""
        return self.clipped(step.blocks) if step.partition is None else self.partition(step.partition)


def prepare(job: Job, group: Group, fold: int = FINAL) -> Prepared:
    """Return ``group`` ready to train, or raise GroupFailed with a reason for users.

    ``Job.split`` says which rows train and which are held out. Encoders with scope 'group' are fitted on the training rows
    only.

    The usable training rows are cut into blocks of ``job.block_rows``, the held-out rows into as many pieces. Rows with
    weight 0 and (unless ``null_label`` says otherwise) without a label are ignored. Then rows with a missing or infinite
    feature value are left out if the learner cannot handle them, so blocks may be shorter. All of these count in
    ``n_skipped``. Validation rows of a class without training rows are numbered after the known classes: no model predicts
    them, and metrics count them as wrong.
    """
    if not stays_stored(job, group):
        return _prepared(job, group, ChosenRows.of(job, group, fold))
    decided = outline(job, group, fold)
    everything = BlockRange(0, decided.n_blocks)
    return stored_blocks(job, decided, everything, everything)


def stays_stored(job: Job, group: Group) -> bool:
    """Whether every pass reads and encodes the group's rows block by block: they are in files, and more than the learner
    holds at a time."""
    held = shard.SUMMED_ROWS if job.trainer.access.held == "some" else job.block_rows
    return job.dataset.files is not None and group.n_rows > held


def outline(job: Job, group: Group, fold: int = FINAL) -> GroupOutline:
    """Return what ``prepare`` decides about the whole group, without keeping its encoded rows; raises GroupFailed.

    Rows are encoded block by block only to find those with missing features.
    """
    chosen = ChosenRows.of(job, group, fold)
    train, valid = chosen.scanned(chosen.used.train), chosen.scanned(chosen.used.valid)
    decided = _Decided.of(job, group, chosen, train, valid)
    factors = decided.class_factors

    def labelled() -> Iterator[tuple[FloatArray, FloatArray]]:
        for y, weight, _ in train.labelled():
            y = _numbered(y, decided.numbering)
            yield y, _weighted(y, weight, factors)

    return GroupOutline(
        train_rows=train.numbers,
        valid_rows=valid.numbers,
        train_cuts=train.cuts,
        valid_cuts=valid.cuts,
        numbering=decided.numbering,
        class_factors=factors,
        dense_columns=chosen.dense_columns,
        totals=Totals.of_runs(labelled),
        problem=decided.problem,
        facts=decided.facts,
        place=train.place,
    )


def encode_blocks(
    job: Job, outline: GroupOutline, blocks: BlockRange, held_out: BlockRange, take: Callable[[RowNumbers], Dataset]
) -> Prepared:
    """Return blocks of a group with the same bits as in the whole group, and the pieces ``held_out`` of held-out rows.

    ``take`` returns dataset rows by number.
    """
    judged = _encoded_run(job, outline, True, blocks, take)
    valid = _encoded_run(job, outline, False, held_out, take)
    judged = replace(judged, whole=outline.totals)
    return _parted(outline, _class_weighted(judged, outline.class_factors), valid, judged)


def stored_blocks(job: Job, outline: GroupOutline, blocks: BlockRange, held_out: BlockRange) -> Prepared:
    """Return the result of ``encode_blocks`` for rows that stay in files until they are read."""
    data, fitted, columns = job.dataset, outline.facts.fitted, outline.dense_columns
    directory = "" if data.files is None else data.files.directory
    made = replays(fitted, data)

    def encode(numbers: RowNumbers) -> Matrix:
        return encode_rows(fitted, data, numbers, columns, made)

    def encode_training(numbers: RowNumbers) -> Matrix:
        place = None if outline.place is None else outline.place[np.searchsorted(outline.train_rows, numbers)]
        return encode_rows(fitted, data, numbers, columns, made, place)

    def label(numbers: RowNumbers) -> tuple[FloatArray, FloatArray]:
        y, weight = _numbered(data.y[numbers], outline.numbering), data.weight[numbers]
        forget(data, numbers)
        return y, weight

    def clusters(numbers: RowNumbers) -> Codes | None:
        return job.clusters(data, numbers)

    def stored(
        rows: RowNumbers, cuts: tuple[int, ...], wanted: BlockRange, encode: Callable[[RowNumbers], Matrix]
    ) -> StoredShard:
        bounds = cuts[wanted.first : wanted.last + 1]
        own_cuts = tuple(bound - bounds[0] for bound in bounds)
        own = rows[bounds[0] : bounds[-1]]
        return StoredShard(own, encode, label, own_cuts, wanted.first, outline.totals, directory, clusters)

    judged = stored(outline.train_rows, outline.train_cuts, blocks, encode_training)
    factors = outline.class_factors

    def weighted(numbers: RowNumbers) -> tuple[FloatArray, FloatArray]:
        y, weight = label(numbers)
        return y, _weighted(y, weight, factors)

    train = judged if factors is None else replace(judged, label=weighted)
    return _parted(outline, train, stored(outline.valid_rows, outline.valid_cuts, held_out, encode), judged)


def _weighted(y: FloatArray, weight: FloatArray, factors: FloatArray | None) -> FloatArray:
    """Return the weights of rows with classes ``y`` times their classes' factors (K,), if there are any."""
    return weight if factors is None else weight * factors[y.astype(np.intp)]


def _class_weighted(rows: Shard, factors: FloatArray | None) -> Shard:
    return rows if factors is None else replace(rows, weight=_weighted(rows.y, rows.weight, factors))


def _parted(
    outline: GroupOutline, train: Shard | StoredShard, valid: Shard | StoredShard, judged: Shard | StoredShard
) -> Prepared:
    held_out = valid if outline.valid_rows.size else None
    return Prepared(train, held_out, judged, outline.problem, outline.facts, outline.n_blocks)


def _encoded_run(
    job: Job, outline: GroupOutline, trains: bool, blocks: BlockRange, take: Callable[[RowNumbers], Dataset]
) -> Shard:
    rows, cuts = (outline.train_rows, outline.train_cuts) if trains else (outline.valid_rows, outline.valid_cuts)
    bounds = cuts[blocks.first : blocks.last + 1]
    run = slice(bounds[0], bounds[-1])
    data, place = take(rows[run]), outline.place[run] if trains and outline.place is not None else None
    columns = replace(encoders.columns_of(data, slice(None), place), dictionaries=job.dataset.dictionaries)
    x = encoders.encode(outline.facts.fitted, columns, outline.dense_columns)
    own_cuts = tuple(bound - bounds[0] for bound in bounds)
    cluster = job.clusters(data, slice(None))
    return Shard(x, _numbered(data.y, outline.numbering), data.weight, own_cuts, blocks.first, cluster=cluster)


def _prepared(job: Job, group: Group, chosen: ChosenRows) -> Prepared:
    train, train_x = chosen.encoded(chosen.used.train)
    valid, valid_x = chosen.encoded(chosen.used.valid)
    decided = _Decided.of(job, group, chosen, train, valid)
    cluster = job.clusters(train.dataset, train.numbers)
    judged = Shard(train_x, _numbered(train.y, decided.numbering), train.weight, train.cuts, cluster=cluster)
    rows = _class_weighted(judged, decided.class_factors)
    holdout = Shard(valid_x, _numbered(valid.y, decided.numbering), valid.weight, valid.cuts)
    return Prepared(
        rows, holdout if valid.numbers.size else None, judged, decided.problem, decided.facts, rows.n_blocks
    )


@dataclass(frozen=True, slots=True)
class _Decided:
    """What all used rows of a group determine: the numbers of its classes, their weights, and the problem."""

    numbering: FloatArray
    class_factors: FloatArray | None
    facts: GroupFacts
    problem: Problem

    @classmethod
    def of(cls, job: Job, group: Group, chosen: ChosenRows, train: GroupedRows, valid: GroupedRows) -> _Decided:
        if chosen.share < 1:  # min_rows was checked before the sample was drawn
            job = replace(job, rules=replace(job.rules, min_rows=1))
        found = RowFacts.of(job, replace(chosen.used, train=train, valid=valid))
        if found.failed:
            raise found.failed[0]
        facts = replace(found.counted(0), fitted=chosen.fitted, classes=found.classes(0))
        numbering = found.numbering(np.zeros(1, np.intp))[0]
        factors = None
        if job.rules.class_weight is not None and facts.classes:
            labelled = ((_numbered(y, numbering), weight, of) for y, weight, of in train.labelled())
            factors = class_factors(job, 1, facts.classes, labelled)[0]
        problem = problem_of(job, group, chosen.learner, facts, int(found.unseen.sum()))
        if chosen.used.ahead is not None:
            problem = replace(problem, ahead=chosen.encoded(chosen.used.ahead)[1])
        return cls(numbering, factors, facts, problem)


def _numbered(y: FloatArray, numbering: FloatArray) -> FloatArray:
    """Return the labels: values, or the numbers (C,) of their classes."""
    return numbering[y.astype(np.intp)] if numbering.size else y


def problem_of(job: Job, group: Group, learner: Learner, facts: GroupFacts, n_unseen: int) -> Problem:
    """Return the problem of a pack on a prepared group."""
    blocks = feature_blocks(facts.fitted)
    starts = np.cumsum([0, *(block.width for block in blocks)])
    ordinal = [encoder_of(each.item).role == "place" for each in facts.fitted]
    n_classes = len(facts.classes)
    among_more = job.target.label.scores_classes and n_classes == 2
    return Problem(
        label=job.target.label.within_group if among_more else job.target.label,
        n_features=facts.n_features,
        n_classes=n_classes,
        seed=group_seed(job.training.seed, group),
        epochs=1 if learner.declaration.default_epochs is None else job.training.epochs,
        label_length=job.dataset.label_length,
        categorical=tuple(int(start) for start, is_ordinal in zip(starts, ordinal, strict=False) if is_ordinal),
        among_more=among_more,
        items=blocks,
        mirrored=job.target.mirrored,
        offset=job.offset,
        n_unseen=n_unseen,
        frequency=Frequency.of(job.items[0].options) if learner.declaration.takes_series else None,
        series=facts.fitted[1].categories if learner.declaration.takes_panel else (),
    )
