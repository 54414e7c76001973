"""From dataset rows to what a learner sees: training and validation shards of one group, encoders fitted, rows checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.data.encoders import FittedItem
from grouplearn.data.shard import Matrix, Shard
from grouplearn.learners import registry
from grouplearn.learners.base import Learner, Problem, Task
from grouplearn.runtime.job import GroupFacts, Job

RowNumbers = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: The fold number of the model that is kept.
FINAL = -1
#: The largest dense design matrix made for a learner that does not take sparse rows.
DENSE_BYTES = 1 << 30


class GroupFailed(Exception):
    """A group cannot be trained; the message tells the user why."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A group (under one fold) ready to train.

    ``row_weight`` are the training rows' weights without class weights: what metrics are weighted by.
    """

    train: Shard
    valid: Shard | None
    row_weight: FloatArray
    problem: Problem
    facts: GroupFacts


def prepare(job: Job, group: Group, fold: int = FINAL) -> Prepared:
    """Return ``group`` ready to train, or raise GroupFailed with a reason a user understands.

    Which rows train: without folds those with split 0, and split 1 validates; with folds, fold k holds out the rows with
    split k, and ``FINAL`` trains on every row. Encoders with scope 'group' are fitted on the training rows alone.

    Rows with weight 0 are as if not there. Left out and counted in ``n_skipped``: rows with a missing or infinite feature
    value where the learner cannot handle one, and validation rows of a class that the training rows do not have (no
    model could predict it).
    """
    learner = registry.learner(job.learner)
    rows = _usable_rows(job, group)
    held_out = _held_out(job, job.dataset.split[rows], fold)
    fitted = _fit(job, rows[~held_out])
    train = _Rows.encoded(job.dataset, rows[~held_out], fitted, learner)
    if not train.y.size:
        raise GroupFailed(
            f"each of the {train.n_skipped} training rows has a missing or infinite feature value; "
            "hint: impute(...) the features, or filter such rows in WHERE"
        )
    classes = _classes(job, train.y)
    valid = _Rows.encoded(job.dataset, rows[held_out], fitted, learner).of_classes(classes)
    facts = GroupFacts(
        fitted=fitted,
        features=tuple(name for each in fitted for name in each.features),
        classes=tuple(int(each) for each in classes),
        n_train=train.y.size,
        n_valid=valid.y.size,
        n_skipped=train.n_skipped + valid.n_skipped,
    )
    weight = train.weight * _class_weights(job, classes, train)
    shard = Shard(train.x, train.numbered(classes), weight)
    holdout = Shard(valid.x, valid.numbered(classes), valid.weight) if valid.y.size else None
    return Prepared(shard, holdout, train.weight, problem_of(job, group, learner, facts), facts)


def group_seed(seed: int, group: Group) -> int:
    """Return 31 bits of BLAKE2b(seed, level, keys): other groups, workers and order play no part."""
    text = json.dumps([seed, group.level, group.keys])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") >> 1


def _usable_rows(job: Job, group: Group) -> RowNumbers:
    """Return the group's dataset rows with a positive weight, in order, after the checks on labels and weights."""
    n_rows = group.n_rows
    if n_rows == 0:
        raise GroupFailed("the group has no rows")
    if n_rows < job.min_rows:
        raise GroupFailed(f"the group has {_count(n_rows, 'row')}, fewer than min_rows = {job.min_rows}")
    rows = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in group.ranges])
    label, weight = job.dataset.y[rows], job.dataset.weight[rows]
    _refuse("the label is NULL or not finite", ~np.isfinite(label), "filter such rows in WHERE")
    _refuse("the weight is NULL, NaN or infinite", ~np.isfinite(weight), "a weight is a number >= 0")
    _refuse("the weight is negative", weight < 0, "a weight is a number >= 0")
    if not weight.any():
        raise GroupFailed(f"the weight is 0 in each of the {_count(n_rows, 'row')}")
    return rows if weight.all() else rows[weight > 0]


def _refuse(what: str, where: BoolArray, hint: str) -> None:
    if where.any():
        raise GroupFailed(f"{what} in {int(where.sum())} of {_count(where.size, 'row')}; hint: {hint}")


