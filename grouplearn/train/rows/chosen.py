"""Which rows of a group train and which are held out, their cuts into blocks, and the fitted encoders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.amounts import amount_of_bytes
from grouplearn.data import encoders, shard
from grouplearn.data.arrays import block_rows
from grouplearn.data.dataset import Dataset, FloatArray, Group, has_label
from grouplearn.data.encoders import FittedItem
from grouplearn.data.encoding.encoder import Replay
from grouplearn.data.memory import memory_limit
from grouplearn.data.shard import BLOCK_ROWS, Matrix, RowNumbers
from grouplearn.kernels.algebra import finite_rows
from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.problem import FeatureBlock
from grouplearn.models.forms.forms import declared_form
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.rows.sampled import group_seed, sample, share_of

BoolArray = npt.NDArray[np.bool_]

#: Why a fit that would only be judged does not train.
NOTHING_HELD_OUT = "no row is held out"
#: Largest dense design matrix (in bytes as doubles) for a learner that does not support sparse rows.
DENSE_BYTES = 1 << 30


class GroupFailed(Exception):
    """A group cannot be trained; the message tells the user why, ``facts`` what is known of its rows."""

    def __init__(self, message: str, facts: GroupFacts | None = None) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """A group's training and held-out rows, each with the cuts of its blocks, and the fitted encoders.

    ``n_skipped`` rows are neither: they have no label, or weight 0.
    """

    learner: Learner
    train: Rows
    valid: Rows
    fitted: tuple[FittedItem, ...]
    dense_columns: int
    n_skipped: int

    @classmethod
    def of(cls, job: Job, group: Group, fold: int) -> ChosenRows:
        """Choose the rows, cut them into blocks and fit the encoders; raises GroupFailed.

        A sample of the training rows uses the encoders of all, so that a group's trials have the same features.
        """
        learner = job.trainer
        train, valid = _usable_rows(job, group, fold)
        fitted = _fit(job, train)
        _refuse_wide(job, fitted)
        dense_columns = max(_dense_columns(fitted, part.size, learner) for part in (train, valid))
        if learns_sparse(learner, fitted, group.n_rows):
            dense_columns = 0
        whole, held_out = (Rows(job.dataset, rows, (0, int(rows.size))) for rows in (train, valid))
        skipped = group.n_rows - int(train.size + valid.size)
        chosen = cls(learner, whole, held_out, fitted, dense_columns, skipped)
        share = share_of(job.round.share, group.n_rows)
        return (chosen if share == 1 else chosen._sampled(job, group, share))._cut(
            block_rows(job.items, job.block_rows)
        )

    def _sampled(self, job: Job, group: Group, share: float) -> ChosenRows:
        """Return a sample of the usable training rows, with all their classes."""
        rows, data = self.train, self.train.dataset
        numbers = range(data.numeric.shape[1])
        if not all(np.isfinite(data.column("numeric", number, rows.numbers)).all() for number in numbers):
            rows = self.scanned(rows)
        refuse_few(job, group.n_rows, rows.numbers.size, self.valid.numbers.size, rows.n_skipped)
        classes = rows.y if job.target.label.has_classes else None
        drawn = sample(rows.numbers, classes, share, group_seed(job.training.seed, group))
        return replace(self, train=replace(rows, numbers=drawn))

    def _cut(self, size: int) -> ChosenRows:
        """Cut the training rows into blocks, and the held-out rows into as many pieces."""
        train, valid = int(self.train.numbers.size), int(self.valid.numbers.size)
        cuts = (*range(0, train, size), train)
        pieces = tuple(piece * valid // (len(cuts) - 1) for piece in range(len(cuts)))
        return replace(self, train=replace(self.train, cuts=cuts), valid=replace(self.valid, cuts=pieces))

    def encoded(self, rows: Rows) -> tuple[Rows, Matrix]:
        """Return the rows with their features at once, without those that the learner cannot handle."""
        x = encode_rows(self.fitted, rows.dataset, rows.numbers, self.dense_columns)
        if self.learner.declaration.handles_missing or (kept := _complete(x)).all():
            return rows, x
        return rows.only(kept), x[kept]

    def scanned(self, rows: Rows) -> Rows:
        """Return the rows that ``encoded`` keeps, without their features, encoding few at a time."""
        items, data = [each.item for each in self.fitted], rows.dataset
        if self.learner.declaration.handles_missing or not rows.numbers.size or all(map(encoders.always_finite, items)):
            return rows
        runs, made = rows.runs(block_rows(items, BLOCK_ROWS)), replays(self.fitted, data)
        encoded = (encode_rows(self.fitted, data, run, self.dense_columns, made) for run in runs)
        return rows.only(np.concatenate([_complete(x) for x in encoded]))


def replays(fitted: Sequence[FittedItem], data: Dataset) -> list[Replay]:
    """Return functions that make features of any rows of a dataset."""
    return encoders.replays(fitted, encoders.columns_of(data, slice(0, 0)))


def encode_rows(
    fitted: Sequence[FittedItem],
    data: Dataset,
    numbers: RowNumbers,
    dense_columns: int,
    made: Sequence[Replay] | None = None,
) -> Matrix:
    """Return the design matrix of rows by number, and free the pages that they were read from.

    Callers that encode rows in small parts pass ``made``, the result of ``replays``.
    """
    rows = adjoining(numbers)
    columns = encoders.columns_of(data, rows)
    if data.files is not None and isinstance(
        rows, slice
    ):  # a view of pages that are freed, which may be the result itself
        columns = replace(columns, numeric=columns.numeric.copy())
    x = encoders.encode(fitted, columns, dense_columns, made)
    forget(data, numbers)
    return x


def adjoining(numbers: RowNumbers) -> RowNumbers | slice:
    """Return ascending row numbers as a slice if they are consecutive."""
    if numbers.size and int(numbers[-1]) - int(numbers[0]) == numbers.size - 1:
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


def forget(data: Dataset, numbers: RowNumbers) -> None:
    """Free the pages of ascending row numbers, if rows are in files."""
    if data.files is not None and numbers.size:
        data.forget_pages(int(numbers[0]), int(numbers[-1]) + 1)


@dataclass(frozen=True, slots=True)
class Rows:
    """Dataset rows by ascending number, and where their blocks begin and end; ``n_skipped`` were left out."""

    dataset: Dataset
    numbers: RowNumbers
    cuts: tuple[int, ...]
    n_skipped: int = 0

    @property
    def y(self) -> FloatArray:
        """Labels as in the dataset."""
        return self.dataset.y[self.numbers]

    @property
    def weight(self) -> FloatArray:
        """Weights without class weights."""
        return self.dataset.weight[self.numbers]

    def runs(self, rows: int) -> Iterator[RowNumbers]:
        """Yield the row numbers in runs of at most this size."""
        for start in range(0, self.numbers.size, rows):
            yield self.numbers[start : start + rows]

    def labelled(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield labels and weights run by run."""
        for run in self.runs(shard.SUMMED_ROWS):
            yield self.dataset.y[run], self.dataset.weight[run]
            forget(self.dataset, run)

    def only(self, kept: BoolArray) -> Rows:
        """Return only the rows to keep; the others count as skipped."""
        if kept.all():
            return self
        before = np.concatenate([[0], np.cumsum(kept)])
        cuts = tuple(before[list(self.cuts)].tolist())
        skipped = self.n_skipped + int((~kept).sum())
        return Rows(self.dataset, self.numbers[kept], cuts, skipped)


