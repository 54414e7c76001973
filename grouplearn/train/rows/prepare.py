"""From dataset rows to a learner's input: training and validation shards of one group, encoders fitted, rows checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders, shard
from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.data.shard import Matrix, RowNumbers, Shard, StoredShard, Totals
from grouplearn.data.split import FINAL
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import FeatureBlock, Problem
from grouplearn.schedule.messages import Blocks, Part, Step
from grouplearn.schedule.sharded.partition import cut_evenly
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.rows.chosen import ChosenRows, GroupFailed, Rows, encode_rows, forget, refuse_few, replays
from grouplearn.train.rows.sampled import group_seed, share_of

__all__ = [
    "GroupFailed",
    "Outline",
    "Prepared",
    "encode_blocks",
    "group_seed",
    "outline",
    "prepare",
    "stays_stored",
    "stored_blocks",
]


_NONE: FloatArray = np.empty(0)
#: The least square of labels' differences with full precision, also after a good model's reduction.
LEAST_SQUARE = 1e-300


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

    @property
    def row_weight(self) -> FloatArray:
        """The training rows' weights without class weights."""
        return self.judged.labels()[1]

    def part(self, blocks: Blocks) -> Prepared:
        """Return these blocks, all of which must be here."""
        if (blocks.first, blocks.last) == (self.train.first, self.train.first + self.train.n_blocks):
            return self
        train = self.train.part(blocks.first, blocks.last)
        judged = train if self.judged is self.train else self.judged.part(blocks.first, blocks.last)
        valid = None if self.valid is None else self.valid.part(blocks.first, blocks.last)
        return replace(self, train=train, valid=valid, judged=judged)


@dataclass(frozen=True, slots=True)
class Outline:
    """What is decided about a group (in one fold) before it is split: workers encode its blocks by it independently.

    ``train_rows`` and ``valid_rows`` are the used dataset rows in order; block b has training rows ``train_cuts[b]`` to
    ``train_cuts[b + 1]``, and the held-out rows between those of ``valid_cuts``. ``class_factors`` are the class weights by
    position in ``classes``; ``unseen`` are the classes that only held-out rows have.
    """

    train_rows: RowNumbers
    valid_rows: RowNumbers
    train_cuts: tuple[int, ...]
    valid_cuts: tuple[int, ...]
    classes: FloatArray
    unseen: FloatArray
    class_factors: FloatArray | None
    dense_columns: int
    totals: Totals
    problem: Problem
    facts: GroupFacts

    @property
    def n_blocks(self) -> int:
        """Number of blocks of the group."""
        return len(self.train_cuts) - 1

    def clipped(self, blocks: Blocks | None) -> Blocks:
        """Return those of ``blocks`` that the group has (a schedule may count rows that are not used)."""
        if blocks is None:
            return Blocks(0, 0)
        return Blocks(min(blocks.first, self.n_blocks), min(blocks.last, self.n_blocks))

    def partition(self, part: Part) -> Blocks:
        """Return one of several equal runs of the existing blocks; the last may be empty."""
        cuts = cut_evenly(self.n_blocks, part.of)
        return cuts[part.number] if part.number < len(cuts) else Blocks(self.n_blocks, self.n_blocks)

    def blocks_of(self, step: Step) -> Blocks:
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
    everything = Blocks(0, decided.n_blocks)
    return stored_blocks(job, decided, everything, everything)


def stays_stored(job: Job, group: Group) -> bool:
    """Whether every pass reads and encodes the group's rows block by block: they are in files, and more than the learner
    holds at a time."""
    held = shard.SUMMED_ROWS if job.trainer.access.held == "some" else job.block_rows
    return job.dataset.files is not None and group.n_rows > held


def outline(job: Job, group: Group, fold: int = FINAL) -> Outline:
    """Return what ``prepare`` decides about the whole group, without keeping its encoded rows; raises GroupFailed.

    Rows are encoded block by block only to find those with missing features.
    """
    chosen = ChosenRows.of(job, group, fold)
    train, valid = chosen.scanned(chosen.train), chosen.scanned(chosen.valid)
    decided = _Decided.of(job, group, chosen, train, valid)
    unseen, facts = _unseen(decided.classes, valid), decided.facts

    def labelled() -> Iterator[tuple[FloatArray, FloatArray]]:
        for y, weight in train.labelled():
            yield _numbered(y, decided.classes), decided.weighted(y, weight)

    return Outline(
        train_rows=train.numbers,
        valid_rows=valid.numbers,
        train_cuts=train.cuts,
        valid_cuts=valid.cuts,
        classes=decided.classes,
        unseen=unseen,
        class_factors=decided.class_factors,
        dense_columns=chosen.dense_columns,
        totals=Totals.of_runs(labelled),
        problem=replace(problem_of(job, group, chosen.learner, facts), n_unseen=unseen.size),
        facts=facts,
    )


