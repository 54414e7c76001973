"""What trees and networks read of a row, as SQL: encoded numbers, positions of categories, the values of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grouplearn.catalog.predict_sql import BEST, GROUP, item_alias
from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.data.arrays import BYTE_SCALE
from grouplearn.plan.arrays import reads_bytes
from grouplearn.sqltext import literal


def groups_cte(model: str, catalog_tables: str) -> str:
    """Return the CTE of the groups that have a model."""
    return f"{BEST} AS (SELECT * FROM {catalog_tables}.groups WHERE model = '{model}'::UUID AND best IS NOT NULL)"


def encoders_sql(definition: ModelDefinition) -> list[str]:
    """Return the columns of the numeric items' encoders, named by the item: f (fill), c (center), d (scale)."""
    return [
        f"fills[{number + 1}] AS f{number}, centers[{number + 1}] AS c{number}, scales[{number + 1}] AS d{number}"
        for number, entry in enumerate(definition.items)
        if entry.item.kind == "numeric"
    ]


def number_sql(entry: ItemColumn, number: int, finite: bool) -> str:
    """Return an encoded number, NULL where it is missing; ``finite``: infinite ones are missing, too."""
    x = f"r.{item_alias(number)}"
    known = f"CASE WHEN {'isfinite' if finite else 'NOT isnan'}({x}) THEN {x} END"
    if entry.item.impute is not None:
        known = f"CASE WHEN isfinite({x}) THEN {x} ELSE p.f{number} END"
    return f"(({known} - p.c{number}) / p.d{number})"


def position_join(number: int) -> str:
    """Return the join that finds the 0-based position of an item's category, ``j{number}.position``."""
    texts = f"categories[{number + 1}]"
    source = f"SELECT group_id, unnest({texts}) AS value, unnest(range(len({texts}))) AS position FROM {BEST}"
    on = f"j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    return f"LEFT JOIN ({source}) AS j{number} ON {on}"


def array_sql(definition: ModelDefinition, number: int) -> str:
    """Return the values of an array as doubles; NULL for no array, an error for one of another length."""
    entry = definition.items[number]
    values, length = f"r.{item_alias(number)}", entry.item.buckets
    if reads_bytes(entry.sql):
        each = f"CAST('0x' || byte AS UTINYINT) / CAST({BYTE_SCALE!r} AS DOUBLE)"
        values = f"list_transform(regexp_extract_all(hex({values}), '..'), lambda byte: {each})"
    told = literal(
        f'model "{definition.name}" takes {length:,} values of "{entry.item.name}", and a row has another number'
    )
    return f"CASE WHEN len({values}) <> {length} THEN error({told}) ELSE {values} END"


def joined(pieces: Iterable[tuple[bool, str]]) -> str:
    """Return one DOUBLE[] of pieces that are lists (True) or single values (False)."""
    lists: list[str] = []
    singles: list[str] = []
    for is_list, sql in (*pieces, (True, "")):
        if is_list:
            lists += [_list(singles)] if singles else []
            lists += [sql] if sql else []
            singles = []
        else:
            singles.append(sql)
    return " || ".join(lists) if lists else _list(())


def _list(values: Sequence[str]) -> str:
    return f"CAST([{', '.join(values)}] AS DOUBLE[])"
