"""ON GROUP FAILURE KEEP: groups that fail keep the model that they had."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.identities import Identity
from grouplearn.catalog.models import load_by_id
from grouplearn.catalog.records import ModelDefinition, Outcome, RunOutcome, StoredModel
from grouplearn.catalog.rows.profile_rows import renumbered
from grouplearn.catalog.schema import table
from grouplearn.data.dataset import Group
from grouplearn.errors import DataError, NotTrusted
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Config
from grouplearn.models.forms.form import GroupModel
from grouplearn.plan.retrying import differing
from grouplearn.prediction.group_models import load_groups
from grouplearn.search.space import MAX_CONFIGS
from grouplearn.train.job import GroupFacts
from grouplearn.train.results.trials import CurvePoint, TrialResult, Trials

#: The set of a group's keys, and their values.
_Key = tuple[tuple[int, ...], tuple[str | None, ...]]


@dataclass(frozen=True, slots=True)
class KeptModels:
    """A run with the models that failed groups keep; ``notes`` says so by group, or why a model is not kept."""

    definition: ModelDefinition
    outcome: RunOutcome
    notes: Mapping[int, str]


def keep_models(
    con: duckdb.DuckDBPyConnection,
    before: Identity | None,
    definition: ModelDefinition,
    outcome: RunOutcome,
    failed: Iterable[Group],
) -> KeptModels:
    """Return a run in which the ``failed`` groups have the models that they have in the model ``before``, where these fit.

    A kept model is the group's best trial, of status ``kept``. If its hyperparameters are none of the run's configurations,
    they become one more. The caller holds the transaction.
    """
    unchanged = KeptModels(definition, outcome, {})
    by_key = {_key(definition, group): group for group in failed}
    if before is None or not by_key:
        return unchanged
    groups = _predicting(con, before, by_key)
    if not groups:
        return unchanged
    trained = _trained_at(con, before)
    try:
        stored = load_by_id(con, before.location.catalog, before.id)
        reason = "it is gone" if stored is None else _misfit(stored.definition, definition)
        models = () if stored is None or reason else tuple(_models(con, stored, groups, trained))
    except (DataError, NotTrusted) as error:
        reason, models = str(error).splitlines()[0].rstrip("."), ()
    if reason:
        return replace(unchanged, notes={number: _not_kept(trained, reason) for number in groups.values()})
    kept = _Keeping(stored.definition, definition, outcome).with_models(models)  # type: ignore[union-attr]
    return replace(kept, outcome=_with_rows_of(con, before, kept.outcome, groups))


def _with_rows_of(
    con: duckdb.DuckDBPyConnection, before: Identity, outcome: RunOutcome, groups: Mapping[int, int]
) -> RunOutcome:
    """Return a run in which groups that kept their models have the profiles, and the held-out predictions, that go with
    these."""
    kept = {old: new for old, new in groups.items() if new in outcome.found.kept}
    if not kept:
        return outcome
    own = f"model = '{before.id}'::UUID AND group_id IN ({', '.join(map(str, kept))})"
    others = {group.id: group.id for group in outcome.found.groups if group.id not in outcome.found.kept}

    def whole(name: str, rows: Any) -> Any:
        if rows is None:
            return None
        query = f"SELECT * EXCLUDE (model) FROM {table(before.location.catalog, name)} WHERE {own} ORDER BY rowid ASC"
        trained = renumbered(con.sql(query).to_arrow_table(), kept)
        return pa.concat_tables([renumbered(rows, others), trained.cast(rows.schema)])

    return replace(outcome, profiles=whole("profiles", outcome.profiles), held_out=whole("held_out", outcome.held_out))


@dataclass(frozen=True, slots=True)
class _Model:
    """The model of a group before this training: its trial, and the counts of the rows that it was trained on.

    ``number`` is the group's number in this training.
    """

    number: int
    group: GroupModel
    config: Config
    trial: TrialResult
    counts: tuple[int | None, ...]
    trained_at: dt.datetime


class _Keeping:
    """Puts models into the outcome of a run."""

    def __init__(self, before: ModelDefinition, definition: ModelDefinition, outcome: RunOutcome) -> None:
        self._before, self._definition, self._outcome = before, definition, outcome
        self._configs = list(definition.configs)
        self._notes: dict[int, str] = {}

    def with_models(self, models: Iterable[_Model]) -> KeptModels:
        """Return the run in which groups have these models, as far as they fit."""
        found, names = self._outcome.found, self._before.metrics
        groups, facts, best = list(found.groups), list(found.facts), found.best.copy()
        place_of = {group.id: place for place, group in enumerate(groups)}
        added, kept = [], {}
        for model in models:
            classes, config = self._classes(model.group), self._config(model.config)
            if classes is None or config is None:
                what = (
                    "a class that it knows is gone" if classes is None else "its hyperparameters predict in another way"
                )
                self._notes[model.number] = _not_kept(model.trained_at, what)
                continue
            self._notes[model.number] = f"kept its model of {_shown(model.trained_at)}"
            reason = next(iter(found.trials.only(model.number).texts.values()), "the training failed")
            added.append(Trials.of(model.number, [replace(model.trial, config=config, reason=reason)], names))
            place, (n_rows, *counts) = place_of[model.number], (count or 0 for count in model.counts)
            groups[place] = replace(groups[place], ranges=((0, n_rows),))  # the rows on which the model was trained
            trained = GroupFacts(model.group.fitted, classes, *counts)
            facts[place] = replace(trained, calibration=model.group.calibration)
            best[place], kept[model.number] = config, model.trained_at
        ours = Trials.joined(added)
        rest = found.trials.take(np.flatnonzero(~np.isin(found.trials.key, ours.key)))
        trials = Trials.joined([rest, ours]).ordered()
        outcome = replace(self._outcome, found=Outcome(tuple(groups), tuple(facts), trials, best, kept))
        return KeptModels(replace(self._definition, configs=tuple(self._configs)), outcome, self._notes)

    def _classes(self, group: GroupModel) -> tuple[int, ...] | None:
        """Return the group's classes by their numbers now; None if one of them is gone."""
        before, now = self._before.classes, self._definition.classes
        if before == now:
            return group.classes
        number = {name: place for place, name in enumerate(now)}
        names = [before[place] for place in group.classes]
        several = self._definition.label.scores_classes and all(name in number for name in names)
        return tuple(number[name] for name in names) if several else None

    def _config(self, config: Config) -> int | None:
        """Return the number of these hyperparameters, which may be new; None if they change how all groups are predicted."""
        if config in self._configs:
            return self._configs.index(config)
        learner, now, task = self._definition.learner, self._definition.configs, self._definition.label
        other_link = not registry.links(learner, [config], task) <= registry.links(learner, now, task)
        other_leaves = registry.has_linear_leaves(learner, [config]) > registry.has_linear_leaves(learner, now)
        if other_link or other_leaves or len(self._configs) == MAX_CONFIGS:
            return None
        self._configs.append(config)
        return len(self._configs) - 1


