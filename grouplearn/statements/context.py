"""What a statement is carried out with, handed from the session to the modules that carry it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.parser.statements import PlanFormat, QualifiedName
from grouplearn.sqltext import folded
from grouplearn.statements.databases import Databases
from grouplearn.statements.workflow.trial_control import Place
from grouplearn.train.job import Progress


@dataclass(frozen=True, slots=True)
class StatementContext:
    """The user's connection and settings, who watches, who may stop it, and where a model in training is found."""

    connection: duckdb.DuckDBPyConnection
    databases: Databases
    settings: dict[str, Any]
    progress: Progress | None
    cancelled: Callable[[], bool]
    #: How EXPLAIN TRAIN writes a plan where the statement does not say.
    plan_format: PlanFormat
    #: Says that a durable run may have left its directory to a transaction of the user.
    leaves: Callable[[], None]

    def place(self, catalog: str, schema: str, name: str) -> Place:
        """Return where a model in training is found: databases in memory are told apart by the connection."""
        file = self.databases.file(catalog) or f"{id(self.settings)}/{catalog}"
        return file, folded(schema), folded(name)

    def place_of(self, name: QualifiedName, checker: SqlChecker) -> Place:
        """As ``place``, of the name in a statement."""
        return self.place(*self.databases.of(name, checker), name.name)

    def places_of(self, name: QualifiedName) -> Iterator[Place]:
        """Yield where a model of that name is looked for."""
        for catalog, schema in self.databases.places(name):
            yield self.place(catalog, schema, name.name)
