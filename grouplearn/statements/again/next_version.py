"""The next version of a model: what REFRESH trained, stored where it is to be stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import numpy as np

from grouplearn.catalog.records import RunOutcome, StoredModel
from grouplearn.statements.again.before import metrics_before
from grouplearn.statements.again.categories import unknown_categories
from grouplearn.statements.again.refreshed import refreshed_groups
from grouplearn.statements.again.stored import renumbered
from grouplearn.store import refreshing, versions
from grouplearn.store.refreshing import Refreshed, RefreshRun
from grouplearn.train.job import Job


def store_next_version(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    run: RefreshRun,
    job: Job,
    outcome: RunOutcome,
    identity: str | None,
) -> StoredModel:
    """Store the next version of a model, with a new ``identity`` unless given; return it, or the model if no group was updated
    or is new.

    Groups that failed and have no model are then among those of the model. The caller holds the transaction.
    """
    groups = refreshing.known_groups(con, model)
    ids = {number: group.number for number, group in run.known.items()}
    before = _before(con, model, run, job, ids)
    first = 1 + max((group.number for group in groups), default=-1)
    ids |= {number: first + place for place, number in enumerate(run.new)}
    refreshed = refreshed_groups(outcome.found, model.definition, run, before, ids)
    refreshed = _with_reasons(refreshed, run, job, ids)
    every = [*refreshed, *run.untrained]
    outcome = replace(_stored_groups(outcome, refreshed, ids), watermark=run.watermark)
    outcome = renumbered(outcome, ids)
    if not any(each.status in ("new", "updated") for each in refreshed):
        refreshing.write_groups(con, model, replace(outcome, units=()), every)
        versions.count(con, model)
        return model
    outcome = _with_thresholds(outcome, model, refreshing.thresholds(con, model))
    forked = versions.fork(con, model, identity)
    stored = refreshing.write_refresh(con, forked, outcome, every)
    had_models = sum(group.best is not None for group in groups)
    updated = sum(each.status == "updated" for each in refreshed)
    added = _rows_added(refreshed, {ids[group.id]: group.level for group in job.groups if group.id in ids})
    versions.record(con, stored, versions.Event("REFRESH", outcome.seconds, added, updated, had_models - updated))
    return stored


def _rows_added(refreshed: Sequence[Refreshed], levels: Mapping[int, int]) -> int:
    """Return how many rows were learned: each is in a group of every level of ROLLUP."""
    added: Counter[int] = Counter()
    for each in refreshed:
        if each.status in ("new", "updated"):
            added[levels[each.number]] += each.rows_added
    return max(added.values(), default=0)


def _before(
    con: duckdb.DuckDBPyConnection, model: StoredModel, run: RefreshRun, job: Job, ids: Mapping[int, int]
) -> Mapping[int, float]:
    """Return the metric of each group's model of before by the number of the group in the run.

    It is measured on the rows that judge the new model, unless the model of before has learned from them: then it is the one
    that was measured when that model was chosen. A series that has grown by what judges it is forecast from its old end.
    """
    if run.has_new_rows or not model.definition.refit:
        return _known(metrics_before(con, model, job, ids))
    stored = refreshing.valid_metrics(con, model)
    measured = {number: stored[own] for number, own in ids.items() if own in stored}
    is_one_window = job.trainer.declaration.takes_series and job.split.folds <= 1
    return _known(measured | (metrics_before(con, model, job, ids, only_ahead=True) if is_one_window else {}))


def _known(metrics: Mapping[int, float]) -> dict[int, float]:
    return {number: value for number, value in metrics.items() if not math.isnan(value)}


def _with_reasons(refreshed: Sequence[Refreshed], run: RefreshRun, job: Job, ids: Mapping[int, int]) -> list[Refreshed]:
    """Return what became of groups; the reasons say which categories their encoders do not know, and which rows were not read."""
    numbers, every = {own: number for number, own in ids.items()}, []
    for group in refreshed:
        number = numbers[group.number]
        found = unknown_categories(job, number) if group.status in ("updated", "kept") else None
        reasons = [each for each in (group.reason, found, run.unread.get(number)) if each]
        every.append(replace(group, reason="; ".join(reasons) or None))
    return every


def _with_thresholds(outcome: RunOutcome, model: StoredModel, known: Mapping[int, float]) -> RunOutcome:
    """Return the outcome with the thresholds ``known`` by group, where no held-out row has chosen another."""
    name, trials, best = model.definition.threshold_metric, outcome.found.trials, outcome.found.is_best
    if name is None:
        return outcome
    valid, place = trials.valid.copy(), trials.names.index(name)
    before = np.array([known.get(number, np.nan) for number in trials.group.tolist()])
    lacking = best & np.isnan(valid[:, place])
    valid[lacking, place] = before[lacking]
    return replace(outcome, found=replace(outcome.found, trials=replace(trials, valid=valid)))


def _stored_groups(outcome: RunOutcome, refreshed: Sequence[Refreshed], ids: Mapping[int, int]) -> RunOutcome:
    """Return the outcome of the groups that are stored."""
    stored = {each.number for each in refreshed if each.is_stored}
    chosen = np.array([ids[number] in stored for number in outcome.found.ids.tolist()], np.bool_)
    return replace(outcome, found=outcome.found.only(chosen))
