"""What a connection trusts: whether macros may hide DuckDB's functions, and whether model expressions may call anything.

A file opened as the default database may define a macro ``count`` or ``+``, which DuckDB then uses instead of its own, in
our SQL too. And whoever made it wrote the expressions of its models.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from grouplearn.catalog.asking import asking_for, may_make_macros
from grouplearn.catalog.checks import calls, fragments, search_path
from grouplearn.catalog.checks.attached import Attachments, attachments_of
from grouplearn.catalog.checks.fragments import Fragment
from grouplearn.catalog.checks.surroundings import Defined, Surroundings
from grouplearn.catalog.checks.tables import SCHEMA
from grouplearn.catalog.records import ModelDefinition
from grouplearn.errors import NotTrusted
from grouplearn.sqltext import folded, identifier, qualified

_MACROS = (
    "SELECT database_name, schema_name, function_name, function_type, macro_definition, parameters"
    " FROM system.main.duckdb_functions() WHERE NOT internal"
)
#: Macros that have the name of a function of DuckDB's own; asked each time, as a client may register functions. Listing
#: all functions takes 15 ms, so that it is done once.
_HIDING = (
    "WITH f AS MATERIALIZED (SELECT database_name, schema_name, function_name, function_type, internal"
    " FROM system.main.duckdb_functions()) SELECT database_name, schema_name, function_name, function_type FROM f"
    " WHERE NOT internal AND system.main.suffix(function_type, 'macro')"
    " AND system.main.lower(function_name) IN (SELECT system.main.lower(function_name) FROM f WHERE internal)"
)


@dataclass(frozen=True, slots=True)
class HidingMacro:
    """A macro with the name of a function of DuckDB's own; ``is_query``: it hides a table function."""

    database: str
    schema: str
    name: str
    is_query: bool

    @property
    def whole(self) -> str:
        """Its name in SQL."""
        return qualified(self.database, self.schema, self.name)

    @property
    def drop(self) -> str:
        """The statement that drops it."""
        return f"DROP MACRO{' TABLE' if self.is_query else ''} {self.whole}"


@dataclass(frozen=True, slots=True)
class _Admission:
    """Says that a model may be evaluated while names mean the same, in one transaction or (None) any; ``checked``: without
    trust."""

    names: Hashable
    when: Hashable
    checked: bool


