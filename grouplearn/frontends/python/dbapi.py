"""``grouplearn.connect``: a DuckDB connection (PEP 249) through which our statements work like any other."""

from __future__ import annotations

import functools
import os
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

import duckdb
from duckdb import InvalidInputException

from grouplearn.errors import (
    Error,
    InterfaceError,
    ProgrammingError,
    as_database_errors,
    not_installed,
)
from grouplearn.frontends.python.call_errors import errors_with_hints, shortened_errors
from grouplearn.frontends.python.interrupts import (
    Interruption,
    as_keyboard_interrupt,
    errors_that_say_stored,
    interruptible,
)
from grouplearn.frontends.python.pieces import (
    MAY_COMMIT,
    MAY_PREDICT,
    MAY_ROLL_BACK,
    MAY_SET_VARIABLE,
    ends_in_answer,
    pieces_of,
    refuse_parameters,
    sendable,
)
from grouplearn.frontends.python.scope import Scope, frames_registered
from grouplearn.visible import visible

if TYPE_CHECKING:
    from types import TracebackType

    from grouplearn.extract.streams.stream import Stream
    from grouplearn.frontends.python.model import Model
    from grouplearn.frontends.python.pieces import Piece
    from grouplearn.parser.clauses.parameter_values import Parameters
    from grouplearn.parser.statements import OurStatement, PlanFormat
    from grouplearn.train.job import Progress

_BUSY = (
    "Resource In Use Error: connection is busy with another call: a statement of grouplearn's runs on it, or on a cursor of it"
    "\n\nHint: interrupt(), called on the one that runs it, stops it; close() when it has ended."
)
_NO_PATH = re.compile("[\0\ud800-\udfff]")
# Methods that read the rows of execute(); before any other call the answer of our statement is dropped.
_READERS = frozenset(
    """complete df fetch_df fetch_df_chunk fetchall fetchdf fetchmany fetchnumpy fetchone tf to_arrow_reader to_arrow_table
    torch""".split()  # noqa: SIM905
)
_BESIDE_READERS = frozenset(["abort", "interrupt", "query_progress"])
# Methods that return their connection.
_CHAINED = frozenset(
    """append checkpoint create_function install_extension load_extension register register_filesystem remove_function
    unregister unregister_filesystem""".split()  # noqa: SIM905
)


class StatementSession(Protocol):
    """What a connection uses of ``grouplearn.statements.session.Session``."""

    plan_format: PlanFormat
    streams: Sequence[Stream]

    @property
    def is_busy(self) -> bool:
        """Whether a statement is being carried out, by any thread."""
        ...

    def answer(self, statement: OurStatement, text: str, parameters: Parameters = None) -> str:
        """Run one of our statements and return a SELECT of its result."""
        ...

    def read_again(self, statement: OurStatement, text: str) -> str:
        """Return the TRAIN of a stored model whose FROM a statement reads again, or no text."""
        ...

    def settle(self) -> None:
        """Tidy up after a committed transaction."""
        ...

    def notice(self, text: str) -> None:
        """Take note of SQL that DuckDB has run."""
        ...

    def expect_variables(self, text: str = "") -> None:
        """Take note of the connection's variables, and of those that a text will set."""
        ...

    def listen(self) -> None:
        """Start listening to interrupts: from here on they are meant for the next statement."""
        ...

    def has_stored(self) -> bool:
        """Return whether the changes of our current or last statement are committed."""
        ...

    def interrupt(self) -> None:
        """Ask the running statement to stop."""
        ...

    def close(self) -> None:
        """Release everything the session holds."""
        ...


SessionFactory = Callable[[duckdb.DuckDBPyConnection], StatementSession]


def connect(
    database: str | os.PathLike[str] = ":memory:",
    read_only: bool = False,
    config: Mapping[str, Any] | None = None,
    *,
    progress: Progress | Literal["auto", False] | None = "auto",
    storage_version: str | None = None,
) -> Connection:
    """Open a database as ``duckdb.connect`` does, and return a connection that also understands our statements.

    ``storage_version`` (``'v1.5.0'``) is the oldest DuckDB that can read a file made here; by default this one.
    ``progress`` is ``'auto'`` (a live bar in a terminal or notebook), ``None`` or ``False`` (none), or your own
    :class:`~grouplearn.train.job.Progress`.
    """
    from grouplearn.catalog.predicting_connections import entry_of

    chosen = {} if storage_version is None else {"storage_compatibility_version": storage_version}
    path = os.fspath(database)
    wrong = _NO_PATH.search(path) if isinstance(path, str) else None
    if wrong is not None:
        raise ProgrammingError(
            f'a path of a database cannot have the character "{visible(wrong[0])}": "{visible(path)}"'
        )
    native = duckdb.connect(path, read_only=read_only, config={**(config or {}), **chosen})
    entry_of(native).is_new = path in ("", ":memory:")
    opened = wrap(native, progress=progress)
    opened._is_shared = False
    return opened


