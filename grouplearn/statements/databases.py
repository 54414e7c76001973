"""The databases of the user's connection: which model a name means, whether a database can be written, transactions."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import duckdb

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.catalog import models, naming
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.checks.trust import Guard
from grouplearn.catalog.combinations import Combination, combination_at, combination_of
from grouplearn.catalog.identities import Identity, identity_at, schemas_of
from grouplearn.catalog.lookup.attached import Attachments, attachments_of, in_transaction
from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.rows import recorded_runs
from grouplearn.catalog.schema import Location, ensure_schema, seen_once
from grouplearn.errors import ConflictError, NotSupportedHere, ReadOnlyError
from grouplearn.failures import StatementInterrupted
from grouplearn.messages import Span, did_you_mean
from grouplearn.parser.statements import QualifiedName

_T = TypeVar("_T")
#: Seconds for which a conflicting change is retried, and the longest pause between two attempts.
_PATIENCE_SECONDS, _LONGEST_PAUSE = 5.0, 0.3
#: Retries of an interrupted ROLLBACK.
_ROLLBACKS = 100
#: DuckDB's own databases, which store nothing permanently.
_OF_DUCKDB = ("temp", "system")
#: Exceptions of interrupted queries: DuckDB turns Ctrl-C into a RuntimeError.
_INTERRUPTS = (duckdb.InterruptException, KeyboardInterrupt, RuntimeError)


def is_conflict(error: duckdb.Error) -> bool:
    """Return whether DuckDB refused a change because another transaction changed the same data."""
    text = str(error)
    return text.startswith("TransactionContext Error") and ("conflict" in text or "duplicate key" in text)


def _conflict(own: bool, span: Span, checker: SqlChecker) -> ConflictError:
    if own:
        message = "other connections keep changing the same model, so nothing was stored"
        hint = "Run the statement again when they are done."
    else:
        message = "another connection has changed the same since this transaction began, so nothing was stored"
        hint = "ROLLBACK, and run the statement again."
    return ConflictError(message, text=checker.text, span=span, hint=hint)


class Databases:
    """The databases attached to a DuckDB connection, read by plain SQL on it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, guard: Guard) -> None:
        self._connection, self._guard = connection, guard
        self._in_statement = self._begun = False
        self._known: Attachments | None = None
        self._users: bool | None = None
        self._made: set[str] = set()
        #: Whether the statement has committed its changes in our own transaction.
        self.has_stored = False

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Read attached databases and the user's transaction only once in the body, which is one statement."""
        self._in_statement, self.has_stored = True, False
        try:
            yield
        finally:
            self._in_statement, self._known, self._users = False, None, None

    def attachments(self) -> Attachments:
        """Return what is attached; within ``statement``, as it was at the first call."""
        found = self._known or attachments_of(self._connection)
        self._known = found if self._in_statement else None
        return found

    def of(self, name: QualifiedName, checker: SqlChecker, *, gone: bool = False) -> tuple[str, str]:
        """Return the database and schema of a model's name; with ``gone``, the schema may exist only in the rows of models."""
        catalog, schema = self._named(name, checker, gone)
        here = self.attachments()
        if catalog != here.database or schema not in ("main", here.schema):
            self._guard.refuse_hidden_in(self._connection, catalog, schema, here)
        return catalog, self._lost(catalog, schema, name) if gone else schema

    def _lost(self, catalog: str, schema: str, name: QualifiedName) -> str:
        """Return the schema or, if the name gives none, that of the only model of that name whose schema is gone."""
        if len(name.parts) > 1 or identity_at(self._connection, catalog, schema, name.name) is not None:
            return schema
        there = {sqltext.folded(each) for each in self._schemas(catalog)}
        lost = [each for each in schemas_of(self._connection, catalog, name.name) if sqltext.folded(each) not in there]
        return lost[0] if len(lost) == 1 else schema

    def _named(self, name: QualifiedName, checker: SqlChecker, gone: bool) -> tuple[str, str]:
        here = self.attachments()
        catalog, schema = here.database, here.schema
        databases = {sqltext.folded(each.name): each for each in here.users}
        qualifiers = list(name.parts[:-1])
        if len(qualifiers) == 2:
            catalog, schema = qualifiers[0].value, qualifiers[1].value
        elif qualifiers and sqltext.folded(qualifiers[0].value) in databases:
            catalog, schema = qualifiers[0].value, "main"
        elif qualifiers:
            schema = qualifiers[0].value
        if len(qualifiers) == 1 and sqltext.folded(schema) in _OF_DUCKDB:
            message = f'"{schema}" is a database of DuckDB\'s own, and holds no models'
            hint = "For one that goes with the session: ATTACH ':memory:' AS scratch; TRAIN MODEL scratch.m ..."
            raise checker.error(message, qualifiers[0].span, hint)
        database = databases.get(sqltext.folded(catalog))
        if database is not None and database.kind == "duckdb" and schema == "main":  # it cannot be dropped
            return database.name, schema
        places = {sqltext.folded(each): each for each in self._schemas(catalog)}
        if not places or database is None:
            message = f'there is no database "{catalog}" that can hold models'
            span = qualifiers[0].span if qualifiers else name.span
            raise checker.error(message, span, did_you_mean(catalog, [each.name for each in databases.values()]))
        if sqltext.folded(schema) not in places:
            if gone and identity_at(self._connection, catalog, schema, name.name) is not None:
                return database.name, schema
            known = [*places.values(), *(each.name for each in databases.values() if len(qualifiers) == 1)]
            message = f'there is no schema "{schema}" in database "{catalog}"'
            raise checker.error(message, qualifiers[-1].span, did_you_mean(schema, known))
        return database.name, places[sqltext.folded(schema)]

    def _schemas(self, catalog: str) -> list[str]:
        query = (
            "SELECT database_name, schema_name FROM system.main.duckdb_schemas() WHERE lower(database_name) = lower(?)"
        )
        own = sqltext.folded(catalog)
        return [schema for name, schema in self.rows(query, [catalog]) if sqltext.folded(name) == own]

    def file(self, catalog: str) -> str | None:
        """Return the path of a database's file, None for one in memory."""
        return next(each.path for each in self.attachments().attached if each.name == catalog)

    def model(self, name: QualifiedName, checker: SqlChecker) -> StoredModel:
        """Return the model that a name means (``catalog.naming``), or raise with the closest name."""
        with self.transaction():  # a snapshot: others may train it again between two queries
            for place in self.places(name):
                model = models.load_definition(self._connection, *place, name.name)
                if model is not None:
                    return model
        self.of(name, checker)  # raises if there is no such database or schema
        self.refuse_several(name, checker)
        raise recorded_runs.unknown_model(self._connection, checker, name.name, name.span, name.qualified)

    def combination(self, name: QualifiedName) -> Combination | None:
        """Return the model of several learners that a name means, or None."""
        for place in self.places(name):
            if identity_at(self._connection, *place, name.name) is not None:
                return None
            found = combination_at(self._connection, *place, name.name)
            if found is not None:
                return found
        return None

    def refuse_several(self, name: QualifiedName, checker: SqlChecker) -> None:
        """Raise if a name means a model of several learners."""
        found = self.combination(name)
        if found is not None:
            message = f'model "{name.name}" is of several learners, and this statement takes a model of one'
            listed = " or ".join(part.name for part in found.members)
            raise checker.error(message, name.span, f"Write {listed} in its place.")

    def refuse_member(self, model: Location, span: Span, checker: SqlChecker) -> None:
        """Raise if a model is a part of one of several learners, which would lose it."""
        found = combination_of(self._connection, model)
        if found is not None:
            whole = found.location.name
            hint = f"DROP, ALTER or TRAIN OR REPLACE MODEL {whole} changes all of them."
            message = f'model "{model.name}" belongs to model "{whole}", which chooses among learners'
            raise checker.error(message, span, hint)

    def identity(self, name: QualifiedName, checker: SqlChecker) -> Identity:
        """As ``model``, for a model that may be damaged: only its place is read. ``of`` explains ``gone``."""
        for place in self.places(name, gone=True):
            found = identity_at(self._connection, *place, name.name)
            if found is not None:
                return found
        found = identity_at(self._connection, *self.of(name, checker, gone=True), name.name)
        if found is None:
            raise recorded_runs.unknown_model(self._connection, checker, name.name, name.span, name.qualified)
        return found

    def places(self, name: QualifiedName, *, gone: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the places where a model is looked up, after a check for macros that hide functions; ``gone`` as in ``of``."""
        here = self.attachments()
        for catalog, schema in naming.places([part.value for part in name.parts[:-1]], here):
            usual = schema == "main" or (catalog == here.database and schema == here.schema)
            if not (gone or usual or sqltext.folded(schema) in map(sqltext.folded, self._schemas(catalog))):
                continue
            if catalog != here.database or schema not in ("main", here.schema):
                self._guard.refuse_hidden_in(self._connection, catalog, schema, here)
            yield catalog, schema

    @contextmanager
    def transaction(self, database: str | None = None, *, storing: bool = False) -> Iterator[None]:
        """Run the body in the user's transaction if there is one, else in our own.

        ``database`` is the default one if known; ``storing`` is explained by ``seen_once``.
        """
        if self.in_transaction():
            with seen_once(self._connection, database, storing=storing):
                yield
            return
        self._begun = True
        try:  # after an interrupt BEGIN may have succeeded, and COMMIT may have failed
            self._connection.execute("BEGIN TRANSACTION")
            with seen_once(self._connection, database, own=True, storing=storing):
                yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            interrupted = self._rolled_back()
            if interrupted is None or isinstance(error, (*_INTERRUPTS, StatementInterrupted)):
                raise
            raise interrupted from error
        finally:
            self._begun = False

    def _rolled_back(self) -> BaseException | None:
        """End our transaction if we are in it; return the interrupt that came meanwhile, if any; ROLLBACK was then repeated."""
        interrupted: BaseException | None = None
        for _ in range(_ROLLBACKS):
            try:
                self._connection.execute("ROLLBACK")
            except duckdb.TransactionException:  # there is no transaction
                break
            except _INTERRUPTS as error:
                interrupted = error
            else:
                break
        return interrupted

    def write(self, catalog: str, work: Callable[[], _T], span: Span, checker: SqlChecker) -> _T:
        """Run ``work``, which changes the models of a database, in a ``transaction`` and return its result.

        If other connections change the same data at the same time, it is repeated on what they left. The same holds for our
        tables: of several connections that are the first to store a model in a database, one creates them. Changes in the
        user's transaction cannot be repeated: that raises ConflictError.
        """
        own, ends = not self.in_transaction(), time.monotonic() + _PATIENCE_SECONDS
        # Another connection may have attached a file since the statement began.
        now = attachments_of(self._connection)
        self._guard.refuse_hidden(self._connection, now)
        if own and catalog not in self._made:
            self._repeated(lambda: ensure_schema(self._connection, catalog), now.database, ends, span, checker)
            self._made.add(catalog)
        done = self._repeated(work, now.database, ends if own else 0.0, span, checker)
        self.has_stored = own
        return done

    def _repeated(self, work: Callable[[], _T], database: str, ends: float, span: Span, checker: SqlChecker) -> _T:
        for attempt in itertools.count():
            try:
                with self.transaction(database, storing=True):
                    return work()
            except duckdb.Error as error:
                if not is_conflict(error):
                    raise
                if time.monotonic() >= ends:
                    raise _conflict(ends > 0, span, checker) from None
            time.sleep(random.uniform(0.0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))  # noqa: S311
        raise AssertionError

    def in_transaction(self) -> bool:
        """Return whether the user has begun a transaction, or we have."""
        if self._begun:
            return True
        if self._users is not None:
            return self._users
        # Not by trying BEGIN: if that fails, it aborts the user's transaction.
        users = in_transaction(self._connection, self.attachments().transaction)
        self._users = users if self._in_statement else None
        return users

    def rows(self, query: str, values: list[str] | None = None) -> list[tuple[Any, ...]]:
        """Return all rows at once: DuckDB refuses some calls on a connection with a half-read result."""
        return self._connection.execute(query, values).fetchall()

    def current_file(self) -> str | None:
        """Return the path of the current database."""
        return self.file(self.attachments().database)

    def refuse_read_only(
        self,
        catalog: str,
        span: Span,
        checker: SqlChecker,
        reason: str = "its models cannot be changed",
        hint: str = "Open it without read_only.",
    ) -> None:
        """Raise ReadOnlyError if a database cannot be written, or not in the user's transaction."""
        if any(each.read_only for each in self.attachments().attached if each.name == catalog):
            message = f'database "{catalog}" is read-only: {reason}'
            raise ReadOnlyError(message, text=checker.text, span=span, hint=hint)
        if not self._begun and self.in_transaction():
            self._refuse_transaction(catalog, span, checker, reason)

    def _refuse_transaction(self, catalog: str, span: Span, checker: SqlChecker, reason: str) -> None:
        try:  # DuckDB refuses only a statement that writes
            self.rows(f"EXPLAIN CREATE SCHEMA IF NOT EXISTS {sqltext.qualified(catalog, SCHEMA)}")
        except duckdb.TransactionException as error:
            message = f'this transaction cannot write to database "{catalog}": {reason}\n{error}'
            hint = "ROLLBACK, and run the statement outside of it or in one that is not READ ONLY."
            if "already modified" in str(error):
                hint = "DuckDB lets a transaction write to one database: ROLLBACK, and run the statement in one of its own."
            raise ReadOnlyError(message, text=checker.text, span=span, hint=hint) from None

    def refuse_namesake(self, span: Span, checker: SqlChecker) -> None:
        """Raise NotSupportedHere for a database that has the name of our schema: views could not tell the two apart."""
        namesake = next((each.name for each in self.attachments().users if sqltext.folded(each.name) == SCHEMA), None)
        if namesake is not None:
            message = f'no model can be stored beside a database named "{namesake}", as the schema of models is'
            hint = (
                f"Rename the file, or DETACH it and ATTACH it AS another name, such as {sqltext.identifier('models')}."
            )
            raise NotSupportedHere(message, text=checker.text, span=span, hint=hint)

    def refuse_change(self, catalog: str, span: Span, checker: SqlChecker) -> None:
        """Raise if the models of a database, and their views, cannot be changed."""
        self.refuse_namesake(span, checker)
        self.refuse_read_only(catalog, span, checker)