def _usable_rows(job: Job, group: Group, fold: int) -> tuple[RowNumbers, RowNumbers]:
    """Return the dataset rows of positive weight that train and that are held out, after checking all rows."""
    n_rows, data = group.n_rows, job.dataset
    if n_rows == 0:
        raise GroupFailed("the group has no rows")
    found, faults, total = _Found.room_for(n_rows), np.zeros(4, dtype=np.int64), 0.0
    for rows in _runs(group.ranges):
        label, weight = data.y[rows], data.weight[rows]
        known = has_label(label)
        odd = known & (weight != 0) & ~_by_row(np.isfinite(label))
        faults += [(~known).sum(), odd.sum(), (known & ~np.isfinite(weight)).sum(), (known & (weight < 0)).sum()]
        counts = known & (weight > 0)
        found.add(rows, counts, job.split.judges(data.split[rows], fold))
        with np.errstate(over="ignore"):
            total += float(weight[counts].sum())
        forget(data, rows)
    if n_rows >= job.rules.min_rows:
        _refuse_faults(job, faults, n_rows)
    train, valid = found.train[: found.n_train], found.valid[: found.n_valid]
    if np.isinf(total):
        raise GroupFailed("the sum of the weights overflows; scale the weights down")
    refuse_few(job, n_rows, train.size, valid.size, 0, int(faults[0]))
    if job.split.only_judged(fold) and not valid.size:
        raise GroupFailed(NOTHING_HELD_OUT)
    return train, valid


