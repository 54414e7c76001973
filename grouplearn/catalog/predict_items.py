"""What models read of a row, as SQL: encoded numbers, positions of categories, the values of arrays.

However many items are numbers, they are one list and few expressions: what DuckDB plans grows faster than their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from grouplearn.catalog.predict_sql import BEST, ENCODED, GROUP, NUMERIC, PARAMETERS, ROUTED, CatalogTables, item_alias
from grouplearn.catalog.records import ItemColumn, ModelDefinition
from grouplearn.data.arrays import BYTE_SCALE
from grouplearn.plan.arrays import reads_bytes
from grouplearn.sqltext import literal

_NAN = "'nan'::DOUBLE"
#: The encoded numbers of a row.
_ENCODED_NUMBERS = "__grouplearn_encoded_numbers"


def groups_cte(model: str, catalog_tables: CatalogTables) -> str:
    """Return the CTE of the groups that have a model."""
    return f"{BEST} AS (SELECT * FROM {catalog_tables('groups')} WHERE model = '{model}'::UUID AND best IS NOT NULL)"


def encoders_sql(definition: ModelDefinition, finite: bool, groups: str = "") -> list[str]:
    """Return the columns of what :func:`encoded_cte` needs of a group, each a list over the numeric items.

    ``groups`` qualifies the columns of the groups.
    """
    places = [number + 1 for number, entry in enumerate(definition.items) if entry.item.kind == "numeric"]
    columns = []
    if _imputes(definition):
        fills = _chosen(f"{groups}fills", places)
        fills = f"list_transform({fills}, lambda v: coalesce(v, {_NAN}))" if finite else fills
        columns.append(f"{fills} AS __grouplearn_fills")
    if _scales(definition):
        columns += [f"{_chosen(groups + name, places)} AS __grouplearn_{name}" for name in ("centers", "scales")]
    return columns


def _imputes(definition: ModelDefinition) -> bool:
    return any(entry.item.impute is not None for entry in definition.items)


def _scales(definition: ModelDefinition) -> bool:
    return any(entry.item.encoder in ("zscore", "minmax") for entry in definition.items)


def _chosen(values: str, places: Sequence[int]) -> str:
    """Return the values of a list at ascending places, counted from 1."""
    if not places:
        return f"{values}[1:0]"
    if places[-1] - places[0] == len(places) - 1:
        return f"{values}[{places[0]}:{places[-1]}]"
    return f"list_select({values}, [{', '.join(map(str, places))}])"


def encoded_cte(definition: ModelDefinition, finite: bool) -> str:
    """Return the CTE of routed rows with the parameters of their group and their encoded numbers.

    A missing number is NaN where ``finite``, and so is an infinite one, which makes NaN of all that is computed with it;
    otherwise it is NULL, as trees want it.
    """
    numbers = ""
    if any(entry.item.kind == "numeric" for entry in definition.items):
        numbers = f", {_encoded(definition, finite)} AS {_ENCODED_NUMBERS}"
    return (
        f"{ENCODED} AS (SELECT r.*, p.*{numbers} FROM {ROUTED} AS r"
        f" LEFT JOIN {PARAMETERS} AS p ON p.__grouplearn_id = r.{GROUP})"
    )


def _encoded(definition: ModelDefinition, finite: bool) -> str:
    fill = "p.__grouplearn_fills[i]"
    if finite:
        sql = f"CASE WHEN isfinite(v) THEN v ELSE {fill if _imputes(definition) else _NAN} END"
    else:
        sql = "CASE WHEN NOT isnan(v) THEN v END"
        sql = f"CASE WHEN isfinite(v) THEN v ELSE coalesce({fill}, {sql}) END" if _imputes(definition) else sql
    if _scales(definition):
        sql = f"({sql} - p.__grouplearn_centers[i]) / p.__grouplearn_scales[i]"
    if "p." not in sql:
        return f"list_transform(r.{NUMERIC}, lambda v: {sql})"
    # A row without a group has no parameters, and list_dot_product takes no NULL.
    return f"list_transform(r.{NUMERIC}, lambda v, i: {f'coalesce({sql}, {_NAN})' if finite else sql})"


def inputs_sql(definition: ModelDefinition, numbers: Sequence[int], finite: bool) -> str:
    """Return the DOUBLE[] of what the items ``numbers`` are in a row ``r`` of :func:`encoded_cte`; empty for no item.

    A category is its position, which :func:`position_join` finds.
    """
    kinds = [entry.item.kind for entry in definition.items]
    pieces: list[str] = []
    for kind, run in groupby(numbers, key=lambda number: (kinds[number], kinds[number] == "array" and number)):
        pieces += _piece(definition, kind[0], list(run), finite)
    return pieces[0] if len(pieces) == 1 else f"flatten([{', '.join(pieces)}])" if pieces else ""


def _piece(definition: ModelDefinition, kind: str, run: Sequence[int], finite: bool) -> list[str]:
    """Return the values of items of one kind, one after the other."""
    if kind == "array":
        return [_array_values(definition, run[0], finite)]
    if kind == "numeric":
        first = sum(entry.item.kind == "numeric" for entry in definition.items[: run[0]]) + 1
        whole = len(run) == sum(entry.item.kind == "numeric" for entry in definition.items)
        return [f"r.{_ENCODED_NUMBERS}" + ("" if whole else f"[{first}:{first + len(run) - 1}]")]
    values = [f"j{number}.position" if kind == "category" else f"r.{item_alias(number)}" for number in run]
    values = [f"coalesce({value}, {_NAN})" for value in values] if finite else values
    return [f"CAST([{', '.join(values)}] AS DOUBLE[])"]


def _array_values(definition: ModelDefinition, number: int, finite: bool) -> str:
    length = definition.items[number].item.buckets
    known = f"CASE WHEN isfinite(v) THEN v ELSE {_NAN} END" if finite else "CASE WHEN NOT isnan(v) THEN v END"
    missing = _NAN if finite else "CAST(NULL AS DOUBLE)"
    values = f"list_transform({array_sql(definition, number)}, lambda v: {known})"
    return f"coalesce({values}, list_transform(range({length}), lambda v: {missing}))"


def picked_sql(definition: ModelDefinition, numbers: Sequence[int], weights: str, groups: str) -> str:
    """Return those of a list of ``weights``, one per feature, that belong to :func:`inputs_sql` of the same items.

    Items one after the other have their weights one after the other. ``groups`` qualifies the columns of the groups.
    """
    pieces = []
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        members = [number for _, number in run]
        last = definition.items[members[-1]].item
        width = last.buckets if last.kind == "array" else 1
        start, stop = (f"{groups}starts[{members[place] + 1}]" for place in (0, -1))
        pieces.append(f"{weights}[{start} + 1 : {stop} + {width}]")
    return pieces[0] if len(pieces) == 1 else f"flatten([{', '.join(pieces)}])"


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


def is_number(entry: ItemColumn) -> bool:
    """Return whether an item is one number of a row's list, and not several columns of 0 and 1."""
    return entry.item.encoder not in ("onehot", "hash")


def numbers(definition: ModelDefinition) -> list[int]:
    """Return the places of the items that are one number."""
    return [number for number, entry in enumerate(definition.items) if is_number(entry)]
