"""REFRESH MODEL in the catalog: what the groups of a model go on from, and the rows of its next version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa

from grouplearn.catalog.records import Outcome, RunOutcome, StoredModel, Watermark
from grouplearn.catalog.rows import run_rows, unit_rows
from grouplearn.catalog.rows.artifact_rows import artifacts
from grouplearn.catalog.rows.profile_rows import renumbered
from grouplearn.catalog.rows.state_rows import states
from grouplearn.catalog.schema import table
from grouplearn.sqltext import literal
from grouplearn.store import objects
from grouplearn.store import writer as store
from grouplearn.store.rewriting import delete_rows, replace_watermarks, rewrite_predictions
from grouplearn.train.results.trials import BoolArray

Status = Literal["new", "updated", "kept", "failed", "unchanged"]
#: The tables with a row for each trial.
_OF_TRIALS = ("trials", "curves", "artifacts")


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group of a model: its number, key, best configuration and rows as they were read; None where it has no model.

    ``failure`` is why it failed when it was last trained, None if it did not.
    """

    number: int
    level: int
    keys: tuple[str | None, ...]
    best: int | None
    n_rows: int
    checksum: int | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What became of a group: ``number`` in the catalog, the rows that it has more, and the optimized metric ``before`` and
    ``after``. ``goes_on``: its model goes on from a state, so that the trials of its other configurations stay. ``adds_rows``:
    what was read are further rows, to be counted besides those of before. ``is_stored``: what was trained is stored, not the
    model of before."""

    number: int
    status: Status
    rows_added: int
    before: float | None = None
    after: float | None = None
    reason: str | None = None
    goes_on: bool = False
    adds_rows: bool = False
    is_stored: bool = True


@dataclass(frozen=True, slots=True)
class RefreshRun:
    """What is needed to store the results of a run that refreshes a model, which has the identity ``model``.

    By their numbers in the run, groups are ``known`` or ``new``, and those ``going_on`` have something to go on from.
    ``unread`` says of such a group which of its rows were not read. ``untrained`` are groups of the catalog with something to
    say that were not trained. ``watermark`` are the latest times of the rows, None if these have no time.
    """

    model: str
    known: Mapping[int, KnownGroup]
    new: tuple[int, ...]
    going_on: tuple[int, ...]
    unread: Mapping[int, str]
    untrained: tuple[Refreshed, ...]
    watermark: Watermark | None
    has_new_rows: bool
    keeps_better: bool


def known_groups(con: duckdb.DuckDBPyConnection, model: StoredModel) -> list[KnownGroup]:
    """Return the groups of a model, in order."""
    catalog, own = model.location.catalog, f"model = '{model.id}'::UUID"
    reasons = (
        f"SELECT group_id, first(reason ORDER BY config ASC NULLS FIRST) AS reason FROM {table(catalog, 'errors')}"
    )
    kept = f"SELECT group_id FROM {table(catalog, 'trials')} WHERE {own} AND is_best AND status = 'kept'"
    rows = con.execute(
        "SELECT group_id, level, keys, best, n_rows, checksum,"
        f" CASE WHEN best IS NULL OR group_id IN ({kept}) THEN coalesce(reason, 'it has no model') END"
        f" FROM {table(catalog, 'groups')} LEFT JOIN ({reasons} WHERE {own} GROUP BY group_id) USING (group_id)"
        f" WHERE {own} ORDER BY group_id ASC"
    ).fetchall()
    return [KnownGroup(number, level, tuple(keys), *rest) for number, level, keys, *rest in rows]


def known_times(model: StoredModel, kind: str) -> str:
    """Return the query of the key and the latest time, of a type, of groups that have one."""
    times, groups = (table(model.location.catalog, name) for name in ("watermarks", "groups"))
    return (
        f"SELECT g.keys, CAST(w.value AS {kind}) FROM {times} AS w JOIN {groups} AS g USING (model, group_id)"
        f" WHERE w.model = '{model.id}'::UUID AND w.value IS NOT NULL"
    )


def valid_metrics(con: duckdb.DuckDBPyConnection, model: StoredModel) -> dict[int, float]:
    """Return the optimized metric of each group's best trial on the rows that were held out when it was trained."""
    place = model.definition.metrics.index(model.definition.metric) + 1
    query = (
        f"SELECT group_id, valid[{place}] FROM {table(model.location.catalog, 'trials')}"
        f" WHERE model = '{model.id}'::UUID AND is_best AND valid[{place}] IS NOT NULL"
    )
    return dict(con.execute(query).fetchall())


def thresholds(con: duckdb.DuckDBPyConnection, model: StoredModel) -> dict[int, float]:
    """Return the threshold of each group's predictions, where it has one."""
    if model.definition.threshold_metric is None:
        return {}
    query = (
        f"SELECT group_id, {model.definition.threshold_sql('')} AS threshold FROM {table(model.location.catalog, 'trials')}"
        f" WHERE model = '{model.id}'::UUID AND is_best AND threshold IS NOT NULL"
    )
    return dict(con.execute(query).fetchall())


def write_refresh(
    con: duckdb.DuckDBPyConnection, model: StoredModel, outcome: RunOutcome, groups: Sequence[Refreshed]
) -> StoredModel:
    """Replace the groups of a model, a new version, that were trained; return the model as it predicts now.

    ``outcome`` has the catalog's numbers of groups. The caller holds the transaction.
    """
    write_groups(con, model, outcome, groups)
    if outcome.watermark is not None:
        _write_watermarks(con, model, outcome.watermark, groups)
    con.execute(
        f"UPDATE {table(model.location.catalog, 'models')} SET seconds = {outcome.seconds!r}, workers = {outcome.workers},"
        f" operator = {literal(outcome.operator)}, executor = {literal(outcome.executor)},"
        f" trained_at = (now() AT TIME ZONE 'UTC')::TIMESTAMP WHERE model = '{model.id}'::UUID"
    )
    return predicting(con, model)


