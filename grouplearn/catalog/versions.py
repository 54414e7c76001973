"""The versions of a model: those that can be used, and the history of all."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from grouplearn.catalog.identities import Identity
from grouplearn.catalog.records import ModelDefinition
from grouplearn.catalog.schema import table
from grouplearn.sqltext import literal

#: The number of groups of a version.
_GROUPS = " + ".join(f"h.groups_{name}" for name in ("new", "updated", "unchanged", "failed", "kept"))
_VERSION, _RESULT = ("version", "action", "trained_at"), ("metric", "value")
_HISTORY = (
    *_VERSION, "seconds", "n_rows", "rows_added", "groups_new", "groups_updated", "groups_unchanged", "groups_failed",
    "groups_kept", *_RESULT,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a model: its number, and its identity."""

    number: int
    id: str


def of_model(schema: str, name: str) -> str:
    """Return the condition that a row of ``models``, ``past_models`` or ``history`` belongs to the model of that name."""
    return f"schema_name = {literal(schema)} AND model_name = {literal(name)}"


def versions_of(con: duckdb.DuckDBPyConnection, model: Identity) -> tuple[Version, ...]:
    """Return the versions that can be used of the current ``model``, itself among them, by number."""
    place = model.location
    rows = _usable(place.catalog, place.schema, place.name, model.id)
    query = f"SELECT h.version, h.model::VARCHAR {rows} AND h.version > 0 ORDER BY h.version ASC"
    return tuple(Version(number, identity) for number, identity in con.execute(query).fetchall())


def usable_rows(definition: ModelDefinition, model: str, catalog: str | None) -> str:
    """Return FROM and WHERE of the rows (h) of ``history`` for versions that can be used; ``model`` is the current one."""
    return _usable(catalog, definition.schema, definition.name, model)


def _usable(catalog: str | None, schema: str, name: str, model: str) -> str:
    past = f"SELECT p.model FROM {table(catalog, 'past_models')} AS p"
    own = f"(h.model = '{model}'::UUID OR h.model IN ({past}))"
    return f"FROM {table(catalog, 'history')} AS h WHERE {of_model(schema, name)} AND {own}"


def versions_view(definition: ModelDefinition, model: str, catalog: str | None) -> tuple[list[tuple[str, str]], str]:
    """Return the columns and the rows of the view of the versions that can be used."""
    facts = [*_VERSION, "n_rows", *_RESULT]
    columns = [(name, f"h.{name}") for name in facts]
    columns[1:1] = [("is_current", _is_current(model))]
    columns[-2:-2] = [("groups", _GROUPS)]
    return columns, f"{usable_rows(definition, model, catalog)} ORDER BY h.version ASC"


def history_view(definition: ModelDefinition, model: str, catalog: str | None) -> tuple[list[tuple[str, str]], str]:
    """Return the columns and the rows of the view of all versions that there were."""
    columns = [(name, f"h.{name}") for name in _HISTORY]
    columns[1:1] = [("is_current", _is_current(model))]
    own = of_model(definition.schema, definition.name)
    return columns, f"FROM {table(catalog, 'history')} AS h WHERE {own} ORDER BY h.version ASC"


def _is_current(model: str) -> str:
    return f"h.model = '{model}'::UUID"
