"""What handlers need from the session to carry out a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.extract.streams.stream import Stream
from grouplearn.parser.statements import PlanFormat, QualifiedName
from grouplearn.sqltext import folded
from grouplearn.statements.databases import Databases
from grouplearn.statements.workflow.trial_control import Place
from grouplearn.train.job import Progress


@dataclass(frozen=True, slots=True)
class StatementContext:
    """The user's connection and settings, progress and cancellation, and the models in training."""

    connection: duckdb.DuckDBPyConnection
    databases: Databases
    settings: dict[str, Any]
    progress: Progress | None
    cancelled: Callable[[], bool]
    #: The default format of EXPLAIN TRAIN.
    plan_format: PlanFormat
    #: Called when a durable run may have to keep its directory until a user's transaction is committed.
    leaves: Callable[[], None]
    #: Whether rows of models go to a terminal as they are, so that columns are arranged to be seen there.
    for_people: bool = False
    #: Variables of the user's program that can be read once.
    streams: Sequence[Stream] = ()

    def place(self, catalog: str, schema: str, name: str) -> Place:
        """Return the place of a model in training; for databases in memory, the connection distinguishes them."""
        file = self.databases.file(catalog) or f"{id(self.settings)}/{catalog}"
        return file, folded(schema), folded(name)

    def place_of(self, name: QualifiedName, checker: SqlChecker) -> Place:
        """As ``place``, for the name in a statement."""
        return self.place(*self.databases.of(name, checker), name.name)

    def places_of(self, name: QualifiedName) -> Iterator[Place]:
        """Yield the places where a model of that name is looked up."""
        for catalog, schema in self.databases.places(name):
            yield self.place(catalog, schema, name.name)
