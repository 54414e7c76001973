"""The schema ``grouplearn`` of a user's database, and the names of the objects that belong to a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog.tables import SCHEMA, Table, refuse_foreign, refuse_triggers, scripts, tables_in
from grouplearn.errors import NotSupportedHere, OtherVersion
from grouplearn.sqltext import folded, identifier, qualified

#: The version of the tables that this code reads and writes; a database has its own in ``grouplearn.schema_version``.
VERSION = 3
#: The oldest version that is read as it is, and brought up to ``VERSION`` when a model is written.
OLDEST = 1
TABLES = (
    "models", "groups", "configs", "trials", "curves", "artifacts", "units", "errors", "trees", "nodes", "layers",
)  # fmt: skip
#: The version that brought a column, of those that the first had not; older tables and exports are read as if it were NULL.
SINCE = {
    "models": {"item_types": 3, "positive_class": 3, "weight_sql": 3, "null_label": 3, "refit": 3},
    "trials": {"converged": 3},
}


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
    """Return the qualified name of a catalog table for statements that run now; without a database, for a view in its own."""
    return qualified(catalog, SCHEMA, name)


def first_row(con: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...] | None:
    """Return the first row of a query, or None; the result is read to its end, as the connection's next user needs."""
    found = con.execute(sql).fetchall()
    return found[0] if found else None


def current_database(con: duckdb.DuckDBPyConnection) -> str:
    """Return the name of the connection's default database."""
    return str(con.execute("SELECT current_database()").fetchall()[0][0])


def databases_with_models(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the attached databases that have schema ``grouplearn``; raises as ``has_schema`` does."""
    found = tables_in(con)
    return [catalog for catalog in sorted(found) if _is_ours(con, catalog, found[catalog])]


def has_schema(con: duckdb.DuckDBPyConnection, catalog: str) -> bool:
    """Return whether the database has the catalog tables, uncommitted ones of this connection included.

    Raises OtherVersion when another version of grouplearn made them, and NotTrusted when they are not as any has made them.
    """
    found = tables_in(con)
    own = next((name for name in found if folded(name) == folded(catalog)), None)
    return own is not None and _is_ours(con, own, found[own])


def _is_ours(con: duckdb.DuckDBPyConnection, catalog: str, found: Mapping[str, Table]) -> bool:
    if "models" not in found:
        return False
    version = 0
    if "schema_version" in found:
        refuse_foreign(con, catalog, found, OLDEST, ("schema_version",))  # which is the same in every version
        version = _version(con, catalog)
    _refuse_other_version(catalog, version)
    refuse_foreign(con, catalog, found, version)
    return True


def _version(con: duckdb.DuckDBPyConnection, catalog: str) -> int:
    row = first_row(con, f"SELECT version FROM {table(catalog, 'schema_version')}")
    return row[0] if row and isinstance(row[0], int) else 0


def version_of(con: duckdb.DuckDBPyConnection, catalog: str) -> int:
    """Return the version of the catalog tables of a database, 0 where there are none; raises as ``has_schema`` does."""
    if not has_schema(con, catalog):
        return 0
    return _version(con, catalog)


def columns_lacking(name: str, version: int) -> list[str]:
    """Return the columns that a catalog table of that version has not."""
    return [column for column, since in SINCE.get(name, {}).items() if since > version]


def selected(columns: str, name: str, version: int) -> str:
    """Return a list of columns for SELECT from a catalog table of that version: NULL for those that it has not."""
    lacking = columns_lacking(name, version)
    parts = [column.strip() for column in columns.split(",")]
    return ", ".join(f"NULL AS {part}" if part in lacking else part for part in parts)


def _refuse_other_version(catalog: str, version: int) -> None:
    if OLDEST <= version <= VERSION:
        return
    hint = (
        f"open the database with the grouplearn that made it; or drop its models, to train them again: "
        f"DROP SCHEMA {qualified(catalog, SCHEMA)} CASCADE, and the models' views and macros"
    )
    made = "a later" if version > VERSION else "an earlier"
    message = f'the models in database "{catalog}" were made by {made} version of grouplearn'
    raise OtherVersion(
        f"{message}: their tables have version {version}, and this one reads versions {OLDEST} to {VERSION}", hint=hint
    )


def ensure_schema(con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> None:
    """Create schema ``grouplearn`` and its tables in a database (None: the default one), or what they lack.

    Raises NotSupportedHere for a database that is itself named ``grouplearn``: DuckDB cannot tell it from the schema.
    """
    catalog = catalog or current_database(con)
    if folded(catalog) == SCHEMA:
        raise NotSupportedHere(
            f'a database named "{catalog}" cannot hold models: its schema {SCHEMA} would have the same name',
            hint=f"rename the file, or ATTACH it AS another name, such as {identifier('models')}",
        )
    refuse_triggers(con, catalog)
    place, made = qualified(catalog, SCHEMA), version_of(con, catalog)
    for script in scripts()[made:]:
        con.execute(script.replace(f"{SCHEMA}.", f"{place}.").replace(f"EXISTS {SCHEMA};", f"EXISTS {place};"))
