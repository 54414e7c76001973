"""The writer of schema ``grouplearn``: stores and drops models, inside the caller's transaction."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace as changed
from typing import Any

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.checks.fragments import query_of
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import ModelDefinition, RunOutcome, StoredModel
from grouplearn.catalog.rows import run_rows
from grouplearn.catalog.rows import unit_rows as unit_rows
from grouplearn.catalog.rows.artifact_rows import artifacts
from grouplearn.catalog.rows.state_rows import states, watermarks
from grouplearn.catalog.schema import (
    Location,
    current_database,
    ensure_schema,
    has_schema,
    table,
)
from grouplearn.catalog.stored_forms import prediction_of
from grouplearn.errors import ModelExists, data_error
from grouplearn.interrupting import prefetch
from grouplearn.models.forms.drift import endpoints_of
from grouplearn.models.forms.form import SqlForm
from grouplearn.prediction import prediction
from grouplearn.prediction.scoring import scorer_of
from grouplearn.sqltext import folded, identifier
from grouplearn.store import versions
from grouplearn.store.objects import (
    NameTaken,
    create_objects,
    drop_objects,
    drops,
    exists,
    in_the_way,
    objects_at,
    run,
)
from grouplearn.store.versions import Event

#: Bytes of Arrow tables that wait to be inserted.
_BYTES_AHEAD = 1 << 24


def write(
    con: duckdb.DuckDBPyConnection,
    definition: ModelDefinition,
    outcome: RunOutcome,
    *,
    replace: bool,
    identity: str | None = None,
) -> str:
    """Store a finished run and create the model's views and macro; return the model's identity, a new one if not given.

    The caller holds the transaction. Raises ModelExists if the place is taken.
    """
    catalog = definition.catalog or current_database(con)
    model, place = _identity(identity), Location(catalog, definition.schema, definition.name)
    before = identity_at(con, catalog, definition.schema, definition.name)
    if before is not None and not replace:
        raise ModelExists(NameTaken("model", before.location.name).message)
    macros = [endpoint.suffix for endpoint in endpoints_of(definition.output)]
    objects = objects_at(con, catalog, definition.schema, definition.name, macros=macros)
    conflict = in_the_way(definition.name, before, objects, (*views.suffixes(definition), *macros))
    if conflict is not None:
        raise ModelExists(conflict.message)
    ensure_schema(con, catalog)
    if before is not None:
        run(con, drops(before, objects))
        replaced(con, before, place, definition.keep_versions)
    predicts = prediction_of(definition, outcome)
    tables = itertools.chain(_tables(definition, outcome), predicts.tables)
    with prefetch(tables, lambda values: int(values[1].nbytes), _BYTES_AHEAD) as made:
        create_objects(con, place, definition, model, predicts.form)
        insert(con, catalog, model, made)
    versions.record(con, StoredModel(model, place, definition, predicts.form), Event("TRAIN"))
    prediction.remember(con, model, definition, lambda: scorer_of(definition, outcome))
    return model


def replaced(con: duckdb.DuckDBPyConnection, before: Identity, successor: Location, keep: int) -> None:
    """Make a model an earlier version of the one that takes its place, whose name may be written differently."""
    versions.retire(con, before, keep)
    if before.location != successor:
        versions.rename(con, before.location, successor)
    prediction.dropped(con, before.location.catalog, before.id)


def _identity(given: str | None) -> str:
    """Return a new identity, or the given one, which may come from the name of a directory."""
    try:
        return str(uuid.UUID(given) if given else uuid.uuid4())
    except ValueError:
        raise data_error(f"{given!r} is not the identity of a run") from None


def _tables(definition: ModelDefinition, outcome: RunOutcome) -> Iterator[tuple[str, Any]]:
    yield "models", run_rows.models(definition, outcome)
    yield "groups", run_rows.groups(outcome.found)
    yield "configs", run_rows.configs(definition)
    yield "trials", run_rows.trials(definition, outcome.found)
    yield "curves", run_rows.curves(outcome.found)
    for part in artifacts(definition, outcome.found):
        yield "artifacts", part
    for part in states(outcome.found):
        yield "states", part
    yield "watermarks", watermarks(outcome.watermark, outcome.found.learned)
    yield "units", unit_rows.units(outcome)
    yield "errors", run_rows.errors(outcome.found)
    if outcome.profiles is not None:
        yield "profiles", outcome.profiles
    if outcome.held_out is not None:
        yield "held_out", outcome.held_out


def insert(con: duckdb.DuckDBPyConnection, catalog: str, model: str, tables: Iterable[tuple[str, Any]]) -> None:
    """Insert a model's rows into catalog tables: names, and Arrow tables of the other columns."""
    for target, values in tables:
        if values.num_rows:
            with registered(con, values) as source:
                con.execute(
                    f"INSERT INTO {table(catalog, target)} BY NAME SELECT '{model}'::UUID AS model, * FROM {source}"
                )


