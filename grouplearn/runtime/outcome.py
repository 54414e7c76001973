"""From unit results to one outcome per group: folds merged, the best trial chosen."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grouplearn.data.dataset import Group
from grouplearn.runtime.job import GroupFacts, Job, TrialResult, UnitResult


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """A group's trials, one per config, folds merged; ``best`` is the number of the best config, None when all failed."""

    group: Group
    trials: tuple[TrialResult, ...]
    facts: GroupFacts | None
    best: int | None


def merge(job: Job, results: Iterable[UnitResult], greater_is_better: bool) -> tuple[GroupOutcome, ...]:
    """Return the outcome of every group of ``job``, in its order, trials in order of their config number.

    Under VALIDATE FOLDS a trial is the final fit on all rows, its validation metrics the means over folds (NaN and failed
    folds left out); it failed if the final fit failed or every fold did.
    """
    by_group: dict[int, list[UnitResult]] = defaultdict(list)
    for result in results:
        by_group[result.unit.group].append(result)
    return tuple(_outcome(job, group, by_group[group.id], greater_is_better) for group in job.groups)


def _outcome(job: Job, group: Group, results: Sequence[UnitResult], greater_is_better: bool) -> GroupOutcome:
    final: dict[int, TrialResult] = {}
    folds: dict[int, list[TrialResult]] = defaultdict(list)
    facts = None
    for result in sorted(results, key=lambda each: (each.unit.fold, each.unit.id)):
        for trial in result.trials:
            if result.unit.fold < 0:
                final[trial.config] = trial
            else:
                folds[trial.config].append(trial)
        if result.unit.fold < 0 and facts is None:
            facts = result.facts
    trials = tuple(_with_folds(final[config], folds[config]) for config in sorted(final))
    return GroupOutcome(group, trials, facts, best_config(trials, job.metric, greater_is_better))


def _with_folds(final: TrialResult, folds: Sequence[TrialResult]) -> TrialResult:
    if not folds:
        return final
    seconds = final.seconds + sum(fold.seconds for fold in folds)
    done = [fold for fold in folds if fold.status == "done"]
    if final.status == "failed":
        return replace(final, seconds=seconds)
    if not done:
        reason = f"all {len(folds)} folds failed; the first: {folds[0].reason}"
        return TrialResult(final.config, "failed", reason, seconds=seconds)
    names = dict.fromkeys(name for fold in done for name in fold.valid)
    means = {name: _mean([fold.valid.get(name, math.nan) for fold in done]) for name in names}
    return replace(final, valid=means, seconds=seconds)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def best_config(trials: Sequence[TrialResult], metric: str, greater_is_better: bool) -> int | None:
    """Return the config with the best validation metric, or training metric where no trial has a validation metric.

    Ties go to the lowest config number. NaN never beats a number; where every metric is NaN (R² of a constant label,
    say) the first trial that is done is taken. None when no trial is done.
    """
    done = sorted((trial for trial in trials if trial.status == "done"), key=lambda trial: trial.config)
    sign = -1.0 if greater_is_better else 1.0
    for metrics in ({trial.config: trial.valid for trial in done}, {trial.config: trial.train for trial in done}):
        values = _known(metrics, metric)
        if values:
            return min(values, key=lambda config: (sign * values[config], config))
    return done[0].config if done else None


def _known(metrics: Mapping[int, Mapping[str, float]], name: str) -> dict[int, float]:
    values = {config: each.get(name, math.nan) for config, each in metrics.items()}
    return {config: value for config, value in values.items() if not math.isnan(value)}
