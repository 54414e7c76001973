"""Prediction by vectors as one SELECT: a row's features, scored as its output says, by its group's vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.models.outputs.vectors import FEATURES, VectorSql
from grouplearn.prediction.forms.items import (
    encoded_cte,
    encoders_sql,
    groups_cte,
    inputs_sql,
    is_number,
    listed,
    position_join,
)
from grouplearn.prediction.forms.routed import (
    BEST,
    ENCODED,
    LEVEL,
    PARAMETERS,
    SCORED,
    CatalogTables,
    Extra,
    item_alias,
    linked,
    reachable,
    routed_cte,
    rows_cte,
    sortable_row,
)
from grouplearn.sqltext import identifier, literal

_VECTORS = "__grouplearn_vectors"


def vectors_select(
    definition: ModelDefinition, model: str, relation: str, catalog_tables: CatalogTables, extras: Sequence[Extra] = ()
) -> str:
    """Return the SELECT that predicts with the vectors in the catalog table ``factors``.

    A row is the list of its encoded features, which is compared with each vector of its group.
    """
    read = definition.output.vectors
    if read is None:
        raise NotImplementedError(definition.learner)
    ctes = [
        rows_cte(definition, relation, sortable_row(extras), extras, listed(definition)),
        groups_cte(model, catalog_tables),
        routed_cte(definition, BEST, reachable(definition, model, catalog_tables)),
        f"{_VECTORS} AS (SELECT * FROM {catalog_tables('factors')} WHERE model = '{model}'::UUID)",
        _parameters(definition, read),
        encoded_cte(definition, finite=True),
        f"{SCORED} AS ({read.scored(_rows(definition))})",
    ]
    return f"WITH {', '.join(ctes)} {linked(definition, extras)}"


def _parameters(definition: ModelDefinition, read: VectorSql) -> str:
    columns = [
        "g.group_id AS __grouplearn_id",
        f"g.level AS {LEVEL}",
        *(f"{sql} AS {name}" for name, sql in read.given.items()),
        *(
            f"len(g.categories[{number + 1}]) AS {_count(number)}"
            for number, entry in enumerate(definition.items)
            if _is_looked_up(entry)
        ),
        *encoders_sql(definition, finite=True, groups="g."),
    ]
    parts = [
        f"list({column} ORDER BY place ASC) FILTER (part = {literal(part)}) AS {identifier(part + suffix)}"
        for column, suffix in (("vector", ""), *((("value", "_values"),) if read.values else ()))
        for part in (*read.parts, *read.single)
    ]
    vectors = f"SELECT group_id, {', '.join(parts)} FROM {_VECTORS} GROUP BY group_id"
    source = f"{BEST} AS g LEFT JOIN ({vectors}) AS v ON v.group_id = g.group_id"
    return f"{PARAMETERS} AS (SELECT {', '.join(columns)} FROM {source})"


def _is_looked_up(entry: ItemColumn) -> bool:
    """Return whether an item is 0s with a 1 at its category's place in the group's list."""
    return entry.item.kind == "category" and not is_number(entry)


def _count(number: int) -> str:
    """Return the column with an item's number of categories."""
    return f"__grouplearn_count{number}"


def _rows(definition: ModelDefinition) -> str:
    """Return rows with their group's columns, and the list of their features."""
    joins = [position_join(number) for number, entry in enumerate(definition.items) if entry.item.kind == "category"]
    pieces = list(_pieces(definition))
    vector = pieces[0] if len(pieces) == 1 else f"flatten([{', '.join(pieces)}])"
    return f"SELECT r.*, {vector} AS {FEATURES} FROM {ENCODED} AS r {' '.join(joins)}"


def _pieces(definition: ModelDefinition) -> Iterator[str]:
    """Yield the lists that make up a row's features: of adjacent numbers, and of each category."""
    for numeric, run in groupby(enumerate(definition.items), key=lambda each: is_number(each[1])):
        members = [number for number, _ in run]
        if numeric:
            yield inputs_sql(definition, members, finite=True)
        else:
            yield from (_indicators(definition.items[number], number) for number in members)


def _indicators(entry: ItemColumn, number: int) -> str:
    """Return a category's 0s and 1; all 0 if the group does not know it."""
    if _is_looked_up(entry):
        count, place = f"r.{_count(number)}", f"j{number}.position"
    else:
        count, place = str(entry.item.buckets), f"r.{item_alias(number)}"
    return f"list_transform(range({count}), lambda i: CAST(coalesce(i = {place}, false) AS DOUBLE))"
