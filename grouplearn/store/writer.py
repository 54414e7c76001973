"""The writer of schema ``grouplearn``: stores and drops models, inside the caller's transaction."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Literal

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.checks.fragments import query_of
from grouplearn.catalog.checks.invalid_rows import refuse_invalid_rows
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.combinations import combination_at, identity_of
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import ModelDefinition, RunOutcome, StoredModel
from grouplearn.catalog.rows import run_rows
from grouplearn.catalog.rows import unit_rows as unit_rows
from grouplearn.catalog.rows.artifact_rows import artifacts
from grouplearn.catalog.schema import (
    TABLES,
    Location,
    current_database,
    ensure_schema,
    has_schema,
    in_own_transaction,
    table,
    tables_of,
    views_changed,
    views_of,
)
from grouplearn.catalog.stored_forms import prediction_of
from grouplearn.errors import ModelExists, data_error
from grouplearn.interrupting import prefetch
from grouplearn.learners import registry
from grouplearn.models.forms.form import SqlForm
from grouplearn.models.outputs.output import PREDICT
from grouplearn.prediction import prediction
from grouplearn.prediction.macro import macro_comment, macro_sql
from grouplearn.prediction.scoring import scorer_of
from grouplearn.sqltext import folded, identifier, literal, qualified
from grouplearn.visible import visible_lines

#: Bytes of Arrow tables that wait to be inserted.
_BYTES_AHEAD = 1 << 24
#: Kind, name and definition of the objects in a schema.
_Objects = list[tuple[Literal["table", "view", "macro"], str, str]]


@dataclass(frozen=True, slots=True)
class NameTaken:
    """An object in the place of a model."""

    kind: Literal["model", "table", "view", "macro", "function", "schema"]
    name: str

    @property
    def is_model(self) -> bool:
        """Whether OR REPLACE may replace it."""
        return self.kind == "model"

    @property
    def message(self) -> str:
        """The message for the user."""
        if self.kind == "schema":
            return f'schema "{self.name}" is for the tables that models are made of, and holds no model itself'
        return f'{self.kind} "{self.name}" already exists'


def exists(
    con: duckdb.DuckDBPyConnection,
    catalog: str,
    schema: str,
    name: str,
    *,
    replace: bool = False,
    suffixes: Collection[str] = views.COMMON,
    macros: Collection[str] = (PREDICT.suffix,),
) -> NameTaken | None:
    """Return what is in the place of the model or its objects, or None; with ``replace`` the model itself may be there.

    ``suffixes`` are the suffixes of the views that it will have, ``macros`` those of its macros.
    """
    model = identity_at(con, catalog, schema, name)
    if model is None and (combination := combination_at(con, catalog, schema, name)) is not None:
        model = identity_of(con, combination)
    if model is not None and not replace:
        return NameTaken("model", model.location.name)
    if folded(schema) == SCHEMA:
        return NameTaken("schema", schema)
    return _in_the_way(name, model, _objects(con, catalog, schema, name, macros=macros), (*suffixes, *macros))


def seems_untouched(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> bool:
    """Return whether each table or view in the place of one of the model's views has the comment of ours.

    Reading definitions, as ``exists`` does, would make DuckDB write out those of all views.
    """
    told = views.comments()
    wanted = {folded(f"{name}{suffix}"): suffix for suffix in told}
    found = [(wanted[folded(each)], comment) for _, each, comment in _tables_and_views(con, catalog, schema, wanted)]
    return all(comment.startswith(told[suffix]) for suffix, comment in found)


def _in_the_way(name: str, model: Identity | None, objects: _Objects, suffixes: Collection[str]) -> NameTaken | None:
    """Return what is in the place of the model's objects and is not of ``model``, or a function that they would hide."""
    every = (*views.comments(), *views.macro_comments())
    free = {folded(f"{name}{suffix}") for suffix in every if suffix not in suffixes}
    macros = {folded(f"{name}{suffix}") for suffix in views.macro_comments()}
    if folded(name) == SCHEMA:  # its macro would hide the function ``predict``
        return NameTaken("function", f"{SCHEMA}_predict")
    for kind, found, sql in objects:
        if (kind == "macro") != (folded(found) in macros) or folded(found) in free:
            continue
        if model is None or model.id not in sql:
            return NameTaken(kind, found)
    return None


