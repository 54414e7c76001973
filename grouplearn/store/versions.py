"""The versions of a model: each TRAIN and REFRESH makes one, and the last few stay, inside the caller's transaction.

The current version has its row in ``models``, where names are looked up, and the others theirs in ``past_models``. In all
other tables the rows of a version are under its own identity, wherever its row is.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Literal

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.identities import Identity
from grouplearn.catalog.models import load_by_id
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import TABLES, Location, table
from grouplearn.catalog.versions import Version, of_model
from grouplearn.errors import DataError, ModelExists, data_error
from grouplearn.prediction import prediction
from grouplearn.sqltext import literal, written
from grouplearn.store import objects

#: What makes a version; ALTER is ADD TRIAL.
Action = Literal["TRAIN", "REFRESH", "ALTER", "IMPORT"]
#: Tables that name a model.
_NAMING = ("models", "past_models", "history")


@dataclass(frozen=True, slots=True)
class Event:
    """What made a version, and in how many seconds, None for those in ``models``.

    ``rows_added`` is the number of rows that the version before did not have, None for TRAIN. REFRESH says how many groups
    it ``updated``, and of how many it left the models as they were, ``unchanged``. Groups that failed or kept their model are
    counted in the catalog; all others are new.
    """

    action: Action
    seconds: float | None = None
    rows_added: int | None = None
    updated: int = 0
    unchanged: int = 0


def retire(con: duckdb.DuckDBPyConnection, model: Identity, keep: int, action: Action = "TRAIN") -> None:
    """Make the current version of a model an earlier one, before its successor, which ``action`` makes, is stored.

    With the successor ``keep`` versions stay that were trained, and as many by ADD TRIAL that are later than one of them:
    this one, and those with the highest numbers. Its views and macros are the caller's to drop.
    """
    place = model.location
    con.execute(_moved(place.catalog, model.id, "models", "past_models"))
    history, past = table(place.catalog, "history"), table(place.catalog, "past_models")
    found = con.execute(
        f"SELECT p.model::VARCHAR, coalesce(h.version, 0), coalesce(h.action = 'ALTER', false) FROM {past} AS p"
        f" LEFT JOIN (SELECT model, version, action FROM {history}) AS h ON h.model = p.model"
        f" WHERE {of_model(place.schema, place.name)}"
        f" ORDER BY p.model = '{model.id}'::UUID DESC, h.version DESC NULLS LAST"
    ).fetchall()
    stay = _staying(found, keep, action == "ALTER")
    delete(con, place.catalog, *(identity for identity, *_ in found if identity not in stay))


def _staying(found: Sequence[tuple[str, int, bool]], keep: int, is_added: bool) -> set[str]:
    """Return the versions that stay, of earlier ones in order of worth: identity, number, and whether ADD TRIAL made it."""
    trained = [each for each in found if not each[2]][: keep - (not is_added)]
    first = min((number for _, number, _ in trained), default=None)
    added = [each for each in found if each[2] and first is not None and each[1] > first][: keep - is_added]
    return {identity for identity, *_ in (*trained, *added)}


def fork(
    con: duckdb.DuckDBPyConnection, model: StoredModel, identity: str | None = None, action: Action = "REFRESH"
) -> StoredModel:
    """Make the current version of a model an earlier one, and a copy of it, under a new identity, current; return the copy.

    The copy has views and macros, and no row in ``history``: see ``record``. ``action`` makes the version. The schedule is the
    earlier version's alone.
    """
    place, identity = model.location, str(uuid.UUID(identity) if identity else uuid.uuid4())
    objects.drop_objects(con, model)
    for part in (each for each in TABLES if each != "units"):
        rows = table(place.catalog, part)
        own = f"SELECT * REPLACE ('{identity}'::UUID AS model) FROM {rows} WHERE model = '{model.id}'::UUID"
        con.execute(f"INSERT INTO {rows} {own}")
    retire(con, Identity(model.id, place), model.definition.keep_versions, action)
    objects.create_objects(con, place, model.definition, identity, model.form)
    prediction.dropped(con, place.catalog, model.id)
    return changed(model, id=identity)


def record(con: duckdb.DuckDBPyConnection, model: StoredModel, event: Event) -> None:
    """Write the row of ``history`` of a model's current version, whose other rows are stored."""
    place = model.location
    history = table(place.catalog, "history")
    number = f"(SELECT coalesce(max(version), 0) + 1 FROM {history} WHERE {of_model(place.schema, place.name)})"
    added = "NULL" if event.rows_added is None else str(event.rows_added)
    seconds = "m.seconds" if event.seconds is None else f"{event.seconds!r}::DOUBLE"
    con.execute(
        f"INSERT INTO {history} BY NAME SELECT m.schema_name, m.model_name, {number} AS version, m.model,"
        f" {literal(event.action)} AS action, m.trained_at, {seconds} AS seconds,"
        f" {added} AS rows_added, {event.updated} AS groups_updated, {event.unchanged} AS groups_unchanged,"
        f" m.metric, c.* REPLACE (c.groups_new - {event.updated + event.unchanged} AS groups_new)"
        f" FROM {table(place.catalog, 'models')} AS m, ({_counted(model)}) AS c WHERE m.model = '{model.id}'::UUID"
    )


