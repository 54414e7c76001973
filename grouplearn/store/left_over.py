"""What remains of a model whose tables are gone, as after ``DROP SCHEMA grouplearn CASCADE``: its views and its macro."""

from __future__ import annotations

import duckdb

from grouplearn.catalog import views
from grouplearn.catalog.identities import identity_at
from grouplearn.catalog.schema import Location, views_changed
from grouplearn.sqltext import folded, literal


def left_over(con: duckdb.DuckDBPyConnection, place: Location) -> list[str]:
    """Return the SQL that drops the views and macro of a missing model, recognised by our comments.

    It is empty if the view with the model's own name is not ours.
    """
    where = f"lower(database_name) = lower({literal(place.catalog)}) AND lower(schema_name) = lower({literal(place.schema)})"
    found = con.execute(
        f"SELECT view_name, comment FROM system.main.duckdb_views() WHERE {where} AND comment IS NOT NULL UNION ALL "
        f"SELECT function_name, comment FROM system.main.duckdb_functions() WHERE {where} AND function_type = 'table_macro'"
    ).fetchall()
    comments = {folded(name): comment or "" for name, comment in found}
    ours = {
        **{end: ("MACRO TABLE", text) for end, text in views.macro_comments().items()},
        **{end: ("VIEW", text) for end, text in views.comments().items()},
    }
    drops = {
        suffix: f"DROP {kind} {place.sql(suffix)}"
        for suffix, (kind, text) in ours.items()
        if comments.get(folded(f"{place.name}{suffix}"), "").startswith(text)
    }
    return [*drops.values()] if "" in drops else []


def drop_left_over(con: duckdb.DuckDBPyConnection, place: Location) -> bool:
    """Drop what remains of a missing model; return False if nothing does."""
    drops = left_over(con, place)
    for statement in drops:
        con.execute(statement)
    views_changed(con)
    return bool(drops)


def hint_for_occupied_place(con: duckdb.DuckDBPyConnection, place: Location, written: str) -> str:
    """Return the hint if another object is in the place of a model that is ``written`` so."""
    if identity_at(con, place.catalog, place.schema, place.name) is not None:
        return f"It is not the model's own: rename or drop it, as {written} needs the name, or choose another for the model."
    if left_over(con, place):
        return f"It is left of a model whose tables are gone: DROP MODEL {written} removes it."
    return "Choose another name."
