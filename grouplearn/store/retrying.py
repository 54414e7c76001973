"""RETRY FAILED MODEL in the catalog: the failed trials of a model, and the rows of those that were trained again."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.records import Outcome, RunOutcome, StoredModel
from grouplearn.catalog.rows import run_rows
from grouplearn.catalog.rows import unit_rows as unit_rows
from grouplearn.catalog.rows.artifact_rows import artifacts, kept
from grouplearn.catalog.rows.profile_rows import renumbered
from grouplearn.catalog.rows.state_rows import states
from grouplearn.catalog.schema import ensure_schema, table
from grouplearn.data.encoders import FittedItem
from grouplearn.models.forms.form import SqlForm
from grouplearn.models.state import Artifact
from grouplearn.prediction import prediction
from grouplearn.store import writer as store
from grouplearn.store.rewriting import delete_rows, replace_watermarks, rewrite_predictions
from grouplearn.train.job import GroupFacts
from grouplearn.train.results.outcome import best_configs
from grouplearn.train.results.trials import BoolArray, TrialResult, Trials

_ENCODERS = ("features", "starts", "fills", "centers", "scales", "categories", "category_values")
_CHANGED = (
    "the group's rows have changed since its other trials were trained, and encoded features would no longer mean the same "
    "to them; hint: TRAIN OR REPLACE MODEL"
)


@dataclass(frozen=True, slots=True)
class FailedGroup:
    """A group with failed trials: its number and key, the configs of these, and the trials that did not fail.

    A trial that was kept is among the failed ones.

    ``encoders`` are the columns of ``groups`` that say how its features are encoded, None where no encoder was fitted.
    """

    number: int
    level: int
    keys: tuple[str | None, ...]
    configs: frozenset[int]
    others: tuple[TrialResult, ...]
    encoders: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class Record:
    """How a model was trained: the operator, the workers, and the number of its statement's configurations.

    Further configurations are those of models that were kept.
    """

    operator: str
    workers: int
    configs: int


def record(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Record:
    """Return how a model was trained."""
    query = f"SELECT operator, workers FROM {_table(model, 'models')} WHERE model = '{model.id}'::UUID"
    ((operator, workers),) = con.execute(query).fetchall()
    own = f"model = '{model.id}'::UUID AND status <> 'kept'"
    ((configs,),) = con.execute(f"SELECT max(config) + 1 FROM {_table(model, 'trials')} WHERE {own}").fetchall()
    return Record(operator, workers, configs or len(model.definition.configs))


def failed_groups(con: duckdb.DuckDBPyConnection, model: StoredModel) -> tuple[FailedGroup, ...]:
    """Return the groups of a model with trials to train again, by group number.

    These are failed ones, and all of a group whose time was up before it had a model.
    """
    refuse_invalid_rows(con, model, ("models", "groups", "trials"))
    groups, trials, artifacts = (_table(model, name) for name in ("groups", "trials", "artifacts"))
    own = f"model = '{model.id}'::UUID"
    modelless = f"SELECT group_id FROM {groups} WHERE {own} AND best IS NULL"
    kept = f"SELECT group_id FROM {trials} WHERE {own} AND status = 'kept'"
    without = f"group_id IN ({modelless} UNION ALL {kept})"
    again = f"(status IN ('failed', 'kept') OR (status = 'stopped' AND {without}))"
    some = f"(SELECT group_id FROM {trials} WHERE {own} AND {again})"
    by_group: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    query = (
        f"SELECT t.group_id, t.again, t.config, t.status, t.epochs, t.train, t.valid, a.config IS NOT NULL"
        f" FROM (SELECT *, {again} AS again FROM {trials} WHERE {own}) AS t"
        f" LEFT JOIN (FROM {artifacts} WHERE {own}) AS a ON a.group_id = t.group_id AND a.config = t.config"
        f" WHERE t.{own} AND t.group_id IN {some} ORDER BY t.config ASC"
    )
    for group, *trial in con.execute(query).fetchall():
        by_group[group].append(tuple(trial))
    query = (
        f"SELECT group_id, level, keys, {', '.join(_ENCODERS)} FROM {groups}"
        f" WHERE {own} AND group_id IN {some} ORDER BY group_id ASC"
    )
    return tuple(
        FailedGroup(
            number=number,
            level=level,
            keys=tuple(keys),
            configs=frozenset(trial[0] for again, *trial in by_group[number] if again),
            others=tuple(_trial(model, *trial) for again, *trial in by_group[number] if not again),
            encoders=None if encoders[0] is None else tuple(encoders),
        )
        for number, level, keys, *encoders in con.execute(query).fetchall()
    )


def _trial(
    model: StoredModel, config: int, status: Any, epochs: int, train: list[Any], valid: list[Any], kept: bool
) -> TrialResult:
    """Return what is needed to choose the best trial; the artifact only says that there is one."""
    names = model.definition.metrics
    measured_train, measured_valid = (
        {name: value for name, value in zip(names, values or (), strict=False) if value is not None}
        for values in (train, valid)
    )
    artifact = Artifact("tensors") if kept else None
    return TrialResult(config, status, epochs=epochs, train=measured_train, valid=measured_valid, artifact=artifact)


def fitted_on_all(con: duckdb.DuckDBPyConnection, model: StoredModel) -> dict[int, FittedItem]:
    """Return the fitted items with ``scope := 'all'`` by place; empty if no group was encoded."""
    wanted = {place: entry.item for place, entry in enumerate(model.definition.items) if entry.item.scope == "all"}
    own = f"model = '{model.id}'::UUID"
    kept = f"SELECT group_id FROM {_table(model, 'trials')} WHERE {own} AND status = 'kept'"
    query = (
        f"SELECT fills, centers, scales, categories FROM {_table(model, 'groups')}"
        f" WHERE {own} AND features IS NOT NULL AND group_id NOT IN ({kept}) LIMIT 1"
    )
    found = con.execute(query).fetchall()
    if not found:
        return {}
    fills, centers, scales, categories = found[0]
    return {
        place: FittedItem(item, fills[place], centers[place], scales[place], tuple(categories[place]))
        for place, item in wanted.items()
    }


def replace_failed(
    con: duckdb.DuckDBPyConnection,
    model: StoredModel,
    failed: Sequence[FailedGroup],
    outcome: RunOutcome,
    *,
    shown: bool,
) -> str:
    """Replace failed trials by their new results, and return the model's new identity.

    ``outcome`` has the catalog's numbers of groups. The rows of all other trials stay as they are. The caller holds the
    transaction; with ``shown`` it is the user's own, in which ``predict`` must know the model.
    """
    ensure_schema(con, model.location.catalog)
    by_number = {group.number: group for group in failed}
    retried = _Retried.of(model, by_number, outcome.found)
    _delete(con, model, retried)
    store.insert(con, model.location.catalog, model.id, _rows(con, model, retried, outcome))
    _update_best(con, model, retried)
    if outcome.watermark is not None:
        replace_watermarks(con, model, outcome.watermark, retried.whole.only(~retried.has_others).learned)
    form = rewrite_predictions(con, model)
    identity = _renew(con, model, outcome.seconds, form)
    if shown:
        prediction.remember_stored(con, changed(model, id=identity))
    return identity


@dataclass(frozen=True, slots=True)
class _Retried:
    """The whole groups after the retry: which trials (T,) are ``again`` trained, and which groups (G,) have others."""

    whole: Outcome
    again: BoolArray
    has_others: BoolArray

    @classmethod
    def of(cls, model: StoredModel, before: Mapping[int, FailedGroup], found: Outcome) -> _Retried:
        definition, trials = model.definition, found.trials
        own = [before[group.id] for group in found.groups]
        changed_ = [
            bool(each.others) and each.encoders is not None and facts is not None and _other(each, facts)
            for each, facts in zip(own, found.facts, strict=True)
        ]
        refused = np.flatnonzero(np.array(changed_, np.bool_)[found.place]).tolist()
        trials = trials.failed(dict.fromkeys(refused, _CHANGED))
        others = [Trials.of(each.number, each.others, definition.metrics) for each in own if each.others]
        whole = changed(found, trials=Trials.joined([trials, *others]).ordered())
        has_others = np.array([bool(each.others) for each in own], np.bool_)
        best = best_configs(whole, whole.trials.usable, definition.choosing)
        whole = changed(whole, best=np.where(has_others, best, found.best))
        return cls(whole, np.isin(whole.trials.key, trials.key), has_others)

    def pairs(self, which: BoolArray) -> list[tuple[int, int | None]]:
        """Return group and config of some trials (T,)."""
        trials = self.whole.trials
        return list(zip(trials.group[which].tolist(), trials.config[which].tolist(), strict=True))


def _other(before: FailedGroup, facts: GroupFacts) -> bool:
    return bool(_plain(run_rows.encoder_columns(facts.fitted)) != _plain(before.encoders))


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _delete(con: duckdb.DuckDBPyConnection, model: StoredModel, retried: _Retried) -> None:
    """Delete rows that will be written again, and models that are no longer among KEEP BEST."""
    again = retried.pairs(retried.again & retried.has_others[retried.whole.place])
    lost = retried.pairs(~retried.again & ~kept(model.definition, retried.whole))
    every: list[tuple[int, int | None]] = [(group.id, None) for group in retried.whole.groups]
    whole = [pair for pair, has_others in zip(every, retried.has_others.tolist(), strict=True) if not has_others]
    for name in ("states", "held_out"):
        delete_rows(con, model, name, _renewed(retried))
    for name, pairs in (("trials", again), ("curves", again), ("artifacts", again + lost)):
        delete_rows(con, model, name, pairs, "source.config = t.config")
        delete_rows(con, model, name, whole)
    delete_rows(con, model, "groups", whole)
    delete_rows(con, model, "errors", every)
    delete_rows(con, model, "profiles", every)


def _renewed(retried: _Retried) -> list[tuple[int, int | None]]:
    """Return the groups whose best trial was trained again, or that are whole again."""
    whole = retried.whole
    trained = np.isin(whole.ids, whole.trials.group[whole.is_best & retried.again])
    return [(int(group), None) for group in whole.ids[trained | ~retried.has_others]]


def _rows(
    con: duckdb.DuckDBPyConnection, model: StoredModel, retried: _Retried, outcome: RunOutcome
) -> Iterable[tuple[str, Any]]:
    definition, whole = model.definition, retried.whole
    again = changed(whole, trials=whole.trials.take(np.flatnonzero(retried.again)))
    query = f"SELECT coalesce(max(unit) + 1, 0) FROM {_table(model, 'units')} WHERE model = '{model.id}'::UUID"
    ((first,),) = con.execute(query).fetchall()
    later = tuple(changed(each, unit=changed(each.unit, id=first + place)) for place, each in enumerate(outcome.units))
    yield "groups", run_rows.groups(whole.only(~retried.has_others))
    yield "trials", run_rows.trials(definition, again)
    yield "curves", run_rows.curves(again)
    for part in artifacts(definition, whole, kept(definition, whole) & retried.again):
        yield "artifacts", part
    for part in states(whole, retried.again):
        yield "states", part
    yield "units", unit_rows.units(changed(outcome, units=later))
    yield "errors", run_rows.errors(whole)
    if outcome.profiles is not None:
        yield "profiles", outcome.profiles
    if outcome.held_out is not None:
        yield "held_out", renumbered(outcome.held_out, {group: group for group, _ in _renewed(retried)})


def _update_best(con: duckdb.DuckDBPyConnection, model: StoredModel, retried: _Retried) -> None:
    """Mark the best trial in groups that had other trials before, with the calibration of a new one."""
    whole, renewed = retried.whole.only(retried.has_others), [group for group, _ in _renewed(retried)]
    best = pa.array(whole.best, mask=whole.best < 0)
    rows = {"group_id": pa.array(whole.ids), "best": best, "is_new": pa.array(np.isin(whole.ids, renewed))}
    rows["calibration"] = run_rows.groups(whole).column("calibration")
    with store.registered(con, pa.table(rows)) as source:
        own = f"t.model = '{model.id}'::UUID AND source.group_id = t.group_id"
        kept = "CASE WHEN source.is_new THEN source.calibration ELSE t.calibration END"
        con.execute(
            f"UPDATE {_table(model, 'groups')} AS t SET best = source.best, calibration = {kept}"
            f" FROM {source} AS source WHERE {own}"
        )
        con.execute(
            f"UPDATE {_table(model, 'trials')} AS t SET is_best = (t.config IS NOT DISTINCT FROM source.best)"
            f" FROM {source} AS source WHERE {own}"
        )


def _renew(con: duckdb.DuckDBPyConnection, model: StoredModel, seconds: float, form: SqlForm) -> str:
    """Give the model a new identity, so that data loaded for the old one is not used for predictions."""
    identity, own = str(uuid.uuid4()), f"model = '{model.id}'::UUID"
    con.execute(
        f"UPDATE {_table(model, 'models')} SET seconds = seconds + {float(seconds)!r},"
        f" trained_at = (now() AT TIME ZONE 'UTC')::TIMESTAMP WHERE {own}"
    )
    store.renew(con, model, identity, form)
    return identity


def _table(model: StoredModel, name: str) -> str:
    return table(model.location.catalog, name)
