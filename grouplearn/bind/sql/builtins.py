"""What DuckDB has before anybody adds anything: an in-memory database of this process, opened once on demand.

On the user's connection, built-in objects could not be told from those of a file, an extension or the user.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

_LOCK = threading.Lock()


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    # Otherwise DuckDB would install and load an extension for an unknown name, whatever the user's settings.
    return duckdb.connect(config={"threads": 1, "autoload_known_extensions": False})


@contextmanager
def pristine_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection to the in-memory database to one thread at a time; uncommitted changes are undone afterwards."""
    with _LOCK, _database().cursor() as con:
        yield con


@dataclass(frozen=True, slots=True)
class Function:
    """All functions of a (folded) name: their kinds, and whether any is volatile."""

    kinds: frozenset[str]
    is_volatile: bool


@functools.cache
def functions() -> Mapping[str, Function]:
    """Return DuckDB's functions by name; listing them takes 0.1 s the first time."""
    query = (
        "SELECT lower(function_name), list(DISTINCT function_type), coalesce(bool_or(stability = 'VOLATILE'), false)"
        " FROM duckdb_functions() GROUP BY ALL"
    )
    with pristine_database() as con:
        return {
            name: Function(frozenset(kinds), bool(volatile)) for name, kinds, volatile in con.execute(query).fetchall()
        }


@functools.cache
def keywords() -> Mapping[str, str]:
    """Return DuckDB's keywords, in lower case, with their categories."""
    with pristine_database() as con:
        return dict(con.execute("SELECT lower(keyword_name), keyword_category FROM duckdb_keywords()").fetchall())


@functools.cache
def types() -> frozenset[str]:
    """Return the names of DuckDB's types, in lower case."""
    with pristine_database() as con:
        return frozenset(
            name for (name,) in con.execute("SELECT DISTINCT lower(type_name) FROM duckdb_types()").fetchall()
        )
