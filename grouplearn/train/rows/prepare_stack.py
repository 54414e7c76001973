"""From dataset rows to stacks: many small groups prepared at once, by array operations over all their rows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders
from grouplearn.data.dataset import FloatArray, Group, Item
from grouplearn.data.encoders import FittedGroups, FittedItem, GroupRows
from grouplearn.data.encoding.registry import widths_of
from grouplearn.data.shard import RowNumbers, Stack, starts
from grouplearn.data.split import FINAL
from grouplearn.data.tensors import header_of, tensors_of_rows
from grouplearn.kernels.algebra import finite_rows
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.contract.stacks import GatheringLearner
from grouplearn.models.state import Tensors
from grouplearn.train.job import Earlier, GroupFacts, Job, warm_start
from grouplearn.train.rows.chosen import keeps_zeros
from grouplearn.train.rows.prepare import problem_of
from grouplearn.train.rows.sampled import group_seed
from grouplearn.train.rows.sources import pick
from grouplearn.train.rows.used import (
    BoolArray,
    GroupedRows,
    GroupFailed,
    IntArray,
    RowFacts,
    UsedRows,
    adjoining,
    class_factors,
    class_places,
)

#: In place of the layout of a state: the group goes on from its model, and trains alone.
_OF_MODELS = -1
#: The fold that holds a row out, (n,), and how many folds there are.
FoldOf = tuple[npt.NDArray[np.int16], int]


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
class Preparation:
    """The groups of a unit by place: in stacks, those that must train alone, and those that cannot be trained."""

    stacks: tuple[PreparedStack, ...]
    alone: tuple[int, ...]
    failed: dict[int, GroupFailed]


def prepare_stacks(
    job: Job, groups: Sequence[Group], fold: int = FINAL, configs: Sequence[Config] | None = None
) -> Preparation:
    """Return ``groups`` prepared for ``fold``, by the rules of ``prepare``, in as few stacks as their shapes allow; alone are
    those whose shape the learner does not stack for these ``configs``, all unless given."""
    rows, learner = StackRows.of(job, groups, fold, functools.partial(_stays_dense, job)), job.trainer
    stacks, facts = [], rows.facts
    sound, alone = np.ones(len(groups), np.bool_), np.ones(len(groups), np.bool_)
    sound[[*facts.failed]], alone[[*rows.used.failed]] = False, False
    shapes = np.vstack([facts.present.T, np.count_nonzero(facts.unseen, axis=1), _layouts(job, groups)])
    for encoded in rows.encoded:
        alone[encoded.members] = False
        for members in _alike(encoded.members[sound[encoded.members]], shapes):
            problem = rows.problem(job, members)
            if shapes[-1, members[0]] != _OF_MODELS and cast(GatheringLearner, learner).gathers(
                problem, job.configs if configs is None else configs
            ):
                stacks.append(rows.stack(job, encoded, members))
            else:
                alone[members] = True
    failed = {place: why for place, why in facts.failed.items() if not alone[place]}
    return Preparation(tuple(stacks), tuple(np.flatnonzero(alone).tolist()), failed)


def prepare_folds(job: Job, groups: Sequence[Group]) -> tuple[list[tuple[PreparedStack, FoldOf]], list[int]]:
    """Return the groups ready to train all folds in one pass, with the folds of their rows, and the places of unusual groups."""
    if (
        not nothing_is_fitted(job)
        or job.rules.class_weight is not None
        or job.dataset.y.ndim > 1
        or job.earlier
        or job.offset
    ):
        return [], [*range(len(groups))]
    rows, folds = StackRows.of(job, groups, FINAL, lambda *_: True), job.split.folds
    train = rows.used.train
    fold = train.dataset.split[train.numbers]
    counts = np.bincount(train.of * folds + fold, minlength=len(groups) * folds).reshape(-1, folds)
    usual = np.asarray((counts > 0).all(axis=1) & rows.facts.present.all(axis=1))
    usual[[*rows.facts.failed]] = False
    members, others = np.flatnonzero(usual), np.flatnonzero(~usual).tolist()
    if not members.size or rows.encoded[0].train.x.shape[1] > encoders.DENSE_COLUMNS:
        return [], [*range(len(groups))]
    return [(rows.stack(job, rows.encoded[0], members), (fold[usual[train.of]], folds))], others


def nothing_is_fitted(job: Job) -> bool:
    """Whether features do not depend on a group's training rows: encoders are fitted on all groups, or not at all."""
    return all(number in job.fitted or encoders.needs_no_fit(item) for number, item in enumerate(job.items))


@dataclass(frozen=True, slots=True)
class EncodedGroups:
    """The training and the held-out rows of the groups at these places, which have as many feature columns."""

    members: IntArray
    train: Stack
    valid: Stack


