"""The only writer of schema ``grouplearn``: models in, models out, inside the transaction that the caller holds."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Literal

import duckdb

from grouplearn.catalog import prediction, rows, views
from grouplearn.catalog.fragments import check, create
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.models import StoredModel, load_definition
from grouplearn.catalog.predict_macro import macro_comment, macro_sql
from grouplearn.catalog.records import ModelDefinition, RunOutcome
from grouplearn.catalog.schema import TABLES, Location, current_database, ensure_schema, has_schema, table
from grouplearn.catalog.scoring import scorer_of
from grouplearn.catalog.sql_forms import Prediction, SqlForm, prediction_of
from grouplearn.errors import ModelExists, data_error
from grouplearn.sqltext import identifier, literal
from grouplearn.visible import visible_lines


@dataclass(frozen=True, slots=True)
class Conflict:
    """An object that stands where a model would go."""

    kind: Literal["model", "table", "view", "macro"]
    name: str

    @property
    def is_model(self) -> bool:
        """Whether OR REPLACE may replace it."""
        return self.kind == "model"

    @property
    def message(self) -> str:
        """What the user is told."""
        return f'{self.kind} "{self.name}" already exists'


def exists(
    con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str, *, replace: bool = False
) -> Conflict | None:
    """Return what stands where the model and its objects would go, or None; with ``replace`` the model itself may."""
    model = identity_at(con, catalog, schema, name)
    if model is not None and not replace:
        return Conflict("model", model.location.name)
    wanted = {name + suffix: suffix for suffix in (*views.SUFFIXES, "_predict")}
    folded = {full.casefold() for full in wanted}
    for kind, found, sql in _objects(con, catalog, schema):
        if (kind == "macro") != (found.casefold() == f"{name}_predict".casefold()):
            continue
        if found.casefold() in folded and (model is None or model.id not in sql):
            return Conflict(kind, found)
    return None


def _objects(
    con: duckdb.DuckDBPyConnection, catalog: str, schema: str
) -> list[tuple[Literal["table", "view", "macro"], str, str]]:
    """Return kind, name and definition of the tables, views and macros of a schema."""
    where = f"lower(database_name) = lower({literal(catalog)}) AND lower(schema_name) = lower({literal(schema)})"
    found: list[tuple[Any, str, str]] = con.execute(
        f"SELECT 'table', table_name, '' FROM duckdb_tables() WHERE {where}"
        f" UNION ALL SELECT 'view', view_name, coalesce(sql, '') FROM duckdb_views() WHERE {where}"
        " UNION ALL SELECT 'macro', function_name, coalesce(macro_definition, '') FROM duckdb_functions()"
        f" WHERE {where} AND function_type LIKE '%macro'"
    ).fetchall()
    return found


def write(
    con: duckdb.DuckDBPyConnection,
    definition: ModelDefinition,
    outcome: RunOutcome,
    *,
    replace: bool,
    identity: str | None = None,
) -> str:
    """Store a finished run and create the model's views and macro; return the model's identity, a new one if not given.

    The caller holds the transaction. Raises ModelExists when something stands in the way.
    """
    catalog = definition.catalog or current_database(con)
    model = _identity(identity)
    conflict = exists(con, catalog, definition.schema, definition.name, replace=replace)
    if conflict is not None:
        raise ModelExists(conflict.message)
    ensure_schema(con, catalog)
    if replace:
        drop(con, catalog, definition.schema, definition.name)
    insert(con, table(catalog, "models"), model, rows.models(definition, outcome))
    for name, make in _tables(definition, outcome):
        insert(con, table(catalog, name), model, make())
    predicts = prediction_of(definition, outcome)
    insert_prediction(con, catalog, model, predicts)
    create_objects(con, Location(catalog, definition.schema, definition.name), definition, model, predicts.form)
    prediction.remember(con, model, definition, lambda: scorer_of(definition, outcome))
    return model


def _identity(given: str | None) -> str:
    """Return a new identity, or the one that is given, which may come from the name of a directory."""
    try:
        return str(uuid.UUID(given) if given else uuid.uuid4())
    except ValueError:
        raise data_error(f"{given!r} is not the identity of a run") from None


def _tables(definition: ModelDefinition, outcome: RunOutcome) -> tuple[tuple[str, Callable[[], Any]], ...]:
    return (
        ("groups", lambda: rows.groups(outcome)),
        ("configs", lambda: rows.configs(definition)),
        ("trials", lambda: rows.trials(definition, outcome)),
        ("curves", lambda: rows.curves(outcome, definition.metric)),
        ("artifacts", lambda: rows.artifacts(definition, outcome)),
        ("units", lambda: rows.units(outcome)),
        ("errors", lambda: rows.errors(outcome)),
    )


def insert(con: duckdb.DuckDBPyConnection, target: str, model: str, values: Any) -> None:
    """Insert the rows of a model into a catalog table; ``values`` is an Arrow table of the other columns."""
    if not values.num_rows:
        return
    with registered(con, values) as source:
        con.execute(f"INSERT INTO {target} BY NAME SELECT '{model}'::UUID AS model, * FROM {source}")


def insert_prediction(con: duckdb.DuckDBPyConnection, catalog: str, model: str, predicts: Prediction) -> None:
    """Insert the rows that the model's macro reads beside its artifacts."""
    for name, values in predicts.tables:
        insert(con, table(catalog, name), model, values)


