"""Stores, renames and drops models of several learners, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import duckdb

from grouplearn.catalog.checks.damage import damaged
from grouplearn.catalog.checks.fragments import query_of
from grouplearn.catalog.combinations import Combination, combination_of, identity_of
from grouplearn.catalog.models import load_definition
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import Location, current_database, ensure_schema, table
from grouplearn.models.outputs.output import Endpoint
from grouplearn.prediction.combined import macro_sql, view_sql
from grouplearn.prediction.macro import macro_comment
from grouplearn.sqltext import folded, literal
from grouplearn.store import objects, writer


def write(con: duckdb.DuckDBPyConnection, combination: Combination) -> None:
    """Store that a model is of several learners, whose models are stored, with its view and macros."""
    at = combination.location
    names = ", ".join(map(literal, combination.learners))
    values = f"{literal(at.schema)}, {literal(at.name)}, [{names}], {literal(combination.statement)}"
    con.execute(f"INSERT INTO {table(at.catalog, 'combinations')} VALUES ({values})")
    create_objects(con, combination)


def create_objects(con: duckdb.DuckDBPyConnection, combination: Combination) -> None:
    """Create the view and the macros of a model of several learners."""
    at, members = combination.location, members_of(con, combination)
    query, comment = view_sql(members)
    checks = [query_of(member.definition, con) for member in members]
    statements = [f"CREATE VIEW {at.sql()} AS {query}", f"COMMENT ON VIEW {at.sql()} IS {objects.shown(comment)}"]
    queries = [query]
    database = None if folded(at.catalog) == folded(current_database(con)) else at.catalog
    for endpoint in endpoints_of_all(members):
        macro = at.sql(endpoint.suffix)
        head, query = macro_sql(members, macro, endpoint, database)
        queries.append(query)
        told = macro_comment(members[0].definition, endpoint)
        statements += [head + query, f"COMMENT ON MACRO TABLE {macro} IS {objects.shown(told)}"]
    for check in checks:
        for query in queries:
            check(query)
    objects.run(con, statements)


def endpoints_of_all(members: Sequence[StoredModel]) -> list[Endpoint]:
    """Return the macros that every learner has."""
    outputs = [{endpoint.suffix for endpoint in member.definition.output.endpoints} for member in members]
    return [each for each in members[0].definition.output.endpoints if all(each.suffix in own for own in outputs)]


def members_of(con: duckdb.DuckDBPyConnection, combination: Combination) -> list[StoredModel]:
    """Return the models of the learners; raises DataError if one is gone."""
    found = [load_definition(con, at.catalog, at.schema, at.name) for at in combination.members]
    for at, member in zip(combination.members, found, strict=True):
        if member is None:
            raise damaged(at.catalog, combination.location.name, "combinations", f'there is no model "{at.name}"')
    return [member for member in found if member is not None]


@contextmanager
def changing(con: duckdb.DuckDBPyConnection, model: Location) -> Iterator[None]:
    """Make the view and macros anew that choose among learners, if the model that the block changes is one of theirs."""
    combination = combination_of(con, model)
    if combination is not None:
        drop_objects(con, combination)
    yield
    if combination is not None:
        create_objects(con, combination)


def drop_objects(con: duckdb.DuckDBPyConnection, combination: Combination) -> None:
    """Drop the view and the macros of a model of several learners."""
    known = identity_of(con, combination)
    if known is not None:
        objects.drop_objects(con, known)


def drop(con: duckdb.DuckDBPyConnection, combination: Combination, keep: frozenset[str] = frozenset()) -> None:
    """Drop a model of several learners and the models of its learners, but those in ``keep``."""
    ensure_schema(con, combination.location.catalog)
    drop_objects(con, combination)
    con.execute(f"DELETE FROM {combination.rows}")
    for learner, at in zip(combination.learners, combination.members, strict=True):
        if learner not in keep:
            writer.drop(con, at.catalog, at.schema, at.name)


def rename(con: duckdb.DuckDBPyConnection, combination: Combination, new_name: str) -> None:
    """Rename a model of several learners and the models of its learners; raises ModelExists if a name is taken."""
    old = combination.location
    renamed = replace(combination, location=Location(old.catalog, old.schema, new_name))
    ensure_schema(con, old.catalog)
    drop_objects(con, combination)
    con.execute(f"DELETE FROM {combination.rows}")
    for before, after in zip(combination.members, renamed.members, strict=True):
        writer.rename(con, before.catalog, before.schema, before.name, after.name)
    write(con, renamed)
