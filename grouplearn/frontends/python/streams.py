"""Python variables that can be read once: readers of record batches, results, generators of data frames."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import pyarrow as pa

from grouplearn.errors import ProgrammingError
from grouplearn.extract.streams.stream import Stream
from grouplearn.frontends.python.frame_errors import is_reader, is_result, place_of

#: Rows of a batch of a result.
_ROWS = 1 << 16


def stream_of(name: str, value: Any, text: str, connection: duckdb.DuckDBPyConnection) -> Stream:
    """Return a stream of the rows of a value, which are not read yet, for the statement ``text`` on a connection."""

    def opened() -> pa.RecordBatchReader:
        if is_reader(value):
            return value
        return _reader_of_result(value, connection) if is_result(value) else _reader_of_frames(value)

    return Stream(name, opened, text, place_of(text, name))


def _reader_of_result(result: Any, connection: duckdb.DuckDBPyConnection) -> pa.RecordBatchReader:
    if getattr(result, "_duckdb", result) is connection:
        message = "it is the connection that trains, whose next statement drops the result of the last"
        raise ProgrammingError(f"{message}: read con.sql(...), or con.cursor().execute(...)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # con.sql(...) is not what the user wrote
        return result.to_arrow_reader(_ROWS)


def _reader_of_frames(frames: Iterator[Any]) -> pa.RecordBatchReader:
    """Return a reader of data frames that come one after another, all with the columns of the first."""
    first = next(frames, None)
    if first is None:
        raise ProgrammingError("there is no first data frame, and it would say which columns there are")
    table = _table(first, 1)
    schema = table.schema.remove_metadata()
    rest = (_like(_table(frame, number), schema, number) for number, frame in enumerate(frames, start=2))
    tables: Iterable[pa.Table] = itertools.chain([table.replace_schema_metadata(None)], rest)
    return pa.RecordBatchReader.from_batches(schema, (batch for each in tables for batch in each.to_batches()))


def _table(frame: Any, number: int) -> pa.Table:
    """Return a data frame as an Arrow table."""
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "dtypes") and hasattr(frame, "iloc"):  # of pandas, whose index is no column
        return pa.Table.from_pandas(frame, preserve_index=False)
    if isinstance(frame, pa.Table) or hasattr(type(frame), "__arrow_c_stream__"):
        return pa.table(frame)
    kind = type(frame)
    shown = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}".removeprefix("builtins.")
    raise ProgrammingError(
        f"item {number:,} has type {shown}, and is no data frame of pandas or Polars, Arrow table or batch"
    )


def _like(table: pa.Table, schema: pa.Schema, number: int) -> pa.Table:
    """Return a table with the columns and types of the first; raises ProgrammingError."""
    missing = [name for name in schema.names if name not in table.column_names]
    others = [name for name in table.column_names if name not in schema.names]
    if missing or others:
        differs = f'lacks column "{missing[0]}" of' if missing else f'has a column "{others[0]}" more than'
        raise ProgrammingError(f"data frame {number:,} {differs} the first")
    try:
        return table.select(schema.names).cast(schema)
    except pa.ArrowInvalid as error:
        raise ProgrammingError(
            f"data frame {number:,} has values that the first one's types do not hold: {error}"
        ) from None
