"""Which rows of a group train and which are held out, with the cuts of their blocks, and the encoders fitted on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.arrays import block_rows
from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.data.encoders import FittedItem
from grouplearn.data.shard import Matrix
from grouplearn.learners.base import Learner
from grouplearn.runtime.job import Job

RowNumbers = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: The fold number of the model that is kept.
FINAL = -1
#: The largest dense design matrix made for a learner that does not take sparse rows.
DENSE_BYTES = 1 << 30


class GroupFailed(Exception):
    """A group cannot be trained; the message tells the user why."""


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """A group's rows that train and that are held out, each with the cuts of its blocks, and the fitted encoders."""

    dataset: Dataset
    learner: Learner
    train: Rows
    valid: Rows
    fitted: tuple[FittedItem, ...]
    dense_columns: int

    @classmethod
    def of(cls, job: Job, group: Group, fold: int) -> ChosenRows:
        """Choose the rows, cut them into blocks and fit the encoders; raises GroupFailed."""
        learner = job.trainer
        rows = _usable_rows(job, group)
        held_out = _held_out(job, job.dataset.split[rows], fold)
        train, valid = rows[~held_out], rows[held_out]
        fitted = _fit(job, train)
        dense_columns = max(_dense_columns(fitted, part.size, learner) for part in (train, valid))
        cuts = (*range(0, train.size, block_rows(job.items)), int(train.size))
        n_blocks = len(cuts) - 1
        pieces = tuple(piece * int(valid.size) // n_blocks for piece in range(n_blocks + 1))
        return cls(
            job.dataset,
            learner,
            Rows.read(job.dataset, train, cuts),
            Rows.read(job.dataset, valid, pieces),
            fitted,
            dense_columns,
        )

    def encoded(self, rows: Rows) -> Rows:
        """Return the rows with their features, all at once, without those that the learner cannot handle."""
        rows = replace(rows, x=self._encode(rows.numbers))
        return rows if self.learner.handles_missing else rows.only(_complete(rows.x))

    def scanned(self, rows: Rows) -> Rows:
        """Return the rows that ``encoded`` keeps, without their features, encoding few at a time."""
        if self.learner.handles_missing or not rows.numbers.size:
            return rows
        most = block_rows([each.item for each in self.fitted])
        runs = np.split(rows.numbers, range(most, rows.numbers.size, most))
        return rows.only(np.concatenate([_complete(self._encode(run)) for run in runs]))

    def _encode(self, numbers: RowNumbers) -> Matrix:
        data = self.dataset
        return encoders.encode(
            self.fitted, data.numeric[numbers], data.codes[numbers], data.dictionaries, self.dense_columns
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Dataset rows with their labels as in the dataset and where their blocks begin and end; ``n_skipped`` were left out."""

    numbers: RowNumbers
    y: FloatArray
    weight: FloatArray
    cuts: tuple[int, ...]
    x: Matrix
    n_skipped: int = 0

    @classmethod
    def read(cls, dataset: Dataset, numbers: RowNumbers, cuts: tuple[int, ...]) -> Rows:
        """Return dataset rows without their features."""
        return cls(numbers, dataset.y[numbers], dataset.weight[numbers], cuts, np.empty((numbers.size, 0)))

    def only(self, kept: BoolArray) -> Rows:
        """Return the rows that are kept; the others count as skipped."""
        if kept.all():
            return self
        before = np.concatenate([[0], np.cumsum(kept)])
        cuts = tuple(before[list(self.cuts)].tolist())
        skipped = self.n_skipped + int((~kept).sum())
        return Rows(self.numbers[kept], self.y[kept], self.weight[kept], cuts, self.x[kept], skipped)

    def of_classes(self, classes: FloatArray) -> Rows:
        """Return the rows of these classes; all of them in regression."""
        return self.only(_by_row(np.isin(self.y, classes))) if classes.size else self


def _usable_rows(job: Job, group: Group) -> RowNumbers:
    """Return the group's dataset rows with a positive weight, in order, after the checks on labels and weights."""
    n_rows = group.n_rows
    if n_rows == 0:
        raise GroupFailed("the group has no rows")
    if n_rows < job.min_rows:
        raise GroupFailed(f"the group has {count(n_rows, 'row')}, fewer than min_rows = {job.min_rows}")
    rows = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in group.ranges])
    label, weight = job.dataset.y[rows], job.dataset.weight[rows]
    _refuse("the label is NULL or not finite", ~_by_row(np.isfinite(label)), "filter such rows in WHERE")
    _refuse("the weight is NULL, NaN or infinite", ~np.isfinite(weight), "a weight is a number >= 0")
    _refuse("the weight is negative", weight < 0, "a weight is a number >= 0")
    if not weight.any():
        raise GroupFailed(f"the weight is 0 in each of the {count(n_rows, 'row')}")
    return rows if weight.all() else rows[weight > 0]


def _by_row(values: npt.NDArray[np.bool_]) -> BoolArray:
    """Return which rows have True in each value of their label."""
    return values if values.ndim == 1 else np.asarray(values.all(axis=1))


def _refuse(what: str, where: BoolArray, hint: str) -> None:
    if where.any():
        raise GroupFailed(f"{what} in {int(where.sum())} of {count(where.size, 'row')}; hint: {hint}")


def _held_out(job: Job, split: npt.NDArray[np.int16], fold: int) -> BoolArray:
    if job.folds > 0:
        held_out: BoolArray = split == fold if fold != FINAL else np.zeros(split.shape, dtype=np.bool_)
    else:
        held_out = split == 1
    if held_out.all():
        raise GroupFailed(f"no row is left to train on: VALIDATE holds out all {count(split.size, 'row')}")
    return held_out


def _fit(job: Job, rows: RowNumbers) -> tuple[FittedItem, ...]:
    fitted = []
    for number, item in enumerate(job.items):
        if item.scope == "all" and number in job.fitted:
            fitted.append(job.fitted[number])
        elif encoders.needs_no_fit(item):
            fitted.append(encoders.fit(item, np.empty(0), ()))
        elif item.kind == "numeric":
            fitted.append(encoders.fit(item, job.dataset.numeric[rows, item.column], ()))
        else:
            dictionary = job.dataset.dictionaries[item.column]
            fitted.append(encoders.fit(item, job.dataset.codes[rows, item.column], dictionary))
    return tuple(fitted)


def _dense_columns(fitted: Sequence[FittedItem], n_rows: int, learner: Learner) -> int:
    width = sum(each.width for each in fitted)
    arrays = sum(each.width for each in fitted if each.item.kind == "array")
    if width <= encoders.DENSE_COLUMNS or (learner.handles_sparse and not arrays):
        return encoders.DENSE_COLUMNS
    if 8 * (width - arrays) * n_rows > DENSE_BYTES:
        raise GroupFailed(
            f"{learner.name} takes dense features only, and {n_rows} rows x {width} columns exceed "
            f"{DENSE_BYTES >> 30} GiB; hint: use hash(x, buckets) or ordinal(x) for the widest categories"
        )
    return width


def _complete(x: Matrix) -> BoolArray:
    """Return which rows have no NaN and no infinity."""
    if isinstance(x, np.ndarray):
        return np.asarray(np.isfinite(x).all(axis=1))
    complete = np.ones(x.shape[0], dtype=np.bool_)
    broken = np.flatnonzero(~np.isfinite(x.data))
    complete[np.searchsorted(x.indptr, broken, side="right") - 1] = False
    return complete


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