def _key(definition: ModelDefinition, group: Group) -> _Key:
    return tuple(definition.sets[group.level]), group.keys


def _predicting(con: duckdb.DuckDBPyConnection, before: Identity, failed: Mapping[_Key, Group]) -> dict[int, int]:
    """Return the numbers of groups that had a model before, and their numbers in this training."""
    catalog, own = before.location.catalog, f"model = '{before.id}'::UUID"
    rows = con.execute(
        f"SELECT g.group_id, m.sets[g.level + 1], g.keys FROM {table(catalog, 'groups')} AS g,"
        f" (SELECT sets FROM {table(catalog, 'models')} WHERE {own}) AS m WHERE g.{own} AND g.best IS NOT NULL"
        " ORDER BY g.group_id ASC"
    ).fetchall()
    keyed = ((number, failed.get((tuple(members or ()), tuple(keys)))) for number, members, keys in rows)
    return {number: group.id for number, group in keyed if group is not None}


def _trained_at(con: duckdb.DuckDBPyConnection, before: Identity) -> dt.datetime:
    query = f"SELECT trained_at FROM {table(before.location.catalog, 'models')} WHERE model = '{before.id}'::UUID"
    ((trained,),) = con.execute(query).fetchall()
    return trained  # type: ignore[no-any-return]


def _misfit(before: ModelDefinition, now: ModelDefinition) -> str | None:
    """Return why no group can keep its model; None if nothing speaks against it."""
    if before.learner != now.learner:
        return f"it is of the learner {before.shown_learner}"
    if before.search_path != now.search_path:
        return "names are looked up in other places"
    what = "label" if before.label != now.label else differing(before, now)
    return f"the {what} changed" if what else None


def _models(
    con: duckdb.DuckDBPyConnection, stored: StoredModel, groups: Mapping[int, int], trained: dt.datetime
) -> Iterable[_Model]:
    """Yield the models of groups, given by their numbers before and now."""
    refuse_invalid_rows(con, stored, ("trials", "curves"))
    catalog, definition = stored.location.catalog, stored.definition
    some = f"g.model = '{stored.id}'::UUID AND g.group_id IN ({', '.join(map(str, groups))})"
    best = f"FROM {table(catalog, 'groups')} AS g JOIN {table(catalog, '{}')} AS t"
    best += f" ON t.model = g.model AND t.group_id = g.group_id AND t.config = g.best WHERE {some}"
    query = (
        "SELECT g.group_id, [n_rows, n_train, n_valid, n_skipped], g.best, epochs, seconds, train, valid,"
        f" importance, converged, trained_at {best.format('trials')}"
    )
    rows = {number: values for number, *values in con.execute(query).fetchall()}
    curves: defaultdict[int, list[CurvePoint]] = defaultdict(list)
    query = (
        f"SELECT g.group_id, epoch, train_loss, valid_metric {best.format('curves')} ORDER BY g.group_id ASC, epoch ASC"
    )
    for number, epoch, *values in con.execute(query).fetchall():
        curves[number].append(CurvePoint(epoch, *(np.nan if value is None else value for value in values)))
    for group in load_groups(con, stored, only=groups):
        counts, config, epochs, seconds, train, valid, importance, converged, kept = rows[group.id]
        trial = TrialResult(
            config,
            "kept",
            epochs=epochs,
            seconds=seconds,
            train=_measured(definition, train),
            valid=_measured(definition, valid),
            curve=tuple(curves[group.id]),
            artifact=group.artifact,
            importance=None if importance is None else tuple(importance),
            converged=converged,
        )
        parameters = definition.configs[config]
        yield _Model(groups[group.id], group, parameters, trial, tuple(counts), kept or trained)


def _measured(definition: ModelDefinition, values: Sequence[float | None]) -> dict[str, float]:
    return {name: value for name, value in zip(definition.metrics, values, strict=False) if value is not None}


def _not_kept(trained: dt.datetime, reason: str) -> str:
    return f"its model of {_shown(trained)} is not kept: {reason}"


def _shown(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
