"""Which rows of groups train and which are held out, and which groups cannot train: rules for one group and for many alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.data import encoders, shard
from grouplearn.data.dataset import Dataset, FloatArray, Group, has_label
from grouplearn.data.shard import RowNumbers, starts
from grouplearn.train.job import GroupFacts, Job

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.intp]

#: Why a fit that would only be judged does not train.
NOTHING_HELD_OUT = "no row is held out"
#: The least square of labels' differences with full precision, also after a good model's reduction.
_LEAST_SQUARE = 1e-300


class GroupFailed(Exception):
    """A group cannot be trained; the message tells the user why, ``facts`` what is known of its rows."""

    def __init__(self, message: str, facts: GroupFacts | None = None) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of ``dataset`` by number, group after group: group g has those from ``start[g]`` to ``start[g + 1]``.

    ``cuts`` are where the blocks of a lone group begin and end; ``n_skipped`` (G,) counts the rows that ``only`` left out.
    ``place`` (n,) is each row's place among those of its group that train, if items learn from labels and these rows train.
    """

    dataset: Dataset
    numbers: RowNumbers
    start: RowNumbers
    n_skipped: RowNumbers
    cuts: tuple[int, ...] = ()
    place: RowNumbers | None = None

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return self.start.size - 1

    @property
    def sizes(self) -> RowNumbers:
        """Rows of each group, (G,)."""
        return np.diff(self.start)

    @property
    def of(self) -> IntArray:
        """The place of each row's group, (n,)."""
        if self.n_groups == 1:  # it may have very many rows
            return np.broadcast_to(np.intp(0), self.numbers.size)
        return np.repeat(np.arange(self.n_groups), self.sizes)

    @property
    def y(self) -> FloatArray:
        """Labels as in the dataset."""
        return self.dataset.y[self.numbers]

    @property
    def weight(self) -> FloatArray:
        """Weights without class weights."""
        return self.dataset.weight[self.numbers]

    def labelled(self) -> Iterator[tuple[FloatArray, FloatArray, IntArray]]:
        """Yield labels, weights and places of groups, ``SUMMED_ROWS`` at a time."""
        of = self.of
        for first in range(0, self.numbers.size, shard.SUMMED_ROWS):
            run = slice(first, first + shard.SUMMED_ROWS)
            rows = adjoining(self.numbers[run])
            yield self.dataset.y[rows], self.dataset.weight[rows], of[run]
            forget(self.dataset, self.numbers[run])

    def only(self, kept: BoolArray) -> GroupedRows:
        """Return only the rows to keep; the others count as skipped."""
        if kept.all():
            return self
        before = np.concatenate([[0], np.cumsum(kept)])
        start, cuts = before[self.start], tuple(before[list(self.cuts)].tolist())
        skipped = self.n_skipped + self.sizes - np.diff(start)
        place = None if self.place is None else self.place[kept]
        return GroupedRows(self.dataset, self.numbers[kept], start, skipped, cuts, place)

    def placed(self) -> GroupedRows:
        """Return the rows with their places among those of their groups."""
        return replace(self, place=np.arange(self.numbers.size) - np.repeat(self.start[:-1], self.sizes))


