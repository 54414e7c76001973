"""What DuckDB itself has where nobody has added anything: a database of this process's own, opened once and when it is asked.

Of the user's connection nothing could be told apart from what a file, an extension or the user has made.
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
    # For a name that it has not DuckDB would install and load an extension, whatever the user's settings are.
    return duckdb.connect(config={"threads": 1, "autoload_known_extensions": False})


@contextmanager
def pristine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Lend a connection to a database in memory to one thread at a time; what is not committed in it goes with the body."""
    with _LOCK, _database().cursor() as con:
        yield con


@dataclass(frozen=True, slots=True)
class Function:
    """All of DuckDB's functions of a name, folded to lower case: their kinds, and whether one is volatile."""

    kinds: frozenset[str]
    is_volatile: bool


@functools.cache
def functions() -> Mapping[str, Function]:
    """Return the functions that DuckDB has by name: to list them takes a tenth of a second the first time."""
    query = (
        "SELECT lower(function_name), list(DISTINCT function_type), coalesce(bool_or(stability = 'VOLATILE'), false)"
        " FROM duckdb_functions() GROUP BY ALL"
    )
    with pristine() as con:
        return {
            name: Function(frozenset(kinds), bool(volatile)) for name, kinds, volatile in con.execute(query).fetchall()
        }


@functools.cache
def keywords() -> Mapping[str, str]:
    """Return the words that DuckDB's grammar knows, in lower case, with their categories."""
    with pristine() as con:
        return dict(con.execute("SELECT lower(keyword_name), keyword_category FROM duckdb_keywords()").fetchall())


@functools.cache
def types() -> frozenset[str]:
    """Return the names of DuckDB's types, in lower case."""
    with pristine() as con:
        return frozenset(
            name for (name,) in con.execute("SELECT DISTINCT lower(type_name) FROM duckdb_types()").fetchall()
        )
