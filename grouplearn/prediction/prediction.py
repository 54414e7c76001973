"""Behind the SQL function ``predict``: per connection, the models it has loaded.

Connections are weakly referenced: a function held by DuckDB must not keep its connection alive.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.catalog import naming
from grouplearn.catalog.checks.trust import Guard
from grouplearn.catalog.lookup.attached import attachments_of
from grouplearn.catalog.lookup.references import Key, Reference, committed, find, is_identity, meant_by, where_called
from grouplearn.catalog.predicting_connections import (
    TRANSACTION,
    PredictingConnection,
    entry_of,
    entry_of_token,
    known_entry,
)
from grouplearn.catalog.records import ModelDefinition, StoredModel
from grouplearn.catalog.schema import in_own_transaction
from grouplearn.errors import data_error
from grouplearn.prediction.predictions import PredictionPart
from grouplearn.prediction.rows.exact_rows import ExactRows
from grouplearn.prediction.scoring import Scorer, load_scorer

#: The default database and search path.
_DEFAULT = "SELECT system.main.current_database(), system.main.current_setting('search_path')"
#: Most models kept loaded per connection.
_LOADED = 16
#: Most rows per call from DuckDB.
_CHUNK = 2048


@dataclass(frozen=True, slots=True)
class _Uncommitted:
    """A model written, renamed or dropped by a transaction that may still be open.

    ``catalog`` is its database. ``definition`` is None if it was dropped; ``scorer`` is None if the committed one still
    applies.
    """

    transaction: int
    catalog: str | None
    id: str
    definition: ModelDefinition | None
    scorer: Callable[[], Scorer] | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of ``predict``: a transaction, and in it a session or a query, within which names do not change meaning.

    ``session`` is a number of ``Sessions``, None if the connection's cursors are in it; then ``query`` is DuckDB's number
    of the query, and ``text`` its text, None if unknown.
    """

    transaction: int
    session: int | None = None
    query: int | None = None
    text: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether names keep their meaning while this caller asks."""
        return self.session is not None or self.query is not None


@dataclass(frozen=True, slots=True)
class _Found:
    """The models found in a transaction, by session (or default schema) and reference.

    A statement calls ``predict`` for every 2,048 rows, and finding a model takes as long as applying it. It also keeps the
    same model to the end of the statement, whatever others commit. ``recent`` has by reference what the last caller found.
    Where a reference means another model in a view it holds for one query, ``text``.
    """

    transaction: int | None = None
    text: str | None = None
    models: dict[tuple[Hashable, str], Key] = field(default_factory=dict)
    sought: dict[tuple[Hashable, str], Reference] = field(default_factory=dict)
    recent: tuple[Caller | None, dict[str, Key]] = (None, {})


class Predictor:
    """Finds, loads and applies models for the function ``predict`` on one connection; any thread may call it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, transaction_sql: str = TRANSACTION) -> None:
        self.transaction_sql = transaction_sql  #: the SQL by which callers of ``predict`` identify their transaction
        self.sessions = entry_of(connection).sessions
        self.guard = Guard()
        self._connection = weakref.ref(connection)
        #: By ``Attached.identity`` of the database, or the transaction of an uncommitted model, and the model's identity.
        self._loaded: OrderedDict[Key, Scorer] = OrderedDict()
        self._uncommitted: list[_Uncommitted] = []
        self._held: dict[str, tuple[Key, Scorer]] = {}  # by reference
        self._found = _Found()
        #: The last caller for whom hidden macros were looked for, and what names mean there.
        self._looked: tuple[Caller, Hashable] | None = None
        self._lock = threading.RLock()

    def remember(self, transaction: int, model: str, definition: ModelDefinition, scorer: Callable[[], Scorer]) -> None:
        """Make a model usable in the transaction that wrote it, before other connections can see it."""
        self._note(_Uncommitted(transaction, definition.catalog, model, definition, scorer))

    def rename(self, transaction: int, model: str, definition: ModelDefinition) -> None:
        """Use the model's new name in ``definition`` in the transaction that renamed it."""
        with self._lock:
            own = definition.catalog, model
            known = next((entry for entry in self._of(transaction) if (entry.catalog, entry.id) == own), None)
            self._note(
                _Uncommitted(transaction, definition.catalog, model, definition, known.scorer if known else None)
            )

    def forget(self, transaction: int, catalog: str, model: str) -> None:
        """Hide a model in the transaction that dropped it."""
        self._note(_Uncommitted(transaction, catalog, model, None, None))

    @contextmanager
    def held(self, reference: str, key: Key, load: Callable[[], Scorer]) -> Iterator[None]:
        """Use a model for a reference in the block, whatever it means to other connections."""
        with self._lock:
            self._held[reference] = key, self._kept(key) or self._keep(key, load())
        try:
            yield
        finally:
            self._held.pop(reference, None)

    def look_again(self, text: str) -> None:
        """Find models and the names in their expressions again: SQL that has run may have changed databases or macros."""
        with self._lock:
            self.names_changed(text)
            self._found = _Found()

    def names_changed(self, text: str | None = None) -> None:
        """Check names in expressions again, also within a statement, which keeps the models that it has found."""
        with self._lock:
            self.guard.forget(text)
            self._looked = None

    def _note(self, entry: _Uncommitted) -> None:
        with self._lock:
            own = entry.catalog, entry.id
            others = [other for other in self._of(entry.transaction) if (other.catalog, other.id) != own]
            self._uncommitted = [*others, entry]
            self._found = _Found()

    def _text(self, caller: Caller) -> str | None:
        return self.sessions.text if caller.text is None else caller.text

    def _of(self, transaction: int) -> list[_Uncommitted]:
        return [entry for entry in self._uncommitted if entry.transaction == transaction]

    def predict(
        self,
        caller: Caller,
        reference: str,
        rows: Any,
        exact: ExactRows | None = None,
        part: PredictionPart = PredictionPart.ALL,
    ) -> Any:
        """Return a model's predictions, or a part of each, for a struct array of rows without NULLs."""
        with _Cursor(self, caller.session) as cursor:
            scorer = self._admitted(caller, reference, rows.type)
            if scorer is None:
                with self._lock:
                    names = self._names(cursor(), caller)
                    scorer = self._scorer(cursor(), caller, reference).for_rows(rows.type)
                    self.guard.admit_user(cursor(), scorer.definition, scorer, caller, names)
            return scorer.score(cursor, rows, exact, part)

    def open_cursor(self, session: int | None) -> duckdb.DuckDBPyConnection:
        """Open a cursor that reads expressions as a session does."""
        connection = self._connection()
        if connection is None:
            raise data_error("predict was called on a connection that is closed")
        cursor = connection.cursor()
        entry_of(cursor).settings = entry_of(connection).settings
        try:
            self.sessions.apply(session, cursor)
        except BaseException:
            cursor.close()
            raise
        return cursor

    def predict_each(
        self,
        caller: Caller,
        models: Any,
        rows: Any,
        exact: ExactRows | None = None,
        part: PredictionPart = PredictionPart.ALL,
    ) -> Any:
        """Return the predictions for rows that each name their model; a NULL model or row gives NULL."""
        if not _is_text(models.type):
            raise data_error("predict takes a model's name, a text: predict('model', t) ... FROM t")
        if not (pa.types.is_struct(rows.type) or pa.types.is_null(rows.type)):
            raise data_error(
                "predict takes a row, that is a struct of columns: predict('model', t) ... FROM t. If a column has the name of "
                "the table, DuckDB takes the column: give the table another name, predict('model', r) ... FROM t AS r"
            )
        if pa.types.is_dictionary(models.type):  # an ENUM, whose codes are unsigned
            models = models.dictionary_decode()
        name = _same_in_all(models)
        if name is not None and not rows.null_count:
            return self.predict(caller, name, rows, exact, part)
        coded = models.dictionary_encode()
        wanted = np.asarray(coded.indices.fill_null(-1)).copy()
        wanted[np.asarray(rows.is_null())] = -1
        parts, places = [], []
        for number in np.unique(wanted[wanted >= 0]):
            at = np.flatnonzero(wanted == number)
            model = coded.dictionary[int(number)].as_py()
            chosen = pa.array(at)
            exact_chosen = exact and exact.take(chosen)
            parts.append(self.predict(caller, model, rows.take(chosen), exact_chosen, part))
            places.append(at)
        if not parts:
            return pa.nulls(len(rows), part.type)
        position = np.full(len(rows), -1)
        position[np.concatenate(places)] = np.arange(sum(map(len, places)))
        return pa.concat_arrays(parts).take(pa.array(position, mask=position < 0))

    def _admitted(self, caller: Caller, reference: str, kind: pa.DataType) -> Scorer | None:
        """Return the model found and admitted for such rows in the same call before; None if it must be found."""
        with self._lock:
            if (text := self._text(caller)) != self._found.text:
                by_place = any(each.by_place for each in self._found.sought.values())
                self._found = _Found() if by_place else replace(self._found, text=text)
            if self._found.recent[0] != caller or not caller.is_known or self._of(caller.transaction):
                return None
            found = self._kept(self._found.recent[1].get(reference))
            scorer = None if found is None else found.for_rows(kind)
            looked = self._looked
            if scorer is None or looked is None or looked[0] != caller:
                return None
            return scorer if self.guard.has_admitted(scorer, *looked) else None

    def _names(self, cursor: duckdb.DuckDBPyConnection, caller: Caller) -> Hashable:
        """Return what names mean for a caller, after a look for macros that hide functions."""
        if self._looked is None or self._looked[0] != caller or not caller.is_known:
            here = attachments_of(cursor)
            self.guard.refuse_hidden(cursor, here, of=self._connection())
            self._looked = caller, here.meaning
        return self._looked[1]

    def _scorer(self, cursor: duckdb.DuckDBPyConnection, caller: Caller, reference: str) -> Scorer:
        if self._found.transaction != caller.transaction:
            self._found = _Found(caller.transaction, self._text(caller))
        # The transaction is the caller's claim, and views can call, too: nothing is forgotten because of it.
        uncommitted = self._of(caller.transaction)
        entry = self._uncommitted_as(cursor, caller, reference) if uncommitted else None
        if entry is not None:
            if entry.scorer is not None:
                key = f"{caller.transaction} {entry.catalog}", entry.id
                return self._kept(key) or self._keep(key, entry.scorer())
            named = entry.definition
            return self._committed(cursor, caller, entry.id, set(), named.catalog if named else None)
        return self._committed(cursor, caller, reference, _changed(uncommitted))

    def _committed(
        self,
        cursor: duckdb.DuckDBPyConnection,
        caller: Caller,
        reference: str,
        without: Collection[Key],
        catalog: str | None = None,
    ) -> Scorer:
        where = _where(cursor, caller)
        found, scorer = self._held.get(reference, (self._found.models.get((where, reference)), None))
        scorer = scorer or self._kept(found)
        if found is None or scorer is None:
            cursor.execute("BEGIN TRANSACTION")  # a snapshot: others may train it again between two queries
            try:
                model = find(cursor, reference, self._sought(cursor, caller, reference, without), catalog)
                file = attachments_of(cursor).identity_of(model.location.catalog)
                self._found.models[where, reference] = found = file, model.id
                scorer = self._kept(found) or self._keep(found, load_scorer(cursor, model))
            finally:
                cursor.execute("ROLLBACK")
        if self._found.recent[0] != caller:
            self._found = replace(self._found, recent=(caller, {}))
        self._found.recent[1][reference] = found
        return scorer

    def _sought(
        self, cursor: duckdb.DuckDBPyConnection, caller: Caller, reference: str, without: Collection[Key]
    ) -> Reference:
        """Return what a reference may mean where the query calls ``predict``, apart from models that are changed, ``without``."""
        written = [
            (own.catalog or "", entry.id, own.schema, own.name)
            for entry in self._of(caller.transaction)
            if (own := entry.definition) is not None
        ]
        sought = where_called(cursor, reference, self._found.text, without, written)
        self._found.sought[_where(cursor, caller), reference] = sought
        return sought

    def _uncommitted_as(self, cursor: duckdb.DuckDBPyConnection, caller: Caller, reference: str) -> _Uncommitted | None:
        """Return the transaction's own model that a reference means; None if it means a committed one, or none."""
        uncommitted = self._of(caller.transaction)
        written = [(entry, entry.definition) for entry in reversed(uncommitted) if entry.definition is not None]
        if found := next((entry for entry, own in written if is_identity(reference, own.catalog, entry.id)), None):
            return found
        changed = _changed(uncommitted)
        known = self._found.sought.get((_where(cursor, caller), reference))
        here = (known or self._sought(cursor, caller, reference, changed)).here
        meant = meant_by(reference, here)
        for rank, (place, name) in enumerate(meant):
            for entry, own in written:
                if naming.is_at(place, name, (own.catalog or here.database, own.schema, own.name)):
                    return None if committed(cursor, meant[:rank], changed) else entry
        return None

    def _kept(self, key: Key | None) -> Scorer | None:
        if key is None or key not in self._loaded:
            return None
        self._loaded.move_to_end(key)
        return self._loaded[key]

    def _keep(self, key: Key, scorer: Scorer) -> Scorer:
        self._loaded[key] = scorer
        while len(self._loaded) > _LOADED:
            self._loaded.popitem(last=False)
        return scorer


