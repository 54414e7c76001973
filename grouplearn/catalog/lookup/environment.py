"""What SQL names mean on a connection: its macros, views and columns with their definitions, and DuckDB's own functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import duckdb

from grouplearn.bind.sql.builtins import functions
from grouplearn.bind.sql.expressions import query_of_view
from grouplearn.catalog.lookup.attached import attachments_of
from grouplearn.catalog.lookup.search_path import Place, here
from grouplearn.sqltext import folded, qualified

#: Places at the end of every path: ``main`` of the default database, and DuckDB's own.
_ALWAYS = 4
#: Functions in expressions that DuckDB does not list.
SYNTAX = frozenset({"unnest", "grouping", "grouping_id", "coalesce", "try", "ifnull", "columns"})
_OF_VALUES = {"scalar", "aggregate", "window", "macro"}
#: A type whose casts recurse as deep as the value is nested, until the stack overflows.
BOTTOMLESS = "variant"
_OF_MEMBERS = frozenset({"ARRAY", "LIST", "MAP", "STRUCT", "UNION", "VARIANT"})
_GENERATED = "GENERATED ALWAYS"
#: The macros, and whether each has the name of a function of DuckDB's own, or of an extension. Listing all functions takes
#: 15 ms, so that it is done once.
_MACROS = (
    "WITH f AS MATERIALIZED (SELECT database_name, schema_name, function_name, function_type, macro_definition, parameters,"
    " internal FROM system.main.duckdb_functions()) SELECT database_name, schema_name, function_name, function_type,"
    " macro_definition, parameters, system.main.lower(function_name) IN"
    " (SELECT system.main.lower(function_name) FROM f WHERE internal)"
    " FROM f WHERE NOT internal AND system.main.suffix(function_type, 'macro')"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """A macro, a view or a generated column (by its table's name): its place and name, folded, and its definition.

    Names in a macro are looked up where it is called; names in a view or column also where that is (``at_home``).
    ``parameters`` are those of a macro; DuckDB does not tell their defaults. ``hides`` a function of DuckDB's own.
    """

    database: str
    schema: str
    name: str
    sql: str
    is_query: bool = False
    parameters: int = 0
    at_home: bool = False
    hides: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """The database and the schema it is in."""
        return self.database, self.schema

    @property
    def whole(self) -> str:
        """Its name in SQL."""
        return qualified(self.database, self.schema, self.name)

    @property
    def drop(self) -> str:
        """The statement that drops a macro."""
        return f"DROP MACRO{' TABLE' if self.is_query else ''} {self.whole}"


#: A view that DuckDB has in every database, such as those of attached databases, settings and logs.
OF_DUCKDB = Definition("", "", "", "")


@dataclass(frozen=True)
class Environment:
    """What names mean on a connection: macros by name, and the databases and schemas in which an unqualified name is found.

    All names are folded as DuckDB does it.
    """

    con: duckdb.DuckDBPyConnection
    macros: Mapping[str, Sequence[Definition]]
    path: tuple[Place, ...]
    databases: frozenset[str]
    _tables: dict[tuple[str, str, str], list[Definition]] = field(default_factory=dict)

    def table(self, places: Iterable[Place], name: str) -> list[Definition] | None:
        """Return what runs when a table or view of that name in any place is read; None if there is none."""
        self._load()
        found = [self._tables[*place, name] for place in places if (*place, name) in self._tables]
        found = [run for run in found if run != [OF_DUCKDB]] or found  # DuckDB's own views come last
        return [each for run in found for each in run] if found else None

    def views(self) -> Iterator[Definition]:
        """Yield the views that somebody made."""
        self._load()
        yield from (each for run in self._tables.values() for each in run if each.is_query)

    def has_function(self, name: str) -> bool:
        """Return whether a function or macro of that name exists anywhere."""
        asked = "SELECT 1 FROM system.main.duckdb_functions() WHERE lower(function_name) = lower(?) LIMIT 1"
        return bool(self.con.execute(asked, [name]).fetchall())

    def hiding(self, places: Set[Place]) -> Iterator[Definition]:
        """Yield the macros in these places that hide one of DuckDB's functions."""
        yield from (each for macros in self.macros.values() for each in macros if each.hides and each.place in places)

    def places(self, database: str, schema: str, path: Sequence[Place] | None = None) -> list[Place]:
        """Return in order the databases and schemas in which DuckDB looks for a name with these qualifiers.

        A single qualifier is a database, searched as on the path or else in ``main``; or a schema, of the databases that
        have it on the path or of the default one. If both exist, DuckDB reports it.
        """
        path = path or self.path
        if database:
            return [(database, schema or "main")]
        if not schema:
            return list(path)
        if schema in self.databases:
            # The path ends with the default database's main, which is not part of the setting, and DuckDB's own places.
            return [place for place in path[:-_ALWAYS] if place[0] == schema] or [(schema, "main")]
        return [place for place in path if place[1] == schema] or [(path[-_ALWAYS][0], schema)]

    @cached_property
    def types(self) -> Mapping[tuple[str, str, str], bool]:
        """User-made types: by database, schema and name, whether their parts are known.

        DuckDB does not list the members of nested types.
        """
        rows = self._folded("type_name, logical_type FROM system.main.duckdb_types() WHERE NOT internal")
        return {(database, schema, name): made_of not in _OF_MEMBERS for database, schema, name, made_of in rows}

    @cached_property
    def with_variants(self) -> frozenset[tuple[str, str, str]]:
        """The tables and views with a column of type VARIANT: database, schema and name."""
        rows = self._folded("table_name, data_type FROM system.main.duckdb_columns() WHERE NOT internal")
        return frozenset(
            (database, schema, name) for database, schema, name, kind in rows if BOTTOMLESS in folded(kind)
        )

    def _load(self) -> None:
        if self._tables:
            return
        self._tables["", "", ""] = []  # marks it as loaded, even if empty
        generated = []
        for *key, sql in self._folded("table_name, sql FROM system.main.duckdb_tables()"):
            self._tables.setdefault((*key,), [])
            generated += [tuple(key)] if _GENERATED in sql.upper() else []
        for *key, sql, internal in self._folded("view_name, sql, internal FROM system.main.duckdb_views()"):
            run = (
                [OF_DUCKDB]
                if internal
                else [Definition(key[0], key[1], key[2], query_of_view(sql), is_query=True, at_home=True)]
            )
            self._tables.setdefault((*key,), []).extend(run)
        columns = "table_name, column_default FROM system.main.duckdb_columns() WHERE column_default IS NOT NULL"
        for *key, sql in self._folded(columns) if generated else ():
            if tuple(key) in generated:
                self._tables[*key,].append(Definition(key[0], key[1], key[2], sql, at_home=True))

    def _folded(self, rest: str) -> Iterator[tuple[Any, ...]]:
        query = f"SELECT database_name, schema_name, {rest}"
        for database, schema, name, *others in self.con.execute(query).fetchall():
            yield folded(database), folded(schema), folded(name), *(other or "" for other in others)


def environment_of(con: duckdb.DuckDBPyConnection) -> Environment:
    """Return what names mean on a connection."""
    macros: dict[str, list[Definition]] = {}
    for database, schema, written, kind, definition, parameters, hides in con.execute(_MACROS).fetchall():
        name, is_query, most = folded(written), kind == "table_macro", len(parameters or ())
        macro = Definition(folded(database), folded(schema), name, definition or "", is_query, most)
        macros.setdefault(name, []).append(replace(macro, hides=hides or name in SYNTAX))
    now = attachments_of(con)
    databases = frozenset(folded(each.name) for each in now.attached) | {"temp"}
    return Environment(con, macros, here(now), databases)


@dataclass(frozen=True)
class _Own:
    names: frozenset[str]
    of_rows: frozenset[str]


@lru_cache
def own_functions() -> _Own:
    """Return the names of DuckDB's functions before anything was added."""
    every = functions()
    of_rows = {name for name, found in every.items() if found.kinds & {"table", "table_macro", "pragma"}}
    return _Own(frozenset(name for name, found in every.items() if found.kinds & _OF_VALUES), frozenset(of_rows))
