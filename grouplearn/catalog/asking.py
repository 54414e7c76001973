"""The connections that may call ``predict``, each known by a token.

It is all that opening a connection needs of predictions: what makes them is loaded with the first one.
"""

from __future__ import annotations

import re
import uuid
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from grouplearn.catalog.sessions import Sessions
from grouplearn.errors import data_error

if TYPE_CHECKING:
    from grouplearn.prediction.prediction import Predictor

#: What ``predict`` returns per row: the class or value as text, the value, the probability of the positive class
#: (binary), the probability of every class, the level used, and the group in ``grouplearn.groups``. Where a label is an
#: array, ``predicted`` has its values or classes, and nothing else is said.
PREDICTION = (
    "STRUCT(prediction VARCHAR, value DOUBLE, probability DOUBLE, probabilities MAP(VARCHAR, DOUBLE),"
    " model_level VARCHAR, group_id INTEGER, predicted DOUBLE[])"
)
#: What tells a connection's transactions apart. Their ids do, too, but the function for them is volatile: with it DuckDB
#: predicts once for each field that is asked for, and refuses windows that are ordered by a prediction.
TRANSACTION = "system.main.epoch_us(system.main.transaction_timestamp())"
#: After these words, and those of an end of a transaction, a name may mean something else, or a macro or view is back that was
#: dropped.
_MAY = r"(?:\b(?:{}|attach|detach|copy|import|load|commit|rollback|abort|execute|pragma|call)|(?:^|;)\s*end)\b"
_MAY_CHANGE_NAMES = re.compile(_MAY.format("create|alter|drop"), re.IGNORECASE)
#: A table or a view that is made, changed or dropped makes no macro.
_MAY_MAKE_MACROS = re.compile(_MAY.format("macro|function"), re.IGNORECASE)
#: Types whose values would not arrive as they are through Arrow.
INEXACT_TYPES = ("BIT", "TIME WITH TIME ZONE", "HUGEINT", "UHUGEINT")


class Settings(dict[str, Any]):
    """The settings of SET, which the connections to a database share, and a token that no others have ever had."""

    def __init__(self, token: str | None = None) -> None:
        super().__init__()
        self.token = token or uuid.uuid4().hex


@dataclass(eq=False)
class Asking:
    """A connection that may ask, by weak reference: a function that DuckDB holds must not hold the connection in turn."""

    connection: weakref.ref[duckdb.DuckDBPyConnection]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    sessions: Sessions = field(default_factory=Sessions)
    settings: Settings = field(default_factory=Settings)
    predictor: Predictor | None = None
    #: Whether it is of a database in memory that we have opened, on which nothing has run that may have changed what names mean.
    is_new: bool = False


_known: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Asking] = weakref.WeakKeyDictionary()
_by_token: weakref.WeakValueDictionary[str, Asking] = weakref.WeakValueDictionary()


def asking_for(connection: duckdb.DuckDBPyConnection) -> Asking:
    """Return what a connection is known by, which is new when it was not known."""
    asking = _known.get(connection)
    if asking is None:
        asking = _known[connection] = Asking(weakref.ref(connection))
        _by_token[asking.token] = asking
    return asking


def known(connection: duckdb.DuckDBPyConnection) -> Asking | None:
    """Return what a connection is known by, None where it is not."""
    return _known.get(connection)


def asking_of_token(token: str) -> Asking:
    """Return what a connection is known by whose ``predict`` names the token; raises DataError when it is gone."""
    asking = _by_token.get(token)
    if asking is None:
        raise data_error("predict was called on a connection that is closed")
    return asking


def may_change_names(text: str) -> bool:
    """Return whether SQL may have changed what names mean; ``predict`` needs to know temporary macros."""
    return _MAY_CHANGE_NAMES.search(text) is not None


def may_make_macros(text: str) -> bool:
    """Return whether SQL may have made a macro, or brought back one that was dropped."""
    return _MAY_MAKE_MACROS.search(text) is not None


def look_again(text: str) -> None:
    """Let every connection look anew at what its models name, as SQL has run: it may see what another has made."""
    for asking in list(_known.values()):
        asking.is_new = asking.is_new and not may_make_macros(text)
        if asking.predictor is not None:
            asking.predictor.look_again(text)


def release(connection: duckdb.DuckDBPyConnection) -> None:
    """Forget a connection, and the models loaded for it."""
    asking = _known.pop(connection, None)
    if asking is not None:
        _by_token.pop(asking.token, None)