@dataclass(frozen=True, slots=True)
class UsedRows:
    """The rows of groups that have a label and a weight: those that train and those that are held out in ``fold``.

    ``n_skipped`` (G,) others have neither. ``failed`` are the groups, by place, that cannot train, which have no rows here.
    For a learner that knows features ahead, ``ahead`` are all rows that do not train, whose labels it must not see; ``n_ahead``
    (G,) of them are of the steps after the last label of their series.
    """

    groups: Sequence[Group]
    fold: int
    train: GroupedRows
    valid: GroupedRows
    n_skipped: RowNumbers
    failed: dict[int, GroupFailed]
    ahead: GroupedRows | None = None
    n_ahead: RowNumbers | None = None

    @classmethod
    def of(cls, job: Job, groups: Sequence[Group], fold: int) -> UsedRows:
        """Return the rows that can be used, after checking all."""
        data, runs = job.dataset, GroupRuns(groups)
        tally, found, held_out = Tally.of_none(runs.n_rows), _Found.room_for(runs), _Found.room_for(runs)
        ahead = _Found.room_for(runs) if job.trainer.declaration.takes_panel else None
        n_ahead = np.zeros_like(runs.n_rows)
        for numbers, of in runs:
            rows = adjoining(numbers)
            usable = tally.add(data.y[rows], data.weight[rows], of)
            split = data.split[rows]
            for part, asked in ((found, job.split.trains), (held_out, job.split.judges)):
                chosen = usable & asked(split, fold)
                part.add(numbers[chosen], of[chosen])
            if ahead is not None:
                others = ~(usable & job.split.trains(split, fold))
                ahead.add(numbers[others], of[others])
                n_ahead += np.bincount(of[~usable & (split == 0)], minlength=n_ahead.size)
            forget(data, numbers)
        train, valid = found.rows(data), held_out.rows(data)
        if encoders.learn_labels(job.items):
            train = train.placed()
        skipped, failed = (
            runs.n_rows - train.sizes - valid.sizes - n_ahead,
            tally.failures(job, train.sizes, valid.sizes, groups),
        )
        if failed:
            sound = ~np.isin(np.arange(len(groups)), [*failed])
            train, valid = train.only(sound[train.of]), valid.only(sound[valid.of])
        if ahead is None:
            return cls(groups, fold, train, valid, skipped, failed)
        return cls(groups, fold, train, valid, skipped, failed, ahead.rows(data), n_ahead)

    def too_few(self, job: Job) -> dict[int, GroupFailed]:
        """Return the groups, by place, that have too few rows to train, maybe as some lack a feature value."""
        train, valid, skipped = self.train.sizes, self.valid.sizes, self.train.n_skipped
        return {
            place: few_rows(job, self.groups[place].n_rows, *(int(each[place]) for each in (train, valid, skipped)))
            for place in _places(are_few(job, train, valid, self.groups))
        }


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What the used rows of groups determine: how many train, judge and are skipped, (G,) each; which classes are ``present`` in
    those that train, and which are ``unseen`` but in others, (G, C), C = 0 if labels have none; and the groups, by place, that
    cannot train."""

    n_train: RowNumbers
    n_valid: RowNumbers
    n_skipped: RowNumbers
    present: BoolArray
    unseen: BoolArray
    failed: dict[int, GroupFailed]
    n_ahead: RowNumbers | None = None

    @classmethod
    def of(cls, job: Job, used: UsedRows) -> RowFacts:
        """Return the facts of rows from which those without features were left out."""
        train, valid, n_groups = used.train, used.valid, len(used.groups)
        skipped = used.n_skipped + train.n_skipped + valid.n_skipped
        n_classes = len(job.dataset.classes) if job.target.label.has_classes else 0
        present, held = (np.zeros((n_groups, n_classes), np.bool_) for _ in range(2))
        for found, rows in ((present, train), (held, valid)) if n_classes else ():
            for y, _, of in rows.labelled():
                found[class_places(of, y)] = True
        facts = cls(train.sizes, valid.sizes, skipped, present, held & ~present, {**used.failed}, used.n_ahead)
        facts = facts._going_on(job, used.groups) if n_classes and job.earlier else facts
        for place, why in used.too_few(job).items():
            facts.failed.setdefault(place, why)
        if job.split.only_judged(used.fold):
            for place in _places(facts.n_valid == 0):
                facts.failed.setdefault(place, GroupFailed(NOTHING_HELD_OUT))
        if job.target.label.is_number:
            facts._refuse_small(train)
        facts._refuse_single(job)
        return facts

    def classes(self, place: int) -> tuple[int, ...]:
        """Return the ascending numbers of a group's classes."""
        return tuple(np.flatnonzero(self.present[place]).tolist())

    def numbering(self, places: IntArray) -> FloatArray:
        """Return the number that each class has in groups, (m, C): first those ``present``, then those ``unseen``, ascending."""
        present, unseen = self.present[places], self.unseen[places]
        others = np.count_nonzero(present, axis=1)[:, None] + np.cumsum(unseen, axis=1)
        return np.where(present, np.cumsum(present, axis=1), others) - 1.0

    def counted(self, place: int) -> GroupFacts:
        """Return how many rows a group has."""
        counts = (int(each[place]) for each in (self.n_train, self.n_valid, self.n_skipped))
        n_ahead = 0 if self.n_ahead is None else int(self.n_ahead[place])
        return replace(GroupFacts((), (), *counts), n_ahead=n_ahead)

    def _refuse_small(self, train: GroupedRows) -> None:
        """Refuse labels, or weights, so small that sums of weighted squares, and thus metrics, lose precision.

        Constant labels have differences of 0, and so have their metrics.
        """
        low, high = np.full(train.n_groups, np.inf), np.full(train.n_groups, -np.inf)
        heaviest = np.zeros(train.n_groups)
        for y, weight, of in train.labelled():
            edges = np.concatenate([[0], np.flatnonzero(np.diff(of)) + 1])
            groups = of[edges]
            least, greatest = (y, y) if y.ndim == 1 else (y.min(axis=1), y.max(axis=1))
            low[groups] = np.minimum(low[groups], np.minimum.reduceat(least, edges))
            high[groups] = np.maximum(high[groups], np.maximum.reduceat(greatest, edges))
            heaviest[groups] = np.maximum(heaviest[groups], np.maximum.reduceat(weight, edges))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            square = (high - low) ** 2
            for squares, what, scaled in (
                (square, "squares of the label", "the label"),
                (square * heaviest, "weighted squares of the label", "the weights"),
            ):
                for place in _places((high > low) & (squares < _LEAST_SQUARE)):
                    why = f"the {what} underflow; scale {scaled} up"
                    self.failed.setdefault(place, GroupFailed(why, self.counted(place)))

    def _going_on(self, job: Job, groups: Sequence[Group]) -> RowFacts:
        """Return the facts with the classes of earlier rows for groups that go on; those with new classes cannot."""
        present, unseen, failed = self.present.copy(), self.unseen.copy(), {**self.failed}
        for place, group in enumerate(groups):
            earlier = job.earlier.get(group.id)
            if earlier is None or not earlier.goes_on:
                continue
            known = np.zeros(present.shape[1], np.bool_)
            known[list(earlier.classes)] = True
            if (new := np.flatnonzero(present[place] & ~known)).size:
                name = job.dataset.classes[int(new[0])]
                why = f'the class "{name}" is new to the group; hint: REFRESH MODEL without FROM trains it on all its rows'
                failed.setdefault(place, GroupFailed(why, self.counted(place)))
            unseen[place] = (unseen[place] | present[place]) & ~known
            present[place] = known
        return replace(self, present=present, unseen=unseen, failed=failed)

    def _refuse_single(self, job: Job) -> None:
        for place in _places(np.count_nonzero(self.present, axis=1) == 1):
            name, rows = job.dataset.classes[self.classes(place)[0]], int(self.n_train[place])
            where = "the group's only training row" if rows == 1 else f"all of the group's {rows} training rows"
            self.failed.setdefault(place, GroupFailed(f"the label is {name} in {where}", self.counted(place)))


