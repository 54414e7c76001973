"""A query's rows as Arrow, some at a time, with a look at interrupts between them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import duckdb
import pyarrow as pa

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.interrupting import look
from grouplearn.parser.statements import Sql

#: Rows are read in batches of about this size, and of at most so many rows.
BATCH_BYTES, MOST_BATCH_ROWS = 1 << 25, 1 << 17


def batches(
    connection: duckdb.DuckDBPyConnection, checker: SqlChecker, pieces: list[str | Sql], row_bytes: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of a query, about ``BATCH_BYTES`` at a time; where it sorts, DuckDB spills what it must."""
    with closing(_read(connection, checker, pieces, row_bytes)) as read:
        for batch in read:
            look()
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
    except OSError as error:  # what DuckDB's errors become when they pass through Arrow
        kind = duckdb.InterruptException if "INTERRUPT" in str(error) else duckdb.Error
        checker.refuse(kind(str(error)), tuple(pieces))
