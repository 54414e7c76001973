"""An expression's meaning depends on the session: ``predict`` runs on a cursor, which is made to agree with it."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog.lookup.attached import in_transaction
from grouplearn.errors import data_error
from grouplearn.parser.lexer.statement_split import split
from grouplearn.sqltext import identifier, literal, shown

#: Settings of a session that change what an expression returns, or what its names mean.
_NAMES = (
    "search_path",
    "TimeZone",
    "Calendar",
    "default_collation",
    "default_null_order",
    "default_order",
    "integer_division",
    "ieee_floating_point_ops",
    "scalar_subquery_error_on_multiple_rows",
)
#: The settings as ``Sessions.keep`` takes them, in SQL that DuckDB folds into a constant.
SETTINGS = (
    "system.main.list_value("
    + ", ".join(f"CAST(system.main.current_setting({literal(name)}) AS VARCHAR)" for name in _NAMES)
    + ")"
)
#: The value of an unknown variable, which need not be set.
_UNSET = '"NULL"'
_SETS = re.compile(r'\bVARIABLE\s+("(?:[^"]|"")+"|\w+)', re.IGNORECASE)
_NAME = r'(?:TABLE\s+)?(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(?:[\w"]+\s*\.\s*)*"?(\w+)"?'
_CREATES = re.compile(rf"\s*CREATE\s+(?:OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+(?:MACRO|FUNCTION)\s+{_NAME}", re.IGNORECASE)
_DROPS = re.compile(rf"\s*DROP\s+(?:MACRO|FUNCTION)\s+{_NAME}", re.IGNORECASE)
#: Statements that begin or end a transaction.
_CONTROLS = re.compile(r"\s*(?:(?P<begun>BEGIN|START)|(?P<undone>ROLLBACK|ABORT)|COMMIT|END)\b", re.IGNORECASE)
#: Most sessions remembered, each by its content.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session's settings, in the order of their names here, and its variables: name, type and value as text."""

    settings: tuple[str | None, ...]
    variables: tuple[tuple[str, str, str | None], ...]

    def apply(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make a cursor read expressions as the session does."""
        own = cursor.execute(f"SELECT {SETTINGS}").fetchall()[0][0]
        for name, value, current in zip(_NAMES, self.settings, own, strict=True):
            if value != current and value is not None:
                # A plain SET would change some of them for all connections.
                cursor.execute(f"SET SESSION {name} = {literal(value)}")
        for name, kind, text in self.variables:
            cursor.execute(f"SET VARIABLE {identifier(name)} = CAST({literal(text)} AS {type_of(cursor, kind)})")


def type_of(cursor: duckdb.DuckDBPyConnection, text: str) -> str:
    """Return the SQL type that a text is, as DuckDB writes it; raises DataError if it is not one."""
    try:
        return str(cursor.type(text))
    except duckdb.Error as error:
        raise data_error(f"{shown(text)} is not a type") from error


class Sessions:
    """The sessions in which a connection predicts, by number; thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, SessionState] = OrderedDict()
        self._macros: dict[str, str] = {}
        #: The variables when the current transaction began, if it has changed them.
        self._before: dict[str, str] | None = None
        self._variables: dict[str, str] = {}
        #: The statement whose rows DuckDB computes, None if it is unknown.
        self.text: str | None = None
        self._lock = threading.Lock()

    def keep(self, settings: Any, variables: Any) -> int:
        """Return the number of a session with these settings and variables; raises DataError for invalid ones."""
        state = _state(settings, variables)
        number = hash(state)
        with self._lock:
            self._known[number] = state
            self._known.move_to_end(number)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return number

    def expect(self, names: Iterable[str]) -> None:
        """Pass variables of these names from now on."""
        self._variables.update((name.casefold(), name) for name in names)

    def variables_sql(self) -> str:
        """Return the variables as ``keep`` takes them, in SQL that DuckDB folds into a constant.

        A query of ``duckdb_variables()`` would find their names by itself, but DuckDB copies what ``unnest`` takes, and
        cannot copy subqueries.
        """
        packed = []
        for name in map(literal, self._variables.values()):
            value = f"system.main.getvariable({name})"
            packed.append(
                f"system.main.struct_pack(name := {name}, type := system.main.typeof({value}),"
                f" value := CAST({value} AS VARCHAR))"
            )
        rows = f"system.main.list_value({', '.join(packed)})"
        return f"CAST({rows} AS STRUCT(name VARCHAR, type VARCHAR, value VARCHAR)[])"

    def notice(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Remember temporary macros created by SQL that has run: DuckDB does not tell their defaults."""
        queries = [text[piece.head[0].start : piece.stop] for piece in split(text) if piece.head]
        for query, control_after in zip(queries, _controls_after(queries), strict=True):
            created, dropped = _CREATES.match(query), _DROPS.match(query)
            if created or dropped:
                inside = _was_inside(connection, control_after)
                self._before = (dict(self._macros) if self._before is None else self._before) if inside else None
            if created:
                self._macros[created[1].casefold()] = query
            elif dropped:
                self._macros.pop(dropped[1].casefold(), None)
            elif control := _CONTROLS.match(query):
                if control["undone"] and self._before is not None:
                    self._macros = self._before
                self._before = None

    def apply(self, number: int | None, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make a cursor read expressions as the numbered session does; None: it does already."""
        with self._lock:
            state = None if number is None else self._known.get(number)
        if number is None:
            return
        if state is None:
            raise data_error("predict was called for a session that is not known")
        for macro in tuple(self._macros.values()):
            with suppress(duckdb.CatalogException):  # it needs what only the session has, such as predict
                cursor.execute(macro)
        state.apply(cursor)


def _controls_after(queries: Sequence[str]) -> list[re.Match[str] | None]:
    """Return for each statement of a text the next one that begins or ends a transaction."""
    found: list[re.Match[str] | None] = []
    control: re.Match[str] | None = None
    for query in reversed(queries):
        found.append(control)
        control = _CONTROLS.match(query) or control
    return found[::-1]


def _was_inside(connection: duckdb.DuckDBPyConnection, control_after: re.Match[str] | None) -> bool:
    """Return whether a statement ran in a lasting transaction, from the next that controls one, or as it is now."""
    if control_after is not None:
        return control_after["begun"] is None
    try:
        return in_transaction(connection)
    except duckdb.TransactionException:  # an aborted one
        return True
    except (
        duckdb.ResourceInUseException
    ):  # rows of the text are unread: DuckDB cannot be asked, and most are not in one
        return False


def _state(settings: Any, variables: Any) -> SessionState:
    """Return a session's state, which any view may have written."""
    match settings, variables or []:
        case [*given], [*known] if (
            len(given) == len(_NAMES) and all(map(_is_text, given)) and all(map(_is_variable, known))
        ):
            packed = [(each["name"], each["type"], each["value"]) for each in known]
            return SessionState(tuple(given), tuple(each for each in packed if each[1] != _UNSET))
    raise data_error("grouplearn_session is for predict, which calls it with the session's settings and variables")


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_variable(value: Any) -> bool:
    match value:
        case {"name": str(), "type": str(), "value": text}:
            return _is_text(text)
    return False


def set_variables(text: str) -> list[str]:
    """Return the names after VARIABLE in a text: at least all variables that it sets."""
    return [name[1:-1].replace('""', '"') if name[0] == '"' else name for name in _SETS.findall(text)]
