"""A search in rounds: an ordinary job between two barriers; at each barrier the procedures decide which trials continue.

A round is a set of units, run by the chosen operator and runtime. Each unit is a pack of trials that continue after the
same number of epochs. Results carry the states to continue from, so a trial's epochs count from round to round.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from grouplearn.interrupting import check_interrupt, with_checks
from grouplearn.learners.contract.config import Config
from grouplearn.learners.contract.optional import conflict
from grouplearn.models.state import Artifact
from grouplearn.plan.cost import durations as cost
from grouplearn.plan.packing import pack_configs
from grouplearn.schedule.messages import Unit
from grouplearn.search.grouped_search import GroupedSearch, NextRound
from grouplearn.search.procedures import SearchPlan
from grouplearn.statements.workflow.scheduled import RunControls, Scheduled
from grouplearn.statements.workflow.search_progress import Ends, Epochs, later
from grouplearn.statements.workflow.trial_control import StopCommand, TrialStanding
from grouplearn.train.job import NOT_BEGUN, GroupFacts, Job, Progress, SearchRound, UnitResult, group_of
from grouplearn.train.results.ledger import units_left
from grouplearn.train.results.outcome import Outcome, best_configs, merge, outcome_of
from grouplearn.train.results.trials import DONE, STOPPED, TrialProgress, TrialResult, Trials
from grouplearn.train.rows.sampled import group_seed, share_of

_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search: the outcome, the units of all rounds, every configuration that was tried."""

    outcome: Outcome
    units: tuple[UnitResult, ...]
    configs: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class SearchWork:
    """What a search needs to make its rounds: its plan, how units are run, and the sizes with which they are estimated.

    A row has ``stored`` values and a score ``outputs``; estimates only order units, so they change no model.
    """

    plan: SearchPlan
    scheduled: Scheduled
    stored: int
    outputs: int


