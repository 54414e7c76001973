"""From dataset rows to stacks: many small groups prepared at once, by array operations over all their rows."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.data.encoders import FittedItem
from grouplearn.data.shard import Stack, starts
from grouplearn.kernels.algebra import finite_rows
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.rows.chosen import learns_sparse
from grouplearn.train.rows.prepare import FINAL, LEAST_SQUARE, GroupFailed, Prepared, prepare, problem_of
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.sources import pick
from grouplearn.train.unit import or_failed

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
class Preparation:
    """The prepared groups of a unit: stacks, groups that must train alone, and groups that cannot be trained."""

    stacks: tuple[PreparedStack, ...]
    alone: dict[int, Prepared]
    failed: dict[int, GroupFailed]


def prepare_stacks(
    job: Job, groups: Sequence[Group], fold: int = FINAL, configs: Sequence[Config] | None = None
) -> Preparation:
    """Return ``groups`` prepared for ``fold``, by the rules of ``prepare``, in as few stacks as their shapes allow; alone are
    those whose shape the learner does not stack for these ``configs``, all unless given."""
    configs = job.configs if configs is None else configs
    if not _is_quick(job):
        return _one_by_one(job, groups, range(len(groups)), fold, configs)
    rows = _StackRows.of_groups(job, groups, fold)
    unusual = rows.unusual(job) | rows.learn_sparse(job)
    slow = _one_by_one(job, groups, np.flatnonzero(unusual).tolist(), fold, configs)
    if unusual.all():
        return slow
    return Preparation((rows.stacked(job, ~unusual), *slow.stacks), slow.alone, slow.failed)


def prepare_folds(job: Job, groups: Sequence[Group]) -> tuple[PreparedFolds | None, tuple[int, ...]]:
    """Return the groups ready to train all folds in one pass, and the places of unusual ones."""
    if not _is_quick(job):
        return None, tuple(range(len(groups)))
    rows = _StackRows.of_groups(job, groups, FINAL)
    unusual = rows.unusual(job) | rows.lacks_a_fold(job)
    others = tuple(np.flatnonzero(unusual).tolist())
    return (None if unusual.all() else rows.folded(job, ~unusual)), others


def nothing_is_fitted(job: Job) -> bool:
    """Whether features do not depend on a group's training rows: encoders are fitted on all groups, or not at all."""
    return all(number in job.fitted or encoders.needs_no_fit(item) for number, item in enumerate(job.items))


def _is_quick(job: Job) -> bool:
    """Whether the common case applies: no fits or class weights by group, and a dense design."""
    width = sum(
        job.fitted[number].width if number in job.fitted else max(1, item.buckets)
        for number, item in enumerate(job.items)
        if number in job.fitted or encoders.needs_no_fit(item)
    )
    return nothing_is_fitted(job) and job.rules.class_weight is None and width <= encoders.DENSE_COLUMNS


def _one_by_one(
    job: Job, groups: Sequence[Group], places: Sequence[int], fold: int, configs: Sequence[Config]
) -> Preparation:
    learner = cast(GatheringLearner, job.trainer)
    failed: dict[int, GroupFailed] = {}
    alone: dict[int, Prepared] = {}
    alike: dict[tuple[Problem, bool], list[tuple[int, Prepared]]] = defaultdict(list)
    for place in places:
        group = groups[place]
        prepared = or_failed(functools.partial(prepare, job, group, fold))
        if isinstance(prepared, GroupFailed):
            failed[place] = prepared
        elif not isinstance(prepared.train.read().x, np.ndarray) or not learner.gathers(prepared.problem, configs):
            alone[place] = prepared
        else:
            shape = replace(prepared.problem, seed=0, n_unseen=0)
            alike[shape, prepared.valid is None].append((place, prepared))
    return Preparation(tuple(_stack_of(job, groups, members) for members in alike.values()), alone, failed)


