"""The features of rows that are taken apart and put together again, and what tells these rows apart."""

from __future__ import annotations

from collections.abc import Sequence

from grouplearn.models.dialects.encoded_rows import ENCODED, GROUP, NUMBER, feature
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.scored import SCORED, score
from grouplearn.sqltext import identifier

INPUTS = "inputs"


def told_apart(model: ExportedModel) -> list[str]:
    """Return the columns that tell rows apart: their number, or where a query may number them twice in two ways their group
    and features, of which the prediction is a function."""
    if model.database.stays:
        return [NUMBER]
    return [GROUP, *map(feature, range(len(model.definition.items)))]


def kept(model: ExportedModel, alias: str) -> str:
    """Return these columns of a relation, for SELECT and GROUP BY."""
    return ", ".join(f"{alias}.{identifier(name)}" for name in told_apart(model))


def features(model: ExportedModel, alias: str) -> str:
    """Return the columns of the group and the features of a relation that are not among those of ``kept``, each after a comma."""
    every = [GROUP, *map(feature, range(len(model.definition.items)))]
    apart = told_apart(model)
    return "".join(f", {alias}.{identifier(name)}" for name in every if name not in apart)


def with_group(model: ExportedModel, alias: str) -> str:
    """Return the columns of ``kept``, and the group."""
    return kept(model, alias) + (f", {alias}.{GROUP}" if model.database.stays else "")


def same_row(model: ExportedModel, one: str, other: str) -> str:
    """Return the condition that two relations have the same row."""
    same = "=" if model.database.stays else "IS NOT DISTINCT FROM"
    return " AND ".join(f"{one}.{identifier(name)} {same} {other}.{identifier(name)}" for name in told_apart(model))


def add_inputs(model: ExportedModel) -> None:
    """Add the step of the features of rows that have a group."""
    distinct = "" if model.database.stays else "DISTINCT "
    columns = f"{kept(model, 'r')}{features(model, 'r')}"
    model.query.step(INPUTS, f"SELECT {distinct}{columns} FROM {ENCODED} AS r WHERE r.{GROUP} IS NOT NULL")


def add_scored(model: ExportedModel, relation: str, columns: Sequence[str]) -> None:
    """Add the step of rows with columns of a relation that has a row for each of ``inputs``, or none."""
    query = model.query
    added = ", ".join(query.added(name, f"s.{identifier(name)}") for name in columns)
    query.step(
        SCORED, f"SELECT r.*, {added} FROM {ENCODED} AS r LEFT JOIN {relation} AS s ON {same_row(model, 's', 'r')}"
    )


def scores(model: ExportedModel) -> list[str]:
    """Return the names of the columns of scores."""
    return [score(number) for number in range(model.definition.output.n_scores)]
