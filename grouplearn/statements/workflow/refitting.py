"""REFIT: trains the best configuration of each group once more, on the rows that validated it, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from grouplearn.data import encoders
from grouplearn.data.dataset import Dataset, Item
from grouplearn.data.encoders import FittedItem
from grouplearn.data.split import FINAL, Split
from grouplearn.plan.retrying import cut
from grouplearn.schedule.messages import Unit
from grouplearn.train.job import GroupFacts, Job
from grouplearn.train.results.outcome import GroupOutcome, PackedOutcome

#: The outcomes of groups that trained alone, and of those that trained side by side.
Merged = tuple[tuple[GroupOutcome, ...], tuple[PackedOutcome, ...]]


def units_of(units: Sequence[Unit], found: Merged, spares: bool) -> tuple[Unit, ...]:
    """Return the units that train the best configuration of each group, numbered after ``units``.

    If the holdout ``spares`` rows, a group without a model trains all its configurations.
    """
    wanted: dict[int, tuple[int, ...]] = {}
    for group, configs, best in _chosen(found):
        if best is not None:
            wanted[group] = (best,)
        elif spares:
            wanted[group] = configs
    first = 1 + max((unit.id for unit in units), default=-1)
    return tuple(replace(each, id=number) for number, each in enumerate(cut(units, wanted), first))


def _chosen(found: Merged) -> Iterator[tuple[int, tuple[int, ...], int | None]]:
    """Yield the number of each group, its configurations, and the best one, None without a model."""
    alone, packs = found
    for outcome in alone:
        yield outcome.group.id, tuple(trial.config for trial in outcome.trials), outcome.best
    for each in packs:
        configs = each.pack.configs
        for group, best in zip(each.groups, each.best.tolist(), strict=True):
            yield group.id, configs, configs[best] if best >= 0 else None


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
    train = dataset.has_label() & (dataset.weight > 0) & ~split.judges(dataset.split, FINAL)
    if not handles_missing:
        train &= encoders.complete(items, dataset, slice(None))
    rows = slice(None) if train.all() else np.flatnonzero(train)
    for number, item in enumerate(items):
        if item.scope == "all":
            fitted[number] = encoders.fit(item, dataset, rows)
    return fitted


def merged(found: Merged, again: Merged, metric: str) -> Merged:
    """Return the outcomes with the models trained on all rows; ``metric`` is that of the curves.

    A group keeps one model, as its encoders are now fitted on all rows; metrics and numbers of rows stay those of the search.
    """
    own = {group.id: (each, place) for each in again[1] for place, group in enumerate(each.groups)}
    packs, rest = [], list(found[0])
    for outcome in found[1]:
        quick = np.array([_is_quick(own.get(group.id)) for group in outcome.groups]) & (outcome.best >= 0)
        if quick.any():
            packs.append(_merged_pack(outcome.only(np.flatnonzero(quick)), own))
        rest += outcome.only(np.flatnonzero(~quick)).outcomes(metric)
    models = {outcome.group.id: outcome for outcome in again[0]}
    for group in (outcome.group.id for outcome in rest if outcome.group.id in own):
        each, place = own[group]
        models[group] = next(each.only(np.array([place])).outcomes(metric))
    return tuple(_merged(outcome, models.get(outcome.group.id)) for outcome in rest), tuple(packs)


def _is_quick(trained: tuple[PackedOutcome, int] | None) -> bool:
    """Return whether a group was trained once more beside others, in one configuration, and has a model."""
    return trained is not None and len(trained[0].pack.configs) == 1 and bool(trained[0].best[trained[1]] >= 0)


def _merged_pack(found: PackedOutcome, own: Mapping[int, tuple[PackedOutcome, int]]) -> PackedOutcome:
    """Return groups trained side by side with the models of all rows; each is in one of ``own``, at a place."""
    pack, place_of = found.pack, {group.id: place for place, group in enumerate(found.groups)}
    facts, models, seconds = [], [], 0.0
    for group, before in zip(found.groups, pack.facts, strict=True):
        each, place = own[group.id]
        facts.append(_with_rows(each.pack.facts[place], before))
        seconds += each.pack.seconds
    for each in {id(each): each for each, _ in (own[group.id] for group in found.groups)}.values():
        places = np.array([place_of.get(group.id, -1) for group in each.groups])
        column = pack.configs.index(each.pack.configs[0])
        for some in each.pack.models:
            kept = some.take(places[some.members] >= 0, 1)
            if len(kept.members):
                kept = replace(kept, members=places[kept.members])
                models.append(kept.beside_none(np.full(len(kept.members), column), len(pack.configs)))
    seconds = pack.seconds + seconds / (len(found.groups) * len(pack.configs))
    return replace(found, pack=replace(pack, facts=tuple(facts), models=tuple(models), seconds=seconds))


def _with_rows(facts: GroupFacts | None, counted: GroupFacts | None) -> GroupFacts | None:
    """Return what is known of a group with the numbers of rows of its search."""
    if facts is None or counted is None:
        return facts
    return replace(facts, n_train=counted.n_train, n_valid=counted.n_valid, n_skipped=counted.n_skipped)


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
    return replace(found, trials=tuple(trials), facts=_with_rows(again.facts, found.facts))