def encode_blocks(
    job: Job, outline: Outline, blocks: Blocks, held_out: Blocks, take: Callable[[RowNumbers], Dataset]
) -> Prepared:
    """Return blocks of a group with the same bits as in the whole group, and the pieces ``held_out`` of held-out rows.

    ``take`` returns dataset rows by number.
    """
    judged = _encoded_run(job, outline, outline.train_rows, outline.train_cuts, blocks, take)
    valid = _encoded_run(job, outline, outline.valid_rows, outline.valid_cuts, held_out, take)
    judged = replace(judged, whole=outline.totals)
    factors, train = outline.class_factors, judged
    if factors is not None:
        train = replace(judged, weight=_class_weighted(judged.labels(), factors)[1])
    return _parted(outline, train, valid, judged)


def stored_blocks(job: Job, outline: Outline, blocks: Blocks, held_out: Blocks) -> Prepared:
    """Return the result of ``encode_blocks`` for rows that stay in files until they are read."""
    data, fitted, columns = job.dataset, outline.facts.fitted, outline.dense_columns
    directory = "" if data.files is None else data.files.directory
    made = replays(fitted, data)

    def encode(numbers: RowNumbers) -> Matrix:
        return encode_rows(fitted, data, numbers, columns, made)

    def label(numbers: RowNumbers) -> tuple[FloatArray, FloatArray]:
        y, weight = _numbered(data.y[numbers], outline.classes, outline.unseen), data.weight[numbers]
        forget(data, numbers)
        return y, weight

    def stored(rows: RowNumbers, cuts: tuple[int, ...], wanted: Blocks) -> StoredShard:
        bounds = cuts[wanted.first : wanted.last + 1]
        own_cuts = tuple(bound - bounds[0] for bound in bounds)
        own = rows[bounds[0] : bounds[-1]]
        return StoredShard(own, encode, label, own_cuts, wanted.first, outline.totals, directory)

    judged = stored(outline.train_rows, outline.train_cuts, blocks)
    factors, train = outline.class_factors, judged
    if factors is not None:
        train = replace(judged, label=lambda numbers: _class_weighted(label(numbers), factors))
    return _parted(outline, train, stored(outline.valid_rows, outline.valid_cuts, held_out), judged)


def _class_weighted(labels: tuple[FloatArray, FloatArray], class_factors: FloatArray) -> tuple[FloatArray, FloatArray]:
    y, weight = labels
    return y, weight * class_factors[y.astype(np.intp)]


def _parted(
    outline: Outline, train: Shard | StoredShard, valid: Shard | StoredShard, judged: Shard | StoredShard
) -> Prepared:
    held_out = valid if outline.valid_rows.size else None
    return Prepared(train, held_out, judged, outline.problem, outline.facts, outline.n_blocks)


def _encoded_run(
    job: Job,
    outline: Outline,
    rows: RowNumbers,
    cuts: tuple[int, ...],
    blocks: Blocks,
    take: Callable[[RowNumbers], Dataset],
) -> Shard:
    bounds = cuts[blocks.first : blocks.last + 1]
    data = take(rows[bounds[0] : bounds[-1]])
    columns = replace(encoders.columns_of(data, slice(None)), dictionaries=job.dataset.dictionaries)
    x = encoders.encode(outline.facts.fitted, columns, outline.dense_columns)
    own_cuts = tuple(bound - bounds[0] for bound in bounds)
    return Shard(x, _numbered(data.y, outline.classes, outline.unseen), data.weight, own_cuts, blocks.first)


def _prepared(job: Job, group: Group, chosen: ChosenRows) -> Prepared:
    train, train_x = chosen.encoded(chosen.train)
    valid, valid_x = chosen.encoded(chosen.valid)
    decided = _Decided.of(job, group, chosen, train, valid)
    unseen, facts = _unseen(decided.classes, valid), decided.facts
    y, weight = train.y, train.weight
    judged = Shard(train_x, _numbered(y, decided.classes), weight, train.cuts)
    rows = judged if decided.class_factors is None else replace(judged, weight=decided.weighted(y, weight))
    holdout = Shard(valid_x, _numbered(valid.y, decided.classes, unseen), valid.weight, valid.cuts)
    problem = replace(problem_of(job, group, chosen.learner, facts), n_unseen=unseen.size)
    return Prepared(rows, holdout if valid.numbers.size else None, judged, problem, facts, rows.n_blocks)