def _objects(
    con: duckdb.DuckDBPyConnection,
    catalog: str,
    schema: str,
    name: str,
    also: Iterable[str] = (),
    macros: Iterable[str] = (PREDICT.suffix,),
) -> _Objects:
    """Return kind, name and (except for tables) definition of a schema's objects with the names of a model's objects, and
    with those in ``also``. Without any macro with one of the suffixes ``macros`` no other macro is looked for: every model has
    the first."""
    wanted = {folded(f"{name}{suffix}") for suffix in (*views.comments(), *views.macro_comments())}
    wanted |= set(map(folded, also))
    found: _Objects = [(kind, each, "") for kind, each, _ in _tables_and_views(con, catalog, schema, wanted)]
    where = f"lower(database_name) = lower({literal(catalog)}) AND lower(schema_name) = lower({literal(schema)})"
    asked = []
    if shown := [literal(each) for kind, each, _ in found if kind == "view"]:
        # DuckDB writes out the definitions of all views but those that a condition on plain names leaves out.
        those = f"view_name IN ({', '.join(shown)})"
        asked.append(
            f"SELECT 'view', view_name, coalesce(sql, '') FROM system.main.duckdb_views() WHERE {those} AND {where}"
        )
    if not all(_lacks_macro(con, Location(catalog, schema, f"{name}{suffix}")) for suffix in macros):
        asked.append(
            "SELECT 'macro', function_name, coalesce(macro_definition, '') FROM system.main.duckdb_functions()"
            f" WHERE {where} AND function_type LIKE '%macro'"
        )
    defined = con.execute(" UNION ALL ".join(asked)).fetchall() if asked else []
    return [
        *(row for row in found if row[0] == "table"),
        *(row for row in defined if folded(row[1]) in wanted),
    ]


def _tables_and_views(
    con: duckdb.DuckDBPyConnection, catalog: str, schema: str, names: Collection[str]
) -> Iterator[tuple[Literal["table", "view"], str, str]]:
    """Yield the kind, name and comment of a schema's tables and views with one of these folded names."""
    place = folded(catalog), folded(schema)

    def ours(database: str, own: str, name: str) -> bool:
        return folded(name) in names and (folded(database), folded(own)) == place

    for database, own, name, *_ in tables_of(con):
        if ours(database, own, name):
            yield "table", name, ""
    # DuckDB takes longer to plan conditions than to list everything.
    for database, own, name, comment, _ in views_of(con):
        if ours(database, own, name):
            yield "view", name, comment


def _lacks_macro(con: duckdb.DuckDBPyConnection, macro: Location) -> bool:
    """Whether DuckDB refuses to drop such a macro as missing; asking takes a hundredth of the time of listing macros.

    DuckDB is asked on a cursor: the error would abort a transaction. A cursor does not see changes of the user's transaction.
    """
    if not in_own_transaction(con) or getattr(con, "serves_predict", False):
        return False
    with con.cursor() as other:
        try:
            other.execute(f"EXPLAIN DROP MACRO {macro.sql()}").fetchall()
        except duckdb.CatalogException as error:
            return str(error).startswith(f"Catalog Error: Macro Function with name {macro.name} does not exist!")
        except duckdb.Error:
            return False
    return False


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
    model = _identity(identity)
    before = identity_at(con, catalog, definition.schema, definition.name)
    if before is not None and not replace:
        raise ModelExists(NameTaken("model", before.location.name).message)
    macros = [endpoint.suffix for endpoint in definition.output.endpoints]
    objects = _objects(con, catalog, definition.schema, definition.name, macros=macros)
    conflict = _in_the_way(definition.name, before, objects, (*views.suffixes(definition), *macros))
    if conflict is not None:
        raise ModelExists(conflict.message)
    ensure_schema(con, catalog)
    if before is not None:
        _drop(con, before, objects)
    predicts = prediction_of(definition, outcome)
    tables = itertools.chain(_tables(definition, outcome), predicts.tables)
    with prefetch(tables, lambda values: int(values[1].nbytes), _BYTES_AHEAD) as made:
        create_objects(con, Location(catalog, definition.schema, definition.name), definition, model, predicts.form)
        insert(con, catalog, model, made)
    prediction.remember(con, model, definition, lambda: scorer_of(definition, outcome))
    return model


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
    yield "units", unit_rows.units(outcome)
    yield "errors", run_rows.errors(outcome.found)


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


