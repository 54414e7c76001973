"""REFIT: trains the best configuration of each group once more, on the rows that validated it, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.split import FINAL, Split
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.results.outcome import Outcome, aligned
from grouplearn.train.results.trials import Trials


def units_of(units: Sequence[Unit], found: Outcome, spares: bool) -> tuple[Unit, ...]:
    """Return the units that train the best configuration of each group, numbered after ``units``.

    If the holdout ``spares`` rows, a group without a model trains all its configurations.
    """
    wanted = {group.id: (best,) for group, best in zip(found.groups, found.best.tolist(), strict=True) if best >= 0}
    for group in found.failed_groups() if spares else ():
        wanted[group.id] = tuple(found.trials.only(group.id).config.tolist())
    first = 1 + max((unit.id for unit in units), default=-1)
    return tuple(replace(each, id=number) for number, each in enumerate(cut(units, wanted), first))


def on_all_rows(job: Job) -> Job:
    """Return the job without held-out rows; encoders of ``scope := 'all'`` are fitted on all rows."""
    dataset: Dataset = job.dataset
    without = without_holdout(job)
    return replace(
        without, fitted=fit_on_all_groups(job.items, dataset, job.trainer.declaration.handles_missing, without.split)
    )


def without_holdout(job: Job) -> Job:
    """Return the job with the same encoders and without held-out rows."""
    return replace(job, split=replace(job.split, holds_out=False))


def fit_on_all_groups(
    items: Sequence[Item], dataset: Dataset, handles_missing: bool, split: Split
) -> dict[int, FittedItem]:
    """Return the items with ``scope := 'all'`` fitted on the rows of all groups that train the final fits."""
    fitted: dict[int, FittedItem] = {}
    if all(item.scope != "all" for item in items):
        return fitted
    train = dataset.has_label() & (dataset.weight > 0) & split.trains(dataset.split, FINAL)
    if not handles_missing:
        train &= encoders.complete(items, dataset, slice(None))
    rows = slice(None) if train.all() else np.flatnonzero(train)
    for number, item in enumerate(items):
        if item.scope == "all":
            fitted[number] = encoders.fit(item, dataset, rows)
    return fitted


def merged(found: Outcome, again: Outcome) -> Outcome:
    """Return the outcome with the models trained on all rows.

    A group keeps one model, as its encoders are now fitted on all rows; metrics and numbers of rows stay those of the search.
    """
    trained = np.isin(found.ids, again.ids)
    had = trained & (found.best >= 0)
    trials = found.trials.without_models(had[found.place])
    at, own = aligned(trials, again.trials)
    at, own = at[had[found.place[at]]], own[had[found.place[at]]]
    usable, seconds = again.trials.usable[own], trials.seconds.copy()
    seconds[at] = np.where(usable, seconds[at], 0.0) + again.trials.seconds[own]
    trials = replace(trials, seconds=seconds).with_models_of(again.trials, at[usable], own[usable])
    broken = zip(at[~usable].tolist(), own[~usable].tolist(), strict=True)
    why = "it trained, and REFIT on all rows failed: "
    trials = trials.failed({place: f"{why}{again.trials.texts.get(other)}" for place, other in broken})
    best = found.best.copy()
    best[found.place[at[~usable]]] = -1
    anew = trained & ~had
    if anew.any():
        others, these = ~anew[found.place], np.isin(again.trials.group, found.ids[anew])
        parts = trials.take(np.flatnonzero(others)), again.trials.take(np.flatnonzero(these))
        trials = Trials.joined(parts).ordered()
        best[anew] = again.best[np.searchsorted(again.ids, found.ids[anew])]
    facts = dict(zip((group.id for group in again.groups), again.facts, strict=True))
    lost = set(found.ids[found.place[at[~usable]]].tolist())
    return replace(
        found,
        trials=trials,
        best=best,
        facts=tuple(
            _with_rows(facts[group.id], known if had_model else None)
            if group.id in facts and group.id not in lost
            else known
            for group, known, had_model in zip(found.groups, found.facts, had.tolist(), strict=True)
        ),
    )


def _with_rows(facts: GroupFacts | None, counted: GroupFacts | None) -> GroupFacts | None:
    """Return what is known of a group with the numbers of rows of its search."""
    if facts is None or counted is None:
        return facts
    return replace(facts, n_train=counted.n_train, n_valid=counted.n_valid, n_skipped=counted.n_skipped)