def class_factors(
    job: Job, n_groups: int, classes: Sequence[int], labelled: Iterable[tuple[FloatArray, FloatArray, IntArray]]
) -> FloatArray:
    """Return the weights of ``classes`` in groups that have just these, (G, K).

    ``labelled`` are the training rows: positions in ``classes``, weights, places of groups. 'balanced' is Σw / (k · Σw of the
    class), as in scikit-learn.
    """
    given, n_classes = job.rules.class_weight, len(classes)
    if isinstance(given, Mapping):
        return np.tile([given.get(each, 1.0) for each in classes], (n_groups, 1))
    totals = np.zeros((n_groups, n_classes))
    for y, weight, of in labelled:
        totals += np.bincount(of * n_classes + y.astype(np.intp), weight, totals.size).reshape(totals.shape)
    balanced: FloatArray = totals.sum(axis=1, keepdims=True) / (n_classes * totals)
    return balanced


def class_places(of: IntArray, y: FloatArray) -> tuple[IntArray, IntArray]:
    """Return where the classes of rows are in an array of groups and classes: (n,), or (n, L) for array labels."""
    return of.reshape(-1, *[1] * (y.ndim - 1)), y.astype(np.intp)


def few_rows(job: Job, n_rows: int, train: int, valid: int, incomplete: int, unlabelled: int = 0) -> GroupFailed:
    """Return why no row of a group of ``n_rows`` is left to train on, or fewer than ``min_rows``.

    ``incomplete`` training rows lack a feature value, ``unlabelled`` ones a label. With folds, held-out rows train, too.
    """
    training, least = train + valid if job.split.folds else train, job.rules.min_rows
    facts = GroupFacts((), (), *((training, 0) if job.split.folds else (train, valid)), n_rows - train - valid)
    if n_rows < least:
        why = f"the group has {count(n_rows, 'row')}, fewer than min_rows = {least}"
    elif unlabelled == n_rows:
        why = f"the label is NULL in {_each(n_rows, 'row')}"
    elif incomplete and not train:
        why = (
            f"{_each(incomplete, 'training row')} has a missing or infinite feature value; "
            "hint: impute(...) the features, or filter such rows in WHERE"
        )
    elif not train + valid:
        why = f"the weight is 0 in {_each(n_rows - unlabelled, 'row')}"
    elif not train:
        why = f"no row is left to train on: VALIDATE holds out all {count(valid, 'row')}"
    else:
        labelled = f"{count(n_rows - unlabelled, 'row')} with a label"
        rows = labelled if n_rows - unlabelled < least else count(training, "training row")
        why = f"the group has {rows}, fewer than min_rows = {least}"
    return GroupFailed(why, facts)


