"""A query's rows as Arrow batches, with checks for interrupts in between."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import duckdb
import pyarrow as pa

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.interrupting import check_interrupt
from grouplearn.parser.statements import Sql

#: Approximate bytes and most rows of a batch.
BATCH_BYTES, MOST_BATCH_ROWS = 1 << 25, 1 << 17


def batches(
    connection: duckdb.DuckDBPyConnection, checker: SqlChecker, pieces: list[str | Sql], row_bytes: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield a query's rows, about ``BATCH_BYTES`` at a time; DuckDB spills sorts to disk as needed."""
    with closing(_read(connection, checker, pieces, row_bytes)) as read:
        for batch in read:
            check_interrupt()
            yield batch


def _read(
    connection: duckdb.DuckDBPyConnection, checker: SqlChecker, pieces: list[str | Sql], row_bytes: int
) -> Generator[pa.RecordBatch, None, None]:
    query = "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
    rows = min(MOST_BATCH_ROWS, 1 << (BATCH_BYTES // row_bytes).bit_length())
    try:
        with connection.sql(query).to_arrow_reader(rows) as reader:
            yield from reader
    except duckdb.Error as error:
        checker.refuse(error, tuple(pieces))
    except OSError as error:  # DuckDB's errors, as Arrow passes them on
        kind = duckdb.InterruptException if "INTERRUPT" in str(error) else duckdb.Error
        checker.refuse(kind(str(error)), tuple(pieces))
