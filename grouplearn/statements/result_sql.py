"""What statements answer, as SQL: a SELECT of the rows that the user gets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb

from grouplearn import sqltext
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.visible import visible

if TYPE_CHECKING:
    from grouplearn.models.definition import ModelDefinition
    from grouplearn.statements.context import StatementContext


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


def arranged(query: str, definition: ModelDefinition, at: StatementContext) -> str:
    """Return a query of a model's groups as it is shown: for people the keys, the optimised metric, the rest.

    Metrics are rounded to four digits, and columns that are NULL throughout are left out: a terminal shows the first and the
    last columns that it has room for. For programs the query is as it was.
    """
    if not at.for_people:
        return query
    described = at.connection.execute(f"DESCRIBE {query}").fetchall()
    counted = f"SELECT count(*), count(COLUMNS(*)) FROM ({query})"
    ((rows, *known),) = at.connection.execute(counted).fetchall()
    names = [name for name, *_ in described]
    keys = len(definition.keys) + ("model_level" in names)
    optimised = [f"{part}{definition.metric}" for part in ("valid_", "train_", "")]
    first = [name for name in names[keys:] if name in optimised][:1]
    rounded = measures(names, [str(kind) for _, kind, *_ in described])
    has_values = {name for name, count in zip(names, known, strict=True) if count or not rows}
    selected = [name for name in dict.fromkeys([*names[:keys], *first, *names]) if name in has_values]
    columns = (sqltext.four_digits(name) if name in rounded else sqltext.identifier(name) for name in selected)
    return f"SELECT {', '.join(columns)} FROM ({query})"


def measures(names: Sequence[str], types: Sequence[str]) -> list[str]:
    """Return the DOUBLE columns of our answer that are not keys or hyperparameters, which identify trials.

    Those come before ``n_rows`` in every answer.
    """
    first = names.index("n_rows") if "n_rows" in names else 0
    return [name for name, kind in zip(names[first:], types[first:], strict=True) if kind == "DOUBLE"]


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
