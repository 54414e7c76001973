"""Rows of many small groups, prepared at once by array operations over all of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, FloatArray, Group, has_label
from grouplearn.data.encoders import FittedGroups, GroupRows
from grouplearn.data.shard import Stack, starts
from grouplearn.kernels.algebra import finite_rows
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.rows.chosen import learns_sparse
from grouplearn.train.rows.prepare import LEAST_SQUARE, class_factors, problem_of
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.sources import pick

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]
#: Weighted squares below this mean that different labels are too close, as a double has 16 digits.
_SMALL_SQUARE = LEAST_SQUARE * 1e32


@dataclass(frozen=True, slots=True)
class PreparedStack:
    """Groups of one shape ready to train side by side; ``members`` are their places in the unit.

    ``train`` has class weights, ``row_weight`` (n,) are the weights without them, for metrics. ``valid`` has no rows for
    groups without held-out rows.
    """

    members: tuple[int, ...]
    problem: Problem
    train: Stack
    row_weight: FloatArray
    valid: Stack | None
    facts: tuple[GroupFacts, ...]

    def take(self, chosen: BoolArray) -> PreparedStack:
        """Return the chosen groups (G,)."""
        kept = chosen.tolist()
        return PreparedStack(
            members=tuple(itertools.compress(self.members, kept)),
            problem=self.problem,
            train=self.train.take(chosen),
            row_weight=self.row_weight[np.repeat(chosen, self.train.sizes)],
            valid=None if self.valid is None else self.valid.take(chosen),
            facts=tuple(itertools.compress(self.facts, kept)),
        )


@dataclass(frozen=True, slots=True)
class PreparedFolds:
    """Groups of one shape with all their rows: ``fold`` (n,) is the fold, of ``n_folds``, that holds a row out."""

    members: tuple[int, ...]
    problem: Problem
    rows: Stack
    fold: npt.NDArray[np.int16]
    n_folds: int
    facts: tuple[GroupFacts, ...]


@dataclass(frozen=True, slots=True)
class StackRows:
    """The rows of several groups that can be used, concatenated in ``data`` (N); ``of`` (N,) is the group's place.

    ``sizes`` (G,) are how many these are of each group, ``n_skipped`` (G,) how many others it has, which have no label, weight
    0, or not all features; ``held_out`` (N,) says which do not train, ``n_held_out`` (G,) how many these are, ``odd`` (G,)
    which groups have rows that are refused, and ``present`` (G, C) which classes, if any, train in each.
    """

    groups: Sequence[Group]
    sizes: IntArray
    n_skipped: IntArray
    data: Dataset
    of: IntArray
    held_out: BoolArray
    n_held_out: IntArray
    odd: BoolArray
    present: BoolArray

    @classmethod
    def of_groups(cls, job: Job, groups: Sequence[Group], fold: int) -> StackRows:
        """Return the rows of groups, of which ``fold`` is held out if there are folds."""
        ranges = [group.ranges for group in groups]
        runs = list(itertools.chain.from_iterable(ranges))
        first, last = np.array(runs, dtype=np.int64).reshape(-1, 2).T
        lengths = last - first
        adjoining = bool(runs) and bool((first[1:] == last[:-1]).all())
        data = pick(job.dataset, slice(int(first[0]), int(last[-1])) if adjoining else _numbers(first, lengths))
        group_of_run = np.repeat(np.arange(len(groups)), [len(each) for each in ranges])
        sizes = np.bincount(group_of_run, lengths, len(groups)).astype(np.intp)
        of, odd = np.repeat(np.arange(len(groups)), sizes), np.zeros(len(groups), np.bool_)
        usable, refused = _usable(job, data)
        odd[of[refused]] = True
        if not usable.all():
            data, of = pick(data, np.flatnonzero(usable)), of[usable]
        used = np.bincount(of, minlength=len(groups))
        held_out = job.split.judges(data.split, fold)
        n_held_out = np.bincount(of[held_out], minlength=len(groups))
        present = _present(job, data, of, held_out, len(groups))
        return cls(groups, used, sizes - used, data, of, held_out, n_held_out, odd, present)

    def unusual(self, job: Job) -> BoolArray:
        """Return which groups (G,) are unusual: few rows, small labels, one class, held-out rows of a class that
        does not train, or what is refused."""
        y, weight = self.data.y, self.data.weight
        training = self.sizes - self.n_held_out
        counted = self.sizes if job.split.folds else training  # a row held out in one fold trains in the others
        unusual: BoolArray = self.odd | (counted < job.rules.min_rows) | (training == 0)
        if job.target.label.is_number:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                unusual[self.of[(y * y * weight < _SMALL_SQUARE) & (y != 0)]] = True
        if job.target.label.has_classes:
            unusual |= np.count_nonzero(self.present, axis=1) < 2
            known = np.isfinite(y)
            unseen = ~self.present[self.of[known], y[known].astype(np.intp)]
            unusual[self.of[known][unseen]] = True
        return unusual

    def fit(self, job: Job) -> list[FittedGroups] | None:
        """Return the items fitted on each group's training rows; None if some are fitted one by one."""
        rows, found = GroupRows(self.of, ~self.held_out, len(self.groups)), []
        for number, item in enumerate(job.items):
            if number in job.fitted:
                fitted: FittedGroups | None = encoders.constant(job.fitted[number], self.data, rows.n_groups)
            else:
                fitted = encoders.fit_groups(item, self.data, rows)
            if fitted is None:
                return None
            found.append(fitted)
        return found

    def stacks(
        self, job: Job, fitted: Sequence[FittedGroups], configs: Sequence[Config], wanted: BoolArray
    ) -> tuple[list[PreparedStack], BoolArray]:
        """Return a stack for each shape of the ``wanted`` groups (G,), and which groups (G,) are in none: others, unusual ones,
        and those that the learner does not stack."""
        learner, n_classes = cast(GatheringLearner, job.trainer), self.present.shape[1]
        widths = np.array([_widths(each) for each in fitted], np.int64).reshape(len(fitted), len(self.groups))
        others = ~wanted | self.unusual(job) | self._not_stacked(job, fitted, widths.sum(axis=0))
        waiting, found = _alike(np.flatnonzero(~others), np.vstack([widths, self.present.T])), []
        while waiting:
            members = waiting.pop()
            classes = np.flatnonzero(self.present[members[0]])
            facts = self._facts(job, fitted, members)
            problem = problem_of(job, self.groups[int(members[0])], job.trainer, facts[0])
            own_shape = not nothing_is_fitted(job) or len(classes) < n_classes
            if own_shape and not learner.gathers(problem, configs):
                others[members] = True
                continue
            rows, numbers = self._rows(job, fitted, members), self._numbers_of(members)
            if not job.trainer.declaration.handles_missing and not (finite := finite_rows(rows.x)).all():
                # A rank that training rows do not have: without its row the group has fewer.
                others[self.of[numbers][~finite]] = True
                waiting += [rest] if (rest := members[~others[members]]).size else []
                continue
            if len(classes) < n_classes:
                rows = replace(rows, y=np.searchsorted(classes, rows.y).astype(np.float64))
            held_out = self.held_out[numbers]
            train, valid = rows.where(~held_out), rows.where(held_out)
            weight, held = train.weight, valid if valid.y.size else None
            train = _class_weighted(job, train, classes)
            found.append(PreparedStack(tuple(members.tolist()), problem, train, weight, held, facts))
        return found, others

    def _not_stacked(self, job: Job, fitted: Sequence[FittedGroups], widths: IntArray) -> BoolArray:
        """Return which groups (G,) have too many columns, or train without the zeros of their categories."""
        shapes = np.stack([widths, self.sizes + self.n_skipped])
        distinct, place = np.unique(shapes, axis=1, return_inverse=True)
        place = place.reshape(-1)  # of two dimensions in NumPy 2.0
        first = np.zeros(distinct.shape[1], np.intp)
        first[place] = np.arange(len(self.groups))
        items = [[each.fitted[group] for each in fitted] for group in first.tolist()]
        kept = [
            width > encoders.DENSE_COLUMNS or learns_sparse(job.trainer, item, n_rows)
            for item, (width, n_rows) in zip(items, distinct.T.tolist(), strict=True)
        ]
        return np.array(kept, np.bool_)[place]

    def folded(self, job: Job, chosen: BoolArray) -> PreparedFolds:
        """Return the chosen groups, whose items depend on no rows, with all their rows and the rows' folds."""
        fitted, members = self.fit(job) or [], np.flatnonzero(chosen)
        facts = self._facts(job, fitted, members)
        return PreparedFolds(
            members=tuple(members.tolist()),
            problem=problem_of(job, self.groups[int(members[0])], job.trainer, facts[0]),
            rows=self._rows(job, fitted, members),
            fold=self.data.split[self._numbers_of(members)],
            n_folds=job.split.folds,
            facts=facts,
        )

    def lacks_a_fold(self, job: Job) -> BoolArray:
        """Return which groups (G,) have no rows in some fold, or all in one."""
        n_groups = len(self.groups)
        flat = self.of * job.split.folds + self.data.split
        counts = np.bincount(flat, minlength=n_groups * job.split.folds).reshape(n_groups, job.split.folds)
        lacks: BoolArray = (counts == 0).any(axis=1)
        return lacks

    def lacks_a_class(self) -> BoolArray:
        """Return which groups (G,) lack a class in their training rows."""
        return np.asarray(~self.present.all(axis=1))

    def _rows(self, job: Job, fitted: Sequence[FittedGroups], members: IntArray) -> Stack:
        """Return all rows of these groups, which are of one shape."""
        data, numbers = self.data, self._numbers_of(members)
        items = [each.fitted[int(members[0])] for each in fitted]
        columns = encoders.columns_of(data, numbers)
        if nothing_is_fitted(job):
            x = np.asarray(encoders.encode(items, columns, sum(each.width for each in items)))
        else:
            x = encoders.encode_groups(items, fitted, columns, self.of[numbers])
        seeds = seeds_of(job, [self.groups[place] for place in members.tolist()])
        return Stack(x, data.y[numbers], data.weight[numbers], starts(self.sizes[members]), seeds)

    def _numbers_of(self, members: IntArray) -> slice | npt.NDArray[np.int64]:
        """Return the numbers of these groups' rows."""
        if len(members) == len(self.groups):
            return slice(None)
        return _numbers(starts(self.sizes)[members], self.sizes[members])

    def _facts(self, job: Job, fitted: Sequence[FittedGroups], members: IntArray) -> tuple[GroupFacts, ...]:
        """Return what is known of these groups, which have the same classes."""
        classes = tuple(np.flatnonzero(self.present[members[0]]).tolist())
        training = self.sizes - self.n_held_out
        counts = (each[members].tolist() for each in (training, self.n_held_out, self.n_skipped))
        sizes = zip(*counts, strict=True)
        items = [tuple(each.fitted[place] for each in fitted) for place in members.tolist()]
        if nothing_is_fitted(job):  # many small groups share few sizes
            return tuple(itertools.starmap(functools.cache(functools.partial(GroupFacts, items[0], classes)), sizes))
        return tuple(GroupFacts(own, classes, *size) for own, size in zip(items, sizes, strict=True))


