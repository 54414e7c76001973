"""DuckDB's own memory while it sorts the rows of a TRAIN: a part of the memory limit that the statement gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from grouplearn import sqltext
from grouplearn.plan.memory import check_size

#: The share of a memory limit that DuckDB's buffers may take. It holds rows once where training holds them several times,
#: and what it does not hold it spills to its ``temp_directory``.
DATABASE_SHARE = 0.3


@contextmanager
def database_within(connection: duckdb.DuckDBPyConnection, limit: int | None) -> Iterator[None]:
    """Keep DuckDB's ``memory_limit`` to a share of ``limit`` (bytes) for a while, if one is given and it allows itself more.

    The setting is the whole database's, and is put back. It is changed on a connection of its own: where DuckDB cannot give
    up as much memory, nothing is changed, and a transaction of the user must not fail by that.
    """
    if limit is None:
        yield
        return
    with connection.cursor() as other:
        before, share = other.execute("SELECT current_setting('memory_limit')").fetchall()[0][0], DATABASE_SHARE * limit
        if check_size(before) > share:
            _set(other, f"{int(share)}B")
        try:
            yield
        finally:
            _set(other, before)


def _set(connection: duckdb.DuckDBPyConnection, size: str) -> None:
    with suppress(duckdb.Error):
        connection.execute(f"SET memory_limit = {sqltext.string(size)}")
