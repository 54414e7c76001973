"""What this process does for the extension: runs our statements, and predicts chunks of rows."""

from __future__ import annotations

import importlib.metadata
import re
import struct
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, cast

import duckdb
import pyarrow as pa

from grouplearn import versions
from grouplearn.catalog.predicting_connections import Settings
from grouplearn.errors import (
    AccessRefused,
    BindError,
    Cancelled,
    Error,
    NotSupportedError,
    ParseError,
    as_database_errors,
    of,
)
from grouplearn.failures import Failure
from grouplearn.frontends.native.arrow_frames import batch_of, packed_batch, packed_schema
from grouplearn.frontends.native.arrow_frames import described as described_rows
from grouplearn.frontends.native.frames import PROTOCOL, Body, Channel, FrameKind, blob, text
from grouplearn.frontends.native.remote import RemoteConnection, python_rows
from grouplearn.frontends.progress import choose_progress
from grouplearn.interrupting import cancellable
from grouplearn.parser.parse import parse_piece
from grouplearn.parser.statements import Listing, Nested, OurStatement
from grouplearn.prediction import prediction
from grouplearn.prediction.ahead import with_horizon
from grouplearn.prediction.prediction import Caller
from grouplearn.prediction.predictions import PredictionPart
from grouplearn.statements.session import Session, tidy_attached
from grouplearn.train.job import Progress
from grouplearn.visible import visible_lines

#: The query number that DuckDB gives when there is none, as after a statement of ours in the query's transaction.
_NO_QUERY = (1 << 64) - 1


class _CurrentConnection:
    """The connection of a Predictor: the one that the predicting thread talks to."""

    def __init__(self) -> None:
        self._local = threading.local()

    def use(self, connection: RemoteConnection) -> None:
        """Use cursors of this connection in this thread."""
        self._local.connection = connection

    def cursor(self) -> RemoteConnection:
        """Open a cursor for the prediction in this thread."""
        connection: RemoteConnection = self._local.connection
        return connection.cursor()


@dataclass
class DatabaseInstance:
    """What is kept per database instance: the settings of SET, and the models loaded for ``predict``."""

    settings: Settings = field(default_factory=Settings)
    current: _CurrentConnection = field(default_factory=_CurrentConnection)
    #: The extension's counter of objects created and dropped, when last received.
    changes: int = 0

    def __post_init__(self) -> None:
        connection = cast("duckdb.DuckDBPyConnection", self.current)
        self.predictor = prediction.Predictor(connection, "current_transaction_id()")  # the extension's TransactionId

    def notice(self, changes: int) -> None:
        """Look up names again if ``changes``, the extension's counter, differs from before."""
        if changes != self.changes:
            self.predictor.names_changed()
            self.changes = changes


@dataclass
class Host:
    """What is kept per process that loaded the extension: its databases, and whether it has sent its greeting."""

    instances: dict[int, DatabaseInstance] = field(default_factory=dict)
    greeted: bool = False