@dataclass(frozen=True, slots=True)
class StackRows:
    """The rows of several groups that can be used, with all features; the items fitted on those that train; the groups with
    dense features encoded."""

    used: UsedRows
    fitted: Sequence[FittedGroups]
    encoded: Sequence[EncodedGroups]
    facts: RowFacts

    @classmethod
    def of(
        cls, job: Job, groups: Sequence[Group], fold: int, is_dense: Callable[[Sequence[FittedItem], int], bool]
    ) -> StackRows:
        """Return the rows of groups, of which ``fold`` is held out if there are folds; ``is_dense`` is asked with the items and
        the number of rows of each shape of groups."""
        used = UsedRows.of(job, groups, fold)
        n_rows = used.train.sizes + used.valid.sizes + used.n_skipped
        used = replace(used, train=_complete(job, used.train), valid=_complete(job, used.valid))
        fitted, encoded = _fitted(job, groups, used.train), []
        widths = np.array([_widths(each) for each in fitted], np.int64).reshape(-1, len(groups))
        distinct, first, shape = np.unique([widths.sum(axis=0), n_rows], axis=1, return_index=True, return_inverse=True)
        items = ([each.fitted[place] for each in fitted] for place in first.tolist())
        dense = np.array([*map(is_dense, items, distinct[1].tolist())])[shape.reshape(-1)]
        dense[[*used.failed]] = False
        train, valid = (np.ones(part.numbers.size, np.bool_) for part in (used.train, used.valid))
        for members in _alike(np.flatnonzero(dense), widths):
            parts = (
                _encoded(job, fitted, members, part, kept) for part, kept in ((used.train, train), (used.valid, valid))
            )
            encoded.append(EncodedGroups(members, *parts))
        used = replace(used, train=used.train.only(train), valid=used.valid.only(valid))
        return cls(used, fitted, encoded, RowFacts.of(job, used))

    def stack(self, job: Job, encoded: EncodedGroups, members: IntArray) -> PreparedStack:
        """Return encoded groups that have the same classes, ready to train."""
        chosen, seeds = np.isin(encoded.members, members), None
        if job.trainer.declaration.draws:
            groups = [self.used.groups[place] for place in members.tolist()]
            seeds = np.array([group_seed(job.training.seed, group) for group in groups], np.uint64)
        train, valid = (self._numbered(part.take(chosen), members) for part in (encoded.train, encoded.valid))
        train, valid = replace(train, seed=seeds), replace(valid, seed=seeds)
        facts, weighted = self._facts(job, members), train
        if job.rules.class_weight is not None and (classes := facts[0].classes):
            of = np.repeat(np.arange(train.n_groups), train.sizes)
            factors = class_factors(job, train.n_groups, classes, [(train.y, train.weight, of)])
            weighted = replace(train, weight=train.weight * factors[class_places(of, train.y)])
        return PreparedStack(
            members=tuple(members.tolist()),
            problem=self.problem(job, members),
            train=replace(weighted, before=self._before(job, members)),
            row_weight=train.weight,
            valid=valid if valid.y.size else None,
            facts=facts,
        )

    def _before(self, job: Job, members: IntArray) -> Tensors | None:
        """Return the sums of the earlier rows of groups that go on, or where they start; all of them or none."""
        earlier = [job.earlier.get(self.used.groups[place].id) for place in members.tolist()] if job.earlier else []
        states = [each.state for each in earlier if each is not None and each.state is not None]
        if not states:
            return self._starts(job, members) if any(earlier) else None
        return tensors_of_rows(np.frombuffer(b"".join(states), np.uint8).reshape(len(states), -1))

    def _starts(self, job: Job, members: IntArray) -> Tensors | None:
        """Return the states in which groups start from models, (G, ...) by name."""
        problem, classes = self.problem(job, members), self._facts(job, members[:1])[0].classes
        groups = [self.used.groups[place].id for place in members.tolist()]
        states = [warm_start(job, group, problem, classes, job.configs) for group in groups]
        known = [{name: each[:1] for name, each in state.tensors.items()} for state in states if state is not None]
        if len(known) < len(states):
            return None
        return {name: np.concatenate([each[name] for each in known]) for name in known[0]}

    def problem(self, job: Job, members: IntArray) -> Problem:
        """Return the problem of a pack on any of these groups."""
        place, (facts,) = int(members[0]), self._facts(job, members[:1])
        n_unseen = int(self.facts.unseen[place].sum())
        return problem_of(job, self.used.groups[place], job.trainer, facts, n_unseen)

    def _numbered(self, part: Stack, members: IntArray) -> Stack:
        """Return the rows with the numbers of their classes among those of these groups."""
        if self.facts.present[members[0]].all():
            return part
        of = np.repeat(np.arange(members.size), part.sizes)
        return replace(part, y=self.facts.numbering(members)[class_places(of, part.y)])

    def _facts(self, job: Job, members: IntArray) -> tuple[GroupFacts, ...]:
        """Return what is known of these groups, which have the same classes."""
        found, classes = self.facts, self.facts.classes(int(members[0]))
        counts = (each[members].tolist() for each in (found.n_train, found.n_valid, found.n_skipped))
        sizes = zip(*counts, strict=True)
        items = [tuple(each.fitted[place] for each in self.fitted) for place in members.tolist()]
        if nothing_is_fitted(job):  # many small groups share few sizes
            return tuple(itertools.starmap(functools.cache(functools.partial(GroupFacts, items[0], classes)), sizes))
        return tuple(GroupFacts(own, classes, *size) for own, size in zip(items, sizes, strict=True))


