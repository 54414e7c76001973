"""Explains why rows cannot be read: DuckDB's error shows our query, while the user wrote only a feature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import duckdb

from grouplearn.bind.sql.checker import Column
from grouplearn.catalog.records import ModelDefinition
from grouplearn.data.encoding import types
from grouplearn.models.definition import ROW
from grouplearn.sqltext import folded


def unreadable(connection: duckdb.DuckDBPyConnection, relation: str, numbers: Mapping[str, str]) -> str | None:
    """Return which of ``numbers`` (SQL over ``relation``, by name) raises, and in how many rows; else None.

    Nothing is raised, so that the transaction continues. Expressions that TRY cannot wrap, as they have a subquery, are
    left out.
    """

    def query(texts: Iterable[str]) -> str:
        counts = (f"count(*) FILTER (TRY({{'v': CAST(({sql}\n) AS DOUBLE)}}) IS NULL)" for sql in texts)
        return f"SELECT {', '.join(counts)} FROM {relation} AS {ROW}"

    tried = {name: sql for name, sql in numbers.items() if _types(connection, query([sql]))}
    if not tried:
        return None
    counts = connection.execute(query(tried.values())).fetchall()[0]
    found = next(((name, rows) for name, rows in zip(tried, counts, strict=True) if rows), None)
    return f"{found[0]} is no number in {found[1]:,} of them" if found else None


def features(definition: ModelDefinition) -> dict[str, str]:
    """Return a model's numeric features."""
    return {f'feature "{entry.item.name}"': entry.expression for entry in definition.items if entry.item.is_number}


def doubtful(
    connection: duckdb.DuckDBPyConnection, definition: ModelDefinition, relation: str, columns: Sequence[Column]
) -> dict[str, str]:
    """Return the numbers of a model whose computation may raise for rows with these columns.

    Usually there are none, and the rows need not be read for it.
    """
    texts = [folded(column.name) for column in columns if types.kind(column.type) != "numeric"]
    target = definition.target_sql
    label = {"the label": target} if target is not None and definition.label.is_number else {}
    numbers = {
        name: sql
        for name, sql in {**features(definition), **label}.items()
        if any(text in folded(sql) for text in texts)
    }
    listed = ", ".join(f"({sql}\n)" for sql in numbers.values())
    kinds = _types(connection, f"SELECT {listed} FROM {relation} AS {ROW}") if numbers else []
    return {
        name: sql
        for (name, sql), kind in zip(numbers.items(), kinds, strict=False)
        if types.kind(kind) != "numeric" or "::" in sql or "cast" in folded(sql)
    }


def _types(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """Return the types of a query's columns, none where DuckDB refuses it."""
    try:
        return [str(kind) for kind in connection.sql(query).types]
    except duckdb.Error:
        return []