@contextmanager
def registered(con: duckdb.DuckDBPyConnection, values: Any) -> Iterator[str]:
    """Make an Arrow table visible to the connection in the block, under a name that no table or view of the user's has."""
    name = f"__grouplearn_{uuid.uuid4().hex}"
    con.register(name, values)
    try:
        yield identifier(name)
    finally:
        with suppress(duckdb.Error):  # in an aborted transaction, so that the error that aborted it is reported
            con.unregister(name)


def view_query(con: duckdb.DuckDBPyConnection, model: StoredModel, suffix: str) -> str:
    """Return the query of a model's view; raises DataError if its learner has no such view."""
    if suffix not in views.suffixes(model.definition):
        raise data_error(
            f'model "{model.definition.name}" ({model.definition.shown_learner}) has no {suffix.removeprefix("_")}'
        )
    refuse_invalid_rows(con, model, ("models", "groups", "trials", "curves", "artifacts", "units"))
    query, _ = views.view_sql(model.definition, model.id, model.location.catalog, suffix)
    return query_of(model.definition, con)(query)


def drop(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> bool:
    """Drop a model, its rows, its views and its macro; return False if there is no such model.

    Its rows are not read, so that damaged models can be dropped.
    """
    model = identity_at(con, catalog, schema, name)
    if model is None:
        return False
    ensure_schema(con, catalog)
    drop_identity(con, model)
    return True


def drop_identity(con: duckdb.DuckDBPyConnection, model: Identity) -> None:
    """Drop a model, as ``drop`` does, in a database that has all tables."""
    drop_objects(con, model)
    versions.delete_all(con, model)
    prediction.dropped(con, model.location.catalog, model.id)


def rename(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str, new_name: str) -> bool:
    """Rename a model with its views and its macro; return False if there is no such model.

    Raises ModelExists if the new name is taken.
    """
    model = load_definition(con, catalog, schema, name)
    if model is None:
        return False
    if folded(new_name) != folded(name):
        conflict = exists(
            con,
            catalog,
            schema,
            new_name,
            suffixes=views.suffixes(model.definition),
            macros=views.macros_of(model.definition.learner),
        )
        if conflict is not None:
            raise ModelExists(conflict.message)
    ensure_schema(con, catalog)
    check(con, model.definition)
    drop_objects(con, model)
    place = Location(catalog, model.location.schema, new_name)
    versions.rename(con, model.location, place)
    definition = changed(model.definition, name=new_name)
    create_objects(con, place, definition, model.id, model.form)
    prediction.renamed(con, model.id, changed(definition, catalog=catalog))
    return True


def renew(con: duckdb.DuckDBPyConnection, model: StoredModel, identity: str, form: SqlForm) -> None:
    """Give a model another identity in its rows, views and macro, where the macro predicts in ``form``."""
    drop_objects(con, model)
    versions.renew(con, model, identity)
    create_objects(con, model.location, model.definition, identity, form)


def names(con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> list[str]:
    """Return the names of the models in a database (None: the default one), for suggestions."""
    catalog = catalog or current_database(con)
    if not has_schema(con, catalog):
        return []
    found = con.execute(f"SELECT model_name FROM {table(catalog, 'models')} ORDER BY model_name ASC").fetchall()
    return [str(row[0]) for row in found]
