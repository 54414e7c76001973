"""A lone group's rows, cut into blocks, and the encoders that are fitted on those that train."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.amounts import amount_of_bytes
from grouplearn.data import encoders
from grouplearn.data.arrays import block_rows
from grouplearn.data.dataset import Dataset, Group, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.encoder import Replay
from grouplearn.data.encoding.registry import encoder_of, widths_of
from grouplearn.data.memory import memory_limit
from grouplearn.data.shard import BLOCK_ROWS, Matrix, RowNumbers, starts
from grouplearn.kernels.algebra import finite_rows
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import FeatureBlock
from grouplearn.models.forms.forms import declared_form
from grouplearn.train.job import Earlier, Job
from grouplearn.train.rows.sampled import group_seed, sample, share_of
from grouplearn.train.rows.used import BoolArray, GroupedRows, GroupFailed, UsedRows, adjoining, forget

#: Largest dense design matrix (in bytes as doubles) for a learner that does not support sparse rows.
DENSE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """The rows that a group trains on and is judged by, in blocks, and the fitted encoders; ``share`` of its rows train."""

    learner: Learner
    used: UsedRows
    fitted: tuple[FittedItem, ...]
    dense_columns: int
    share: float

    @classmethod
    def of(cls, job: Job, group: Group, fold: int) -> ChosenRows:
        """Choose the rows, cut them into blocks and fit the encoders; raises GroupFailed.

        A sample of the training rows uses the encoders of all, so that a group's trials have the same features.
        """
        learner, used = job.trainer, UsedRows.of(job, [group], fold)
        if used.failed:
            raise used.failed[0]
        fitted = _fit(job, used.train, job.earlier.get(group.id))
        dense_columns = sum(widths_of(fitted)) if keeps_zeros(job, fitted, group.n_rows) else 0
        chosen = cls(learner, used, fitted, dense_columns, share_of(job.round.share, group.n_rows))
        return (chosen if chosen.share == 1 else chosen._sampled(job, group))._cut(
            block_rows(job.items, job.block_rows)
        )

    def _sampled(self, job: Job, group: Group) -> ChosenRows:
        """Return a sample of the usable training rows, with all their classes."""
        rows = self.used.train
        columns = (
            rows.dataset.column("numeric", number, rows.numbers) for number in range(rows.dataset.numeric.shape[1])
        )
        if not all(np.isfinite(column).all() for column in columns):
            rows = self.scanned(rows)
        used = replace(self.used, train=rows)
        if few := used.too_few(job):
            raise few[0]
        classes = rows.y if job.target.label.has_classes else None
        drawn = sample(rows.numbers, classes, self.share, group_seed(job.training.seed, group))
        place = None if rows.place is None else rows.place[np.searchsorted(rows.numbers, drawn)]
        rows = replace(rows, numbers=drawn, start=starts([drawn.size]), place=place)
        return replace(self, used=replace(used, train=rows))

    def _cut(self, size: int) -> ChosenRows:
        """Cut the training rows into blocks, and the held-out rows into as many pieces."""
        train, valid = self.used.train, self.used.valid
        cuts = (*range(0, max(1, train.numbers.size), size), train.numbers.size)
        pieces = tuple(piece * valid.numbers.size // (len(cuts) - 1) for piece in range(len(cuts)))
        return replace(
            self, used=replace(self.used, train=replace(train, cuts=cuts), valid=replace(valid, cuts=pieces))
        )

    def encoded(self, rows: GroupedRows) -> tuple[GroupedRows, Matrix]:
        """Return the rows with their features at once, without those that the learner cannot handle."""
        x = encode_rows(self.fitted, rows.dataset, rows.numbers, self.dense_columns, place=rows.place)
        kept = self._usable(x)
        return (rows, x) if kept.all() else (rows.only(kept), x[kept])

    def scanned(self, rows: GroupedRows) -> GroupedRows:
        """Return the rows that ``encoded`` keeps, without their features, encoding few at a time."""
        items, data, numbers = [each.item for each in self.fitted], rows.dataset, rows.numbers
        takes_all = self.learner.declaration.handles_missing and not self._has_offset
        if takes_all or not numbers.size or all(map(encoders.always_finite, items)):
            return rows
        size, made = block_rows(items, BLOCK_ROWS), replays(self.fitted, data)
        runs = (numbers[first : first + size] for first in range(0, numbers.size, size))
        encoded = (encode_rows(self.fitted, data, run, self.dense_columns, made) for run in runs)
        return rows.only(np.concatenate([self._usable(x) for x in encoded]))

    @property
    def _has_offset(self) -> bool:
        return any(encoder_of(each.item).required for each in self.fitted[-1:])

    def _usable(self, x: Matrix) -> BoolArray:
        """Return which rows the learner can handle: finite ones, or with missing features those that have an offset."""
        if not self.learner.declaration.handles_missing:
            return _complete(x)
        return _complete(x[:, -1:]) if self._has_offset else np.ones(x.shape[0], np.bool_)


def replays(fitted: Sequence[FittedItem], data: Dataset) -> list[Replay]:
    """Return functions that make features of any rows of a dataset."""
    return encoders.replays(fitted, encoders.columns_of(data, slice(0, 0)))


def encode_rows(
    fitted: Sequence[FittedItem],
    data: Dataset,
    numbers: RowNumbers,
    dense_columns: int,
    made: Sequence[Replay] | None = None,
    place: RowNumbers | None = None,
) -> Matrix:
    """Return the design matrix of rows by number, and free the pages that they were read from; ``place`` as in
    ``GroupedRows``.

    Callers that encode rows in small parts pass ``made``, the result of ``replays``.
    """
    rows = adjoining(numbers)
    columns = encoders.columns_of(data, rows, place)
    if data.files is not None and isinstance(
        rows, slice
    ):  # a view of pages that are freed, which may be the result itself
        columns = replace(columns, numeric=columns.numeric.copy())
    x = encoders.encode(fitted, columns, dense_columns, made)
    forget(data, numbers)
    return x


def _fit(job: Job, rows: GroupedRows, earlier: Earlier | None) -> tuple[FittedItem, ...]:
    """Return the encoders as they were before, or fitted on the rows that the learner will see, which may exclude incomplete
    ones."""
    known = [None if earlier is None else earlier.kept(number) for number in range(len(job.items))]
    if all(known):
        return tuple(filter(None, known))
    learns_all = job.trainer.declaration.handles_missing or all(map(encoders.needs_no_fit, job.items))
    if not learns_all:
        rows = rows.only(encoders.complete(job.items, job.dataset, rows.numbers))

    def fitted(number: int, item: Item) -> FittedItem:
        before = known[number] or (job.fitted.get(number) if item.scope == "all" else None)
        return encoders.fit(item, job.dataset, rows.numbers, rows.place) if before is None else before

    return tuple(itertools.starmap(fitted, enumerate(job.items)))


def feature_blocks(fitted: Sequence[FittedItem]) -> tuple[FeatureBlock, ...]:
    """Return the feature columns of each item."""
    return tuple(
        FeatureBlock(each.item.name, width, encoder_of(each.item).pure or width <= 1)
        for each, width in zip(fitted, widths_of(fitted), strict=True)
    )


def _refuse_wide(job: Job, fitted: Sequence[FittedItem]) -> None:
    """Raise GroupFailed if the numbers of one model in training do not fit into memory."""
    learner = job.trainer
    if (
        not declared_form(learner).grows_with_columns
        or not job.configs
        or sum(widths_of(fitted)) <= encoders.DENSE_COLUMNS
    ):
        return
    blocks = feature_blocks(fitted)
    outputs = job.target.label.n_scores(len(job.dataset.classes))
    needed, most = max(
        (8 * learner.cost.most_values(config, blocks, outputs), place) for place, config in enumerate(job.configs)
    )
    if needed > (limit := memory_limit()):  # the rows are in files
        other = registry.way_within(learner, job.configs[most], blocks, outputs, limit // 8)
        hint = "fewer columns" if other is None else f"WITH (solver = '{other[0]}')"
        raise GroupFailed(
            f"{learner.shown_way} takes {amount_of_bytes(needed)} of memory for {sum(block.width for block in blocks):,} columns,"
            f" and there are {amount_of_bytes(limit)}; hint: {hint}"
        )


def keeps_zeros(job: Job, fitted: Sequence[FittedItem], n_rows: int) -> bool:
    """Whether a group of so many rows trains on dense ones, in all folds; raises GroupFailed if these do not fit into memory."""
    learner, items, widths = job.trainer, [each.item for each in fitted], widths_of(fitted)
    width = sum(widths)
    _refuse_wide(job, fitted)
    if learner.prefers_sparse and encoders.is_mostly_zero(items, width, n_rows):
        return False
    if encoders.is_dense(items, width) or learner.declaration.handles_sparse:
        return encoders.is_dense(items, width)
    arrays = sum(own for own, item in zip(widths, items, strict=True) if item.kind == "array")
    if 8 * (width - arrays) * n_rows > DENSE_BYTES:
        raise GroupFailed(
            f"{learner.declaration.name} takes dense features only, and {n_rows} rows x {width} columns exceed "
            f"{DENSE_BYTES >> 30} GiB; hint: use hash(x, buckets) or ordinal(x) for the widest categories"
        )
    return True


def _complete(x: Matrix) -> BoolArray:
    """Return which rows are finite."""
    if isinstance(x, np.ndarray):
        return finite_rows(x)
    complete = np.ones(x.shape[0], dtype=np.bool_)
    broken = np.flatnonzero(~np.isfinite(x.data))
    complete[np.searchsorted(x.indptr, broken, side="right") - 1] = False
    return complete