def write_groups(
    con: duckdb.DuckDBPyConnection, model: StoredModel, outcome: RunOutcome, groups: Sequence[Refreshed]
) -> None:
    """Replace the groups of a model that were trained, and write what became of all."""
    by_number = {each.number: each for each in groups}
    stored = [by_number[number] for number in outcome.found.ids.tolist()]
    adding = np.array([each.adds_rows for each in stored], np.bool_)
    write_refreshed(con, model, groups)
    _delete(con, model, outcome.found, np.array([each.goes_on for each in stored], np.bool_), adding)
    _add_rows(con, model, outcome.found.only(adding))
    store.insert(con, model.location.catalog, model.id, _tables(model, outcome, adding))


def _write_watermarks(
    con: duckdb.DuckDBPyConnection, model: StoredModel, watermark: Watermark, groups: Sequence[Refreshed]
) -> None:
    """Write the latest times that groups have learned from, where their rows are new or they were trained anew."""
    catalog, own = model.location.catalog, f"model = '{model.id}'::UUID"
    learned = {
        each.number: each.status != "failed"
        for each in groups
        if each.is_stored and (not each.adds_rows or each.number in watermark.latest)
    }
    if watermark.others is not None:
        every = f"SELECT group_id FROM {table(catalog, 'groups')} WHERE {own} AND best IS NOT NULL"
        learned = {number: True for (number,) in con.execute(every).fetchall()} | learned
    replace_watermarks(con, model, watermark, learned)


def _delete(
    con: duckdb.DuckDBPyConnection, model: StoredModel, found: Outcome, going_on: BoolArray, adding: BoolArray
) -> None:
    """Delete the rows that will be written again: of a group that goes on those of one trial, of others all."""
    whole = [(group.id, None) for group, keeps in zip(found.groups, going_on.tolist(), strict=True) if not keeps]
    again = zip(found.trials.group.tolist(), found.trials.config.tolist(), strict=True)
    trials = [pair for pair, keeps in zip(again, going_on[found.place].tolist(), strict=True) if keeps]
    every: list[tuple[int, int | None]] = [(group.id, None) for group in found.groups]
    for name in _OF_TRIALS:
        delete_rows(con, model, name, trials, "source.config = t.config")
        delete_rows(con, model, name, whole)
    counted = [pair for pair, adds in zip(every, adding.tolist(), strict=True) if not adds]
    for name in ("groups", "profiles"):
        delete_rows(con, model, name, counted)
    for name in ("states", "errors", "held_out"):
        delete_rows(con, model, name, every)


def _add_rows(con: duckdb.DuckDBPyConnection, model: StoredModel, found: Outcome) -> None:
    """Count the rows that groups have more, and add their checksums."""
    rows = run_rows.groups(found).select(["group_id", "n_rows", "n_train", "n_valid", "n_skipped", "checksum"])
    added = ", ".join(f"{name} = t.{name} + source.{name}" for name in ("n_rows", "n_train", "n_skipped"))
    checksum = f"((t.checksum::HUGEINT + source.checksum) % {1 << 64})::UBIGINT"
    with store.registered(con, rows) as source:
        con.execute(
            f"UPDATE {table(model.location.catalog, 'groups')} AS t SET {added}, n_valid = source.n_valid, checksum = {checksum}"
            f" FROM {source} AS source WHERE t.model = '{model.id}'::UUID AND source.group_id = t.group_id"
        )


def _tables(model: StoredModel, outcome: RunOutcome, adding: BoolArray) -> Iterator[tuple[str, Any]]:
    definition, found = model.definition, outcome.found
    yield "groups", run_rows.groups(found.only(~adding))
    yield "trials", run_rows.trials(definition, found)
    yield "curves", run_rows.curves(found)
    for part in artifacts(definition, found):
        yield "artifacts", part
    for part in states(found):
        yield "states", part
    yield "units", unit_rows.units(outcome)
    yield "errors", run_rows.errors(found)
    # Further rows are too few to describe a group: what is stored of those of before stays.
    whole = {number: number for number in found.only(~adding).ids.tolist()}
    for name, rows in (("profiles", outcome.profiles), ("held_out", outcome.held_out)):
        if (own := renumbered(rows, whole)) is not None:
            yield name, own


def write_refreshed(con: duckdb.DuckDBPyConnection, model: StoredModel, groups: Iterable[Refreshed]) -> None:
    """Write what became of the groups of a model."""
    catalog = model.location.catalog
    con.execute(f"DELETE FROM {table(catalog, 'refreshed')} WHERE model = '{model.id}'::UUID")
    rows = ((each.number, each.status, each.rows_added, each.before, each.after, each.reason) for each in groups)
    values = run_rows.columns_of(
        rows,
        group_id=pa.int32(),
        status=pa.string(),
        rows_added=pa.int64(),
        before=pa.float64(),
        after=pa.float64(),
        reason=pa.string(),
    )
    store.insert(con, catalog, model.id, [("refreshed", values)])


def predicting(con: duckdb.DuckDBPyConnection, model: StoredModel) -> StoredModel:
    """Write again what the model's macro reads, and the macro if its form is another; return the model in that form."""
    form = rewrite_predictions(con, model)
    if form == model.form:
        return model
    objects.drop_objects(con, model)
    objects.create_objects(con, model.location, model.definition, model.id, form)
    return changed(model, form=form)


def by_key(groups: Iterable[KnownGroup]) -> Mapping[tuple[int, tuple[str | None, ...]], KnownGroup]:
    """Return groups by their grouping set and key."""
    return {(group.level, group.keys): group for group in groups}
