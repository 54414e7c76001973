"""What models read of a row, as SQL: encoded numbers, positions of categories, values of arrays.

Numbers have two forms. Few are columns, with their parameters as columns beside them, which is several times faster than
lists. Many are one list with few expressions, as DuckDB's planning time grows faster than their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from grouplearn.data.arrays import BYTE_SCALE
from grouplearn.data.encoding.categories.bins import bin_sql
from grouplearn.data.encoding.categories.category import NULL
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.models.definition import ItemColumn, ModelDefinition
from grouplearn.models.forms.routed import (
    BEST,
    ENCODED,
    GROUP,
    NUMERIC,
    PARAMETERS,
    ROUTED,
    PredictedRows,
    item_alias,
)
from grouplearn.sqltext import literal

#: Most numeric items as columns. This many take 30 ms to plan where a list takes 5, twice as many 60: from there on, tables
#: of less than some 40,000 rows would lose time.
MOST_COLUMNS = 64
_NAN = "'nan'::DOUBLE"
#: A row's encoded numbers, if they are one list.
_ENCODED_NUMBERS = "__grouplearn_encoded_numbers"


def listed(definition: ModelDefinition) -> bool:
    """Return whether a model's numeric items are one list rather than columns."""
    return sum(entry.item.kind == "numeric" for entry in definition.items) > MOST_COLUMNS


def groups_cte(rows: PredictedRows) -> str:
    """Return the CTE of groups with a model."""
    return f"{BEST} AS (SELECT * FROM {rows.table('groups')} AND best IS NOT NULL)"


def encoders_sql(definition: ModelDefinition, finite: bool, groups: str = "") -> list[str]:
    """Return the columns of a group that :func:`encoded_cte` needs: lists over the numeric items, or columns per item.

    ``groups`` qualifies the columns of the groups.
    """
    numeric = [number for number, entry in enumerate(definition.items) if entry.item.kind == "numeric"]
    bins = [*_bins(definition, groups), *_others(definition, groups)]
    if not listed(definition):
        return bins + [
            f"{groups}{values}[{number + 1}] AS {_parameter(values, number)}"
            for number in numeric
            for values, needed in _NEEDED.items()
            if needed(definition.items[number])
        ]
    places = [number + 1 for number in numeric]
    columns = bins
    if _any(definition, "fills"):
        fills = _chosen(f"{groups}fills", places)
        fills = f"list_transform({fills}, lambda v: coalesce(v, {_NAN}))" if finite else fills
        columns.append(f"{fills} AS {_parameter('fills')}")
    if _any(definition, "centers"):
        columns += [f"{_chosen(groups + name, places)} AS {_parameter(name)}" for name in ("centers", "scales")]
    return columns


def _bins(definition: ModelDefinition, groups: str) -> Iterator[str]:
    """Yield the columns of a group with the lower ends of the bins of each item that has some, as texts and as numbers."""
    for number, entry in enumerate(definition.items):
        if entry.item.kind == "binned":
            texts = f"list_filter({groups}categories[{number + 1}], lambda text: text <> {literal(NULL)})"
            yield f"{texts} AS {_parameter('bins', number)}"
            yield f"CAST({texts} AS DOUBLE[]) AS {_parameter('ends', number)}"


def _others(definition: ModelDefinition, groups: str) -> Iterator[str]:
    """Yield the columns of a group with the encodings of texts that it does not list."""
    for number, entry in enumerate(definition.items):
        if encoder_of(entry.item).learns_labels:
            yield f"{groups}fills[{number + 1}] AS {_parameter('others', number)}"


def _parameter(values: str, number: int | None = None) -> str:
    """Return the column with a group's parameters of all numeric items, or of one."""
    return f"__grouplearn_{values}{'' if number is None else number}"


def _scales(entry: ItemColumn) -> bool:
    return encoder_of(entry.item).scales


#: Parameters of items by group, and whether an item's encoding uses them.
_NEEDED: dict[str, Callable[[ItemColumn], bool]] = {
    "fills": lambda entry: entry.item.impute is not None,
    "centers": _scales,
    "scales": _scales,
}


def _needs(entry: ItemColumn) -> bool:
    """Return whether an item's encoding uses any parameter of its group."""
    return any(needed(entry) for needed in _NEEDED.values())


def _any(definition: ModelDefinition, values: str) -> bool:
    return any(_NEEDED[values](entry) for entry in definition.items)


def _chosen(values: str, places: Sequence[int]) -> str:
    """Return the values of a list at ascending places, counted from 1."""
    if not places:
        return f"{values}[1:0]"
    if places[-1] - places[0] == len(places) - 1:
        return f"{values}[{places[0]}:{places[-1]}]"
    return f"list_select({values}, [{', '.join(map(str, places))}])"


