"""DuckDB's own memory while it sorts a TRAIN's rows: a part of the statement's memory limit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from grouplearn import sqltext
from grouplearn.bind.run.sizes import check_size

#: The share of the limit for DuckDB's buffers. DuckDB holds rows once where training holds them several times, and spills
#: the rest to its ``temp_directory``.
DATABASE_SHARE = 0.3
#: The unit in which "no limit" is shown.
_UNLIMITED = "PiB"
#: Bytes per thread that DuckDB needs: with less a sort fails, even if it can spill.
THREAD_BYTES = 1 << 25


@dataclass(slots=True)
class _Lowered:
    """The lowered limit of a database instance: the original one, and the bytes of each statement."""

    before: str
    shares: list[int] = field(default_factory=list)


class _Limits:
    """The instances with lowered limits, shared by all connections, which do not know of each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lowered: dict[str, _Lowered] = {}

    def lower(self, connection: duckdb.DuckDBPyConnection, instance: str, share: int) -> None:
        """Lower the limit to ``share`` bytes, or to less if another statement or the user did."""
        with self._lock:
            found = self._lowered.setdefault(instance, _Lowered(_limit(connection)))
            found.shares.append(share)
            _apply(connection, found)

    def put_back(self, connection: duckdb.DuckDBPyConnection, instance: str, share: int) -> None:
        """Remove ``share``; the last statement restores the limit."""
        with self._lock:
            found = self._lowered[instance]
            found.shares.remove(share)
            if not found.shares:
                del self._lowered[instance]
            _apply(connection, found)


_LIMITS = _Limits()


@contextmanager
def database_within(connection: duckdb.DuckDBPyConnection, limit: int | None, owner: Any) -> Iterator[None]:
    """Lower DuckDB's ``memory_limit`` in the block to a share of ``limit`` (bytes), if one is given and DuckDB's is higher.

    Tables in memory are not counted. The setting belongs to the whole instance: concurrent statements share it, and the
    last one restores it. An instance is identified by its first file, or by ``owner`` if in memory. It is changed on
    another connection: if DuckDB cannot free enough memory nothing is changed, and a user's transaction must not fail by
    that.
    """
    if limit is None:
        yield
        return
    with connection.cursor() as other:
        instance, share = _instance(other) or str(id(owner)), _share(other, limit)
        _LIMITS.lower(other, instance, share)
        try:
            yield
        finally:
            _LIMITS.put_back(other, instance, share)


def _instance(connection: duckdb.DuckDBPyConnection) -> str | None:
    query = "SELECT path FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY database_oid ASC LIMIT 1"
    path: str | None = connection.execute(query).fetchall()[0][0]
    return path


def _share(connection: duckdb.DuckDBPyConnection, limit: int) -> int:
    """Return the bytes for DuckDB, besides those of current in-memory tables."""
    query = (
        "SELECT current_setting('threads'), coalesce(sum(memory_usage_bytes), 0)::BIGINT FROM system.main.duckdb_memory()"
        " WHERE tag = 'IN_MEMORY_TABLE'"
    )
    ((threads, tables),) = connection.execute(query).fetchall()
    return int(tables) + max(int(DATABASE_SHARE * limit), int(threads) * THREAD_BYTES)


def _apply(connection: duckdb.DuckDBPyConnection, lowered: _Lowered) -> None:
    share = min(lowered.shares, default=None)
    if share is not None and (lowered.before.endswith(_UNLIMITED) or share < check_size(lowered.before)):
        _set(connection, f"{share}B")
    elif _limit(connection) != lowered.before:
        _restore(connection, lowered.before)


def _restore(connection: duckdb.DuckDBPyConnection, before: str) -> None:
    """Set the limit that DuckDB showed as ``before``, rounded to one decimal.

    It is DuckDB's default if that is shown the same, else the rounded value.
    """
    with suppress(duckdb.Error):
        connection.execute("RESET memory_limit")
    if _limit(connection) == before:
        return
    if before.endswith(_UNLIMITED):
        _set(connection, "-1")
    else:
        number, unit = before.split(" ")
        _set(connection, f"{float(number) + 0.05:.2f} {unit}")


def _limit(connection: duckdb.DuckDBPyConnection) -> str:
    return str(connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])


def _set(connection: duckdb.DuckDBPyConnection, size: str) -> None:
    with suppress(duckdb.Error):
        connection.execute(f"SET memory_limit = {sqltext.string(size)}")