def seeds_of(job: Job, groups: Sequence[Group]) -> npt.NDArray[np.uint64] | None:
    """Return the groups' seeds, None if the learner draws no random numbers."""
    if not job.trainer.draws:
        return None
    return np.array([group_seed(job.training.seed, group) for group in groups], np.uint64)


def _stack_of(job: Job, groups: Sequence[Group], members: Sequence[tuple[int, Prepared]]) -> PreparedStack:
    every = [prepared for _, prepared in members]
    train = Stack.of([prepared.train.read() for prepared in every])
    train = replace(train, seed=seeds_of(job, [groups[place] for place, _ in members]))
    weighed = [prepared.judged.read() for prepared in every]
    held_out = [prepared.valid.read() for prepared in every if prepared.valid is not None]
    return PreparedStack(
        members=tuple(place for place, _ in members),
        problem=replace(every[0].problem, n_unseen=max(prepared.problem.n_unseen for prepared in every)),
        train=train,
        row_weight=train.weight if _same_weights(every) else Stack.of(weighed).weight,
        valid=Stack.of(held_out) if held_out else None,
        facts=tuple(prepared.facts for prepared in every),
    )


def _same_weights(every: Sequence[Prepared]) -> bool:
    return all(prepared.judged is prepared.train for prepared in every)