def _held_out(job: Job, split: npt.NDArray[np.int16], fold: int) -> BoolArray:
    if job.folds > 0:
        held_out: BoolArray = split == fold if fold != FINAL else np.zeros(split.shape, dtype=np.bool_)
    else:
        held_out = split == 1
    if held_out.all():
        raise GroupFailed(f"no row is left to train on: VALIDATE holds out all {_count(split.size, 'row')}")
    return held_out


def _fit(job: Job, rows: RowNumbers) -> tuple[FittedItem, ...]:
    fitted = []
    for number, item in enumerate(job.items):
        if item.scope == "all" and number in job.fitted:
            fitted.append(job.fitted[number])
        elif item.kind == "numeric":
            fitted.append(encoders.fit(item, job.dataset.numeric[rows, item.column], ()))
        else:
            dictionary = job.dataset.dictionaries[item.column]
            fitted.append(encoders.fit(item, job.dataset.codes[rows, item.column], dictionary))
    return tuple(fitted)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Encoded rows with their labels as in the dataset; ``n_skipped`` rows were left out."""

    x: Matrix
    y: FloatArray
    weight: FloatArray
    n_skipped: int = 0

    @classmethod
    def encoded(cls, dataset: Dataset, rows: RowNumbers, fitted: Sequence[FittedItem], learner: Learner) -> _Rows:
        x = encoders.encode(
            fitted,
            dataset.numeric[rows],
            dataset.codes[rows],
            dataset.dictionaries,
            _dense_columns(fitted, rows.size, learner),
        )
        encoded = cls(x, dataset.y[rows], dataset.weight[rows])
        return encoded if learner.handles_missing else encoded.only(_complete(x))

    def only(self, kept: BoolArray) -> _Rows:
        if kept.all():
            return self
        skipped = self.n_skipped + int((~kept).sum())
        return _Rows(self.x[kept], self.y[kept], self.weight[kept], skipped)

    def of_classes(self, classes: FloatArray) -> _Rows:
        return self.only(np.isin(self.y, classes)) if classes.size else self

    def numbered(self, classes: FloatArray) -> FloatArray:
        """Return the labels: values, or the position of the class in ``classes``."""
        return np.searchsorted(classes, self.y).astype(np.float64) if classes.size else self.y


def _dense_columns(fitted: Sequence[FittedItem], n_rows: int, learner: Learner) -> int:
    width = sum(each.width for each in fitted)
    if learner.handles_sparse or width <= encoders.DENSE_COLUMNS:
        return encoders.DENSE_COLUMNS
    if 8 * width * n_rows > DENSE_BYTES:
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


def _classes(job: Job, labels: FloatArray) -> FloatArray:
    """Return the class numbers in the training rows, ascending; none for regression."""
    if job.task is Task.REGRESSION:
        return np.empty(0)
    classes = np.unique(labels)
    if classes.size == 1:
        name = job.dataset.classes[int(classes[0])]
        raise GroupFailed(f"the label is {name} in all of the group's {_count(labels.size, 'training row')}")
    return classes


def _class_weights(job: Job, classes: FloatArray, train: _Rows) -> FloatArray | float:
    """Return the factor of each training row; 'balanced' is Σw / (k · Σw of the row's class), as in scikit-learn."""
    if job.class_weight is None or not classes.size:
        return 1.0
    position = np.searchsorted(classes, train.y)
    if job.class_weight == "balanced":
        totals = np.bincount(position, weights=train.weight, minlength=classes.size)
        factors = train.weight.sum() / (classes.size * totals)
    else:
        factors = np.array([job.class_weight.get(int(each), 1.0) for each in classes])
    chosen: FloatArray = factors[position]
    return chosen


def problem_of(job: Job, group: Group, learner: Learner, facts: GroupFacts) -> Problem:
    """Return what a pack is to learn on a prepared group."""
    starts = np.cumsum([0, *(each.width for each in facts.fitted)])
    ordinal = [each.item.encoder == "ordinal" for each in facts.fitted]
    return Problem(
        task=job.task,
        n_features=len(facts.features),
        n_classes=len(facts.classes),
        seed=group_seed(job.seed, group),
        epochs=1 if learner.default_epochs is None else job.epochs,
        categorical=tuple(int(start) for start, is_ordinal in zip(starts, ordinal, strict=False) if is_ordinal),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
