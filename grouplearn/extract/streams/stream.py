"""Rows of the user's program that can be read once, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from grouplearn.errors import BindError, Error
from grouplearn.messages import Span


@dataclass
class Stream:
    """Rows that can be read once, by the name that FROM gives them.

    ``opened`` returns their reader, and may have to read some to know their columns. ``span`` is where the statement
    ``text`` names them.
    """

    name: str
    opened: Callable[[], pa.RecordBatchReader]
    text: str
    span: Span | None = None
    n_rows: int = 0
    #: What the user's program raised while it was read.
    error: Exception | None = None
    _reader: pa.RecordBatchReader | None = field(default=None, repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The columns; the first call opens the stream. Raises BindError."""
        if self._reader is None:
            try:
                self._reader = self.opened()
            except Exception as error:  # the user's program may raise anything
                self.error = error
                raise self.failure() from error
        return self._reader.schema

    def reader(self) -> pa.RecordBatchReader:
        """Return a reader of all rows, which counts them and notes what is raised meanwhile."""
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._reader or ():
                self.n_rows += batch.num_rows
                yield batch
        except Exception as error:
            self.error = error
            raise

    def failure(self) -> BindError:
        """Return what the user's program raised while it was read, as an error of the statement."""
        why = str(self.error) if isinstance(self.error, Error) else f"{type(self.error).__name__}: {self.error}"
        message = f'reading "{self.name}" failed after {self.n_rows:,} rows: {why}'
        return BindError(message, text=self.text, span=self.span)
