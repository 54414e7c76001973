"""Models of several learners: each learner has a model of its own, and the best of each group is chosen in SQL."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from grouplearn.bind.several import member_name
from grouplearn.catalog.identities import Identity, identity_at
from grouplearn.catalog.schema import Location, has_schema, table
from grouplearn.sqltext import folded, literal


@dataclass(frozen=True, slots=True)
class Combination:
    """A model of several learners: its place, its learners, and the statement that trained them."""

    location: Location
    learners: tuple[str, ...]
    statement: str

    @property
    def members(self) -> tuple[Location, ...]:
        """The places of the learners' own models."""
        at = self.location
        return tuple(Location(at.catalog, at.schema, member_name(at.name, each)) for each in self.learners)

    @property
    def rows(self) -> str:
        """The table of combinations, and the condition on this one."""
        at = self.location
        own = f"schema_name = {literal(at.schema)} AND model_name = {literal(at.name)}"
        return f"{table(at.catalog, 'combinations')} WHERE {own}"


def combination_at(con: duckdb.DuckDBPyConnection, catalog: str, schema: str, name: str) -> Combination | None:
    """Return the model of several learners of that name (case does not matter), or None."""
    return next((each for each in _in_schema(con, catalog, schema) if folded(each.location.name) == folded(name)), None)


def combination_of(con: duckdb.DuckDBPyConnection, model: Location) -> Combination | None:
    """Return the model of several learners that a model is a part of, or None."""
    found = _in_schema(con, model.catalog, model.schema)
    return next((each for each in found if folded(model.name) in {folded(part.name) for part in each.members}), None)


def identity_of(con: duckdb.DuckDBPyConnection, combination: Combination) -> Identity | None:
    """Return by what its view and macros are known as ours: they mention the model of the first learner.

    None if that is gone.
    """
    first = combination.members[0]
    found = identity_at(con, first.catalog, first.schema, first.name)
    return found and Identity(found.id, combination.location)


def _in_schema(con: duckdb.DuckDBPyConnection, catalog: str, schema: str) -> list[Combination]:
    if not has_schema(con, catalog):
        return []
    query = f"SELECT schema_name, model_name, learners, statement FROM {table(catalog, 'combinations')} WHERE len(learners) > 0"
    return [
        Combination(Location(catalog, own, name), tuple(map(str, learners)), statement)
        for own, name, learners, statement in con.execute(query).fetchall()
        if folded(own) == folded(schema)
    ]