def encoded_cte(definition: ModelDefinition, finite: bool) -> str:
    """Return the CTE of routed rows with their group's parameters and their encoded numbers.

    With ``finite`` a missing or infinite number is NaN, which makes everything computed from it NaN; otherwise a missing
    number is NULL, as trees need it.
    """
    if not listed(definition):
        encoded = [
            f"{_encoded_number(entry, number, finite)} AS {_encoded_alias(number)}"
            for number, entry in enumerate(definition.items)
            if entry.item.kind == "numeric"
        ]
    else:
        encoded = [f"{_encoded_list(definition, finite)} AS {_ENCODED_NUMBERS}"]
    replaced, joins = _placed(definition)
    row = f"r.* REPLACE ({', '.join(replaced)})" if replaced else "r.*"
    return (
        f"{ENCODED} AS (SELECT {', '.join([row, 'p.*', *encoded])} FROM {ROUTED} AS r"
        f" LEFT JOIN {PARAMETERS} AS p ON p.__grouplearn_id = r.{GROUP} {' '.join(joins)})"
    )


def _placed(definition: ModelDefinition) -> tuple[list[str], list[str]]:
    """Return the columns of items in which a number becomes the text of its bin, a text its encoding, or a text that the row's
    group does not list the one that stands for all such; and the joins with the texts that it lists."""
    replaced, joins = [], []
    for number, entry in enumerate(definition.items):
        encoder, value, known = encoder_of(entry.item), f"r.{item_alias(number)}", f"c{number}"
        if entry.item.kind == "binned":
            ends, bins = (f"p.{_parameter(name, number)}" for name in ("ends", "bins"))
            replaced.append(f"{bin_sql(entry.item, value, ends, bins)} AS {item_alias(number)}")
        elif encoder.learns_labels:
            columns = f"unnest(categories[{number + 1}]) AS value, unnest(category_values[{number + 1}]) AS number"
            on = f"{known}.group_id = r.{GROUP} AND {known}.value = {value}"
            joins.append(f"LEFT JOIN (SELECT group_id, {columns} FROM {BEST}) AS {known} ON {on}")
            replaced.append(f"coalesce({known}.number, p.{_parameter('others', number)}) AS {item_alias(number)}")
        elif (rest := encoder.rest(entry.item)) is not None:
            listed = f"SELECT group_id, unnest(categories[{number + 1}]) AS value FROM {BEST}"
            joins.append(f"LEFT JOIN ({listed}) AS {known} ON {known}.group_id = r.{GROUP} AND {known}.value = {value}")
            other = f"CASE WHEN {value} IS NOT NULL THEN coalesce({known}.value, {literal(rest)}) END"
            replaced.append(f"{other} AS {item_alias(number)}")
    return replaced, joins


def _encoded_alias(number: int) -> str:
    """Return the column name of an item's encoded number."""
    return f"__grouplearn_encoded{number}"


def _encoded_number(entry: ItemColumn, number: int, finite: bool) -> str:
    fill, center, scale = (
        f"p.{_parameter(values, number)}" if needed(entry) else "" for values, needed in _NEEDED.items()
    )
    return _encoded(f"r.{item_alias(number)}", fill, center, scale, finite)


def _encoded_list(definition: ModelDefinition, finite: bool) -> str:
    fill, center, scale = (f"p.{_parameter(values)}[i]" if _any(definition, values) else "" for values in _NEEDED)
    sql = _encoded("v", fill, center, scale, finite)
    sql = _not_null(sql) if finite and (fill or center) else sql
    return f"list_transform(r.{NUMERIC}, lambda v{', i' if fill or center else ''}: {sql})"


def _encoded(value: str, fill: str, center: str, scale: str, finite: bool) -> str:
    """Return the SQL of a number imputed by ``fill``, centred and scaled, as far as these are given."""
    if finite:
        sql = f"CASE WHEN isfinite({value}) THEN {value} ELSE {fill or _NAN} END"
    else:
        sql = f"CASE WHEN NOT isnan({value}) THEN {value} END"
        sql = f"CASE WHEN isfinite({value}) THEN {value} ELSE coalesce({fill}, {sql}) END" if fill else sql
    return f"({sql} - {center}) / {scale}" if center else sql