def _layouts(job: Job, groups: Sequence[Group]) -> npt.NDArray[np.int64]:
    """Return a number for the layout of what each group (G,) goes on or starts from; 0 for none, ``_OF_MODELS`` for a model."""
    if not job.earlier:
        return np.zeros(len(groups), np.int64)
    numbers, found = {b"": 0}, []
    for earlier in (job.earlier.get(group.id) for group in groups):
        layout = b"" if earlier is None else _layout(earlier)
        number = numbers.setdefault(layout, len(numbers))
        found.append(_OF_MODELS if earlier is not None and earlier.model is not None else number)
    return np.array(found, np.int64)


def _layout(earlier: Earlier) -> bytes:
    if earlier.before is not None:
        return repr((earlier.classes, {name: each.shape for name, each in earlier.before.tensors.items()})).encode()
    return b"" if earlier.state is None else header_of(earlier.state)


def _complete(job: Job, rows: GroupedRows) -> GroupedRows:
    """Return rows with a dataset that has no others, without those that the learner cannot handle."""
    rows = _taken(rows)
    if job.trainer.declaration.handles_missing:
        return rows
    kept = rows.only(encoders.complete(job.items, rows.dataset, slice(None)))
    return rows if kept is rows else _taken(kept)


def _taken(rows: GroupedRows) -> GroupedRows:
    data = pick(rows.dataset, adjoining(rows.numbers))
    return replace(rows, dataset=data, numbers=np.arange(rows.numbers.size))


def _fitted(job: Job, groups: Sequence[Group], train: GroupedRows) -> list[FittedGroups]:
    """Return the items fitted on each group's training rows, or before."""
    data, rows = train.dataset, GroupRows(train.of, train.n_groups)
    earlier = [job.earlier.get(group.id) for group in groups] if job.earlier else []

    def fitted(number: int, item: Item) -> FittedGroups:
        if number in job.fitted:
            return encoders.constant(job.fitted[number], data, train.n_groups)
        if not any(earlier) or encoders.needs_no_fit(item):
            return encoders.fit_groups(item, data, rows, train.place)
        known = [None if each is None else each.kept(number) for each in earlier]
        return encoders.fit_each(item, data, rows, known, train.place)

    return list(itertools.starmap(fitted, enumerate(job.items)))


def _stays_dense(job: Job, fitted: Sequence[FittedItem], n_rows: int) -> bool:
    try:
        return keeps_zeros(job, fitted, n_rows)
    except GroupFailed:  # it says so when it is prepared alone
        return False


def _encoded(job: Job, fitted: Sequence[FittedGroups], members: IntArray, part: GroupedRows, kept: BoolArray) -> Stack:
    """Return the rows of these groups, which have as many feature columns, with classes as in the dataset.

    Those that the learner cannot handle, as they have a rank that training rows do not have, are left out of ``kept`` (n,).
    """
    data, numbers = part.dataset, _rows_of(part, members)
    place = None if part.place is None else part.place[numbers]
    items, columns = [each.fitted[int(members[0])] for each in fitted], encoders.columns_of(data, numbers, place)
    if nothing_is_fitted(job):
        x = np.asarray(encoders.encode(items, columns, sum(widths_of(items))))
    else:
        x = encoders.encode_groups(items, fitted, columns, part.of[numbers])
    cluster = job.clusters(data, numbers)
    rows = Stack(x, data.y[numbers], data.weight[numbers], starts(part.sizes[members]), cluster=cluster)
    if job.trainer.declaration.handles_missing:
        return rows
    kept[numbers] = finite = finite_rows(x)
    return rows.where(finite)


def _rows_of(rows: GroupedRows, members: IntArray) -> slice | RowNumbers:
    """Return the places of these groups' rows."""
    if len(members) == rows.n_groups:
        return slice(None)
    first, lengths = rows.start[members], rows.sizes[members]
    return np.repeat(first - starts(lengths)[:-1], lengths) + np.arange(lengths.sum())


def _widths(fitted: FittedGroups) -> list[int]:
    """Return the number of feature columns of each group, (G,)."""
    one = fitted.fitted[0]
    is_one = all(each is one for each in fitted.fitted)
    return widths_of([one]) * len(fitted.fitted) if is_one else widths_of(fitted.fitted)


def _alike(places: IntArray, shapes: npt.NDArray[np.int64]) -> list[IntArray]:
    """Return the places (m,) of groups with equal shapes, columns of (s, G), together, in the order of the first ones."""
    if not places.size:
        return []
    _, first, which = np.unique(shapes[:, places], axis=1, return_index=True, return_inverse=True)
    which = which.reshape(-1)  # of two dimensions in NumPy 2.0
    return [places[which == shape] for shape in np.argsort(first).tolist()]