def refuse_few(job: Job, n_rows: int, train: int, valid: int, incomplete: int, unlabelled: int = 0) -> None:
    """Raise GroupFailed if no row of a group of ``n_rows`` is left to train on, or fewer than ``min_rows``.

    ``incomplete`` training rows lack a feature value, ``unlabelled`` ones a label. With folds, held-out rows train, too.
    """
    training = train + valid if job.split.folds else train
    if train and training >= job.rules.min_rows:
        return
    facts = GroupFacts((), (), *((training, 0) if job.split.folds else (train, valid)), n_rows - train - valid)
    if n_rows < job.rules.min_rows:
        why = f"the group has {count(n_rows, 'row')}, fewer than min_rows = {job.rules.min_rows}"
    elif unlabelled == n_rows:
        why = f"the label is NULL in each of the {count(n_rows, 'row')}"
    elif incomplete and not train:
        why = (
            f"each of the {incomplete} training rows has a missing or infinite feature value; "
            "hint: impute(...) the features, or filter such rows in WHERE"
        )
    elif not train + valid:
        why = f"the weight is 0 in each of the {count(n_rows - unlabelled, 'row')}"
    elif not train:
        why = f"no row is left to train on: VALIDATE holds out all {count(valid, 'row')}"
    else:
        labelled = f"{count(n_rows - unlabelled, 'row')} with a label"
        rows = labelled if n_rows - unlabelled < job.rules.min_rows else count(training, "training row")
        why = f"the group has {rows}, fewer than min_rows = {job.rules.min_rows}"
    raise GroupFailed(why, facts)


def _by_row(values: npt.NDArray[np.bool_]) -> BoolArray:
    """Return which rows are True for every value of their label."""
    return values if values.ndim == 1 else np.asarray(values.all(axis=1))


@dataclass(slots=True)
class _Found:
    """Row numbers as they are found; unwritten parts of the array take no memory."""

    train: RowNumbers
    valid: RowNumbers
    n_train: int = 0
    n_valid: int = 0

    @classmethod
    def room_for(cls, rows: int) -> _Found:
        return cls(np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64))

    def add(self, rows: RowNumbers, used: BoolArray, held_out: BoolArray) -> None:
        train, valid = rows[used & ~held_out], rows[used & held_out]
        self.train[self.n_train : self.n_train + train.size] = train
        self.valid[self.n_valid : self.n_valid + valid.size] = valid
        self.n_train, self.n_valid = self.n_train + train.size, self.n_valid + valid.size


def _runs(ranges: Sequence[tuple[int, int]]) -> Iterator[RowNumbers]:
    """Yield row numbers in runs of about ``SUMMED_ROWS``."""
    waiting: list[RowNumbers] = []
    for start, stop in ranges:
        for low in range(start, stop, shard.SUMMED_ROWS):
            waiting.append(np.arange(low, min(low + shard.SUMMED_ROWS, stop), dtype=np.int64))
            if sum(each.size for each in waiting) >= shard.SUMMED_ROWS:
                yield np.concatenate(waiting)
                waiting = []
    if waiting:
        yield np.concatenate(waiting)


