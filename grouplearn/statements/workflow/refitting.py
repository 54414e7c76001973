"""REFIT: trains the best configuration of each group once more, on the rows that validated it, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job
from grouplearn.train.results.outcome import GroupOutcome


def units_of(units: Sequence[Unit], found: Iterable[GroupOutcome], spares: bool) -> tuple[Unit, ...]:
    """Return the units that train the best configuration of each group, numbered after ``units``.

    If the holdout ``spares`` rows, a group without a model trains all its configurations.
    """
    wanted: dict[int, tuple[int, ...]] = {}
    for outcome in found:
        if outcome.best is not None:
            wanted[outcome.group.id] = (outcome.best,)
        elif spares:
            wanted[outcome.group.id] = tuple(trial.config for trial in outcome.trials)
    first = 1 + max((unit.id for unit in units), default=-1)
    return tuple(replace(each, id=number) for number, each in enumerate(cut(units, wanted), first))


def on_all_rows(job: Job) -> Job:
    """Return the job without held-out rows; encoders of ``scope := 'all'`` are fitted on all rows."""
    dataset: Dataset = job.dataset
    fitted = fit_on_all_groups(job.items, dataset, job.trainer.handles_missing, holds_out=False)
    return without_holdout(replace(job, fitted=fitted))


def without_holdout(job: Job) -> Job:
    """Return the job with the same encoders and without held-out rows."""
    return replace(job, rules=replace(job.rules, holds_out=False))


def fit_on_all_groups(
    items: Sequence[Item], dataset: Dataset, handles_missing: bool, holds_out: bool
) -> dict[int, FittedItem]:
    """Return the items with ``scope := 'all'`` fitted on the training rows of all groups, or on all rows if none is held out."""
    fitted: dict[int, FittedItem] = {}
    if all(item.scope != "all" for item in items):
        return fitted
    train = dataset.has_label() & (dataset.weight > 0)
    if holds_out:
        train &= dataset.split == 0
    if not handles_missing:
        train &= encoders.complete(items, dataset, slice(None))
    rows = slice(None) if train.all() else np.flatnonzero(train)
    for number, item in enumerate(items):
        if item.scope == "all":
            fitted[number] = encoders.fit(item, dataset, rows)
    return fitted


def merged(found: Sequence[GroupOutcome], again: Iterable[GroupOutcome]) -> tuple[GroupOutcome, ...]:
    """Return the outcomes with the models trained on all rows.

    A group keeps one model, as its encoders are now fitted on all rows; metrics and numbers of rows stay those of the search.
    """
    models = {outcome.group.id: outcome for outcome in again}
    return tuple(_merged(outcome, models.get(outcome.group.id)) for outcome in found)


def _merged(found: GroupOutcome, again: GroupOutcome | None) -> GroupOutcome:
    if again is None:
        return found
    if found.best is None:
        return again
    if found.facts is None:
        return found
    (final,) = again.trials
    trials = []
    for trial in found.trials:
        if trial.config != found.best:
            trials.append(replace(trial, artifact=None, importance=None))
        elif final.usable:
            seconds = trial.seconds + final.seconds
            trials.append(replace(trial, artifact=final.artifact, importance=final.importance, seconds=seconds))
        else:
            reason = f"it trained, and REFIT on all rows failed: {final.reason}"
            trials.append(replace(final, status="failed", reason=reason))
    if again.facts is None or not final.usable:
        return replace(found, trials=tuple(trials), best=None)
    rows = found.facts
    facts = replace(again.facts, n_train=rows.n_train, n_valid=rows.n_valid, n_skipped=rows.n_skipped)
    return replace(found, trials=tuple(trials), facts=facts)
