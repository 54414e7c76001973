"""WITH (pooling = 'shrink'): groups begin with what the groups of their parent have in common.

Where configurations shrink, a first pass finds the sums over each group's rows, the learner makes a prior of each group from
those of its siblings, and the units of these configurations train with it, in each fold with the prior of its own training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.data.dataset import Group
from grouplearn.interrupting import with_checks
from grouplearn.learners.contract.pooling import PoolsGroups, Prior, parents_of, pools
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.statements.workflow.search_progress import later
from grouplearn.train.job import Earlier, Job, UnitResult
from grouplearn.train.results.trials import DONE

#: Keeps the state of every group.
_EVERY_STATE = 1 << 62

#: Runs units of a job, and returns their results.
Run = Callable[[Job, tuple[Unit, ...]], tuple[UnitResult, ...]]


@dataclass(slots=True)
class Pooling:
    """The runs of a statement some of whose configurations shrink, over ``units`` of all groups; numbers of further units begin
    after ``last``.

    A resumed run asks for the same runs in the same order, so that they get the same numbers.
    """

    learner: PoolsGroups
    sets: Sequence[Sequence[int]]
    units: tuple[Unit, ...]
    last: int

    @classmethod
    def of(cls, job: Job, sets: Sequence[Sequence[int]], units: tuple[Unit, ...]) -> Pooling | None:
        """Return the runs of a job, None if none of its configurations shrinks."""
        learner = job.trainer
        if not any(pools(learner, config) for config in job.configs) or not isinstance(learner, PoolsGroups):
            return None
        return cls(learner, sets, units, max((unit.id for unit in units), default=-1))

    def run(self, run: Run, job: Job, units: tuple[Unit, ...]) -> tuple[UnitResult, ...]:
        """Return the results of units: those of configurations that do not shrink as they are, others with priors."""
        shrinking = {number for number, config in enumerate(job.configs) if self.learner.pools(config)}
        alone = cut(units, _all(units, {*range(len(job.configs))} - shrinking))
        alone = alone if units is self.units else self._numbered(alone)
        results = [*run(job, alone)] if alone else []
        by_fold = [each for unit in cut(units, _all(units, shrinking)) for each in _by_fold(unit, job.split.fits)]
        known = self._sums(run, job, {unit.fold for unit in by_fold})
        for number in sorted(shrinking):
            for fold in sorted(known):
                own = cut([unit for unit in by_fold if unit.fold == fold], _all(by_fold, {number}))
                if own:
                    priors, ended = (
                        self._priors(job, number, known[fold]),
                        max((each.ended for each in results), default=0.0),
                    )
                    earlier = {group: Earlier((), state=each.state) for group, each in priors.items() if each.state}
                    ran = run(replace(job, earlier=earlier, state_bytes=None), self._numbered(own))
                    results += [later(_noted(result, priors), ended) for result in ran]
        return tuple(results)

    def _sums(self, run: Run, job: Job, folds: Collection[int]) -> dict[int, dict[int, tuple[bytes, int]]]:
        """Return the sums over each group's training rows in these folds, and how many rows these are."""
        gathering = replace(job, state_bytes=_EVERY_STATE, keeps_folds=True, errors=None, earlier={})
        finals = {unit.groups: unit for unit in self.units if unit.is_final}.values()
        units = [
            replace(unit, folds=0, fold=fold, configs=unit.configs[:1]) for fold in sorted(folds) for unit in finals
        ]
        found: dict[int, dict[int, tuple[bytes, int]]] = {fold: {} for fold in folds}
        for result in run(gathering, self._numbered(units)):
            own = found[result.unit.fold]
            for models in result.trials.models:
                for at, place in enumerate(models.places.tolist()):
                    group = int(result.trials.group[place])
                    state = None if models.states is None else models.states.state(at)
                    if state is not None and result.trials.status[place] == DONE:
                        own[group] = state, result.facts[group].n_train
        return found

    def _priors(self, job: Job, number: int, known: Mapping[int, tuple[bytes, int]]) -> dict[int, Prior]:
        """Return what groups begin with in a configuration, by number, given the sums of groups and their numbers of rows."""
        found: dict[int, Prior] = {}
        shared, numbers = parents_of(self.sets), dict[tuple[object, ...], int]()
        assert shared is not None  # noqa: S101  (refused)
        for level, own in enumerate(self.sets):
            groups = [group for group in job.groups if group.level == level and group.id in known]
            if not own or not groups:
                continue
            parents = [numbers.setdefault((level, *_keys(group, shared[level])), len(numbers)) for group in groups]
            order = np.argsort(parents, kind="stable").tolist()
            states, rows = zip(*(known[groups[place].id] for place in order), strict=True)
            _, ascending = np.unique([parents[place] for place in order], return_inverse=True)
            priors = self.learner.priors(job.configs[number], states, np.array(rows, np.float64), ascending)
            found |= {groups[place].id: prior for place, prior in zip(order, priors, strict=True)}
        return found

    def _numbered(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Return units with numbers that no others have."""
        first = self.last + 1
        self.last += len(units)
        return tuple(replace(unit, id=number) for number, unit in enumerate(units, first))


def _all(units: Sequence[Unit], configs: Collection[int]) -> dict[int, Collection[int]]:
    return {group: configs for unit in with_checks(units) for group in unit.groups}


def _by_fold(unit: Unit, fits: Sequence[int]) -> Iterator[Unit]:
    """Yield a unit for each fold of one that trains all folds in one pass."""
    yield from (replace(unit, folds=0, fold=fold) for fold in fits) if unit.folds else (unit,)


def _keys(group: Group, members: Sequence[int]) -> tuple[object, ...]:
    return tuple(group.keys[key] for key in members)


def _noted(result: UnitResult, priors: Mapping[int, Prior]) -> UnitResult:
    """Return a result with the reasons why groups did not shrink as notes."""
    trials, texts = result.trials, {**result.trials.texts}
    for place in np.flatnonzero(trials.status == DONE).tolist():
        prior = priors.get(int(trials.group[place]))
        if prior is not None and prior.reason is not None:
            texts.setdefault(place, prior.reason)
    return replace(result, trials=replace(trials, texts=texts))
