"""From unit results to one outcome per group: folds merged, the best trial chosen."""

from __future__ import annotations

import datetime
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from grouplearn.data.dataset import Group
from grouplearn.interrupting import watched
from grouplearn.models.metrics.ranking import in_order
from grouplearn.models.metrics.sums import first_best
from grouplearn.models.state import Artifact
from grouplearn.train.job import NOT_VALIDATED, GroupFacts, Job, TrialResult, UnitResult
from grouplearn.train.results.packed import Packed, beside, mean_known


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """A group's trials, one per config, folds merged; ``best`` is the number of the best config, None if all failed.

    ``kept`` is when the best trial was trained, if this training failed and that trial is the group's model of before. Its
    reason is then that of the failure, and ``facts`` are of its rows.
    """

    group: Group
    trials: tuple[TrialResult, ...]
    facts: GroupFacts | None
    best: int | None
    kept: datetime.datetime | None = None

    def is_kept(self, trial: TrialResult) -> bool:
        """Whether a trial of the group is its model of before."""
        return self.kept is not None and trial.config == self.best


@dataclass(frozen=True, slots=True)
class PackedOutcome:
    """The outcomes of groups trained side by side: ``best`` (G,) is the place of the best config, -1 for none."""

    groups: tuple[Group, ...]
    pack: Packed
    best: npt.NDArray[np.intp]

    def only(self, places: npt.NDArray[np.intp]) -> PackedOutcome:
        """Return the groups at these places, in this order."""
        groups = tuple(self.groups[place] for place in places.tolist())
        return PackedOutcome(groups, self.pack.only(places), self.best[places])

    def outcomes(self, metric: str) -> Iterator[GroupOutcome]:
        """Yield the groups' outcomes one by one; ``metric`` is that of the curves."""
        rows = zip(self.groups, self.pack.trials(metric), self.pack.facts, self.best.tolist(), strict=True)
        for group, trials, facts, best in rows:
            yield GroupOutcome(group, trials, facts, self.pack.configs[best] if best >= 0 else None)

    def best_models(self) -> Iterator[tuple[Group, GroupFacts, Artifact]]:
        """Yield the best model of each group that has one."""
        configs = len(self.pack.configs)
        for models in self.pack.models:
            for at, place in enumerate(models.members.tolist()):
                best, facts = int(self.best[place]), self.pack.facts[place]
                if best >= 0 and facts is not None:
                    yield self.groups[place], facts, models.artifact(at * configs + best)


def merge(
    job: Job, results: Iterable[UnitResult], greater_is_better: bool
) -> tuple[tuple[GroupOutcome, ...], tuple[PackedOutcome, ...]]:
    """Return the outcome of every group of ``job`` in order, trials in order of config number.

    First the groups that trained alone, then those that trained side by side. With VALIDATE FOLDS a trial is the final fit
    on all rows, with the means of validation metrics over folds (NaN and failed folds left out); it failed if the final fit
    or every fold failed.
    """
    by_group: dict[int, list[UnitResult]] = defaultdict(list)
    by_groups: dict[tuple[int, ...], dict[int, list[Packed]]] = defaultdict(lambda: defaultdict(list))
    for result in watched(sorted(results, key=lambda each: each.unit.id)):
        if result.pack is None:
            by_group[result.unit.group].append(result)
        else:
            by_groups[result.unit.groups][result.unit.fold].append(result.pack)
    alone = tuple(
        _outcome(job, group, by_group[group.id], greater_is_better)
        for group in watched(job.groups)
        if group.id in by_group
    )
    group_of = {group.id: group for group in watched(job.groups)}
    packs = []
    merged = with_judged if job.split.has_sample else with_folds
    for numbers, by_fold in watched(by_groups.items()):
        pack = merged(*(beside(by_fold[fold]) for fold in sorted(by_fold)))
        groups = tuple(group_of[number] for number in numbers)
        packs.append(PackedOutcome(groups, pack, best_places(pack, job.target.metric, greater_is_better)))
    return alone, tuple(packs)


def with_judged(final: Packed, judged: Packed) -> Packed:
    """Return the models of all rows with the metrics of those that held out a sample, as by ``trial_with_judged``."""
    done = judged.done()
    train = {name: np.where(done, judged.train[name], values) for name, values in final.train.items()}
    valid = {name: np.where(done, values, np.nan) for name, values in judged.valid.items()}
    facts = tuple(itertools.starmap(facts_with_judged, zip(final.facts, judged.facts, strict=True)))
    return replace(final, train=train, valid=valid, facts=facts, seconds=final.seconds + judged.seconds)


def with_folds(final: Packed, *folds: Packed) -> Packed:
    """Return the final fits with mean validation metrics of the folds, as by ``trial_with_folds``."""
    if not folds:
        return final
    done = np.array([fold.done() for fold in folds])
    reasons, notes = dict(final.reasons), dict(final.notes)
    for group, config in np.argwhere(~done.all(axis=0)).tolist():
        place, failed = (group, config), ~done[:, group, config]
        first = folds[int(failed.argmax())].reasons[place]
        if failed.all():
            reasons.setdefault(place, f"all {len(folds)} folds failed; the first: {first}")
        elif place not in reasons:
            notes[place] = _some_failed(int(failed.sum()), len(folds), first)
    seconds = final.seconds + sum(fold.seconds for fold in folds)
    means = mean_known([fold.valid for fold in folds])
    means = {name: np.where(done.all(axis=0), values, np.nan) for name, values in means.items()}
    return replace(final, valid=means, reasons=reasons, notes=notes, seconds=seconds)


