"""Which model a name means, in statements and ``predict``: as DuckDB finds the model's views and macro.

A name alone is looked for in the schemas of the search path, and in ``main`` of the default database; ``q.m`` in ``main`` of
database q or, where there is none, in a schema q of the search path or of the default database; ``d.s.m`` is one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from grouplearn.catalog.lookup import search_path
from grouplearn.catalog.lookup.attached import Attachments, attachments_of
from grouplearn.catalog.lookup.search_path import Place
from grouplearn.catalog.schema import has_schema, table
from grouplearn.errors import Error
from grouplearn.messages import did_you_mean
from grouplearn.sqltext import folded, written

#: Most model names in an error.
_LISTED = 50


def places(qualifiers: Sequence[str], here: Attachments) -> list[Place]:
    """Return in order the places where a model with these qualifiers is looked up."""
    databases = {folded(each.name): each.name for each in here.users}
    path = [*search_path.current(here), (here.database, "main")]
    match [*qualifiers]:
        case []:
            found = path
        case [qualifier] if folded(qualifier) in databases:
            found = [(qualifier, "main")]
        case [qualifier]:
            same = [place for place in path if folded(place[1]) == folded(qualifier)]
            found = [*same, (here.database, qualifier)]
        case [database, schema]:
            found = [(database, schema)]
        case _:
            found = []
    attached = [(databases[folded(name)], schema) for name, schema in found if folded(name) in databases]
    first: dict[Place, Place] = {}
    for name, schema in attached:
        first.setdefault((folded(name), folded(schema)), (name, schema))
    return list(first.values())


def is_at(place: Place, name: str, model: tuple[str, str, str]) -> bool:
    """Return whether a model, told by its database, schema and name, is the one of that name at a place."""
    return all(folded(own) == folded(other) for own, other in zip((*place, name), model, strict=True))


#: Models per database that are read to find or suggest one: a file may list any number.
MOST_READ = 10_000


def every_name(con: duckdb.DuckDBPyConnection, here: Attachments) -> list[tuple[str, str, str]]:
    """Return database, schema and name of the models there are, those of the default database first.

    A database whose tables are not ours has none, and of another only some are read: this is for finding out which name may
    have been meant.
    """
    found: list[tuple[str, str, str]] = []
    for database in sorted((each.name for each in here.users), key=lambda name: (name != here.database, name)):
        try:
            if has_schema(con, database):
                query = (
                    f"SELECT DISTINCT schema_name, model_name FROM {table(database, 'models')}"
                    f" ORDER BY model_name, schema_name LIMIT {MOST_READ}"
                )
                found += [(database, schema, name) for schema, name in con.execute(query).fetchall()]
        except Error:
            continue
    return found


def reference(model: tuple[str, str, str], here: Attachments) -> str:
    """Return the shortest name that means the model here."""
    database, schema, name = model
    for qualifiers in ((), (database,) if schema == "main" else (schema,)):
        first = next(iter(places(qualifiers, here)), None)
        if first is not None and is_at(first, name, model):
            return ".".join(map(written, (*qualifiers, name)))
    return ".".join(map(written, model))


def with_database(model: tuple[str, str, str]) -> str:
    """Return the name that means a model wherever it is read: ``shop.m``, or ``shop.s.m`` of another schema than main."""
    database, schema, name = model
    return ".".join(map(written, (database, name) if schema == "main" else model))


def suggestion(con: duckdb.DuckDBPyConnection, name: str, given: str) -> tuple[list[str], str | None]:
    """Return the names of existing models, and a hint with the one that may be meant by a name, qualified as it was given."""
    here = attachments_of(con)
    models = every_name(con, here)
    return [reference(model, here) for model in models], hint(name, models, here, given)


def listed(known: Sequence[str]) -> str:
    """Return a line of a message with these models, or that there is none."""
    more = f", and {len(known) - _LISTED:,} more" if len(known) > _LISTED else ""
    return f"\nModels: {', '.join(known[:_LISTED])}{more}" if known else "\nThere is no model yet."


def hint(name: str, models: Sequence[tuple[str, str, str]], here: Attachments, given: str | None = None) -> str | None:
    """Return ``Did you mean "s.m"?`` for the first of these models whose own name is closest, or None.

    The very name that was given is never suggested: it exists only if the asking transaction has dropped it.
    """
    first = {own: reference((database, schema, own), here) for database, schema, own in reversed(models)}
    others = {own: where for own, where in first.items() if folded(where) != folded(given or name)}
    return did_you_mean(name, others, others)
