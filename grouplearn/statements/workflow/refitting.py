"""REFIT: trains the best configuration of each group once more, on the rows that validated it, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import Job
from grouplearn.train.results.outcome import GroupOutcome


def units_of(units: Sequence[Unit], found: Iterable[GroupOutcome]) -> tuple[Unit, ...]:
    """Return the units that train the best configuration of each group, numbered after ``units``."""
    best = {outcome.group.id: (outcome.best,) for outcome in found if outcome.best is not None}
    first = 1 + max((unit.id for unit in units), default=-1)
    return tuple(replace(each, id=number) for number, each in enumerate(cut(units, best), first))


def on_all_rows(job: Job) -> Job:
    """Return the job without held-out rows; encoders of ``scope := 'all'`` are fitted on all rows."""
    dataset: Dataset = job.dataset
    fitted: Mapping[int, FittedItem] = {
        number: _fitted(dataset, job.items[number]) for number, _ in sorted(job.fitted.items())
    }
    return replace(job, rules=replace(job.rules, holds_out=False), fitted=fitted)


def _fitted(dataset: Dataset, item: Item) -> FittedItem:
    rows = dataset.has_label()
    return encoders.fit(item, dataset, rows.nonzero()[0])


def merged(found: Sequence[GroupOutcome], again: Iterable[GroupOutcome]) -> tuple[GroupOutcome, ...]:
    """Return the outcomes with the models trained on all rows.

    A group keeps one model, as its encoders are now fitted on all rows; metrics and numbers of rows stay those of the search.
    """
    models = {outcome.group.id: outcome for outcome in again}
    return tuple(_merged(outcome, models.get(outcome.group.id)) for outcome in found)


def _merged(found: GroupOutcome, again: GroupOutcome | None) -> GroupOutcome:
    if again is None or found.best is None or found.facts is None:
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