class _Cursor:
    """A cursor of the asking connection, opened when first needed: features that are plain columns need none."""

    def __init__(self, predictor: Predictor, session: int | None) -> None:
        self._predictor, self._session = predictor, session
        self._opened: duckdb.DuckDBPyConnection | None = None

    def __call__(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            self._opened = self._predictor.open_cursor(self._session)
        return self._opened

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            self._opened.close()


def _same_in_all(models: Any) -> str | None:
    """Return the model that all rows name, None if they differ."""
    if not len(models) or models.null_count or not models[0].is_valid:
        return None
    first: str = models[0].as_py()
    if len(models) <= _CHUNK and _repeated(first).slice(0, len(models)).equals(models):
        return first
    return first if pc.all(pc.equal(models, first)).as_py() else None


@functools.lru_cache(maxsize=_LOADED)
def _repeated(name: str) -> Any:
    """Return a name repeated for a chunk of rows: comparing with it takes a third of comparing with one value."""
    return pa.repeat(pa.scalar(name, pa.string()), _CHUNK)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in tests)


def _where(cursor: duckdb.DuckDBPyConnection, caller: Caller) -> Hashable:
    """Return the session; if it is unknown, its default database and schema, which may change before the transaction ends."""
    return caller.session if caller.session is not None else cursor.execute(_DEFAULT).fetchall()[0]