def _counted(model: StoredModel) -> str:
    """Return the query of what a version's rows say for ``history``; ``groups_new`` are all groups that trained."""
    definition, catalog = model.definition, model.location.catalog
    place, own = definition.metrics.index(definition.metric) + 1, f"model = '{model.id}'::UUID"
    groups = f"SELECT level, n_rows, best FROM {table(catalog, 'groups')} WHERE {own}"
    best = f"SELECT status, train[{place}] AS train, valid[{place}] AS valid, len(valid) AS judged"
    best += f" FROM {table(catalog, 'trials')} WHERE {own} AND is_best"
    levels = f"SELECT sum(n_rows)::BIGINT AS n, count(*) - count(best) AS failed FROM ({groups}) GROUP BY level"
    return (
        "SELECT g.n_rows, b.trained - b.kept AS groups_new, g.failed AS groups_failed, b.kept AS groups_kept,"
        " CASE WHEN b.judged > 0 THEN b.valid ELSE b.train END AS value"
        f" FROM (SELECT max(n) AS n_rows, coalesce(sum(failed), 0)::BIGINT AS failed FROM ({levels})) AS g,"
        " (SELECT count(*) AS trained, count(*) FILTER (status = 'kept') AS kept, max(judged) AS judged,"
        f" median(train) AS train, median(valid) AS valid FROM ({best})) AS b"
    )


def count(con: duckdb.DuckDBPyConnection, model: StoredModel) -> None:
    """Write again what ``history`` says of the groups of the current version, some of which have changed."""
    con.execute(
        f"UPDATE {table(model.location.catalog, 'history')} AS h SET n_rows = c.n_rows, value = c.value,"
        " groups_new = c.groups_new - h.groups_updated - h.groups_unchanged,"
        f" groups_failed = c.groups_failed, groups_kept = c.groups_kept FROM ({_counted(model)}) AS c"
        f" WHERE h.model = '{model.id}'::UUID"
    )


def renew(con: duckdb.DuckDBPyConnection, model: StoredModel, identity: str) -> None:
    """Give the current version another identity in all its rows, some of which have changed: RETRY FAILED makes no version."""
    count(con, model)
    for part in ("history", *TABLES):
        rows = table(model.location.catalog, part)
        con.execute(f"UPDATE {rows} SET model = '{identity}'::UUID WHERE model = '{model.id}'::UUID")


def rename(con: duckdb.DuckDBPyConnection, before: Location, now: Location) -> None:
    """Give all versions of a model, and its history, another name; views and macros are the caller's."""
    named = f"schema_name = {literal(now.schema)}, model_name = {literal(now.name)}"
    for part in _NAMING:
        con.execute(f"UPDATE {table(now.catalog, part)} SET {named} WHERE {of_model(before.schema, before.name)}")


def use(con: duckdb.DuckDBPyConnection, current: Identity, version: Version, *, shown: bool) -> None:
    """Let the name, the views and the macros of a model mean an earlier ``version`` of it.

    ``shown``: the transaction is the user's own, in which ``predict`` must know the version. Raises DataError if it is
    damaged, ModelExists if an object of the user's is in the place of one that it needs; then nothing has changed.
    """
    place, model = current.location, _checked(con, current.location, version)
    endpoints = [each.suffix for each in model.definition.output.endpoints]
    found = objects.objects_at(con, place.catalog, place.schema, place.name, macros=endpoints)
    conflict = objects.in_the_way(place.name, current, found, (*views.suffixes(model.definition), *endpoints))
    if conflict is not None:
        raise ModelExists(conflict.message)
    objects.drop_objects(con, current)
    con.execute(_moved(place.catalog, current.id, "models", "past_models"))
    con.execute(_moved(place.catalog, version.id, "past_models", "models"))
    objects.create_objects(con, place, model.definition, version.id, model.form)
    prediction.dropped(con, place.catalog, current.id)
    if shown:
        prediction.remember_stored(con, model)


def _checked(con: duckdb.DuckDBPyConnection, place: Location, version: Version) -> StoredModel:
    """Return an earlier version, whose rows are checked as if they came from outside."""
    try:
        model = load_by_id(con, place.catalog, version.id, "past_models")
        if model is None:
            raise damaged(place.catalog, place.name, "past_models", "its row is gone")
        refuse_invalid_rows(con, model, ("past_models", *TABLES[1:]))
    except DataError as error:
        why, name = str(error).splitlines()[0], written(place.name)
        hint = f"ALTER MODEL {name} DROP VERSION {version.number} removes the version"
        raise data_error(f"{why}\n\nHint: {hint}") from None
    objects.refuse_unregistered(model.definition)
    return model


def _moved(catalog: str, model: str, source: str, target: str) -> str:
    """Return the SQL that moves the row of a version from one table to another."""
    own = f"WHERE model = '{model}'::UUID"
    rows = table(catalog, source)
    return f"INSERT INTO {table(catalog, target)} FROM {rows} {own};\nDELETE FROM {rows} {own}"


def delete(con: duckdb.DuckDBPyConnection, catalog: str, *models: str) -> None:
    """Delete all rows of versions; those of ``history`` stay."""
    if models:
        con.execute("\n;\n".join(deletes(catalog, *models)))


def delete_all(con: duckdb.DuckDBPyConnection, model: Identity) -> None:
    """Delete all rows of a model: those of its current version, of the earlier ones, and its history."""
    place = model.location
    past = f"SELECT DISTINCT model::VARCHAR FROM {table(place.catalog, 'past_models')} WHERE {of_model(place.schema, place.name)}"
    delete(con, place.catalog, model.id, *(identity for (identity,) in con.execute(past).fetchall()))
    con.execute(f"DELETE FROM {table(place.catalog, 'history')} WHERE {of_model(place.schema, place.name)}")


def deletes(catalog: str, *models: str) -> list[str]:
    """Return the SQL that deletes all rows of versions."""
    listed = ", ".join(f"'{model}'::UUID" for model in models)
    return [f"DELETE FROM {table(catalog, part)} WHERE model IN ({listed})" for part in ("past_models", *TABLES)]