def create_objects(
    con: duckdb.DuckDBPyConnection, location: Location, definition: ModelDefinition, model: str, form: SqlForm
) -> None:
    """Create the views and the macros of a model whose rows are in the catalog.

    Raises DataError if its learner is unknown, and with it what they are made of.
    """
    if not registry.is_known(definition.learner):
        how = registry.how_to_register(definition.learner)
        raise data_error(
            f"the learner {definition.learner} is not registered in this process\n\nHint: {how} comes first"
        )
    check(con, definition)
    checked = query_of(definition, con)
    statements = []
    for suffix in views.suffixes(definition):
        target = location.sql(suffix)
        # A view looks up names without a database in its own database, even if that is later attached under another name.
        query, comment = views.view_sql(definition, model, None, suffix)
        statements.append(f"CREATE VIEW {target} AS {checked(query)}")
        statements.append(f"COMMENT ON VIEW {target} IS {shown(comment)}")
    default = folded(location.catalog) == folded(current_database(con))
    database = None if default else location.catalog
    for endpoint in definition.output.endpoints:
        macro = location.sql(endpoint.suffix)
        head, query = macro_sql(StoredModel(model, location, definition, form), macro, endpoint, database)
        statements.append(head + checked(query))
        statements.append(f"COMMENT ON MACRO TABLE {macro} IS {shown(macro_comment(definition, endpoint))}")
    run(con, statements)


def run(con: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> None:
    """Run statements as one text."""
    con.execute("\n;\n".join(statements))
    views_changed(con)


def shown(comment: str) -> str:
    """Return a comment as a literal for COMMENT ON, which accepts no expressions; people read it."""
    return literal(visible_lines(comment))


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
    location = model.location
    place, start = (folded(location.catalog), folded(location.schema)), f"{folded(location.name)}_"
    # The views of an output that only an unknown learner has, too.
    views_of_it = [
        name
        for database, schema, name, *_ in views_of(con)
        if (folded(database), folded(schema)) == place and folded(name).startswith(start)
    ]
    _drop(con, model, _objects(con, location.catalog, location.schema, location.name, also=views_of_it))


def _drop(con: duckdb.DuckDBPyConnection, model: Identity, objects: _Objects) -> None:
    run(con, [*_drops(model, objects), *_deletes(model.location.catalog, model.id)])
    prediction.dropped(con, model.location.catalog, model.id)


def delete_rows(con: duckdb.DuckDBPyConnection, catalog: str, model: str) -> None:
    """Delete the rows of a model without views and macro."""
    run(con, _deletes(catalog, model))


def _deletes(catalog: str, model: str) -> list[str]:
    return [f"DELETE FROM {table(catalog, part)} WHERE model = '{model}'::UUID" for part in TABLES]


def drop_objects(con: duckdb.DuckDBPyConnection, model: StoredModel | Identity) -> None:
    """Drop the views and macros of a model."""
    location = model.location
    dropped = _drops(model, _objects(con, location.catalog, location.schema, location.name))
    if dropped:
        run(con, dropped)


def _drops(model: StoredModel | Identity, objects: _Objects) -> list[str]:
    """Return the SQL that drops our objects; those that have such a name but do not mention the model are the user's."""
    catalog, schema = model.location.catalog, model.location.schema
    return [
        f"DROP {'VIEW' if kind == 'view' else 'MACRO TABLE'} {qualified(catalog, schema, found)}"
        for kind, found, sql in objects
        if model.id in sql and kind in ("view", "macro")
    ]


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
    con.execute(
        f"UPDATE {table(catalog, 'models')} SET model_name = {literal(new_name)} WHERE model = '{model.id}'::UUID"
    )
    place = Location(catalog, model.location.schema, new_name)
    definition = changed(model.definition, name=new_name)
    create_objects(con, place, definition, model.id, model.form)
    prediction.renamed(con, model.id, changed(definition, catalog=catalog))
    return True


def renew(con: duckdb.DuckDBPyConnection, model: StoredModel, identity: str, form: SqlForm) -> None:
    """Give a model another identity in its rows, views and macro, where the macro predicts in ``form``."""
    drop_objects(con, model)
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