def _changed(uncommitted: Sequence[_Uncommitted]) -> set[Key]:
    """Return the models that a transaction has changed."""
    return {(entry.catalog or "", entry.id) for entry in uncommitted}


#: The predictors of connections that have predicted.
_predictors: weakref.WeakKeyDictionary[PredictingConnection, Predictor] = weakref.WeakKeyDictionary()


def predictor_for(connection: duckdb.DuckDBPyConnection) -> Predictor:
    """Return the connection's predictor, made if there is none."""
    entry = entry_of(connection)
    if entry not in _predictors:
        share(connection, Predictor(connection))
    predictor = _predictors[entry]
    predictor.guard.settings = entry.settings
    return predictor


def share(connection: duckdb.DuckDBPyConnection, predictor: Predictor) -> None:
    """Let a shared predictor remember what this connection trains."""
    entry = entry_of(connection)
    _predictors[entry], entry.look_again = predictor, predictor.look_again


def predictor_of_token(token: str) -> Predictor:
    """Return the predictor of a connection by the token in its ``predict``; raises DataError if it is gone."""
    connection = entry_of_token(token).connection()
    if connection is None:
        raise data_error("predict was called on a connection that is closed")
    return predictor_for(connection)


def _asked_in_transaction(connection: duckdb.DuckDBPyConnection) -> Predictor | None:
    """Return the predictor that the user can ask within the connection's current transaction; None if there is none.

    In a transaction of our own nobody predicts: it ends with the statement that changes a model.
    """
    return None if known_entry(connection) is None or in_own_transaction(connection) else predictor_for(connection)


