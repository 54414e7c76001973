"""Keeps rows that can be read once in temporary tables, from which a statement reads them as often as it needs.

A temporary table has every type that DuckDB has, obeys ``memory_limit``, and moves what does not fit to ``temp_directory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import duckdb
import pyarrow as pa

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import tables_named
from grouplearn.data.encoding import types
from grouplearn.errors import BindError
from grouplearn.extract.streams.files import OneTimeFile, one_time_files
from grouplearn.extract.streams.stream import Stream
from grouplearn.messages import Span
from grouplearn.parser.statements import RefreshModel, Sql, TrainModel, sql_of
from grouplearn.sqltext import folded, identifier

#: A statement that reads rows.
Reading = TypeVar("Reading", TrainModel, RefreshModel)
#: The name under which a stream is read into its table.
_READ_AS = "grouplearn_stream"
_TEMPORARY = (
    "SELECT table_name FROM system.main.duckdb_tables() WHERE temporary"
    " UNION ALL SELECT view_name FROM system.main.duckdb_views() WHERE temporary"
)


@dataclass(frozen=True, slots=True)
class OneTimeSources:
    """What a statement reads that can be read once: streams of the user's program, and files in FROM and WHERE."""

    streams: tuple[Stream, ...]
    files: tuple[OneTimeFile, ...]

    @classmethod
    def of(
        cls, statement: TrainModel | RefreshModel, checker: SqlChecker, streams: Sequence[Stream] = ()
    ) -> OneTimeSources:
        """Return those among ``streams`` that a statement names, and its files."""
        named: set[str] = set()
        source = () if statement.source is None else (f"FROM {statement.source.text}",)
        for text in (*source, *sql_of(statement)) if streams else ():
            named |= tables_named(checker, text)
        read = tuple(stream for stream in streams if folded(stream.name) in named)
        return cls(read, tuple(files_of(statement)))

    def __bool__(self) -> bool:
        return bool(self.streams or self.files)

    @property
    def shown(self) -> str:
        """The first of them, as it is written."""
        return f'"{self.streams[0].name}"' if self.streams else self.files[0].text

    def span(self, statement: TrainModel | RefreshModel) -> Span | None:
        """Return where a statement names the first of them."""
        of_stream = self.streams[0].span if self.streams else None
        return of_stream or (statement.source.span if statement.source is not None else None)


def files_of(statement: TrainModel | RefreshModel) -> Iterator[OneTimeFile]:
    """Yield the files that can be read once in FROM and WHERE."""
    for fragment in (statement.source, statement.where):
        if fragment is not None:
            yield from one_time_files(fragment.text)


@dataclass(frozen=True, slots=True)
class Readable(Generic[Reading]):
    """A statement whose sources can be read many times, the statement as it is written, and notes on what was kept."""

    statement: Reading
    written: Reading
    notes: tuple[str, ...] = ()

    def as_written(self: Readable[TrainModel], bound: BoundTrain) -> BoundTrain:
        """Return a bound statement with FROM and WHERE as they are written, and the notes."""
        source, where = self.written.source, self.written.where
        return replace(
            bound, statement=replace(bound.statement, source=source, where=where), notes=(*bound.notes, *self.notes)
        )


@contextmanager
def stood_in(checker: SqlChecker, streams: Iterable[Stream], numbers: str) -> Iterator[None]:
    """Give streams, in the block, tables with their columns that have other rows: whole numbers ``numbers``, and NULL."""
    with _Tables(checker).dropped() as tables:
        for stream in streams:
            tables.read(stream.name, stream.schema.empty_table())
            values = (f"CAST(n AS {kind})" if types.is_whole(kind) else "NULL" for kind in tables.types(stream.name))
            checker.rows(f"INSERT INTO {_of(stream.name)} SELECT {', '.join(values)} FROM {numbers} AS numbers(n)")
        yield


@contextmanager
def kept(
    statement: Reading, checker: SqlChecker, sources: OneTimeSources, why: str | None = None
) -> Iterator[Readable[Reading]]:
    """Read the sources into temporary tables, which the statement reads in the block; ``why`` is noted."""
    with _Tables(checker).dropped() as tables:
        for stream in sources.streams:
            tables.read_stream(stream)
        source = statement.source and tables.with_files(statement.source)
        where = statement.where and tables.with_files(statement.where)
        yield Readable(replace(statement, source=source, where=where), statement, tuple(tables.notes(why)))


@dataclass(slots=True)
class _Tables:
    """The temporary tables of one statement with their numbers of rows, and the table of each file."""

    checker: SqlChecker
    made: dict[str, int] = field(default_factory=dict)
    of_files: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def dropped(self) -> Iterator[_Tables]:
        """Drop the tables on leaving the block."""
        try:
            yield self
        finally:
            for name in self.made:
                with suppress(duckdb.Error):  # an error has aborted the transaction, in which they were made
                    self.checker.connection.execute(f"DROP TABLE IF EXISTS {_of(name)}")

    def notes(self, why: str | None) -> Iterator[str]:
        """Yield what is to be said of the tables."""
        reason = f", as {why}" if why else ""
        written = {name: text for text, name in self.of_files.items()}
        for name, rows in self.made.items():
            shown = written.get(name, name)
            yield f"{shown} can be read once: its {rows:,} rows were kept in a temporary table meanwhile{reason}"

    def types(self, name: str) -> list[str]:
        """Return the types of a table's columns."""
        return [column.type for column in self.checker.describe(f"FROM {_of(name)}")]

    def read_stream(self, stream: Stream) -> None:
        """Read a stream into a table of its name; what the user's program raised meanwhile is the error."""
        try:
            self.read(stream.name, stream.reader())
        except BindError:
            if stream.error is None:
                raise
            raise stream.failure() from stream.error

    def read(self, name: str, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Read rows into a table of that name."""
        connection = self.checker.connection
        connection.register(_READ_AS, rows)
        try:
            self._create(name, f"FROM {identifier(_READ_AS)}")
        finally:
            with suppress(duckdb.Error):
                connection.unregister(_READ_AS)

    def with_files(self, fragment: Sql) -> Sql:
        """Return a fragment with tables in place of its files that can be read once."""
        text, end, pieces = fragment.text, 0, []
        for file in one_time_files(text):
            if file.text not in self.of_files:
                self.of_files[file.text] = name = self._free(file.name)
                self._create(name, "FROM", Sql(file.text, fragment.span, searched=fragment.searched))
            pieces += [text[end : file.start], _of(self.of_files[file.text])]
            end = file.end
        return replace(fragment, text="".join([*pieces, text[end:]]))

    def _create(self, name: str, *query: str | Sql) -> None:
        found = self.checker.rows(f"CREATE TEMP TABLE {_of(name)} AS", *query)
        self.made[name] = found[0][0] if found else 0

    def _free(self, name: str) -> str:
        """Return the name, or one that begins with it, of which there is no temporary table: columns are named by it."""
        taken = {folded(other) for (other,) in self.checker.rows(_TEMPORARY)}
        return name if folded(name) not in taken else self._free(f"{name}_")


def _of(name: str) -> str:
    return f"temp.main.{identifier(name)}"