def _present(job: Job, data: Dataset, of: IntArray, held_out: BoolArray, n_groups: int) -> BoolArray:
    """Return which classes the training rows of each group have, (G, C); (G, 0) if labels have no classes."""
    n_classes = len(data.classes) if job.target.label.has_classes else 0
    found = np.zeros((n_groups, n_classes), np.bool_)
    if n_classes:
        trains = np.flatnonzero(~held_out & np.isfinite(data.y))
        found[of[trains], data.y[trains].astype(np.intp)] = True
    return found


def _widths(fitted: FittedGroups) -> list[int]:
    """Return the number of feature columns of each group, (G,)."""
    one = fitted.fitted[0]
    is_one = all(each is one for each in fitted.fitted)
    return [one.width] * len(fitted.fitted) if is_one else [each.width for each in fitted.fitted]


def _alike(places: IntArray, shapes: npt.NDArray[np.int64]) -> list[IntArray]:
    """Return the places (m,) of groups with equal shapes, columns of (s, G), together, those with the first one last."""
    if not places.size:
        return []
    _, first, which = np.unique(shapes[:, places], axis=1, return_index=True, return_inverse=True)
    which = which.reshape(-1)  # of two dimensions in NumPy 2.0
    return [places[which == shape] for shape in np.argsort(-first).tolist()]