@contextmanager
def held(connection: duckdb.DuckDBPyConnection, model: StoredModel, reference: str) -> Iterator[None]:
    """Let ``predict`` in the block use a model as the connection's transaction sees it: others may train it again meanwhile."""
    file = attachments_of(connection).identity_of(model.location.catalog)
    with predictor_for(connection).held(reference, (file, model.id), lambda: load_scorer(connection, model)):
        yield


def remember_stored(connection: duckdb.DuckDBPyConnection, model: StoredModel) -> None:
    """As ``remember``, for a model read from the catalog as the transaction sees it."""
    scorer = load_scorer(connection, model)
    remember(connection, model.id, replace(model.definition, catalog=model.location.catalog), lambda: scorer)


def remember(
    connection: duckdb.DuckDBPyConnection, model: str, definition: ModelDefinition, scorer: Callable[[], Scorer]
) -> None:
    """Let ``predict`` use a model written by the connection's current transaction until that ends."""
    if predictor := _asked_in_transaction(connection):
        predictor.remember(_transaction(connection, predictor), model, definition, scorer)


def renamed(connection: duckdb.DuckDBPyConnection, model: str, definition: ModelDefinition) -> None:
    """Let ``predict`` find a model under the name that the connection's current transaction gave it."""
    if predictor := _asked_in_transaction(connection):
        predictor.rename(_transaction(connection, predictor), model, definition)


def dropped(connection: duckdb.DuckDBPyConnection, catalog: str, model: str) -> None:
    """Hide a model from ``predict`` in the connection's current transaction, which dropped it."""
    if predictor := _asked_in_transaction(connection):
        predictor.forget(_transaction(connection, predictor), catalog, model)


def _transaction(connection: duckdb.DuckDBPyConnection, predictor: Predictor) -> int:
    transaction: int = connection.execute(f"SELECT {predictor.transaction_sql}").fetchall()[0][0]
    return transaction