@contextmanager
def registered(con: duckdb.DuckDBPyConnection, values: Any) -> Any:
    """Make an Arrow table visible to the connection for a while, under a name that nothing else has."""
    name = f"__grouplearn_{uuid.uuid4().hex}"
    con.register(name, values)
    try:
        yield identifier(name)
    finally:
        with suppress(duckdb.Error):  # in a transaction that an error aborted: that error is the one to tell
            con.unregister(name)


def _suffixes(definition: ModelDefinition) -> tuple[str, ...]:
    return tuple(suffix for suffix in views.SUFFIXES if suffix != "_weights" or definition.linear)


def create_objects(
    con: duckdb.DuckDBPyConnection, location: Location, definition: ModelDefinition, model: str, form: SqlForm
) -> None:
    """Create the views and the macro of a model whose rows are in the catalog."""
    check(con, definition)
    for suffix in _suffixes(definition):
        target = location.sql(suffix)
        # Names of a view without a database are looked up in its own, whatever that is called later.
        create(con, f"CREATE VIEW {target} AS ", views.view_sql(definition, model, None, suffix))
        con.execute(f"COMMENT ON VIEW {target} IS {_shown(views.comment(definition, suffix))}")
    default = location.catalog.casefold() == current_database(con).casefold()
    database = None if default else location.catalog
    macro = location.sql("_predict")
    create(con, *macro_sql(definition, model, macro, form, database))
    con.execute(f"COMMENT ON MACRO TABLE {macro} IS {_shown(macro_comment(definition))}")


def _shown(comment: str) -> str:
    """Return a comment as a literal, which COMMENT ON takes and no expression: people read it."""
    return literal(visible_lines(comment))


def drop(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> bool:
    """Drop a model, its rows, its views and its macro; return False when there is no such model.

    What its rows say is not read: one that is damaged goes like any other.
    """
    model = identity_at(con, catalog, schema, name)
    if model is None:
        return False
    ensure_schema(con, catalog)
    _drop_objects(con, model)
    for part in TABLES:
        con.execute(f"DELETE FROM {table(catalog, part)} WHERE model = '{model.id}'::UUID")
    prediction.dropped(con, model.id)
    return True


def _drop_objects(con: duckdb.DuckDBPyConnection, model: StoredModel | Identity) -> None:
    """Drop what is ours: an object of the same name that does not mention the model was made by the user."""
    location = model.location
    ours = {f"{location.name}{suffix}".casefold(): location.sql(suffix) for suffix in (*views.SUFFIXES, "_predict")}
    for kind, found, sql in _objects(con, location.catalog, location.schema):
        target = ours.get(found.casefold())
        if target is not None and model.id in sql and kind in ("view", "macro"):
            con.execute(f"DROP {'VIEW' if kind == 'view' else 'MACRO TABLE'} {target}")


def rename(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str, new_name: str) -> bool:
    """Rename a model with its views and its macro; return False when there is no such model.

    Raises ModelExists when something stands under the new name.
    """
    model = load_definition(con, catalog, schema, name)
    if model is None:
        return False
    if new_name.casefold() != name.casefold():
        conflict = exists(con, catalog, schema, new_name)
        if conflict is not None:
            raise ModelExists(conflict.message)
    ensure_schema(con, catalog)
    check(con, model.definition)
    _drop_objects(con, model)
    con.execute(
        f"UPDATE {table(catalog, 'models')} SET model_name = {literal(new_name)} WHERE model = '{model.id}'::UUID"
    )
    place = Location(catalog, model.location.schema, new_name)
    definition = changed(model.definition, name=new_name)
    create_objects(con, place, definition, model.id, model.form)
    prediction.renamed(con, model.id, changed(definition, catalog=catalog))
    return True


def renew(con: duckdb.DuckDBPyConnection, model: StoredModel, identity: str, form: SqlForm) -> None:
    """Give a model another identity, with its rows, its views and its macro, which predicts in ``form``."""
    _drop_objects(con, model)
    for part in TABLES:
        own = f"WHERE model = '{model.id}'::UUID"
        con.execute(f"UPDATE {table(model.location.catalog, part)} SET model = '{identity}'::UUID {own}")
    create_objects(con, model.location, model.definition, identity, form)


def names(con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> list[str]:
    """Return the names of the models in a database (None: the default one), for suggestions."""
    catalog = catalog or current_database(con)
    if not has_schema(con, catalog):
        return []
    found = con.execute(f"SELECT model_name FROM {table(catalog, 'models')} ORDER BY model_name ASC").fetchall()
    return [str(row[0]) for row in found]