@dataclass(frozen=True, slots=True)
class _StackRows:
    """Rows of several groups, concatenated in ``data`` (N); ``of`` (N,) is the group's place.

    ``sizes`` (G,) are all rows of each group, ``held_out`` (N,) says which do not train.
    """

    groups: Sequence[Group]
    sizes: IntArray
    data: Dataset
    of: IntArray
    held_out: BoolArray

    @classmethod
    def of_groups(cls, job: Job, groups: Sequence[Group], fold: int) -> _StackRows:
        ranges = [group.ranges for group in groups]
        runs = list(itertools.chain.from_iterable(ranges))
        first, last = np.array(runs, dtype=np.int64).reshape(-1, 2).T
        lengths = last - first
        adjoining = bool(runs) and bool((first[1:] == last[:-1]).all())
        data = pick(job.dataset, slice(int(first[0]), int(last[-1])) if adjoining else _numbers(first, lengths))
        group_of_run = np.repeat(np.arange(len(groups)), [len(each) for each in ranges])
        sizes = np.bincount(group_of_run, lengths, len(groups)).astype(np.intp)
        held_out = (
            (data.split == fold) & (fold != FINAL) if job.rules.folds else (data.split == 1) & job.rules.holds_out
        )
        return cls(groups, sizes, data, np.repeat(np.arange(len(groups)), sizes), np.asarray(held_out))

    def unusual(self, job: Job) -> BoolArray:
        """Return which groups (G,) are unusual: few rows, invalid or small labels, weights or features, a missing class."""
        n_groups, train, y, weight = len(self.groups), ~self.held_out, self.data.y, self.data.weight
        odd = ~np.isfinite(y) | ~(weight > 0) | (weight == np.inf)
        if not job.trainer.handles_missing:
            odd |= ~finite_rows(self.data.numeric)
        if job.target.task.has_values:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                odd |= (y * y * weight < _SMALL_SQUARE) & (y != 0)
        training = self.sizes - self._held_out_sizes()
        counted = self.sizes if job.rules.folds else training  # a row held out in one fold trains in the others
        unusual: BoolArray = (counted < job.rules.min_rows) | (training == 0)
        unusual[self.of[odd]] = True
        if not job.target.task.has_classes:
            return unusual
        n_classes = len(self.data.classes)
        if n_classes < 2:
            return np.ones(n_groups, dtype=np.bool_)
        known = np.where(np.isfinite(y), y, 0).astype(np.intp)[train]
        counts = np.bincount(self.of[train] * n_classes + known, minlength=n_groups * n_classes)
        unusual |= (counts.reshape(n_groups, n_classes) == 0).any(axis=1)
        return unusual

    def learn_sparse(self, job: Job) -> BoolArray:
        """Return which groups (G,) train without the zeros of their categories."""
        fitted, learner = _fitted(job), job.trainer
        sizes, place = np.unique(self.sizes, return_inverse=True)
        return np.array([learns_sparse(learner, fitted, size) for size in sizes.tolist()], np.bool_)[place]

    def stacked(self, job: Job, chosen: BoolArray) -> PreparedStack:
        """Return the chosen groups, none of them unusual, as one stack."""
        fitted = _fitted(job)
        members = np.flatnonzero(chosen)
        facts = self._facts(job, fitted, members)
        rows = self._rows(job, fitted, chosen)
        held_out = self._of_chosen(self.held_out, chosen)
        train, valid = rows.where(~held_out), rows.where(held_out)
        return PreparedStack(
            members=tuple(members.tolist()),
            problem=self._problem(job, members, facts),
            train=train,
            row_weight=train.weight,
            valid=valid if valid.y.size else None,
            facts=facts,
        )

    def folded(self, job: Job, chosen: BoolArray) -> PreparedFolds:
        """Return the chosen groups with all their rows and the rows' folds."""
        fitted, members = _fitted(job), np.flatnonzero(chosen)
        facts = self._facts(job, fitted, members)
        return PreparedFolds(
            members=tuple(members.tolist()),
            problem=self._problem(job, members, facts),
            rows=self._rows(job, fitted, chosen),
            fold=self._of_chosen(self.data.split, chosen),
            n_folds=job.rules.folds,
            facts=facts,
        )

    def lacks_a_fold(self, job: Job) -> BoolArray:
        """Return which groups (G,) have no rows in some fold, or all in one."""
        n_groups = len(self.groups)
        flat = self.of * job.rules.folds + self.data.split
        counts = np.bincount(flat, minlength=n_groups * job.rules.folds).reshape(n_groups, job.rules.folds)
        lacks: BoolArray = (counts == 0).any(axis=1)
        return lacks

    def _rows(self, job: Job, fitted: tuple[FittedItem, ...], chosen: BoolArray) -> Stack:
        """Return all rows of the chosen groups."""
        data, width = self.data, sum(each.width for each in fitted)
        x = np.asarray(encoders.encode(fitted, encoders.columns_of(data, slice(None)), width))
        return Stack(x, data.y, data.weight, starts(self.sizes), seeds_of(job, self.groups)).take(chosen)

    def _held_out_sizes(self) -> IntArray:
        return np.bincount(self.of[self.held_out], minlength=len(self.groups))

    def _of_chosen(self, values: npt.NDArray[Any], chosen: BoolArray) -> npt.NDArray[Any]:
        """Return the entries of the chosen groups' rows."""
        return values if chosen.all() else values[chosen[self.of]]

    def _problem(self, job: Job, members: IntArray, facts: Sequence[GroupFacts]) -> Problem:
        return problem_of(job, self.groups[int(members[0])], job.trainer, facts[0])

    def _facts(self, job: Job, fitted: tuple[FittedItem, ...], members: IntArray) -> tuple[GroupFacts, ...]:
        held_out = self._held_out_sizes()
        classes = tuple(range(len(job.dataset.classes))) if job.target.task.has_classes else ()
        # Many small groups share few sizes.
        of_sizes = functools.cache(functools.partial(GroupFacts, fitted, classes, n_skipped=0))
        sizes = zip((self.sizes - held_out)[members].tolist(), held_out[members].tolist(), strict=True)
        return tuple(itertools.starmap(of_sizes, sizes))


def _fitted(job: Job) -> tuple[FittedItem, ...]:
    """Return the fitted items, none of which depends on a group's rows."""
    return tuple(
        job.fitted[number] if number in job.fitted else encoders.fit(item, job.dataset, slice(0, 0))
        for number, item in enumerate(job.items)
    )


def _numbers(first: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the row numbers of runs with ``lengths`` from ``first`` on."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(first - before, lengths) + np.arange(lengths.sum())