@as_database_errors()
def wrap(
    connection: duckdb.DuckDBPyConnection, *, progress: Progress | Literal["auto", False] | None = "auto"
) -> Connection:
    """Return a connection of ours around an open DuckDB connection, which stays usable."""
    from grouplearn.catalog.predicting_connections import Settings, known_entry
    from grouplearn.frontends.progress import choose_progress
    from grouplearn.statements.session import Session

    display = choose_progress() if progress == "auto" else progress or None
    if display is not None and not hasattr(display, "unit_done"):
        raise InterfaceError(f"progress is 'auto', None, False or a Progress, not {progress!r}")
    entry = known_entry(connection)
    settings = Settings(entry.settings.token if entry else None)
    opened = Connection(connection, lambda native: Session(native, display, settings))
    opened._share()
    return opened


def model(connection: Connection | duckdb.DuckDBPyConnection, name: str) -> Model:
    """Return a trained model by its name, as ``Model.named`` does."""
    from grouplearn.frontends.python.model import Model

    return connection.model(name) if isinstance(connection, Connection) else Model.named(connection, name)


class Connection:
    """A connection, or a cursor: in DuckDB they are the same.

    ``execute``, ``sql``, ``query``, ``from_query`` and ``executemany`` accept our statements; every other attribute is
    the DuckDB connection's own (``df``, ``fetchall``, ``register``, ``create_function`` ...).
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, session_factory: SessionFactory) -> None:
        from grouplearn.catalog.predicting_connections import entry_of

        self._duckdb = connection
        self._session_factory = session_factory
        self._session = session_factory(connection)
        self._interruption = Interruption(
            connection.interrupt
        )  # no reference to self: the file is free as soon as nobody holds us
        self._unread_answer = False
        self._unread_query: str | None = None
        self._has_executed = False
        self._rolled_back = False
        self._may_predict = False
        self._asking = entry_of(connection).sessions
        self._text: str | None = None  # the last statement
        self._is_shared = False  # whether others may run queries on it that we do not see
        self._cursors: weakref.WeakSet[Connection] = weakref.WeakSet()  # which close() closes with the connection
        #: Default number of rows for ``fetchmany()`` (PEP 249).
        self.arraysize = 1

    def execute(self, query: Any, parameters: Any = None) -> Connection:
        """Run one or several statements; the last one's rows are then fetched from this connection."""
        self._run(query, parameters, Scope.of_caller())
        return self

    def executemany(self, query: Any, parameters: Any = None) -> Connection:
        """Run a statement once for each of a list of parameter sets."""
        scope, query = Scope.of_caller(), sendable(query)
        if not pieces_of(query):
            self._drop_unread_answer()
            self._foresee(query)
            self._text = query if isinstance(query, str) else None
            with self._calling(), errors_with_hints(query, self._duckdb):
                scope.call(self._duckdb.executemany, query, parameters)
            self._has_executed = True
            return self
        for values in parameters or ():
            self._run(query, values, scope)
        return self

    def sql(self, query: Any, *, alias: str = "", params: Any = None) -> duckdb.DuckDBPyRelation | None:
        """Return a relation over the last statement of ``query``; our statements run now, once."""
        return self.relation(query, params, Scope.of_caller(), alias)

    def query(self, query: Any, *, alias: str = "", params: Any = None) -> duckdb.DuckDBPyRelation | None:
        """Like :meth:`sql`."""
        return self.relation(query, params, Scope.of_caller(), alias)

    def from_query(self, query: Any, *, alias: str = "", params: Any = None) -> duckdb.DuckDBPyRelation | None:
        """Like :meth:`sql`."""
        return self.relation(query, params, Scope.of_caller(), alias)

    @contextmanager
    def plans_as(self, plan_format: PlanFormat) -> Iterator[None]:
        """Make ``plan_format`` the default FORMAT of EXPLAIN TRAIN in the block."""
        before, self._session.plan_format = self._session.plan_format, plan_format
        try:
            yield
        finally:
            self._session.plan_format = before

    def relation(self, query: Any, parameters: Any, scope: Scope, alias: str = "") -> duckdb.DuckDBPyRelation | None:
        """As :meth:`sql`, with ``FROM name`` looking for Python variables in ``scope`` instead of the caller."""
        query = sendable(query)
        self._drop_unread_answer()
        self._foresee(query)
        self._share()  # a relation runs when it is read, maybe after other statements
        pieces = pieces_of(query)
        with self._calling(ours=bool(pieces)):
            if pieces:
                # As in DuckDB, an unfinished result of execute() is an error here.
                self._duckdb.sql("SELECT 1").fetchall()
                query, parameters = self._up_to_last(pieces, query, parameters, scope)
            with errors_with_hints(query, self._duckdb):
                relation: duckdb.DuckDBPyRelation | None = scope.call(
                    self._duckdb.sql, query, alias=alias, params=parameters
                )
        self._settle(query)
        return relation

    @property
    def native(self) -> duckdb.DuckDBPyConnection:
        """DuckDB's own connection, which does not know our statements."""
        self._drop_unread_answer()
        self._share()
        return self._duckdb

    def model(self, name: str) -> Model:
        """Return a trained model: its tables, plots and report (see :mod:`grouplearn.frontends.python.model`)."""
        from grouplearn.frontends.python.model import Model

        return Model.named(self.native, name)

    def cursor(self) -> Connection:
        """Return a second connection to the same database, with its own transaction."""
        from grouplearn.catalog.predicting_connections import entry_of

        native = self._duckdb.cursor()
        entry_of(native).is_new = entry_of(self._duckdb).is_new
        return self._with_cursor(native)

    def duplicate(self) -> Connection:
        """Like :meth:`cursor`."""
        return self._with_cursor(self._duckdb.duplicate())

    def _with_cursor(self, native: duckdb.DuckDBPyConnection) -> Connection:
        opened = Connection(native, self._session_factory)
        self._cursors.add(opened)
        return opened

    def begin(self) -> Connection:
        """Start a transaction; a TRAIN inside it is undone by :meth:`rollback`."""
        self._duckdb.begin()
        return self

    def commit(self) -> Connection:
        """Commit the transaction, if there is one; the answer of a statement of ours can still be read."""
        query = self._unread_query
        self._duckdb.commit()
        self._session.settle()
        if query is not None:  # DuckDB forgets unread rows
            with suppress(Error):  # the transaction is committed, whatever others did to the model since
                self._duckdb.execute(query)
        return self

    def rollback(self) -> Connection:
        """Undo the transaction."""
        self._duckdb.rollback()
        self._session.notice("ROLLBACK")
        self._rolled_back = True
        return self

    def interrupt(self) -> None:
        """Stop what this connection is running, a query or a TRAIN, from any thread."""
        self._session.interrupt()
        self._interruption()

    def close(self) -> None:
        """Close the connection and its cursors; raises ResourceInUseException, as DuckDB does, while a statement runs on one."""
        if self._is_busy():
            raise duckdb.ResourceInUseException(_BUSY)
        with suppress(Error):
            self._session.settle()
        self._duckdb.close()
        self._session.close()

    def _is_busy(self) -> bool:
        return self._session.is_busy or any(cursor._is_busy() for cursor in tuple(self._cursors))

    @property
    def description(self) -> list[Any] | None:
        """The columns of the last result; None before anything was executed (PEP 249)."""
        return self._duckdb.description if self._has_executed else None

    @property
    def rowcount(self) -> int:
        """The number of rows the last statement changed, or -1 (PEP 249)."""
        return self._duckdb.rowcount

    def fetchmany(self, size: int | None = None) -> list[Any]:
        """Return the next ``size`` rows, by default :attr:`arraysize`; an empty list after the last one."""
        size = self.arraysize if size is None else size
        with self._calling():
            rows: list[Any] = self._duckdb.fetchmany(size)
        return rows

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        with self._calling():
            return self._duckdb.fetchall()

    def fetchone(self) -> Any:
        """Return the next row, None after the last one."""
        if self._may_predict:
            with self._calling():
                return self._duckdb.fetchone()
        try:  # handling Ctrl-C takes ten times as long as fetching a row
            return self._duckdb.fetchone()
        except (InvalidInputException, RuntimeError):
            with as_keyboard_interrupt(), shortened_errors():
                raise

    def setinputsizes(self, sizes: Any) -> None:
        """Do nothing: PEP 249 requires the method, DuckDB needs no sizes."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: PEP 249 requires the method, DuckDB needs no sizes."""

    def pl(self) -> Any:
        """Return the rows of the last result as a polars DataFrame."""
        try:
            import polars
        except ImportError as error:
            raise not_installed("pl()", "polars", "polars") from error
        return polars.from_arrow(self.arrow())

    def arrow(self) -> Any:
        """Return the rows of the last result as a pyarrow Table."""
        with self._calling():
            return _without_advice(self._duckdb.to_arrow_table)

    #: DuckDB's name before 2.0, which Ibis 12 uses.
    fetch_arrow_table = arrow

    def fetch_record_batch(self, rows_per_batch: int = 1_000_000) -> Any:
        """Return the rows of the last result as a pyarrow RecordBatchReader: DuckDB's name before 2.0, which Ibis uses."""
        return _without_advice(self._duckdb.to_arrow_reader, rows_per_batch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name not in _READERS | _BESIDE_READERS:
            self._drop_unread_answer()
            if name not in _CHAINED:
                self._share()
        found = getattr(self._duckdb, name)
        if name in _CHAINED:
            return self._chained(found)
        return self._reader(found) if name in _READERS else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._duckdb) if not name.startswith("_"))})

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<grouplearn.Connection over {self._duckdb!r}>"

    @as_database_errors()
    def _run(self, query: Any, parameters: Any, scope: Scope) -> None:
        query = sendable(query)
        self._foresee(query)
        self._text = query if isinstance(query, str) else None
        pieces = pieces_of(query)
        with self._calling(ours=bool(pieces)):
            if pieces:
                query, parameters = self._up_to_last(pieces, query, parameters, scope)
            self._may_predict = bool(pieces) or (isinstance(query, str) and MAY_PREDICT.search(query) is not None)
            with errors_with_hints(query, self._duckdb):
                scope.call(self._duckdb.execute, query, parameters)
        self._settle(query)
        self._has_executed = True
        self._unread_answer = bool(pieces) and not isinstance(pieces[-1], str)
        self._unread_query = query if ends_in_answer(pieces) else None

    def _reader(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that reads a query's rows, which DuckDB computes meanwhile, so that Ctrl-C must be handled."""

        @functools.wraps(method)
        def read(*arguments: Any, **options: Any) -> Any:
            with self._calling():
                return method(*arguments, **options)

        return read

    def _chained(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that returns our connection where DuckDB's returns its own."""

        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            result = method(*arguments, **options)
            return self if result is self._duckdb else result

        return call

    @contextmanager
    def _calling(self, *, ours: bool = False) -> Iterator[None]:
        """Handle interrupts and errors in a block that runs a text, with ``ours`` one that has statements of ours.

        A statement of ours runs until it notices that it was interrupted; DuckDB's are left at once.
        """
        self._unread_query = None
        if ours:
            self._session.listen()
        self._asking.text = None if self._is_shared else self._text
        stored = errors_that_say_stored(self._session.has_stored) if ours else nullcontext()
        with stored, interruptible(self.interrupt, at_once=not ours), self._interruption.running(), shortened_errors():
            yield

    def _foresee(self, query: Any) -> None:
        if isinstance(query, str) and (self._rolled_back or MAY_SET_VARIABLE.search(query)):
            self._rolled_back = False
            self._session.expect_variables(query)

    def _settle(self, query: Any) -> None:
        if isinstance(query, str) and MAY_COMMIT.search(query) is not None:
            self._session.settle()
        if isinstance(query, str):
            self._session.notice(query)
        self._rolled_back |= isinstance(query, str) and MAY_ROLL_BACK.search(query) is not None

    def _share(self) -> None:
        self._is_shared, self._asking.text = True, None

    def _drop_unread_answer(self) -> None:
        """Free the connection after ``execute('TRAIN ...')``, as DuckDB does after ``execute('CREATE TABLE ...')``."""
        if self._unread_answer:
            self._unread_answer = False
            self._duckdb.complete()

    def _up_to_last(self, pieces: list[Piece], text: str, parameters: Any, scope: Scope) -> tuple[str, Any]:
        """Run everything but the last piece of DuckDB's SQL; return that piece and its parameters."""
        from grouplearn.parser.statements import Nested

        for piece in pieces[:-1]:
            if isinstance(piece, str):
                with errors_with_hints(piece, self._duckdb):
                    scope.call(self._duckdb.execute, piece)
                self._duckdb.complete()
                self._settle(piece)
            else:
                refuse_parameters(piece)
                answer = self._answer(piece, text, None, scope)
                if isinstance(piece, Nested):  # its answer runs it
                    scope.call(self._duckdb.execute, answer)
                    self._duckdb.complete()
        last = pieces[-1]
        if isinstance(last, str):
            return last, parameters
        return self._answer(last, text, parameters, scope), None

    def _answer(self, statement: OurStatement, text: str, parameters: Any, scope: Scope) -> str:
        # By execute(), at which DuckDB drops an unfinished result, as it does at its own statements.
        asked = self._duckdb.execute("SELECT system.main.current_setting('python_scan_all_frames')")
        if asked.fetchall()[0][0]:
            scope = scope.with_outer_frames()
        with frames_registered(self._duckdb, text, scope, self._session.read_again(statement, text)) as streams:
            self._session.streams = streams
            try:
                return self._session.answer(statement, text, parameters)
            finally:
                self._session.streams = ()


def _without_advice(function: Callable[..., Any], *arguments: Any) -> Any:
    """DuckDB advises con.sql(...) to save a copy, which does not help a caller of execute()."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return function(*arguments)