def _each(n_rows: int, what: str) -> str:
    return f"the only {what}" if n_rows == 1 else f"each of the {count(n_rows, what)}"


def are_few(job: Job, train: RowNumbers, valid: RowNumbers, groups: Sequence[Group] = ()) -> BoolArray:
    """Return which groups (G,) of so many used rows have too few to train.

    One that goes on needs a single row, and none to train by sums over its earlier rows.
    """
    found = np.asarray((train == 0) | ((train + valid if job.split.folds else train) < job.rules.min_rows))
    if groups and job.earlier:
        least = train + valid if job.trainer.declaration.one_pass else train
        found &= (least == 0) | np.array([not goes_on(job, group) for group in groups], np.bool_)
    return found


def goes_on(job: Job, group: Group) -> bool:
    """Return whether a group's model goes on from what it was, with new rows."""
    earlier = job.earlier.get(group.id)
    return earlier is not None and earlier.goes_on


def has_weight(y: FloatArray, weight: FloatArray) -> BoolArray:
    """Return which rows (n,) have a label and a positive weight."""
    return has_label(y) & (weight > 0)


def adjoining(numbers: RowNumbers) -> RowNumbers | slice:
    """Return row numbers as a slice if each follows the one before."""
    if numbers.size and numbers[-1] - numbers[0] == numbers.size - 1 and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


def forget(data: Dataset, numbers: RowNumbers) -> None:
    """Free the pages of ascending row numbers, if rows are in files."""
    if data.files is not None and numbers.size:
        data.forget_pages(int(numbers[0]), int(numbers[-1]) + 1)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


