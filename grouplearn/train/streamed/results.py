"""The results of training units whose groups' rows have passed: as from rows, but metrics are those of samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from grouplearn.data.arrivals import BoolArray, IntArray
from grouplearn.data.dataset import Group
from grouplearn.data.shard import Shard
from grouplearn.data.split import Split
from grouplearn.learners.contract.control import Interrupted
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import GroupFacts, Job, UnitResult, group_of
from grouplearn.train.pack import Pack, begin, cancellable_kernels, end_epoch
from grouplearn.train.reasons import reason_of
from grouplearn.train.results.evaluation import conclude, evaluate
from grouplearn.train.results.trials import TrialResult, Trials
from grouplearn.train.rows.prepare import Prepared, problem_of
from grouplearn.train.rows.used import NOTHING_HELD_OUT, GroupFailed, are_few, few_rows
from grouplearn.train.streamed.groups import StreamedGroups
from grouplearn.train.streamed.progress import Progress
from grouplearn.train.unit import failed_unit

#: Groups of a unit: few enough for an interrupt to be noticed, and more than cost a row of the catalog each.
_TOGETHER = 256
#: Fewest rows of a group of which some are held out without VALIDATE.
_FEWEST_JUDGED = 10


@dataclass(frozen=True, slots=True)
class _Fit:
    """The rows of a fit by group (G,): which groups train on rows that are held out, too, or are judged by them; how many rows
    train and judge; and the groups that cannot train."""

    of_all: BoolArray
    judged: BoolArray
    n_train: IntArray
    n_valid: IntArray
    failed: dict[int, GroupFailed]

    @classmethod
    def of(cls, job: Job, groups: StreamedGroups, fold: int, *, drawn: bool) -> _Fit:
        """Return the rows of a fit; rows that were ``drawn`` train groups that would have too few others."""
        marks = job.split.numbers(np.array([0, 1], np.int16))
        (_, held_train), (_, held_judge) = job.split.trains(marks, fold), job.split.judges(marks, fold)
        others, held = groups.usable
        spared = drawn & ((others == 0) | (job.split.spares & (others + held < _FEWEST_JUDGED)))
        of_all, judged = held_train | spared, held_judge & ~spared
        train, valid = others + held * of_all, held * judged
        n_train, n_valid = groups.complete[0] + groups.complete[1] * of_all, groups.complete[1] * judged
        failed = groups.tally.failures(job, train, valid)
        for place in np.flatnonzero(are_few(job, n_train, n_valid)).tolist():
            counts = (int(each[place]) for each in (groups.tally.n_rows, n_train, n_valid, train - n_train))
            failed.setdefault(place, few_rows(job, *counts))
        for place in np.flatnonzero(n_valid == 0).tolist() if job.split.only_judged(fold) else ():
            failed.setdefault(place, GroupFailed(NOTHING_HELD_OUT))
        return cls(of_all, judged, n_train, n_valid, failed)


@dataclass(frozen=True)
class StreamedUnits:
    """Units over groups that have passed; ``order`` are their numbers there, by id. ``drawn``: rows were held out at random."""

    groups: StreamedGroups
    order: Sequence[int]
    drawn: bool
    _fits: dict[tuple[Split, int], _Fit] = field(default_factory=dict)

    def train(self, job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]) -> UnitResult:
        """Return the results of a unit; raises Interrupted."""
        with cancellable_kernels(cancelled):
            parts = [self._of_group(job, unit.of(group), report, cancelled) for group in unit.groups]
        trials = Trials.joined([part.trials for part in parts]).ordered()
        return UnitResult(unit, trials, {group: facts for part in parts for group, facts in part.facts.items()})

    def _of_group(
        self, job: Job, unit: Unit, report: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> UnitResult:
        began, number, fit = time.perf_counter(), self.order[unit.group], self._fit(job, unit.fold)
        progress = fit.failed.get(number) or self.groups.progress[number]
        if isinstance(progress, GroupFailed):
            return failed_unit(unit, str(progress), time.perf_counter() - began, progress.facts)
        facts = self._facts(fit, number)
        pack = self._pack(job, unit, facts, report, cancelled)
        trials = _trained(unit.configs, pack, progress, unit, of_all=bool(fit.of_all[number]))
        return UnitResult(unit, Trials.of(unit.group, trials, job.measured), {unit.group: facts})

    def _fit(self, job: Job, fold: int) -> _Fit:
        key = job.split, fold
        if key not in self._fits:
            self._fits[key] = _Fit.of(job, self.groups, fold, drawn=self.drawn)
        return self._fits[key]

    def _facts(self, fit: _Fit, number: int) -> GroupFacts:
        n_train, n_valid = int(fit.n_train[number]), int(fit.n_valid[number])
        return GroupFacts(
            self.groups.fitted, (), n_train, n_valid, int(self.groups.tally.n_rows[number]) - n_train - n_valid
        )

    def _pack(
        self, job: Job, unit: Unit, facts: GroupFacts, report: Callable[[int], None], cancelled: Callable[[], bool]
    ) -> Pack:
        """Return a unit as a pack whose rows are the samples."""
        number, fit = self.order[unit.group], self._fit(job, unit.fold)
        others, held = (sample.rows_of(number) for sample in self.groups.samples)
        trained = _joined([part for part in (others, held if fit.of_all[number] else None) if part is not None])
        problem = problem_of(job, group_of(job, unit.group), job.trainer, facts, 0)
        valid = _joined([held]) if fit.judged[number] and held is not None else None
        return Pack(
            job.trainer,
            tuple(job.configs[each] for each in unit.configs),
            Prepared(trained, valid, trained, problem, facts),
            job.target.metric,
            None,
            report,
            cancelled,
            metrics=job.measured,
            measures_training_rows=job.split.measures_training_rows(unit.fold),
            state_bytes=job.state_bytes if unit.is_final else None,
        )


def _trained(
    numbers: tuple[int, ...], pack: Pack, progress: Progress, unit: Unit, *, of_all: bool
) -> tuple[TrialResult, ...]:
    """Return the trials of some configs; if they fail together, of each alone."""
    began = time.perf_counter()
    try:
        return _concluded(numbers, pack, progress, unit, of_all=of_all)
    except Interrupted:
        raise
    except Exception as error:
        if len(numbers) == 1:
            reason = reason_of(error, pack.prepared.facts.features)
            return (TrialResult(numbers[0], "failed", reason, seconds=time.perf_counter() - began),)
    alone = (
        _trained((number,), replace(pack, configs=(config,)), progress, unit, of_all=of_all)
        for number, config in zip(numbers, pack.configs, strict=True)
    )
    return tuple(trial for trials in alone for trial in trials)


def _concluded(
    numbers: tuple[int, ...], pack: Pack, progress: Progress, unit: Unit, *, of_all: bool
) -> tuple[TrialResult, ...]:
    began = time.perf_counter()
    with np.errstate(all="ignore"):  # divergence shows in the numbers
        state, sums = progress.reached(numbers, of_all=of_all)
        training = end_epoch(
            pack, replace(begin(pack), state=state, sums=sums), range(len(numbers)), pack.learner.losses(state)
        )
        evaluation = evaluate(pack, training)
    return conclude(pack, numbers, training, evaluation, unit.is_final, time.perf_counter() - began)


def _joined(parts: Sequence[Shard]) -> Shard:
    """Return rows as one block."""
    columns = zip(*((part.x, part.y, part.weight) for part in parts), strict=True)
    x, y, weight = (np.concatenate(each) for each in columns)
    return Shard(x, y, weight, (0, len(y)))


def streamed_units(groups: Sequence[Group], packs: Sequence[tuple[int, ...]], folds: Sequence[int]) -> tuple[Unit, ...]:
    """Return the units of all groups, many groups together."""
    numbers = [group.id for group in groups]
    runs = [numbers[first : first + _TOGETHER] for first in range(0, len(numbers), _TOGETHER)]
    every = [(run, pack, fold) for run in runs for pack in packs for fold in folds]
    return tuple(
        Unit(number, run[0], pack, fold, others=tuple(run[1:])) for number, (run, pack, fold) in enumerate(every)
    )
