"""From unit results to the outcome of every group: folds merged, the best trial chosen."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Group
from grouplearn.data.shard import FloatArray
from grouplearn.data.split import FINAL
from grouplearn.interrupting import with_checks
from grouplearn.models.metrics.metric import Metric
from grouplearn.models.metrics.metrics import first_best
from grouplearn.models.metrics.ranking import in_order
from grouplearn.models.state import Artifact
from grouplearn.train.job import NOT_VALIDATED, GroupFacts, Job, UnitResult
from grouplearn.train.results.trials import DONE, FAILED, STOPPED, BoolArray, IntArray, Places, Trials


@dataclass(frozen=True, slots=True)
class Outcome:
    """What training made of G groups: their trials in order of group and config, folds merged.

    ``groups`` are in order of number, ``facts`` (G) what is known of their rows, None if nothing is. ``best`` (G,) is the
    number of the best config, -1 without a model. A group that failed and keeps its model of before has a best trial of
    status ``kept``, whose text is the reason of the failure and whose facts are those of its own rows; ``kept`` says by
    group when it was trained.
    """

    groups: tuple[Group, ...]
    facts: tuple[GroupFacts | None, ...]
    trials: Trials
    best: IntArray
    kept: Mapping[int, datetime.datetime] = field(default_factory=dict)

    @property
    def ids(self) -> IntArray:
        """The groups' numbers (G,)."""
        return np.fromiter((group.id for group in self.groups), np.int32, len(self.groups))

    @property
    def place(self) -> Places:
        """The place (T,) of each trial's group."""
        return np.searchsorted(self.ids, self.trials.group)

    @property
    def is_best(self) -> BoolArray:
        """Which trials (T,) are their group's best."""
        return np.asarray(self.trials.config == self.best[self.place])

    @property
    def learned(self) -> dict[int, bool]:
        """Whether each group has a model of its own rows, by its number."""
        places = zip(self.ids.tolist(), self.best.tolist(), strict=True)
        return {number: best >= 0 and number not in self.kept for number, best in places}

    def failed_groups(self) -> list[Group]:
        """Return the groups without a model."""
        return [self.groups[place] for place in np.flatnonzero(self.best < 0).tolist()]

    def best_models(self) -> Iterator[tuple[Group, GroupFacts, Artifact]]:
        """Yield the best model of each group that has one, in order of group."""
        is_best, place = self.is_best & self.trials.usable, self.place
        found: dict[int, tuple[GroupFacts, Artifact]] = {}
        for models in self.trials.models:
            for at in np.flatnonzero(is_best[models.places]).tolist():
                group = int(place[models.places[at]])
                if (facts := self.facts[group]) is not None:
                    found[group] = facts, models.artifact(at)
        for group, model in sorted(found.items()):
            yield self.groups[group], *model

    def only(self, chosen: BoolArray) -> Outcome:
        """Return the chosen groups (G,)."""
        if chosen.all():
            return self
        at = np.flatnonzero(chosen).tolist()
        groups, facts = tuple(self.groups[each] for each in at), tuple(self.facts[each] for each in at)
        return replace(
            self,
            groups=groups,
            facts=facts,
            trials=self.trials.take(np.flatnonzero(chosen[self.place])),
            best=self.best[at],
        )


def merge(job: Job, results: Iterable[UnitResult]) -> Outcome:
    """Return the outcome of every group of ``job`` that has results.

    With VALIDATE FOLDS a trial is the final fit on all rows, with the means of validation metrics over folds (NaN left out);
    it failed if the final fit or every fold failed. With a sample for a fit that is only judged, it has that fit's metrics.
    """
    ordered = sorted(with_checks(results), key=lambda each: (each.unit.fold, each.unit.id))
    final, *folds = (
        Trials.joined([each.trials for each in with_checks(ordered) if each.unit.fold == fold]).ordered()
        for fold in (FINAL, *job.split.fits[:-1])
    )
    facts: dict[int, GroupFacts] = {}
    judged: dict[int, GroupFacts] = {}
    for result in with_checks(ordered):
        into = facts if result.unit.fold == FINAL else judged
        for group, known in result.facts.items():
            into.setdefault(group, known)
    made: dict[tuple[int, int], GroupFacts] = {}  # many small groups share what is known of them
    for group, known in judged.items() if job.split.has_sample else ():
        if known.n_valid and (of_all := facts.get(group)) is not None:
            key = id(of_all), known.n_valid
            if key not in made:
                made[key] = replace(of_all, n_train=of_all.n_train - known.n_valid, n_valid=known.n_valid)
            facts[group] = made[key]
    merged = with_judged(final, *folds) if job.split.has_sample else with_folds(final, folds, job.split.rolls)
    return outcome_of(job.groups, facts, merged, job.choosing)


def outcome_of(
    groups: Iterable[Group], facts: Mapping[int, GroupFacts], trials: Trials, choosing: Sequence[Metric]
) -> Outcome:
    """Return the outcome of groups with these trials, which are in order; see ``judged_values`` for ``choosing``."""
    known = frozenset(np.unique(trials.group).tolist())
    own = sorted((group for group in with_checks(groups) if group.id in known), key=lambda group: group.id)
    found = Outcome(tuple(own), tuple(facts.get(group.id) for group in own), trials, np.full(len(own), -1, np.int32))
    return replace(found, best=best_configs(found, trials.usable, choosing))


def aligned(final: Trials, fold: Trials) -> tuple[Places, Places]:
    """Return the places of trials that both have, in either."""
    _, of_final, of_fold = np.intersect1d(final.key, fold.key, assume_unique=True, return_indices=True)
    return of_final, of_fold


