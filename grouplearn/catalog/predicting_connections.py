"""The connections that may call ``predict``, each known by a token.

Opening a connection needs only this part of predictions; the rest is imported with the first one.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb

from grouplearn.catalog.lookup.sessions import Sessions
from grouplearn.errors import data_error

#: What ``predict`` returns per row: the class or value as text, the value, the probability of the positive class
#: (binary), the probability of every class, the level used, and the group in ``grouplearn.groups``. Where a label is an
#: array, ``predicted`` has its values or classes, and nothing else is said.
PREDICTION = (
    "STRUCT(prediction VARCHAR, value DOUBLE, probability DOUBLE, probabilities MAP(VARCHAR, DOUBLE),"
    " model_level VARCHAR, group_id INTEGER, predicted DOUBLE[])"
)
#: What ``forecast`` returns per row.
EXPLANATION = (
    "STRUCT(prediction VARCHAR, model_level VARCHAR, group_id INTEGER, score DOUBLE, baseline DOUBLE, added DOUBLE[],"
    " method VARCHAR)"
)
STEPS = "STRUCT(step INTEGER, time VARCHAR, prediction DOUBLE, lower DOUBLE, upper DOUBLE)[]"
#: Tells a connection's transactions apart. Their ids would, too, but that function is volatile: with it DuckDB predicts
#: once for each field that is read, and refuses windows ordered by a prediction.
TRANSACTION = "system.main.epoch_us(system.main.transaction_timestamp())"
#: After these words, or the end of a transaction, a name may mean something else, or a dropped macro or view may be back.
_MAY = r"(?:\b(?:{}|attach|detach|copy|import|load|commit|rollback|abort|execute|pragma|call)|(?:^|;)\s*end)\b"
_MAY_CHANGE_NAMES = re.compile(_MAY.format("create|alter|drop"), re.IGNORECASE)
#: Making, changing or dropping a table or view makes no macro.
_MAY_MAKE_MACROS = re.compile(_MAY.format("macro|function"), re.IGNORECASE)
#: Types whose values Arrow does not carry exactly.
INEXACT_TYPES = ("BIT", "TIME WITH TIME ZONE", "HUGEINT", "UHUGEINT")


class Settings(dict[str, Any]):
    """The settings of SET, shared by the connections to a database, and a token that is never reused."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__()
        self.token = token or uuid.uuid4().hex


@dataclass(eq=False)
class PredictingConnection:
    """A connection that may call ``predict``, weakly referenced: a function held by DuckDB must not keep its connection
    alive."""

    connection: weakref.ref[duckdb.DuckDBPyConnection]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    sessions: Sessions = field(default_factory=Sessions)
    settings: Settings = field(default_factory=Settings)
    #: Looks up its models' names again after this SQL; None while it has predicted nothing.
    look_again: Callable[[str], None] | None = None
    #: Whether it is an in-memory database that we opened, on which no SQL has run that could change the meaning of names.
    is_new: bool = False


_known: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, PredictingConnection] = weakref.WeakKeyDictionary()
_by_token: weakref.WeakValueDictionary[str, PredictingConnection] = weakref.WeakValueDictionary()


def entry_of(connection: duckdb.DuckDBPyConnection) -> PredictingConnection:
    """Return a connection's entry, made if there is none."""
    entry = _known.get(connection)
    if entry is None:
        entry = _known[connection] = PredictingConnection(weakref.ref(connection))
        _by_token[entry.token] = entry
    return entry


def known_entry(connection: duckdb.DuckDBPyConnection) -> PredictingConnection | None:
    """Return a connection's entry, None if there is none."""
    return _known.get(connection)


def entry_of_token(token: str) -> PredictingConnection:
    """Return the entry with the token that ``predict`` passes; raises DataError if it is gone."""
    entry = _by_token.get(token)
    if entry is None:
        raise data_error("predict was called on a connection that is closed")
    return entry


def may_change_names(text: str) -> bool:
    """Return whether SQL may have changed what names mean; ``predict`` must know temporary macros."""
    return _MAY_CHANGE_NAMES.search(text) is not None


def may_make_macros(text: str) -> bool:
    """Return whether SQL may have made a macro, or restored a dropped one."""
    return _MAY_MAKE_MACROS.search(text) is not None


def look_again(text: str) -> None:
    """After SQL has run, let every connection look up its models' names again: another one may see the changes."""
    for entry in list(_known.values()):
        entry.is_new = entry.is_new and not may_make_macros(text)
        if entry.look_again is not None:
            entry.look_again(text)


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Forget a connection, and the models loaded for it."""
    entry = _known.pop(connection, None)
    if entry is not None:
        _by_token.pop(entry.token, None)