class GroupRuns:
    """All rows of groups, in their order: iteration yields row numbers and places of groups, ``SUMMED_ROWS`` at a time.

    ``n_rows`` (G,) are each group's rows.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        ranges = [group.ranges for group in groups]
        runs = np.array(list(itertools.chain.from_iterable(ranges)), np.int64).reshape(-1, 2)
        self._first, lengths = runs[:, 0], runs[:, 1] - runs[:, 0]
        self._start, self._of = starts(lengths), np.repeat(np.arange(len(groups)), [len(each) for each in ranges])
        self.n_rows = np.bincount(self._of, lengths, len(groups)).astype(np.int64)

    def __iter__(self) -> Iterator[tuple[RowNumbers, IntArray]]:
        start = self._start
        for low in range(0, int(start[-1]), shard.SUMMED_ROWS):
            high = min(low + shard.SUMMED_ROWS, int(start[-1]))
            runs = slice(np.searchsorted(start, low, "right") - 1, np.searchsorted(start, high))
            ends = np.clip(start[runs.start : runs.stop + 1], low, high)
            lengths = ends[1:] - ends[:-1]
            numbers = np.repeat(self._first[runs] - start[:-1][runs], lengths) + np.arange(low, high)
            yield numbers, np.repeat(self._of[runs], lengths)


@dataclass(slots=True)
class _Found:
    """Rows as they are found; unwritten parts of the array of their numbers take no memory."""

    numbers: RowNumbers
    sizes: RowNumbers
    n_found: int = 0

    @classmethod
    def room_for(cls, runs: GroupRuns) -> _Found:
        return cls(np.empty(int(runs.n_rows.sum()), np.int64), np.zeros(runs.n_rows.size, np.int64))

    def add(self, numbers: RowNumbers, of: IntArray) -> None:
        self.numbers[self.n_found : self.n_found + numbers.size] = numbers
        self.n_found += numbers.size
        self.sizes += np.bincount(of, minlength=self.sizes.size)

    def rows(self, data: Dataset) -> GroupedRows:
        """Return them as rows of a dataset."""
        return GroupedRows(data, self.numbers[: self.n_found], starts(self.sizes), np.zeros_like(self.sizes))


@dataclass(slots=True)
class Tally:
    """What is counted of groups' rows: ``n_rows`` (G,), and in ``faults`` (4, G) those without a label, with a non-finite one,
    with a non-finite weight, and with a negative one; ``weight`` (G,) is the sum of weights."""

    n_rows: RowNumbers
    faults: npt.NDArray[np.int64]
    weight: FloatArray

    @classmethod
    def of_none(cls, n_rows: RowNumbers) -> Tally:
        """Return a tally of groups of so many rows, of which none was looked at."""
        return cls(n_rows, np.zeros((4, n_rows.size), np.int64), np.zeros(n_rows.size))

    def add(self, y: FloatArray, weight: FloatArray, of: IntArray) -> BoolArray:
        """Count rows, and return which (n,) can be used."""
        n_groups, usable = self.n_rows.size, has_weight(y, weight)
        finite = np.isfinite(y) if y.ndim == 1 else np.isfinite(y).all(axis=1)
        if not (usable & finite & (weight < np.inf)).all():
            known = has_label(y)
            odd = known & (weight != 0) & ~finite
            found = (~known, odd, known & ~np.isfinite(weight), known & (weight < 0))
            self.faults += [np.bincount(of[rows], minlength=n_groups) for rows in found]
        with np.errstate(over="ignore"):
            self.weight += np.bincount(of[usable], weight[usable], n_groups)
        return usable

    def failures(
        self, job: Job, train: RowNumbers, valid: RowNumbers, groups: Sequence[Group] = ()
    ) -> dict[int, GroupFailed]:
        """Return the groups, by place, that cannot train, with so many used rows (G,)."""
        refused = self.faults[0 if job.rules.null_label == "error" else 1 :].any(axis=0)
        few = are_few(job, train, valid, groups)
        failed: dict[int, GroupFailed] = {}
        for place in _places(refused | np.isinf(self.weight) | few):
            n_rows, unlabelled = int(self.n_rows[place]), int(self.faults[0, place])
            why = self._refusal(job, place, n_rows)
            if why is not None:
                failed[place] = GroupFailed(why)
            elif few[place]:
                failed[place] = few_rows(job, n_rows, int(train[place]), int(valid[place]), 0, unlabelled)
        return failed

    def _refusal(self, job: Job, place: int, n_rows: int) -> str | None:
        """Return why a group's rows are refused: a label is missing or not finite, or weights are invalid."""
        if n_rows == 0:
            return "the group has no rows"
        unlabelled, odd, broken, negative = self.faults[:, place].tolist()
        refused = unlabelled if job.rules.null_label == "error" and unlabelled < n_rows else 0
        of_arrays = job.dataset.y.ndim > 1
        label = "an element of the label is NULL, NaN or infinite" if of_arrays else "the label is NaN or infinite"
        for what, faults, hint in (
            ("the label is NULL", refused, "ON NULL LABEL SKIP leaves such rows out"),
            (label, odd, "filter such rows in WHERE"),
            ("the weight is NULL, NaN or infinite", broken, "a weight is a number >= 0"),
            ("the weight is negative", negative, "a weight is a number >= 0"),
        ):
            if faults and n_rows >= job.rules.min_rows:
                return f"{what} in {faults} of {count(n_rows, 'row')}; hint: {hint}"
        return "the sum of the weights overflows; scale the weights down" if np.isinf(self.weight[place]) else None


def _places(groups: BoolArray) -> list[int]:
    """Return the places of chosen groups (G,)."""
    places: list[int] = np.flatnonzero(groups).tolist()
    return places