@dataclass(frozen=True, slots=True)
class _Decided:
    """What all used rows of a group determine: the classes, their weights, and the number of rows."""

    classes: FloatArray
    class_factors: FloatArray | None
    facts: GroupFacts

    @classmethod
    def of(cls, job: Job, group: Group, chosen: ChosenRows, train: Rows, valid: Rows) -> _Decided:
        n_train, n_valid = int(train.numbers.size), int(valid.numbers.size)
        whole = share_of(job.round.share, group.n_rows) == 1
        few = (
            job if whole else replace(job, rules=replace(job.rules, min_rows=1))
        )  # checked before the sample was drawn
        refuse_few(few, group.n_rows, n_train, n_valid, train.n_skipped)
        skipped = chosen.n_skipped + train.n_skipped + valid.n_skipped
        counted = GroupFacts((), (), n_train, n_valid, skipped)
        if job.target.label.is_number:
            _refuse_small(train, counted)
        classes = _classes(job, train, counted)
        facts = replace(counted, fitted=chosen.fitted, classes=tuple(int(each) for each in classes))
        return cls(classes, _class_weights(job, classes, train), facts)

    def weighted(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the weights of rows with labels ``y`` times their classes' weights."""
        if self.class_factors is None:
            return weight
        factors: FloatArray = self.class_factors[np.searchsorted(self.classes, y)]
        return weight * factors


def _refuse_small(train: Rows, counted: GroupFacts) -> None:
    """Raise GroupFailed for labels, or weights, so small that sums of weighted squares, and thus metrics, lose precision.

    Constant labels have differences of 0, and so have their metrics.
    """
    low, high, heaviest = np.inf, -np.inf, 0.0
    for labels, weight in train.labelled():
        low, high = min(low, float(labels.min())), max(high, float(labels.max()))
        heaviest = max(heaviest, float(weight.max()))
    apart = high - low
    for square, what, scaled in (
        (apart * apart, "squares of the label", "the label"),
        (apart * apart * heaviest, "weighted squares of the label", "the weights"),
    ):
        if apart > 0 and square < LEAST_SQUARE:
            raise GroupFailed(f"the {what} underflow; scale {scaled} up", counted)


def _numbered(y: FloatArray, classes: FloatArray, unseen: FloatArray = _NONE) -> FloatArray:
    """Return the labels: values, or positions in ``classes`` followed by ``unseen``."""
    if not classes.size:
        return y
    place = np.searchsorted(classes, y).astype(np.float64)
    if unseen.size:
        other = ~np.isin(y, classes)
        place[other] = classes.size + np.searchsorted(unseen, y[other])
    return place


def _unseen(classes: FloatArray, valid: Rows) -> FloatArray:
    """Return the ascending numbers of classes that only held-out rows have."""
    if not classes.size:
        return _NONE
    labels = [np.unique(labels) for labels, _ in valid.labelled()]
    return np.setdiff1d(np.concatenate([_NONE, *labels]), classes)


def _classes(job: Job, train: Rows, counted: GroupFacts) -> FloatArray:
    """Return the ascending numbers of classes in the training rows; none for regression."""
    if not job.target.label.has_classes:
        return np.empty(0)
    classes = np.unique(np.concatenate([np.unique(labels) for labels, _ in train.labelled()]))
    if classes.size == 1:
        name = job.dataset.classes[int(classes[0])]
        rows = train.numbers.size
        where = "the group's only training row" if rows == 1 else f"all of the group's {rows} training rows"
        raise GroupFailed(f"the label is {name} in {where}", counted)
    return classes


def _class_weights(job: Job, classes: FloatArray, train: Rows) -> FloatArray | None:
    """Return the factor of each class of the training rows, None without class weights."""
    if job.rules.class_weight is None or not classes.size:
        return None
    totals = np.zeros(classes.size)
    for labels, weight in train.labelled() if job.rules.class_weight == "balanced" else ():
        totals += np.bincount(np.searchsorted(classes, labels), weights=weight, minlength=classes.size)
    return class_factors(job, classes, totals)


def class_factors(job: Job, classes: npt.NDArray[Any], totals: FloatArray) -> FloatArray:
    """Return the weight of each class, of which the rows weigh ``totals`` (K,); 'balanced' is Σw / (k · Σw of the class), as in
    scikit-learn."""
    given = job.rules.class_weight
    if isinstance(given, Mapping):
        return np.array([given.get(int(each), 1.0) for each in classes])
    balanced: FloatArray = totals.sum() / (classes.size * totals)
    return balanced


def problem_of(job: Job, group: Group, learner: Learner, facts: GroupFacts) -> Problem:
    """Return the problem of a pack on a prepared group."""
    starts = np.cumsum([0, *(each.width for each in facts.fitted)])
    ordinal = [each.encoder.role == "place" for each in facts.fitted]
    n_classes = len(facts.classes)
    among_more = job.target.label.scores_classes and n_classes == 2
    return Problem(
        label=job.target.label.within_group if among_more else job.target.label,
        n_features=facts.n_features,
        n_classes=n_classes,
        seed=group_seed(job.training.seed, group),
        epochs=1 if learner.declaration.default_epochs is None else job.training.epochs,
        label_length=job.target.label_length,
        categorical=tuple(int(start) for start, is_ordinal in zip(starts, ordinal, strict=False) if is_ordinal),
        among_more=among_more,
        items=tuple(FeatureBlock(each.item.name, each.width, each.pure) for each in facts.fitted),
        mirrored=job.target.mirrored,
    )