def inputs_sql(definition: ModelDefinition, numbers: Sequence[int], finite: bool) -> str:
    """Return the DOUBLE[] of the items ``numbers`` in a row ``r`` of :func:`encoded_cte`; empty for no item.

    A category is its position, from :func:`position_join`.
    """
    as_list = listed(definition)  # looks at every item
    runs = groupby(numbers, lambda number: _form(definition, number, as_list))
    pieces = [_piece(definition, list(run), finite) for _, run in runs]
    return pieces[0] if len(pieces) == 1 else f"flatten([{', '.join(pieces)}])" if pieces else ""


def _form(definition: ModelDefinition, number: int, as_list: bool) -> tuple[str, int]:
    """Return a key that is equal for adjacent items that form one list; an array is a list of its own."""
    kind = definition.items[number].item.kind
    return ("array", number) if kind == "array" else ("", kind == "numeric" and as_list)


def _piece(definition: ModelDefinition, run: Sequence[int], finite: bool) -> str:
    """Return the list of the values of adjacent items of one form."""
    kinds = [entry.item.kind for entry in definition.items]
    if kinds[run[0]] == "array":
        return _array_values(definition, run[0], finite)
    if kinds[run[0]] == "numeric" and listed(definition):
        first = kinds[: run[0]].count("numeric") + 1
        whole = len(run) == kinds.count("numeric")
        return f"r.{_ENCODED_NUMBERS}" + ("" if whole else f"[{first}:{first + len(run) - 1}]")
    values = [value_sql(definition, number) for number in run]
    if finite:
        known = [kinds[number] == "numeric" and not _needs(definition.items[number]) for number in run]
        values = [value if never else _not_null(value) for value, never in zip(values, known, strict=True)]
    return f"CAST([{', '.join(values)}] AS DOUBLE[])"


def _not_null(sql: str) -> str:
    """Return a number with NaN for NULL, which list_dot_product does not accept.

    A row without a group has no parameters, a group may have no fill, and a category may be unknown.
    """
    return f"coalesce({sql}, {_NAN})"


def value_sql(definition: ModelDefinition, number: int) -> str:
    """Return an item's value in a row ``r``, possibly NULL; not for arrays, nor for numbers if they are ``listed``."""
    entry = definition.items[number]
    if entry.item.kind == "numeric":
        return f"r.{_encoded_alias(number)}"
    return f"j{number}.position" if is_looked_up(entry) else f"r.{item_alias(number)}"


def _array_values(definition: ModelDefinition, number: int, finite: bool) -> str:
    length = definition.items[number].item.buckets
    known = f"CASE WHEN isfinite(v) THEN v ELSE {_NAN} END" if finite else "CASE WHEN NOT isnan(v) THEN v END"
    missing = _NAN if finite else "CAST(NULL AS DOUBLE)"
    values = f"list_transform({array_sql(definition, number)}, lambda v: {known})"
    return f"coalesce({values}, list_transform(range({length}), lambda v: {missing}))"


def picked_sql(definition: ModelDefinition, numbers: Sequence[int], weights: str, groups: str) -> str:
    """Return the parts of a list of ``weights``, one per feature, that belong to :func:`inputs_sql` of the same items.

    Adjacent items have adjacent weights. ``groups`` qualifies the groups' columns.
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
    """Return the join for the 0-based position of an item's category, ``j{number}.position``."""
    texts = f"categories[{number + 1}]"
    source = f"SELECT group_id, unnest({texts}) AS value, unnest(range(len({texts}))) AS position FROM {BEST}"
    on = f"j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    return f"LEFT JOIN ({source}) AS j{number} ON {on}"


def array_sql(definition: ModelDefinition, number: int) -> str:
    """Return an array's values as doubles; NULL for no array, an error for the wrong length."""
    entry = definition.items[number]
    values, length = f"r.{item_alias(number)}", entry.item.buckets
    if entry.type == "BLOB":
        each = f"CAST('0x' || byte AS UTINYINT) / CAST({BYTE_SCALE!r} AS DOUBLE)"
        values = f"list_transform(regexp_extract_all(hex({values}), '..'), lambda byte: {each})"
    told = literal(
        f'model "{definition.name}" takes {length:,} values of "{entry.item.name}", and a row has another number'
    )
    return f"CASE WHEN len({values}) <> {length} THEN error({told}) ELSE {values} END"


def is_looked_up(entry: ItemColumn) -> bool:
    """Return whether an item is a category, whose place in its group's list is looked up."""
    return entry.item.kind in ("category", "binned")


def is_number(entry: ItemColumn) -> bool:
    """Return whether an item is one number of a row's list rather than several 0/1 columns."""
    return encoder_of(entry.item).role not in ("indicator", "list")


def numbers(definition: ModelDefinition) -> list[int]:
    """Return the places of single-number items."""
    return [number for number, entry in enumerate(definition.items) if is_number(entry)]
