"""The schema ``grouplearn`` of a user's database, and the names of the objects that belong to a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import duckdb

from grouplearn.catalog.checks.tables import (
    SCHEMA,
    USERS,
    VERSION,
    Listed,
    Table,
    Views,
    creation,
    listed,
    listed_with_views,
    refuse_foreign,
    refuse_triggers,
    refuse_views,
    tables_in,
    views_listed,
)
from grouplearn.errors import NotSupportedHere, OtherVersion
from grouplearn.models.forms import forms
from grouplearn.sqltext import folded, identifier, qualified

TABLES = (
    "models",
    "groups",
    "configs",
    "trials",
    "curves",
    "artifacts",
    "states",
    "refreshed",
    "watermarks",
    "units",
    "errors",
    "profiles",
    "held_out",
    *forms.TABLES,
)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a model is: database, schema and name, none of them quoted."""

    catalog: str
    schema: str
    name: str

    def sql(self, suffix: str = "") -> str:
        """Return the quoted, fully qualified name of the model or of one of its objects, such as ``_weights``."""
        return qualified(self.catalog, self.schema, self.name + suffix)

    def __str__(self) -> str:
        return ".".join((self.catalog, self.schema, self.name))


def table(catalog: str | None, name: str) -> str:
    """Return a catalog table's qualified name for statements that run now; without a database, for a view in its own."""
    return qualified(catalog, SCHEMA, name)


def first_row(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...] | None:
    """Return the first row of a query, or None; the result is read to its end, as the connection's next user requires."""
    found = con.execute(sql).fetchall()
    return found[0] if found else None


def current_database(con: duckdb.DuckDBPyConnection) -> str:
    """Return the name of the connection's default database."""
    known = _LOOKED.get(con, _Looked()).database
    if known is not None:
        return known
    return str(con.execute("SELECT system.main.current_database()").fetchall()[0][0])


def databases_with_models(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the attached databases that have schema ``grouplearn``; raises as ``has_schema`` does."""
    found = tables_in(tables_of(con))
    refuse_views(con)
    return [catalog for catalog in sorted(found) if _is_ours(con, catalog, found[catalog])]


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was read in a lasting transaction: the default database, all tables and views, whether databases have our
    tables, and databases without triggers."""

    database: str | None = None
    tables: list[Listed] = field(default_factory=list)
    views: list[Views] = field(default_factory=list)
    ours: dict[str, bool] = field(default_factory=dict)
    untriggered: set[str] = field(default_factory=set)
    own: bool = False
    storing: bool = False


_LOOKED: WeakKeyDictionary[Any, _Looked] = WeakKeyDictionary()


@contextmanager
def seen_once(
    con: duckdb.DuckDBPyConnection, database: str | None = None, *, own: bool = False, storing: bool = False
) -> Iterator[None]:
    """Read the tables of a database only once in the body, a transaction in which only we run statements.

    It does not see what others commit, and our own changes are read again. ``database`` is the connection's default
    database now: none of our statements changes it. ``own``: we began the transaction, not the user. ``storing``: it
    stores a model, or asks whether one could be stored, so that views are read with the tables.
    """
    if con in _LOOKED:
        yield
        return
    _LOOKED[con] = _Looked(database, own=own, storing=storing)
    try:
        yield
    finally:
        del _LOOKED[con]


def in_own_transaction(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether we began the connection's transaction, so that the user has changed nothing in it."""
    return con in _LOOKED and _LOOKED[con].own


def tables_of(con: duckdb.DuckDBPyConnection) -> Listed:
    """Return all tables of all databases, including those uncommitted on this connection."""
    looked = _LOOKED.get(con, _Looked())
    if not looked.tables and looked.storing:
        tables, views = listed_with_views(con)
        looked.tables.append(tables)
        looked.views[:] = [views]
    elif not looked.tables:
        looked.tables.append(listed(con))
    return looked.tables[0]


def views_of(con: duckdb.DuckDBPyConnection) -> Views:
    """Return all views of all databases, including those uncommitted on this connection."""
    known = _LOOKED.get(con, _Looked()).views
    return known[0] if known else views_listed(con)


def names_of_views(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of all views but DuckDB's own."""
    return [name for _, _, name, _, kind in views_of(con) if kind == USERS]


def views_changed(con: duckdb.DuckDBPyConnection) -> None:
    """Read views again: a statement of ours has made or dropped some in this transaction."""
    _LOOKED.get(con, _Looked()).views.clear()


def has_schema(con: duckdb.DuckDBPyConnection, catalog: str) -> bool:
    """Return whether the database has the catalog tables, including those uncommitted on this connection.

    Raises OtherVersion if another version of grouplearn made them, NotTrusted if no version did.
    """
    known = _LOOKED.get(con, _Looked()).ours
    if (ours := known.get(folded(catalog))) is not None:
        return ours
    found = tables_in(tables_of(con))
    own = next((name for name in found if folded(name) == folded(catalog)), None)
    if own is None or "models" not in found[own]:
        refuse_views(con, catalog)
    ours = known[folded(catalog)] = own is not None and _is_ours(con, own, found[own])
    return ours


def _is_ours(con: duckdb.DuckDBPyConnection, catalog: str, found: Mapping[str, Table]) -> bool:
    if "models" not in found:
        return False
    version = 0
    if "schema_version" in found:
        refuse_foreign(con, catalog, found, ("schema_version",))  # the same in every version
        row = first_row(con, f"SELECT version FROM {table(catalog, 'schema_version')}")
        version = row[0] if row and isinstance(row[0], int) else 0
    _refuse_other_version(catalog, version)
    refuse_foreign(con, catalog, found)
    return True


def _refuse_other_version(catalog: str, version: int) -> None:
    if version == VERSION:
        return
    hint = (
        "open the database with the grouplearn that made it; or train again: "
        f"DROP SCHEMA {qualified(catalog, SCHEMA)} CASCADE, DROP MODEL for what is left of each, and TRAIN"
    )
    made = "a later" if version > VERSION else "an earlier"
    message = f'the models in database "{catalog}" were made by {made} version of grouplearn'
    raise OtherVersion(
        f"{message}: their tables have version {version}, and this one reads version {VERSION}", hint=hint
    )


def ensure_schema(con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> None:
    """Create schema ``grouplearn`` in a database (None: the default one) unless it is there.

    Raises NotSupportedHere for a database that is itself named ``grouplearn``: DuckDB cannot tell it from the schema.
    """
    catalog = catalog or current_database(con)
    if folded(catalog) == SCHEMA:
        raise NotSupportedHere(
            f'a database named "{catalog}" cannot hold models: its schema {SCHEMA} would have the same name',
            hint=f"rename the file, or ATTACH it AS another name, such as {identifier('models')}",
        )
    looked = _LOOKED.get(con, _Looked())
    if folded(catalog) not in looked.untriggered:
        refuse_triggers(con, catalog)
        looked.untriggered.add(folded(catalog))
    if has_schema(con, catalog):
        return
    place = qualified(catalog, SCHEMA)
    con.execute(creation().replace(f"{SCHEMA}.", f"{place}.").replace(f"EXISTS {SCHEMA};", f"EXISTS {place};"))
    looked.tables.clear()
    looked.ours.clear()
    looked.untriggered.clear()
