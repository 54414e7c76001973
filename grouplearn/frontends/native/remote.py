"""A DuckDB connection at the other end of a channel, with the methods that a session uses of ``DuckDBPyConnection``.

SQL runs in the user's process: on the user's connection and transaction (``number`` 0), or on another connection of ours to
the same database (a ``cursor``).
"""

from __future__ import annotations

import bisect
import itertools
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, cast

import duckdb
import pyarrow as pa

from grouplearn.frontends.native.arrow_frames import Described, batch_of, described, packed_batch, packed_schema
from grouplearn.frontends.native.frames import Channel, FrameKind, blob, text
from grouplearn.messages import cells
from grouplearn.parser.lexer.tokens import Kind, lex
from grouplearn.sqltext import identifier, literal

_EXACT, _STREAMED, _UNPREPARED = 1, 2, 4
#: Statements that are bound only once: they may read a file that can be read once.
_BOUND_ONCE = "CREATE TEMP TABLE"
#: Rows in a vector of DuckDB.
_VECTOR = 2048
_local = threading.local()


class RemoteConnection:
    """Runs SQL at the other end of a channel; one thread at a time."""

    #: The extension provides ``predict`` there, so we register nothing.
    serves_predict = True

    def __init__(self, channel: Channel, number: int = 0, numbers: Iterator[int] | None = None) -> None:
        self._channel = channel
        self._number = number
        self._numbers = numbers or itertools.count(1)
        self._result: Result | None = None

    def execute(self, query: str, parameters: Sequence[Any] | None = None) -> RemoteConnection:
        """Run one or several statements; the last one's rows are then fetched from this connection."""
        flags = _EXACT | (_UNPREPARED if query.startswith(_BOUND_ONCE) else 0)
        self._result = Result(*self._rows(query, parameters, flags))
        return self

    @property
    def description(self) -> list[tuple[str]] | None:
        """The columns of the last result by name; None if there is none."""
        return [(name,) for name in self._result.names] if self._result else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows of the last result as tuples of Python values."""
        result, self._result = self._result, None
        return result.fetchall() if result else []

    def sql(self, query: str) -> RemoteQuery:
        """Return a query whose rows are read as Arrow."""
        return RemoteQuery(self, query)

    def extract_statements(self, query: str) -> list[Any]:
        """Return the statements of a text, parsed in this process."""
        return _converter().extract_statements(query)

    def register(self, name: str, values: pa.Table) -> None:
        """Make an Arrow table a temporary table of the connection, replacing one registered under the same name."""
        columns = ", ".join(f"{identifier(column)} {kind}" for column, kind in _sql_types(values))
        self.execute(f"CREATE OR REPLACE TEMP TABLE {identifier(name)} ({columns})")
        schema = packed_schema(values.schema)
        for batch in values.combine_chunks().to_batches(max_chunksize=_VECTOR):
            rows = batch.take(pa.array(range(batch.num_rows))) if values.num_rows > _VECTOR else batch
            head = struct.pack("=I", self._number) + text(name) + blob(schema)
            self._channel.send(FrameKind.APPEND, head, *packed_batch(rows))
            self._expect_end()

    def unregister(self, name: str) -> None:
        """Drop a registered table."""
        self.execute(f"DROP TABLE temp.main.{identifier(name)}")

    def cursor(self) -> RemoteConnection:
        """Open another connection to the user's database, with its own transactions."""
        number = next(self._numbers)
        self._channel.send(FrameKind.OPEN, struct.pack("=I", number))
        return RemoteConnection(self._channel, number, self._numbers)

    def as_duckdb(self) -> duckdb.DuckDBPyConnection:
        """Return this object, for callers that use only its methods of a connection."""
        return cast("duckdb.DuckDBPyConnection", self)

    def close(self) -> None:
        """Close a cursor."""
        if self._number:
            self._channel.send(FrameKind.CLOSE, struct.pack("=I", self._number))

    def __enter__(self) -> RemoteConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _rows(
        self, query: str, parameters: Sequence[Any] | None, flags: int
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run a query and return its columns and rows; without rows there are no columns."""
        head = struct.pack("=II", self._number, flags)
        self._channel.send(FrameKind.QUERY, head, text(_filled(query, parameters or ())))
        kind, body = self._channel.receive()
        if kind is FrameKind.ERROR:
            raise error_of(body.decode())
        if kind is FrameKind.END:
            return pa.schema([]), iter(())
        rows = described(body)
        batches = self._batches(rows)
        return rows.schema, batches if flags & _STREAMED else iter(list(batches))

    def _batches(self, rows: Described) -> Iterator[pa.RecordBatch]:
        ended = False
        try:
            while True:
                kind, body = self._channel.receive()
                if kind is not FrameKind.BATCH:
                    ended = True
                    if kind is FrameKind.ERROR:
                        raise error_of(body.decode())
                    return
                yield batch_of(body, rows)
        finally:
            while not ended:  # the reader stopped early, and the next answer comes after the remaining rows
                ended = self._channel.receive()[0] is not FrameKind.BATCH

    def _expect_end(self) -> None:
        kind, body = self._channel.receive()
        if kind is FrameKind.ERROR:
            raise error_of(body.decode())


class RemoteQuery:
    """A query that runs when its rows are read."""

    def __init__(self, connection: RemoteConnection, query: str) -> None:
        self._connection = connection
        self._query = query

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [row[0] for row in self._described()]

    @property
    def types(self) -> list[str]:
        """The SQL types of its columns."""
        return [row[1] for row in self._described()]

    def _described(self) -> list[tuple[Any, ...]]:
        return self._connection.execute(f"DESCRIBE {self._query}").fetchall()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Run the query and return its rows."""
        return python_rows(self.to_arrow_table())

    def to_arrow_table(self) -> pa.Table:
        """Run the query and return its rows."""
        schema, batches = self._connection._rows(self._query, None, 0)
        return pa.Table.from_batches(list(batches), schema)

    def to_arrow_reader(self, rows: int) -> pa.RecordBatchReader:
        """Run the query and return its rows in batches of at most ``rows``, as they arrive."""
        schema, batches = self._connection._rows(self._query, None, _STREAMED)
        return pa.RecordBatchReader.from_batches(schema, _gathered(batches, rows))


def _gathered(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if waiting and count + batch.num_rows > rows:
            yield pa.concat_batches(waiting)
            waiting, count = [], 0
        waiting.append(batch)
        count += batch.num_rows
    if waiting:
        yield pa.concat_batches(waiting)


class Result:
    """The rows of an executed query."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self._table = pa.Table.from_batches(list(batches), schema)

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return list(self._table.column_names)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as Python values, converted by DuckDB's client."""
        table = self._table
        if not table.num_columns or not table.num_rows:
            return []
        if all(_is_plain(field.type) for field in table.schema):
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return python_rows(table)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_float64(kind))


def _converter() -> duckdb.DuckDBPyConnection:
    """Return this thread's own DuckDB connection without tables, used for converting types."""
    if not hasattr(_local, "connection"):
        _local.connection = duckdb.connect()
    connection: duckdb.DuckDBPyConnection = _local.connection
    return connection


def python_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as the Python values that DuckDB's client makes of them."""
    return _converter().from_arrow(table).fetchall()


def _sql_types(values: pa.Table) -> list[tuple[str, str]]:
    relation = _converter().from_arrow(values)
    return [(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]


def _filled(query: str, values: Sequence[Any]) -> str:
    """Return a query with literals in place of ``?``, so that types that depend on values are known when it is prepared."""
    pieces, at, rest = [], 0, iter(values)
    for token in lex(query) if values else ():
        if token.kind is Kind.PARAMETER:
            pieces += [query[at : token.start], literal(next(rest))]
            at = token.end
    return "".join([*pieces, query[at:]])


#: DuckDB's exceptions by their names without case: its messages begin with "Out of Memory Error", "TransactionContext Error".
_EXCEPTIONS: dict[str, type[duckdb.Error]] = {
    name.casefold(): getattr(duckdb, name) for name in dir(duckdb) if name.endswith("Exception")
}


def error_of(message: str) -> duckdb.Error:
    """Return the exception that DuckDB's Python client raises for one of its messages."""
    kind, found, _ = message.partition(" Error: ")
    name = f"{kind.replace(' ', '').removesuffix('Context')}Exception".casefold()
    error: duckdb.Error = (_EXCEPTIONS.get(name, duckdb.Error) if found else duckdb.Error)(widened(message))
    return error


_CARET = re.compile(r"(\n\nLINE \d+: )(.*)\n( +)\^$")
_TOKEN = re.compile(r'\w+|"[^"]*"')


def widened(message: str) -> str:
    """Return a message with its caret under the whole word, as in DuckDB 2; DuckDB 1 marks only the first letter.

    ``LINE 1: SELECT nothere`` / ``       ^`` -> ``       ^^^^^^^``
    """
    caret = _CARET.search(message)
    if caret is None:
        return message
    columns = list(itertools.accumulate(map(cells, caret[2]), initial=sum(map(cells, caret[1].strip("\n")))))
    letter = bisect.bisect_left(columns, len(caret[3]))
    token = _TOKEN.match(caret[2], letter)
    return message + "^" * (sum(map(cells, token[0])) - 1) if token else message