def _refuse_faults(job: Job, faults: npt.NDArray[np.int64], n_rows: int) -> None:
    """Raise GroupFailed for rows without a label, with a non-finite one, or with an invalid weight."""
    unlabelled, odd, broken, negative = faults.tolist()
    if job.rules.null_label == "error" and unlabelled < n_rows:
        _refuse("the label is NULL", unlabelled, n_rows, "ON NULL LABEL SKIP leaves such rows out")
    of_arrays = job.dataset.y.ndim > 1
    what = "an element of the label is NULL, NaN or infinite" if of_arrays else "the label is NaN or infinite"
    _refuse(what, odd, n_rows, "filter such rows in WHERE")
    _refuse("the weight is NULL, NaN or infinite", broken, n_rows, "a weight is a number >= 0")
    _refuse("the weight is negative", negative, n_rows, "a weight is a number >= 0")


def _refuse(what: str, faults: int, n_rows: int, hint: str) -> None:
    if faults:
        raise GroupFailed(f"{what} in {faults} of {count(n_rows, 'row')}; hint: {hint}")


def _fit(job: Job, rows: RowNumbers) -> tuple[FittedItem, ...]:
    """Return the encoders fitted on the rows that the learner will see, which may exclude incomplete ones."""
    learns_all = job.trainer.declaration.handles_missing or all(map(encoders.needs_no_fit, job.items))
    if not learns_all and not (kept := encoders.complete(job.items, job.dataset, rows)).all():
        rows = rows[kept]
    fitted = []
    for number, item in enumerate(job.items):
        if item.scope == "all" and number in job.fitted:
            fitted.append(job.fitted[number])
        else:
            fitted.append(encoders.fit(item, job.dataset, rows))
    return tuple(fitted)


def _refuse_wide(job: Job, fitted: Sequence[FittedItem]) -> None:
    """Raise GroupFailed if the numbers of one model in training do not fit into memory."""
    learner = job.trainer
    if (
        not declared_form(learner).grows_with_columns
        or not job.configs
        or sum(each.width for each in fitted) <= encoders.DENSE_COLUMNS
    ):
        return
    blocks = [FeatureBlock(each.item.name, each.width, each.pure) for each in fitted]
    outputs = job.target.label.n_scores(len(job.dataset.classes))
    needed, most = max(
        (8 * learner.cost.most_values(config, blocks, outputs), place) for place, config in enumerate(job.configs)
    )
    if needed > (limit := memory_limit()):  # the rows are in files
        other = registry.way_within(learner, job.configs[most], blocks, outputs, limit // 8)
        hint = "fewer columns" if other is None else f"WITH (solver = '{other[0]}')"
        raise GroupFailed(
            f"{learner.way} takes {amount_of_bytes(needed)} of memory for {sum(block.width for block in blocks):,} columns,"
            f" and there are {amount_of_bytes(limit)}; hint: {hint}"
        )


def learns_sparse(learner: Learner, fitted: Sequence[FittedItem], n_rows: int) -> bool:
    """Whether a learner that supports both trains faster on CSR for this many rows; the same for all folds of a group."""
    return learner.prefers_sparse and encoders.is_mostly_zero(
        [each.item for each in fitted], sum(each.width for each in fitted), n_rows
    )


def _dense_columns(fitted: Sequence[FittedItem], n_rows: int, learner: Learner) -> int:
    width = sum(each.width for each in fitted)
    arrays = sum(each.width for each in fitted if each.item.kind == "array")
    if encoders.is_dense([each.item for each in fitted], width):
        return max(width, encoders.DENSE_COLUMNS)
    if learner.declaration.handles_sparse:
        return encoders.DENSE_COLUMNS
    if 8 * (width - arrays) * n_rows > DENSE_BYTES:
        raise GroupFailed(
            f"{learner.declaration.name} takes dense features only, and {n_rows} rows x {width} columns exceed "
            f"{DENSE_BYTES >> 30} GiB; hint: use hash(x, buckets) or ordinal(x) for the widest categories"
        )
    return width


def _complete(x: Matrix) -> BoolArray:
    """Return which rows are finite."""
    if isinstance(x, np.ndarray):
        return finite_rows(x)
    complete = np.ones(x.shape[0], dtype=np.bool_)
    broken = np.flatnonzero(~np.isfinite(x.data))
    complete[np.searchsorted(x.indptr, broken, side="right") - 1] = False
    return complete


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