class ChannelServer:
    """One channel: its requests are answered in order, by a thread of its own."""

    def __init__(self, channel: Channel, host: Host) -> None:
        self._channel = channel
        self._host = host
        self._progress: Progress | None = None
        #: Whether the statement should stop, also before its session exists: parsing a long one takes seconds.
        self._stopped = threading.Event()

    def serve(self) -> None:
        """Answer requests until the other end closes."""
        while True:
            kind, body = self._channel.receive()
            try:
                self._answer(kind, Body(body))
            except Exception as error:  # any error must end the user's statement
                name, message = described(error)
                self._channel.send(FrameKind.FAILED, text(name), text(message))

    def interrupt(self) -> None:
        """Ask the running statement to stop, from any thread; one that has not begun is not stopped."""
        self._stopped.set()
        progress = self._progress
        if progress is not None:
            progress.ended()  # the shell shows its prompt even if stopping takes a while

    def _answer(self, kind: FrameKind, body: Body) -> None:
        if kind is FrameKind.GREETING:
            self._host.greeted = True
            self._channel.send(
                FrameKind.GREETING, struct.pack("=Q", PROTOCOL), text(importlib.metadata.version("grouplearn"))
            )
            return
        if not self._host.greeted:
            raise _older_build()
        if kind is FrameKind.VERSION:
            self._channel.send(FrameKind.ANSWER, text(versions.described()))
            return
        if kind is FrameKind.SETTLE:
            tidy_attached(RemoteConnection(self._channel).as_duckdb())
            self._channel.send(FrameKind.ANSWER)
            return
        instance = self._host.instances.setdefault(body.number(), DatabaseInstance())
        transaction, query, changes = body.number(), body.number(), body.number()
        instance.notice(changes)
        if kind is FrameKind.STATEMENT:
            queries, leaves_run = self._statement(instance, body)
            self._channel.send(FrameKind.ANSWER, struct.pack("=QQ", len(queries), leaves_run), *map(text, queries))
        else:
            part, running = PredictionPart(body.number()), body.text()
            caller = Caller(transaction, query=None if query == _NO_QUERY else query, text=running or None)
            predictions = self._predict(instance, caller, part, body)
            self._channel.send(FrameKind.PREDICTED, blob(packed_schema(predictions.schema)), *packed_batch(predictions))

    def _statement(self, instance: DatabaseInstance, body: Body) -> tuple[list[str], bool]:
        """Return the query of the answer, and whether a durable run's directory may be left until the transaction is committed.

        For a statement of DuckDB's the queries of our statements inside it follow.
        """
        self._stopped.clear()
        lines, start, stop, line = body.number(), body.number(), body.number(), body.blob()
        before, within = (len(str(line[:place], "utf-8")) + lines for place in (start, stop))
        written = "\n" * lines + str(line, "utf-8")
        with as_database_errors(), cancellable(self._stopped.is_set):
            statement = parse_piece(written, before, within)
        _check_may_write(statement, allowed=bool(body.number()))
        for_people = bool(body.number())
        values = _values(body)
        connection = RemoteConnection(self._channel).as_duckdb()
        prediction.share(connection, instance.predictor)
        self._progress = choose_progress()
        session = Session(connection, self._progress, instance.settings, self._stopped)
        session.for_people = for_people and not isinstance(statement, Nested)
        try:
            if isinstance(statement, Nested):
                return session.answers(statement, written, values), session.leaves_run
            return [session.answer(statement, written, values)], session.leaves_run
        finally:
            session.close()
            self._progress = None

    def _predict(self, instance: DatabaseInstance, caller: Caller, part: PredictionPart, body: Body) -> pa.RecordBatch:
        rows = _batch(body)
        instance.current.use(RemoteConnection(self._channel))
        models, asked, *more = rows.columns
        if part is PredictionPart.STEPS:
            asked = with_horizon(asked, *more)
        found = instance.predictor.predict_each(caller, models, asked, part=part)
        return pa.record_batch([found.cast(part.type)], names=["prediction"])


def _older_build() -> NotSupportedError:
    return NotSupportedError(
        "this build of the extension is older than the grouplearn"
        f" {importlib.metadata.version('grouplearn')} of {sys.executable}: they do not understand each other\n\n"
        "Hint: Build it again (make extension; grouplearn duckdb --install where it was installed), and start the program"
        " that has loaded it anew."
    )


def _check_may_write(statement: OurStatement, *, allowed: bool) -> None:
    """Refuse statements that write where a view, a macro or a larger statement of DuckDB's contains them."""
    if not allowed and not isinstance(statement, Listing):
        raise BindError(
            "grouplearn('...') inside another statement, a view or a macro can only be SHOW, DESCRIBE or EVALUATE\n\n"
            "Hint: Run the statement by itself, as FROM grouplearn('...') or as it is."
        )


def _values(body: Body) -> dict[str, Any] | None:
    """Return the statement's parameters by name; the extension sends them in the last column of a row."""
    schema = body.blob()
    if not schema:
        return None
    row = batch_of(bytearray(body.rest()), described_rows(schema))
    values: dict[str, Any] = python_rows(pa.table([row.column("values")], ["values"]))[0][0]
    return values


def _batch(body: Body) -> pa.RecordBatch:
    rows = described_rows(body.blob())
    return batch_of(bytearray(body.rest()), rows)


#: The beginning of DuckDB's messages.
_KIND = re.compile(r"(\w+(?: \w+){0,3}) Error: ")


def described(error: BaseException) -> tuple[str, str]:
    """Return DuckDB's name for the kind of an error, and the text for the user."""
    kind, message = _kind_and_message(of(error) if isinstance(error, Failure) else error)
    return kind, visible_lines(message)


def _kind_and_message(error: BaseException) -> tuple[str, str]:
    if isinstance(error, Cancelled | duckdb.InterruptException):
        return "INTERRUPT", str(error).removeprefix("INTERRUPT Error: ")
    if isinstance(error, ParseError):
        return "Parser", str(error)
    if isinstance(error, AccessRefused):
        return "Permission", str(error)
    if isinstance(error, NotSupportedError) and not hasattr(error, "span"):
        return "Not implemented", str(error)
    if isinstance(error, duckdb.Error) and not hasattr(error, "span"):
        kind = _KIND.match(str(error))  # our messages that quote DuckDB's have it further on
        return (kind[1], str(error)[kind.end() :]) if kind else ("Invalid Input", str(error))
    if isinstance(error, BindError | Error):
        return "Binder", str(error)
    return "Invalid Input", f"{type(error).__name__}: {error}"
