"""Facts about SQL expressions, asked of DuckDB's own parser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from grouplearn.parser.statements import Sql


def _parsed(connection: duckdb.DuckDBPyConnection, fragment: Sql) -> dict[str, Any] | None:
    rows = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {fragment.text}"]).fetchall()
    tree: dict[str, Any] = json.loads(rows[0][0])
    return None if tree["error"] else tree


def _column_references(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield node
        for child in node.values():
            yield from _column_references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _column_references(child)


def columns_used(connection: duckdb.DuckDBPyConnection, fragment: Sql, columns: frozenset[str]) -> frozenset[str]:
    """Return those of ``columns`` (folded to lower case) that the expression mentions, qualified or not."""
    tree = _parsed(connection, fragment)
    parts = (part.casefold() for node in _column_references(tree) for part in node["column_names"])
    return frozenset(parts) & columns


def without_qualifiers(connection: duckdb.DuckDBPyConnection, fragment: Sql, columns: frozenset[str]) -> str:
    """Return the expression with table qualifiers taken off its columns: ``f.distance + 1`` -> ``distance + 1``.

    The result must read the same columns from any source at prediction time, where the table has another name. A first
    part that is itself a column (a struct) is kept.
    """
    tree = _parsed(connection, fragment)
    changed = False
    for node in _column_references(tree):
        names = node["column_names"]
        while len(names) > 1 and names[0].casefold() not in columns:
            names.pop(0)
            changed = True
    if not changed:
        return fragment.text
    text: str = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()[0][0]
    return text.removeprefix("SELECT ")