def _class_weighted(job: Job, train: Stack, classes: IntArray) -> Stack:
    """Return training rows of groups that have these classes with weights times their classes' weights, as ``class_factors``."""
    if job.rules.class_weight is None or not classes.size:
        return train
    shape, of = (train.n_groups, classes.size), np.repeat(np.arange(train.n_groups), train.sizes)
    places = of * shape[1] + train.y.astype(np.intp)
    totals = np.asarray(np.bincount(places, train.weight, shape[0] * shape[1]), np.float64).reshape(shape)
    factors = np.array([class_factors(job, classes, own) for own in totals])
    return replace(train, weight=train.weight * factors.ravel()[places])


def _usable(job: Job, data: Dataset) -> tuple[BoolArray, BoolArray]:
    """Return which rows (n,) can train or be held out, and which make their group one to be refused, or looked at closely."""
    labelled, weight = has_label(data.y), data.weight
    refused = labelled & (weight != 0) & ~(np.isfinite(data.y) & (weight >= 0) & (weight < np.inf))
    if job.rules.null_label == "error":
        refused |= ~labelled
    usable = labelled & (weight > 0)
    if not job.trainer.declaration.handles_missing:
        usable &= encoders.complete(job.items, data, slice(None))
    return usable, refused


def _numbers(first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the row numbers of runs with ``lengths`` from ``first`` on."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(first - before, lengths) + np.arange(lengths.sum())


def nothing_is_fitted(job: Job) -> bool:
    """Whether features do not depend on a group's training rows: encoders are fitted on all groups, or not at all."""
    return all(number in job.fitted or encoders.needs_no_fit(item) for number, item in enumerate(job.items))


def seeds_of(job: Job, groups: Sequence[Group]) -> npt.NDArray[np.uint64] | None:
    """Return the groups' seeds, None if the learner draws no random numbers."""
    if not job.trainer.declaration.draws:
        return None
    return np.array([group_seed(job.training.seed, group) for group in groups], np.uint64)
