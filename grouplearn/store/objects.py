"""The views and macros of models in the user's schemas, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.checks.fragments import query_of
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.checks.trust import check
from grouplearn.catalog.combinations import combination_at, identity_of
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.schema import (
    Location,
    current_database,
    in_own_transaction,
    tables_of,
    views_changed,
    views_of,
)
from grouplearn.errors import data_error
from grouplearn.learners import registry
from grouplearn.models.forms.conformal import level_of
from grouplearn.models.forms.drift import endpoints_of
from grouplearn.models.forms.form import SqlForm
from grouplearn.models.outputs.output import PREDICT
from grouplearn.prediction.macro import macro_comment, macro_sql
from grouplearn.sqltext import folded, literal, qualified
from grouplearn.visible import visible_lines

#: Kind, name and definition of the objects in a schema.
Objects = list[tuple[Literal["table", "view", "macro"], str, str]]


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
    return in_the_way(name, model, objects_at(con, catalog, schema, name, macros=macros), (*suffixes, *macros))


def seems_untouched(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> bool:
    """Return whether each table or view in the place of one of the model's views has the comment of ours.

    Reading definitions, as ``exists`` does, would make DuckDB write out those of all views.
    """
    told = views.comments()
    wanted = {folded(f"{name}{suffix}"): suffix for suffix in told}
    found = [(wanted[folded(each)], comment) for _, each, comment in _tables_and_views(con, catalog, schema, wanted)]
    return all(comment.startswith(told[suffix]) for suffix, comment in found)


def in_the_way(name: str, model: Identity | None, objects: Objects, suffixes: Collection[str]) -> NameTaken | None:
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


def objects_at(
    con: duckdb.DuckDBPyConnection,
    catalog: str,
    schema: str,
    name: str,
    also: Iterable[str] = (),
    macros: Iterable[str] = (PREDICT.suffix,),
) -> Objects:
    """Return kind, name and (except for tables) definition of a schema's objects with the names of a model's objects, and
    with those in ``also``. Without any macro with one of the suffixes ``macros`` no other macro is looked for: every model has
    the first."""
    wanted = {folded(f"{name}{suffix}") for suffix in (*views.comments(), *views.macro_comments())}
    wanted |= set(map(folded, also))
    found: Objects = [(kind, each, "") for kind, each, _ in _tables_and_views(con, catalog, schema, wanted)]
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


def create_objects(
    con: duckdb.DuckDBPyConnection, location: Location, definition: ModelDefinition, model: str, form: SqlForm
) -> None:
    """Create the views and the macros of a model whose rows are in the catalog.

    Raises DataError if its learner is unknown, and with it what they are made of.
    """
    refuse_unregistered(definition)
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
    for endpoint in endpoints_of(definition.output):
        macro = location.sql(endpoint.suffix)
        stored = StoredModel(model, location, definition, form)
        head, query = macro_sql(stored, macro, endpoint, database)
        other = level_of(definition) if endpoint is PREDICT else None
        if other is None:
            statements.append(head + checked(query))
        else:
            # Another macro of the name, which DuckDB takes where the parameter is given: predictions without it cost no more.
            second, of_level = macro_sql(stored, "", other, database)
            statements.append(f"{head}({checked(query)}), {second.removeprefix('CREATE MACRO ')}({checked(of_level)})")
        statements.append(f"COMMENT ON MACRO TABLE {macro} IS {shown(macro_comment(definition, endpoint))}")
    run(con, statements)


def refuse_unregistered(definition: ModelDefinition) -> None:
    """Raise DataError if a model's learner is unknown, and with it what its views and macros are made of."""
    if not registry.is_known(definition.learner):
        how = registry.how_to_register(definition.learner)
        raise data_error(
            f"the learner {definition.learner} is not registered in this process\n\nHint: {how} comes first"
        )


def run(con: duckdb.DuckDBPyConnection, statements: Iterable[str]) -> None:
    """Run statements as one text."""
    con.execute("\n;\n".join(statements))
    views_changed(con)


def shown(comment: str) -> str:
    """Return a comment as a literal for COMMENT ON, which accepts no expressions; people read it."""
    return literal(visible_lines(comment))


def drop_objects(con: duckdb.DuckDBPyConnection, model: StoredModel | Identity) -> None:
    """Drop the views and macros of a model."""
    location = model.location
    place, start = (folded(location.catalog), folded(location.schema)), f"{folded(location.name)}_"
    # The views of an output that only an unknown learner has, too.
    views_of_it = [
        name
        for database, schema, name, *_ in views_of(con)
        if (folded(database), folded(schema)) == place and folded(name).startswith(start)
    ]
    run(con, drops(model, objects_at(con, location.catalog, location.schema, location.name, also=views_of_it)))


def drops(model: StoredModel | Identity, objects: Objects) -> list[str]:
    """Return the SQL that drops our objects; those that have such a name but do not mention the model are the user's."""
    catalog, schema = model.location.catalog, model.location.schema
    ours = dict.fromkeys((kind, found) for kind, found, sql in objects if model.id in sql and kind in ("view", "macro"))
    return [
        f"DROP {'VIEW' if kind == 'view' else 'MACRO TABLE'} {qualified(catalog, schema, found)}"
        for kind, found in ours
    ]