def with_judged(final: Trials, judged: Trials) -> Trials:
    """Return final fits with the metrics of the fits that held out a sample, on both parts of their rows.

    If that fit failed, the metrics are those of the final fit on all rows.
    """
    at, own = aligned(final, judged)
    seconds, train, valid = final.seconds.copy(), final.train.copy(), np.full_like(final.train, np.nan)
    judged = judged.measured(final.names)
    seconds[at] += judged.seconds[own]
    done = final.usable[at] & (judged.status[own] == DONE)
    train[at[done]], valid[at[done]] = judged.train[own[done]], judged.valid[own[done]]
    return replace(final, train=train, valid=valid, seconds=seconds)


def with_folds(final: Trials, folds: Sequence[Trials], rolls: bool = False) -> Trials:
    """Return final fits with the mean validation metrics of their folds.

    If a fold failed there is no mean, as it would be that of the easier folds, and the text says so. If folds are windows that
    go back in time (``rolls``), the mean is over the windows for which a series is long enough. A trial without fits of
    folds, as all were fitted in one pass, stays as it is.
    """
    if not any(map(len, folds)):
        return final
    shape = len(folds), len(final)
    status, judged = np.full(shape, -1, np.int8), np.full((*shape, len(final.names)), np.nan)
    done, seconds = np.zeros(shape, np.bool_), final.seconds.copy()
    first: dict[int, str | None] = {}
    for number, fold in enumerate(folds):
        at, own = aligned(final, fold)
        status[number, at], judged[number, at] = fold.status[own], fold.measured(final.names).valid[own]
        done[number, at] = (fold.status[own] == DONE) | ((fold.status[own] == STOPPED) & (fold.epochs[own] > 0))
        seconds[at] += fold.seconds[own]
        broken = fold.status[own] == FAILED
        for place, other in zip(at[broken].tolist(), own[broken].tolist(), strict=True):
            first.setdefault(place, fold.texts.get(other))
    judged[~done] = np.nan
    seen = np.asarray((status >= 0).any(axis=0))
    usable, failed, any_done = final.usable & seen, np.sum(status == FAILED, axis=0), done.any(axis=0)
    stopped = usable & ~any_done & ((final.status == STOPPED) | (status == STOPPED).any(axis=0))
    lost, some = usable & ~any_done & ~stopped, usable & any_done & (failed > 0)
    sound = np.asarray(usable & any_done & ((failed == 0) | rolls))
    valid = np.where(sound[:, None], mean_known(judged), np.where(seen[:, None], np.nan, final.valid))
    status_of_all = np.where(stopped, STOPPED, final.status).astype(np.int8)
    texts = {**final.texts, **dict.fromkeys(np.flatnonzero(stopped).tolist(), NOT_VALIDATED)}
    for place in np.flatnonzero(some).tolist():
        texts[place] = f"not validated: {failed[place]} of {len(folds)} folds failed; the first: {first[place]}"
        if rolls:
            texts[place] = (
                f"validated on {len(folds) - failed[place]} of {len(folds)} windows; the next: {first[place]}"
            )
    merged = replace(final, status=status_of_all, valid=valid, texts=texts, seconds=seconds)
    all_failed = f"all {len(folds)} folds failed; the first: "
    return merged.failed({place: f"{all_failed}{first[place]}" for place in np.flatnonzero(lost).tolist()})


def mean_known(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the means over the first axis of the values that are not NaN."""
    known = ~np.isnan(values)
    total, count = in_order(np.where(known, values, 0.0)), known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def best_configs(outcome: Outcome, among: BoolArray, choosing: Sequence[Metric]) -> IntArray:
    """Return the config (G,) with the best of ``judged_values`` ``among`` each group's trials (T,), -1 without any.

    Ties (see ``first_best``) go to trials that are done, then to the lowest config number. NaN never beats a number; if every
    metric is NaN the first trial wins.
    """
    trials, groups = outcome.trials, len(outcome.groups)
    chosen, place = np.flatnonzero(among), outcome.place
    order = chosen[np.lexsort((trials.config[chosen], trials.status[chosen] == STOPPED, place[chosen]))]
    of, counts = place[order], np.bincount(place[order], minlength=groups)
    start = np.cumsum(counts) - counts
    values = np.full((groups, counts.max(initial=1)), np.nan)
    values[of, np.arange(order.size) - start[of]] = judged_values(outcome, among, choosing)[order]
    best, some = np.full(groups, -1, np.int32), counts > 0
    best[some] = trials.config[order[start[some] + first_best(values[some], False)]]
    return best


def judged_values(outcome: Outcome, among: BoolArray, choosing: Sequence[Metric]) -> FloatArray:
    """Return what chooses ``among`` the trials of each group (T,), the less the better: NaN of a trial that has no such metric.

    It is the first of the metrics ``choosing`` that any trial of the group has on held-out rows; if none has any, on the rows
    that it learned from.
    """
    trials, place, groups = outcome.trials, outcome.place, len(outcome.groups)
    found, open_ = np.full(len(trials), np.nan), np.ones(groups, np.bool_)
    for part, metric in product(("valid", "train"), choosing):
        values = trials.metric(part, metric.name)
        known = np.bincount(place[among & ~np.isnan(values)], minlength=groups) > 0
        of = (open_ & known)[place]
        found[of] = -values[of] if metric.greater_is_better else values[of]
        open_ &= ~known
    return found
