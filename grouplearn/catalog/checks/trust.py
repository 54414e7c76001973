"""What a connection trusts: whether macros may hide DuckDB's functions, and whether model expressions may call anything.

A file opened as the default database may define a macro ``count`` or ``+``, which DuckDB then uses instead of its own, in
our SQL too. And whoever made it wrote the expressions of its models.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from grouplearn.catalog.checks import allowed_calls, fragments
from grouplearn.catalog.checks.fragments import Fragment
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.lookup import names, search_path
from grouplearn.catalog.lookup.attached import Attachments, attachments_of
from grouplearn.catalog.lookup.environment import Definition, environment_of
from grouplearn.catalog.lookup.search_path import Place
from grouplearn.catalog.predicting_connections import entry_of, may_make_macros
from grouplearn.catalog.records import ModelDefinition
from grouplearn.errors import NotTrusted
from grouplearn.sqltext import folded, identifier


@dataclass(frozen=True, slots=True)
class _Admission:
    """Says that a model may be evaluated while names mean the same, in one transaction or (None) any; ``checked``: without
    trust."""

    meaning: Hashable
    when: Hashable
    checked: bool


class Guard:
    """Checks the models of one connection's databases; ``settings`` are those of its SET."""

    def __init__(self) -> None:
        self.settings: Mapping[str, Any] = {}
        #: Where no macro was found that hides a function, by what names mean there: listing all functions takes as long as
        #: fifty small queries.
        self._clear: set[Hashable] = set()
        #: By what evaluates a model's expressions: checking them takes longer than predicting some rows.
        self._admitted: weakref.WeakKeyDictionary[Any, _Admission] = weakref.WeakKeyDictionary()

    @property
    def trusting(self) -> bool:
        """Whether ``SET grouplearn_trust = true`` holds."""
        return bool(self.settings.get("trust"))

    def refuse_hidden(
        self,
        con: duckdb.DuckDBPyConnection,
        attachments: Attachments | None = None,
        of: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """Raise NotTrusted if a macro of a file hides a function of DuckDB; ``attachments`` are the connection's now.

        After a file is attached only SQL on this connection can make one, which ``forget`` takes note of: an earlier result
        holds while the same databases are attached and the search path is the same. ``con`` may be a cursor ``of`` the
        connection, which sees only what is committed, so results of one do not hold for the other.
        """
        now = attachments or attachments_of(con)
        if not self.trusting and (of is not None, now.meaning) not in self._clear:
            self._look(con, {*search_path.here(now)}, now, of or con)
            self._clear.add((of is not None, now.meaning))

    def refuse_hidden_in(
        self, con: duckdb.DuckDBPyConnection, catalog: str, schema: str, attachments: Attachments
    ) -> None:
        """As ``refuse_hidden``, for a database that stores models: DuckDB binds our views and macros there."""
        place = attachments.meaning, folded(catalog), folded(schema)
        if not self.trusting and place not in self._clear:
            self._look(con, {(folded(catalog), folded(name)) for name in ("main", SCHEMA, schema)}, attachments, con)
            self._clear.add(place)

    def _look(
        self, con: duckdb.DuckDBPyConnection, places: set[Place], now: Attachments, user: duckdb.DuckDBPyConnection
    ) -> None:
        """Refuse macros in these places, unless ``user`` has a new database in memory, in which none can have been made."""
        if not (entry_of(user).is_new and all(each.path is None for each in now.users)):
            self._refuse_macros(con, places)

    def _refuse_macros(self, con: duckdb.DuckDBPyConnection, places: set[Place]) -> None:
        for macro in environment_of(con).hiding(places):
            if macro.database != "temp":
                raise NotTrusted(
                    f"macro {macro.whole} hides DuckDB's own {identifier(macro.name)}, so that any SQL would run what its"
                    " author wrote",
                    hint=f"{macro.drop}; if it is your own, make it a TEMP MACRO or give it another name, or SET"
                    " grouplearn_trust = true.",
                )

    def forget(self, text: str | None = None) -> None:
        """Check names and macros again, unless the SQL ``text`` that has run cannot have made any."""
        if text is None or may_make_macros(text):
            self._clear.clear()
        self._admitted.clear()

    def admit(self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> None:
        """Raise NotTrusted unless a model's expressions may be evaluated."""
        self._check(con, definition)

    def admit_user(
        self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition, user: Any, when: Hashable, meaning: Hashable
    ) -> None:
        """As ``admit``, for ``user``, which evaluates the expressions again and again.

        ``meaning`` is what decides, together with ``forget``, what names mean: the check runs once while it is the same, and
        again after trust was withdrawn. If expressions name something that can be made anew, it holds for ``when`` alone, a
        transaction of a session: another may see other views and tables.
        """
        if not self.has_admitted(user, when, meaning):
            checked, elsewhere = self._check(con, definition)
            self._admitted[user] = _Admission(meaning, when if elsewhere else None, checked)

    def has_admitted(self, user: Any, when: Hashable, meaning: Hashable) -> bool:
        """Return whether ``admit_user`` would need no check."""
        known = self._admitted.get(user)
        if known is None or known.meaning != meaning or known.when not in (None, when):
            return False
        return known.checked or self.trusting

    def _check(self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> tuple[bool, bool]:
        """Return whether the expressions passed the check, and whether they name things that may change."""
        known = fragments.is_trained_here(definition)
        found = fragments.expressions(con, definition)
        if self.trusting and not known:  # checked when trust is withdrawn
            return False, False
        if all(fragment.tree is None for fragment in found):
            return True, False
        environment = environment_of(con)
        if not (known and _means_the_same(con, definition, repr(names.named(found, environment)))):
            if self.trusting:
                return False, False
            allowed_calls.refuse(definition.name, found, environment)
        return True, names.look_elsewhere(found, environment)

    def admit_statement(
        self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition, source: str, clauses: Iterable[str]
    ) -> None:
        """Raise NotTrusted unless FROM and the other clauses of a model's own statement may be run."""
        file = attachments_of(con).identity_of(definition.catalog)
        if not (self.trusting or fragments.is_trained_here(definition, _opened(con, file))):
            environment = environment_of(con)
            allowed_calls.refuse_clause(
                definition.name, Fragment("the statement", source), environment, names.AFTER_FROM
            )
            for text in clauses:
                allowed_calls.refuse_clause(definition.name, Fragment("the statement", text), environment)


def check(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> None:
    """Raise NotTrusted unless every text of a model is one expression, or one type of DuckDB's own.

    Even showing a model casts text to its types, and for an unknown type DuckDB may install an extension.
    """
    fragments.check(con, definition)
    if any(not fragments.is_simple_type(text) for text in fragments.types(definition)):
        trusting = bool(entry_of(con).settings.get("trust"))
        if not (trusting or _is_trained_here(con, definition)):
            allowed_calls.refuse(definition.name, fragments.types_named(con, definition), environment_of(con))


def other_name(
    con: duckdb.DuckDBPyConnection, definition: ModelDefinition, source: str, clauses: Iterable[str]
) -> tuple[str, Sequence[search_path.Place]] | None:
    """Return a name in a model's statement that means something else than in training, and the path then.

    ``source`` is the text after FROM. None: names mean the same now.
    """
    here = attachments_of(con)
    then = search_path.resolved(definition.search_path, definition.catalog or here.database)
    places = search_path.searched(then), search_path.here(here)
    if places[0] == places[1]:
        return None
    environment = environment_of(con)
    texts = [(source, names.AFTER_FROM), *((text, names.EXPRESSION) for text in clauses)]
    before, now = (names.meanings(texts, replace(environment, path=path)) for path in places)
    both = {*before} & {*now}
    other = next((meaning[0] for meaning in (*before, *now) if meaning not in both), None)
    return None if other is None else (search_path.cut(other), then)


def trained_here(con: duckdb.DuckDBPyConnection, definition: ModelDefinition, file: str) -> None:
    """Remember that a model comes from a statement given to this process, and what it names now.

    ``file`` is the ``Attached.identity`` of the database that it is stored in.
    """
    fragments.trained_here(definition, _opened(con, file), file + _named(con, definition))


def trust_as(con: duckdb.DuckDBPyConnection, before: ModelDefinition, definition: ModelDefinition) -> None:
    """Remember that a model comes from a statement given to this process if the one that it was made of does."""
    if _is_trained_here(con, before):
        trained_here(con, definition, attachments_of(con).identity_of(definition.catalog))


def _is_trained_here(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> bool:
    """Return whether this process trained a model in this database, and everything that it names is unchanged.

    A copied database has the same texts, but may have other macros and views.
    """
    return fragments.is_trained_here(definition) and _means_the_same(con, definition, _named(con, definition))


def _means_the_same(con: duckdb.DuckDBPyConnection, definition: ModelDefinition, named: str) -> bool:
    """Return whether this process trained a model in the same database with expressions of the same meaning."""
    return fragments.is_trained_here(definition, attachments_of(con).identity_of(definition.catalog) + named)


def _opened(con: duckdb.DuckDBPyConnection, file: str) -> str:
    """Return a text that tells apart databases of ``file`` that are opened one after another at the same place.

    The file can be swapped between two openings, not while it is open; attached again, it has a new number.
    """
    return entry_of(con).settings.token + file


def _named(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> str:
    """Return everything that a model's expressions name, as text; empty if each is a column name."""
    found = [fragment for fragment in fragments.expressions(con, definition) if fragment.tree is not None]
    return repr(names.named(found, environment_of(con))) if found else ""


def hiding(con: duckdb.DuckDBPyConnection) -> Definition | None:
    """Return a macro that hides one of DuckDB's functions from our SQL, which may be trusted or temporary, if there is one."""
    environment = environment_of(con)
    return next((macro for macro in environment.hiding({*environment.path}) if not macro.is_query), None)
