"""Which models exist and where: all that dropping, replacing or finding a model needs."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from grouplearn.catalog.schema import Location, has_schema, table
from grouplearn.sqltext import folded, literal


@dataclass(frozen=True, slots=True)
class Identity:
    """A model's identity, new with every training, and its place."""

    id: str
    location: Location


def identity_at(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> Identity | None:
    """Return the identity of the model of that name (case does not matter) without its definition, or None."""
    if not has_schema(con, catalog):
        return None
    alike = con.execute(
        f"SELECT model::VARCHAR, schema_name, model_name FROM {table(catalog, 'models')}"
        f" WHERE lower(model_name) = lower({literal(name)})"
    ).fetchall()
    # lower() equates letters that DuckDB tells apart in names; few rows have one name, and each condition takes 0.4 ms.
    found = (row for row in alike if (folded(row[1]), folded(row[2])) == (folded(schema), folded(name)))
    return next((Identity(row[0], Location(catalog, row[1], row[2])) for row in found), None)


def schemas_of(con: duckdb.DuckDBPyConnection, catalog: str, name: str) -> list[str]:
    """Return the schemas with a model of that name according to the database's rows, existing or not."""
    if not has_schema(con, catalog):
        return []
    own = f"lower(model_name) = lower({literal(name)})"
    found = con.execute(
        f"SELECT DISTINCT schema_name, model_name FROM {table(catalog, 'models')} WHERE {own} ORDER BY ALL"
    ).fetchall()
    return list(dict.fromkeys(schema for schema, model in found if folded(model) == folded(name)))