class Guard:
    """Checks the models of one connection's databases; ``settings`` are those of its SET."""

    def __init__(self) -> None:
        self.settings: Mapping[str, Any] = {}
        #: Places and meanings of names for which no hiding macro was found.
        self._clear: set[Hashable] = set()
        self._names: tuple[Hashable, Hashable] = (None, None)
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

        After a file is attached only SQL on this connection can make one, and ``forget`` is told of that: an earlier result
        holds while the same databases are attached and the search path is the same. Listing all functions takes as long as
        ten small queries. ``con`` may be a cursor ``of`` the connection, which sees only what is committed, so results of
        one do not hold for the other.
        """
        if self.trusting:
            return
        now = attachments or attachments_of(con)
        place = of is not None, now.meaning
        if place not in self._clear:
            if not self._is_new(of or con, now):
                self._refuse_macros(con, set(search_path.here(now)))
            self._clear.add(place)

    def refuse_hidden_in(
        self, con: duckdb.DuckDBPyConnection, catalog: str, schema: str, attachments: Attachments
    ) -> None:
        """As ``refuse_hidden``, for a database that stores models: DuckDB binds our views and macros there."""
        place = attachments.meaning, folded(catalog), folded(schema)
        if self.trusting or place in self._clear:
            return
        if not self._is_new(con, attachments):
            self._refuse_macros(con, {(folded(catalog), folded(name)) for name in ("main", SCHEMA, schema)})
        self._clear.add(place)

    @staticmethod
    def _is_new(con: duckdb.DuckDBPyConnection, now: Attachments) -> bool:
        """Return whether we opened the database in memory and no macro can have been made in it."""
        return asking_for(con).is_new and all(each.path is None for each in now.users)

    def _refuse_macros(self, con: duckdb.DuckDBPyConnection, places: set[tuple[str, str]]) -> None:
        for macro in _hiding(con, places):
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
        self._names = None, None
        self._admitted.clear()

    def admit(self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> None:
        """Raise NotTrusted unless a model's expressions may be evaluated."""
        self._check(con, definition)

    def admit_user(
        self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition, user: Any, when: Hashable
    ) -> None:
        """As ``admit``, for ``user``, which evaluates the expressions again and again.

        The check runs once while names mean the same, and again after trust was withdrawn. They are assumed to mean the
        same within one transaction of one session, ``when``: checking costs a tenth of predicting some rows. In another
        transaction they may have changed without our knowledge if expressions name something that can be made anew.
        """
        names = self._names_at(con, when)
        if not self._holds(user, names, when):
            checked, elsewhere = self._check(con, definition)
            self._admitted[user] = _Admission(names, when if elsewhere else None, checked)

    def has_admitted(self, user: Any, when: Hashable) -> bool:
        """Return whether ``admit_user`` would need no check."""
        return self._names[0] == when and self._holds(user, self._names[1], when)

    def _holds(self, user: Any, names: Hashable, when: Hashable) -> bool:
        known = self._admitted.get(user)
        return (
            known is not None
            and known.names == names
            and known.when in (None, when)
            and (known.checked or self.trusting)
        )

    def note(self, attachments: Attachments, when: Hashable) -> None:
        """Store the search path at ``when``, which ``admit_user`` would ask for."""
        self._names = when, attachments.meaning

    def _names_at(self, con: duckdb.DuckDBPyConnection, when: Hashable) -> Hashable:
        """Return the search path, which together with ``forget`` decides what names mean."""
        if self._names[0] != when:
            self.note(attachments_of(con), when)
        return self._names[1]

    def _check(self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> tuple[bool, bool]:
        """Return whether the expressions passed the check, and whether they name things that may change."""
        known = fragments.is_trained_here(definition)
        found = fragments.expressions(con, definition)
        if self.trusting and not known:  # checked when trust is withdrawn
            return False, False
        if all(fragment.tree is None for fragment in found):
            return True, False
        around = surroundings(con)
        if not (known and _means_the_same(con, definition, repr(calls.named(found, around)))):
            if self.trusting:
                return False, False
            calls.refuse(definition.name, found, around)
        return True, calls.look_elsewhere(found, around)

    def admit_statement(
        self, con: duckdb.DuckDBPyConnection, definition: ModelDefinition, source: str, clauses: Iterable[str]
    ) -> None:
        """Raise NotTrusted unless FROM and the other clauses of a model's own statement may be run."""
        file = attachments_of(con).identity_of(definition.catalog)
        if not (self.trusting or fragments.is_trained_here(definition, _opened(con, file))):
            around = surroundings(con)
            calls.refuse_clause(definition.name, Fragment("the statement", source), around, calls.AFTER_FROM)
            for text in clauses:
                calls.refuse_clause(definition.name, Fragment("the statement", text), around)


def check(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> None:
    """Raise NotTrusted unless every text of a model is one expression, or one type of DuckDB's own.

    Even showing a model casts text to its types, and for an unknown type DuckDB may install an extension.
    """
    fragments.check(con, definition)
    if any(not fragments.is_simple_type(text) for text in fragments.types(definition)):
        trusting = bool(asking_for(con).settings.get("trust"))
        if not (trusting or _is_trained_here(con, definition)):
            calls.refuse(definition.name, fragments.types_named(con, definition), surroundings(con))


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
    around = surroundings(con)
    texts = [(source, calls.AFTER_FROM), *((text, calls.EXPRESSION) for text in clauses)]
    before, now = (calls.meanings(texts, replace(around, path=path)) for path in places)
    both = {*before} & {*now}
    other = next((meaning[0] for meaning in (*before, *now) if meaning not in both), None)
    return None if other is None else (search_path.cut(other), then)


def trained_here(con: duckdb.DuckDBPyConnection, definition: ModelDefinition, file: str) -> None:
    """Remember that a model comes from a statement given to this process, and what it names now.

    ``file`` is the ``Attached.identity`` of the database that it is stored in.
    """
    fragments.trained_here(definition, _opened(con, file), file + _named(con, definition))


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
    return asking_for(con).settings.token + file


def _named(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> str:
    """Return everything that a model's expressions name, as text; empty if each is a column name."""
    found = [fragment for fragment in fragments.expressions(con, definition) if fragment.tree is not None]
    return repr(calls.named(found, surroundings(con))) if found else ""


def hiding(con: duckdb.DuckDBPyConnection) -> HidingMacro | None:
    """Return a macro that hides one of DuckDB's functions from our SQL, which may be trusted or temporary, if there is one."""
    found = _hiding(con, set(search_path.here(attachments_of(con))))
    return next((macro for macro in found if not macro.is_query), None)


def surroundings(con: duckdb.DuckDBPyConnection) -> Surroundings:
    """Return what names mean on a connection."""
    macros: dict[str, list[Defined]] = {}
    for database, schema, name, kind, definition, parameters in con.execute(_MACROS).fetchall():
        if kind.endswith("macro"):
            is_query, most = kind == "table_macro", len(parameters or ())
            macro = Defined(folded(database), folded(schema), definition or "", is_query, most)
            macros.setdefault(folded(name), []).append(macro)
    here = attachments_of(con)
    return Surroundings(
        con, macros, search_path.here(here), frozenset(folded(each.name) for each in here.attached) | {"temp"}
    )


def _hiding(con: duckdb.DuckDBPyConnection, places: Set[tuple[str, str]]) -> Iterator[HidingMacro]:
    """Yield the macros in one of these places that have the name of a DuckDB function."""
    for database, schema, name, kind in con.execute(_HIDING).fetchall():
        if (folded(database), folded(schema)) in places:
            yield HidingMacro(database, schema, name, kind == "table_macro")
