"""What stands behind the SQL function ``predict``: per connection, the models it has loaded.

A connection is known here by weak reference only: a function that DuckDB holds must not hold the connection in turn.
"""

from __future__ import annotations

import re
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from grouplearn.catalog.models import StoredModel, load_by_id
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import databases_with_models, table
from grouplearn.catalog.scoring import Scorer, load_scorer
from grouplearn.errors import DataError, did_you_mean
from grouplearn.sqltext import literal

#: Models kept loaded per connection.
_LOADED = 16


@dataclass(frozen=True, slots=True)
class _Uncommitted:
    """A model written by a transaction that may still be open."""

    transaction: int
    id: str
    definition: ModelDefinition
    scorer: Callable[[], Scorer]


class Predictor:
    """Finds, loads and applies models for the function ``predict`` on one connection; any thread may call it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.token = uuid.uuid4().hex
        self._connection = weakref.ref(connection)
        self._loaded: OrderedDict[str, Scorer] = OrderedDict()
        self._uncommitted: list[_Uncommitted] = []
        self._lock = threading.RLock()

    def remember_stored(connection: duckdb.DuckDBPyConnection, model: StoredModel) -> None:
    """As ``remember``, of a model that is read from the catalog as the transaction sees it."""
    scorer = load_scorer(connection, model)
    remember(connection, model.id, replace(model.definition, catalog=model.location.catalog), lambda: scorer)


def remember(
    connection: duckdb.DuckDBPyConnection, model: str, definition: ModelDefinition, scorer: Callable[[], Scorer]
) -> None:
    """Let ``predict`` use a model that the connection's current transaction wrote, until that transaction ends."""
    predictor = _predictors.get(connection)
    if predictor is not None:
        transaction = connection.execute("SELECT txid_current()").fetchall()[0][0]
        predictor.remember(transaction, model, definition, scorer)