def _some_failed(failed: int, folds: int, first: str | None) -> str:
    return f"not validated: {failed} of {folds} folds failed; the first: {first}"


def best_places(pack: Packed, metric: str, greater_is_better: bool) -> npt.NDArray[np.intp]:
    """Return the place of every group's best config, by the rules of ``best_config``; -1 if none is done."""
    done = pack.done()
    best = np.where(done.any(axis=1), done.argmax(axis=1), -1)
    undecided = np.ones(len(best), dtype=bool)
    for metrics in (pack.valid, pack.train):
        if metric not in metrics:
            continue
        values = np.where(done, metrics[metric], np.nan)
        known = ~np.isnan(values).all(axis=1) & undecided
        best[known] = first_best(values[known], greater_is_better)
        undecided &= ~known
    return best


def _outcome(job: Job, group: Group, results: Sequence[UnitResult], greater_is_better: bool) -> GroupOutcome:
    final: dict[int, TrialResult] = {}
    folds: dict[int, list[TrialResult]] = defaultdict(list)
    facts, judged = None, None
    for result in sorted(results, key=lambda each: (each.unit.fold, each.unit.id)):
        for trial in result.trials:
            if result.unit.fold < 0:
                final[trial.config] = trial
            else:
                folds[trial.config].append(trial)
        if result.unit.fold < 0 and facts is None:
            facts = result.facts
        elif result.unit.fold >= 0:
            judged = result.facts
    if job.split.has_sample:
        facts = facts_with_judged(facts, judged)
        trials = tuple(trial_with_judged(final[config], folds[config][0]) for config in sorted(final))
    else:
        trials = tuple(trial_with_folds(final[config], folds[config]) for config in sorted(final))
    return GroupOutcome(group, trials, facts, best_config(trials, job.target.metric, greater_is_better))


def facts_with_judged(final: GroupFacts | None, judged: GroupFacts | None) -> GroupFacts | None:
    """Return what is known of a group, with the number of rows that were held out of the fit that was judged."""
    if final is None or judged is None or not judged.n_valid:
        return final
    return replace(final, n_train=final.n_train - judged.n_valid, n_valid=judged.n_valid)


def trial_with_judged(final: TrialResult, judged: TrialResult) -> TrialResult:
    """Return the final fit of a trial with the metrics of the fit that held out a sample, on both parts of its rows.

    If that fit failed, the metrics are those of the final fit on all rows.
    """
    done = final.usable and judged.status == "done"
    train, valid = (judged.train, judged.valid) if done else (final.train, {})
    return replace(final, train=train, valid=valid, seconds=final.seconds + judged.seconds)


def trial_with_folds(final: TrialResult, folds: Sequence[TrialResult]) -> TrialResult:
    """Return the final fit of a trial with the mean validation metrics of its folds.

    If a fold failed there is no mean, as it would be that of the easier folds, and the reason says so.
    """
    if not folds:
        return final
    seconds = final.seconds + sum(fold.seconds for fold in folds)
    done = [fold for fold in folds if fold.status == "done" or (fold.status == "stopped" and fold.epochs)]
    if not final.usable:
        return replace(final, seconds=seconds)
    if not done and any(trial.status == "stopped" for trial in (final, *folds)):
        return replace(final, status="stopped", reason=NOT_VALIDATED, seconds=seconds)
    if not done:
        reason = f"all {len(folds)} folds failed; the first: {folds[0].reason}"
        return TrialResult(final.config, "failed", reason, seconds=seconds)
    failed = [fold for fold in folds if fold.status == "failed"]
    if failed:
        reason = _some_failed(len(failed), len(folds), failed[0].reason)
        return replace(final, valid={}, reason=reason, seconds=seconds)
    names = dict.fromkeys(name for fold in done for name in fold.valid)
    means = {name: _mean([fold.valid.get(name, math.nan) for fold in done]) for name in names}
    return replace(final, valid=means, seconds=seconds)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(in_order(np.array(known))) / len(known) if known else math.nan


def best_config(trials: Sequence[TrialResult], metric: str, greater_is_better: bool) -> int | None:
    """Return the config with the best validation metric, or training metric if no trial has a validation metric.

    Ties (see ``first_best``) go to trials that are done, then to the lowest config number. NaN never beats a number; if
    every metric is NaN (such as R² of a constant label) the first trial with a model wins. None if no trial has a model.
    """
    done = sorted((trial for trial in trials if trial.usable), key=lambda trial: (trial.status != "done", trial.config))
    for metrics in ({trial.config: trial.valid for trial in done}, {trial.config: trial.train for trial in done}):
        values = _known(metrics, metric)
        if values:
            return list(values)[int(first_best(np.array(list(values.values())), greater_is_better))]
    return done[0].config if done else None


def _known(metrics: Mapping[int, Mapping[str, float]], name: str) -> dict[int, float]:
    values = {config: each.get(name, math.nan) for config, each in metrics.items()}
    return {config: value for config, value in values.items() if not math.isnan(value)}
