"""Answers of statements as SQL: a SELECT of the rows for the user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import duckdb

from grouplearn import sqltext
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.visible import visible


def notice(message: str) -> str:
    """Return a SELECT of one sentence, with hidden characters made visible."""
    return f"SELECT {sqltext.string(visible(message))} AS result"


def column(name: str, lines: list[str]) -> str:
    """Return a SELECT of one text column with its rows in order."""
    return table((name,), [(line,) for line in lines])


def table(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a SELECT of literal rows, in order."""
    values = ", ".join("(" + ", ".join(sqltext.literal(value) for value in row) + ")" for row in rows)
    columns = ", ".join(sqltext.identifier(name) for name in names)
    return f"SELECT * FROM (VALUES {values}) AS t({columns})"


def typed(columns: Mapping[str, str], rows: list[tuple[Any, ...]]) -> str:
    """Return a SELECT of literal rows, in order; there may be none. ``columns`` are names and DuckDB types."""
    casts = ", ".join(
        f"{sqltext.identifier(name)}::{type_} AS {sqltext.identifier(name)}" for name, type_ in columns.items()
    )
    literal = table(tuple(columns), rows or [(None,) * len(columns)])
    return f"SELECT {casts} FROM ({literal}){'' if rows else ' WHERE false'}"


def fixed(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return a SELECT of the rows that a query has now, in order: a list of texts per column, which DuckDB parses fast."""
    columns = "CAST(COLUMNS(*) AS VARCHAR), system.main.typeof(COLUMNS(*))"
    asked = connection.execute(f"SELECT {columns} FROM ({query})")
    described, rows = asked.description or [], asked.fetchall()
    width = len(described) // 2
    names = [name for name, *_ in described[:width]]
    kinds = rows[0][width:] if rows else map(str, connection.sql(query).types)
    lists = (json.dumps([row[place] for row in rows]) for place in range(width))
    selected = ", ".join(
        f"unnest(CAST(system.main.from_json({sqltext.literal(values)}, '[\"VARCHAR\"]') AS {kind}[]))"
        f" AS {sqltext.identifier(name)}"
        for name, kind, values in zip(names, kinds, lists, strict=True)
    )
    return f"SELECT {selected}"


def shown(value: Any) -> str:
    """Return a hyperparameter's value in readable form."""
    return "none" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def allowed(parameter: Hyperparameter) -> str:
    """Return the values that a hyperparameter may have."""
    if parameter.choices:
        return ", ".join(parameter.choices)
    low, high = parameter.low, parameter.high
    if low is None and high is None:
        return ""
    least = "" if low is None else f"{'>' if parameter.open_low else '>='} {low:g}"
    most = "" if high is None else f"<= {high:g}"
    return " and ".join(part for part in (least, most) if part)