def search(rounds: SearchWork, job: Job, progress: Progress, controls: RunControls) -> SearchResult:
    """Train in rounds until every procedure has finished or the job's deadline has passed; raises StatementInterrupted.

    ``progress`` shows how far it is. At each barrier the search carries out the commands that its control received.
    Procedures decide the same for the same results. So with a ledger a search that died is repeated from its first round,
    and what the ledger has is not trained again.
    """
    return _Search(rounds, job, progress, controls).run()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A trial of the next round: it trains up to ``budget``, continuing from what ``start`` carries."""

    group: int
    config: int
    budget: int
    start: TrialProgress | None


class _Search:
    """The state of a search, with all its trials so far."""

    def __init__(self, rounds: SearchWork, job: Job, progress: Progress, controls: RunControls) -> None:
        self._rounds, self._plan, self._job, self._cancelled = rounds, rounds.plan, job, controls.cancelled
        self._progress, self._control, self._ledger = progress, controls.control, controls.ledger
        ledger = controls.ledger
        self._known = {result.unit.id: result for result in ledger.results} if ledger else {}
        self._metrics: dict[int, int] = {}
        seeds = {group.id: group_seed(job.training.seed, group) for group in job.groups}
        self._grouped_search = GroupedSearch(self._plan, job.configs, list(seeds), self._alike, seeds)
        self._trials: dict[_Key, TrialResult] = {}
        self._goals: dict[_Key, int] = {}
        self._wanted: dict[_Key, int] = {}
        self._facts: dict[int, GroupFacts] = {}
        self._ends = Ends(progress)
        self._units: list[UnitResult] = []
        self._began = time.time() - (ledger.seconds if ledger else 0.0)
        self._barriers = 0

    def run(self) -> SearchResult:
        """Run all rounds, and return the result."""
        next_round = self._grouped_search.begin()
        self._report(next_round)
        while next_round.goes and (self._was_here() or not self._job.training.expired()):
            results = self._round(next_round)
            self._take(results)
            told = {key: self._value(key) for key in next_round.keys}
            self._obey()
            next_round = self._grouped_search.on(told, frozenset(self._failed_groups()))
            self._forget(next_round)
            if self._ledger is not None and not self._was_here():
                self._ledger.compact(self._needed)
            self._report(next_round)
            self._ends.show(results, next_round.goes.keys() | next_round.waiting, self._trials)
        return self._found()

    def _obey(self) -> None:
        """Carry out the users' commands since the last barrier."""
        self._barriers += 1
        if self._control is None:
            return
        for command in self._control.poll(self._barriers, passed=self._was_here()):
            if isinstance(command, StopCommand):
                self._grouped_search.stop(command.trial)
            else:
                self._grouped_search.add(command.config, command.parent)

    def _was_here(self) -> bool:
        """Whether an earlier process has got further: it trained units of the next round, or later ones."""
        return max(self._known, default=-1) >= len(self._units)

    def _report(self, next_round: NextRound) -> None:
        if self._control is None:
            return
        going = Counter(config for _, config in (*next_round.goes, *next_round.waiting))
        epochs: Counter[int] = Counter()
        for (_, config), trial in self._trials.items():
            epochs[config] = max(epochs[config], trial.epochs)
        configs = enumerate(self._grouped_search.configs)
        self._control.report(tuple(TrialStanding(n, config, going[n], epochs[n]) for n, config in configs))

    def _alike(self, one: Config, other: Config) -> bool:
        learner = self._job.trainer
        return learner.pack_key(one) == learner.pack_key(other) and conflict(learner, other) is None

    # --- a round ---------------------------------------------------------------------------------------------------

    def _round(self, next_round: NextRound) -> tuple[UnitResult, ...]:
        """Train the wanted trials whose results are not known yet."""
        wanted = [
            _Wanted(group, config, budget, self._carried(group, config, parent))
            for (group, config), (budget, parent) in with_checks(next_round.goes.items())
            if self._lacks(group, config, budget)
        ]
        self._wanted = {(each.group, each.config): each.budget for each in wanted}
        if self._plan.resource != "rows":
            self._goals |= self._wanted
            return self._trained(wanted, 0)
        by_part: dict[int, list[_Wanted]] = defaultdict(list)
        for each in wanted:
            by_part[each.budget].append(each)
        results: list[UnitResult] = []
        for part in sorted(by_part):
            results += self._trained(by_part[part], len(results), part / self._plan.budget)
        return tuple(results)

    def _trained(self, wanted: Sequence[_Wanted], before: int, share: float = 1.0) -> tuple[UnitResult, ...]:
        """Train wanted trials on a share of the rows, as units that follow the round's first ``before`` ones."""
        if not wanted:
            return ()
        units, goals = self._packed(wanted, len(self._units) + before, share)
        starts = {(each.group, each.config): each.start for each in wanted if each.start is not None}
        continues = self._plan.continues
        round_ = SearchRound(starts, goals if continues else {}, continues, share)
        return self._carried_out(replace(self._job, configs=self._grouped_search.configs, round=round_), units)

    def _carried_out(self, job: Job, units: tuple[Unit, ...]) -> tuple[UnitResult, ...]:
        """Run the units that the ledger does not have; return the results of all, with times from the search's beginning."""
        before = tuple(self._known[unit.id] for unit in units if unit.id in self._known)
        left = units_left(units, before)
        if not left:
            return before
        offset = time.time() - self._began
        try:
            results = self._rounds.scheduled.run(
                job, left, Epochs(self._progress, offset, self._ledger), self._cancelled
            )
        finally:
            if self._ledger is not None:
                self._ledger.flush()
        every = (*before, *(later(result, offset) for result in results))
        return tuple(sorted(every, key=lambda result: result.unit.id))

    def _carried(self, group: int, config: int, parent: int | None) -> TrialProgress | None:
        own = self._trials.get((group, config))
        source = own if own is not None or parent is None else self._trials.get((group, parent))
        return source.carried if source is not None else None

    def _lacks(self, group: int, config: int, budget: int) -> bool:
        """Whether a trial must be trained: it is new, or has had fewer epochs and not converged, or fewer rows.

        A trial whose state is gone begins again, which makes the same model.
        """
        trial = self._trials.get((group, config))
        if trial is None:
            return True
        reached = self._goals.get((group, config), 0)
        if self._plan.resource == "rows":
            return trial.status == "done" and self._share(group, reached) < self._share(group, budget)
        return trial.usable and reached <= trial.epochs < budget

    def _share(self, group: int, part: int) -> float:
        """Return the share of a group's training rows that a budget allows."""
        return share_of(part / self._plan.budget, group_of(self._job, group).n_rows)

    def _packed(self, wanted: Sequence[_Wanted], first: int, share: float) -> tuple[tuple[Unit, ...], dict[int, int]]:
        """Return units, numbered from ``first``, of trials with the same epochs and budget, and the budget of each unit."""
        together: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for each in wanted:
            reached = each.start.epochs if each.start else 0
            together[each.group, reached, each.budget].append(each.config)
        units: list[Unit] = []
        goals: dict[int, int] = {}
        configs = self._grouped_search.configs
        for (group, reached, budget), unsorted in with_checks(sorted(together.items())):
            numbers = sorted(unsorted)
            chosen = [configs[number] for number in numbers]
            for pack in pack_configs(self._job.trainer, chosen, len(self._job.groups)):
                check_interrupt()
                members = tuple(numbers[place] for place in pack)
                epochs = self._job.training.epochs if share < 1 else budget - reached
                seconds = share * self._seconds(group, [configs[number] for number in members], epochs)
                for fold in self._job.split.fits:
                    goals[first + len(units)] = budget
                    units.append(Unit(first + len(units), group, members, fold, seconds))
        return tuple(units), goals

    def _seconds(self, group: int, configs: Sequence[Config], epochs: int) -> float:
        rounds, learner = self._rounds, self._job.trainer
        rows = rounds.scheduled.workload.rows[group]
        return cost.unit_seconds(
            learner, configs, rows, rounds.stored, max(1, epochs), rounds.outputs, 1, rounds.scheduled.rates
        )

    # --- at a barrier ----------------------------------------------------------------------------------------------

    def _take(self, results: tuple[UnitResult, ...]) -> None:
        """Store the results of a round; trials without progress keep their earlier results."""
        self._units += (replace(result, trials=Trials.joined(())) for result in results)
        outcome = merge(self._job, results)
        for group, facts in zip(outcome.groups, outcome.facts, strict=True):
            known = self._facts.get(group.id)
            if facts is not None and (known is None or known.n_train < facts.n_train):
                self._facts[group.id] = facts
        for number, trial in zip(outcome.trials.group.tolist(), outcome.trials, strict=True):
            key = (number, trial.config)
            before = self._trials.get(key)
            seconds = trial.seconds + (before.seconds if before else 0.0)
            further = before is None or trial.status == "failed" or self._is_further(trial, before)
            if further and self._plan.resource == "rows":
                self._goals[key] = self._wanted[key]
            kept = trial if further or before is None else before
            self._trials[key] = replace(kept, seconds=seconds)
            self._see_metric(number, kept)

    def _is_further(self, trial: TrialResult, before: TrialResult) -> bool:
        return trial.status == "done" if self._plan.resource == "rows" else trial.epochs > before.epochs

    def _forget(self, next_round: NextRound) -> None:
        """Free the states from which no trial will continue."""
        parents = {(group, parent) for (group, _), (_, parent) in next_round.goes.items()}
        kept = next_round.goes.keys() | next_round.waiting | parents
        for key, trial in self._trials.items():
            if trial.carried is not None and key not in kept:
                self._trials[key] = replace(trial, carried=None)

    def _needed(self, result: UnitResult) -> UnitResult:
        """Return what the ledger must keep of a result: models and states only of trials that have not trained further since.

        The rest is emptied, not removed: decisions depend on whether a trial has a model, and a state to continue from.
        """
        group, names = result.unit.group, result.trials.names
        return replace(
            result, trials=Trials.of(group, [self._still_needed(group, trial) for trial in result.trials], names)
        )

    def _still_needed(self, group: int, trial: TrialResult) -> TrialResult:
        latest = self._trials[group, trial.config]
        further = latest.epochs > trial.epochs
        artifact = Artifact("tensors") if further and trial.artifact is not None else trial.artifact
        unused = trial.carried is not None and (further or latest.carried is None)
        carried = replace(trial.carried, state=b"", curve=()) if unused and trial.carried else trial.carried
        return replace(trial, artifact=artifact, carried=carried)

    def _value(self, key: _Key) -> float | None:
        """Return a trial's metric on held-out rows, so that greater is better; None without a model or metric."""
        trial, facts = self._trials.get(key), self._facts.get(key[0])
        if trial is None or not trial.usable or facts is None:
            return None
        metric = self._job.choosing[self._metrics.get(key[0], 0)]
        value = self._judged(trial, facts).get(metric.name, math.nan)
        if math.isnan(value):
            return None
        return value if metric.greater_is_better else -value

    def _judged(self, trial: TrialResult, facts: GroupFacts) -> Mapping[str, float]:
        return trial.valid if facts.n_valid or self._job.split.folds else trial.train

    def _see_metric(self, group: int, trial: TrialResult) -> None:
        """Note the first of the metrics that choose which a trial has: any trial of a group decides."""
        facts = self._facts.get(group)
        values = self._judged(trial, facts) if facts is not None else {}
        for place, metric in enumerate(self._job.choosing):
            if not math.isnan(values.get(metric.name, math.nan)):
                self._metrics[group] = min(place, self._metrics.get(group, place))

    def _failed_groups(self) -> Iterable[int]:
        return (group.id for group in self._job.groups if group.id not in self._facts)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _found(self) -> SearchResult:
        by_group: dict[int, list[TrialResult]] = defaultdict(list)
        for key, trial in sorted(self._trials.items()):
            by_group[key[0]].append(self._concluded(key, trial))
        names, configs = self._job.measured, self._grouped_search.configs
        idle = [group.id for group in self._job.groups if group.id not in by_group]
        begun = [Trials.of(group, own, names) for group, own in by_group.items()]
        trials = Trials.joined([*begun, Trials.alike(idle, range(len(configs)), STOPPED, NOT_BEGUN)]).ordered()
        outcome = outcome_of(self._job.groups, self._facts, trials, self._job.choosing)
        if self._plan.resource == "rows":  # a model of few rows may win by chance
            whole = best_configs(outcome, trials.status == DONE, self._job.choosing)
            outcome = replace(outcome, best=np.where(whole >= 0, whole, outcome.best))
        return SearchResult(outcome, tuple(self._units), configs)

    def _concluded(self, key: _Key, trial: TrialResult) -> TrialResult:
        """Return a trial without its state; if it should have had more epochs or rows, its status is stopped."""
        if self._plan.resource == "rows":
            whole = self._share(key[0], self._goals[key]) == 1
        else:
            converged = trial.status == "done" and trial.epochs < self._goals[key]
            whole = not self._plan.continues or converged or self._goals[key] >= self._plan.budget
        status = trial.status if whole or trial.status == "failed" else "stopped"
        return replace(trial, status=status, carried=None)
