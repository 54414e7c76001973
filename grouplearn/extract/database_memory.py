"""DuckDB's own memory while it sorts the rows of a TRAIN: a part of the memory limit that the statement gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb

from grouplearn import sqltext
from grouplearn.bind.run.sizes import check_size

#: The share of a memory limit that DuckDB's buffers may take. It holds rows once where training holds them several times,
#: and what it does not hold it spills to its ``temp_directory``.
DATABASE_SHARE = 0.3
#: The unit of no limit at all.
_UNLIMITED = "PiB"
#: What DuckDB must have for each of its threads: with less a sort fails, whatever it may spill.
THREAD_BYTES = 1 << 25


@dataclass(slots=True)
class _Lowered:
    """The limit of one database instance while statements keep it low: as it was, and the bytes of each of them."""

    before: str
    shares: list[int] = field(default_factory=list)


class _Limits:
    """The instances whose limits are low at present. Connections know nothing of each other, so there is one of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lowered: dict[str, _Lowered] = {}

    def lower(self, connection: duckdb.DuckDBPyConnection, instance: str, share: int) -> None:
        """Keep the limit to ``share`` bytes, or to less where another statement does, or the user."""
        with self._lock:
            found = self._lowered.setdefault(instance, _Lowered(_limit(connection)))
            found.shares.append(share)
            _apply(connection, found)

    def put_back(self, connection: duckdb.DuckDBPyConnection, instance: str, share: int) -> None:
        """Forget ``share``; the last statement to do so puts the limit back."""
        with self._lock:
            found = self._lowered[instance]
            found.shares.remove(share)
            if not found.shares:
                del self._lowered[instance]
            _apply(connection, found)


_LIMITS = _Limits()


@contextmanager
def database_within(connection: duckdb.DuckDBPyConnection, limit: int | None, owner: Any) -> Iterator[None]:
    """Keep DuckDB's ``memory_limit`` to a share of ``limit`` (bytes) for a while, if one is given and it allows itself more.

    Tables that are in memory come on top. The setting is the whole instance's, so that statements which run at once share it;
    the last one puts it back. An instance is known by its first file, one in memory by ``owner``. The setting is changed on a
    connection of its own: where DuckDB cannot give up as much memory, nothing is changed, and a transaction of the user must
    not fail by that.
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
    query = "SELECT path FROM duckdb_databases() WHERE NOT internal ORDER BY database_oid ASC LIMIT 1"
    path: str | None = connection.execute(query).fetchall()[0][0]
    return path


def _share(connection: duckdb.DuckDBPyConnection, limit: int) -> int:
    """Return the bytes that DuckDB may take, beside what tables in memory take now."""
    query = (
        "SELECT current_setting('threads'), coalesce(sum(memory_usage_bytes), 0)::BIGINT FROM duckdb_memory()"
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
    """Set the limit that DuckDB shows as ``before``, which has lost all digits but one of its fraction.

    It is the one that DuckDB begins with, or as good as any that is shown like that.
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
