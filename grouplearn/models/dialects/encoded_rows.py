"""The rows of a source with the group whose model predicts each, and their encoded features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from grouplearn.data.encoding.categories.category import NULL, names_null
from grouplearn.data.encoding.encoder import FittedItem
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.learners import registry
from grouplearn.models.definition import ROW, ItemColumn
from grouplearn.models.dialects.databases import NotInDialect
from grouplearn.models.dialects.exported import SOURCE, ExportedModel
from grouplearn.models.dialects.items import (
    LOOKED_UP,
    bucket,
    category_type,
    category_value,
    is_looked_up,
    is_marked,
    item_value,
    key_value,
)
from grouplearn.models.dialects.plain_tables import plain_type, some_value
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.forms.forms import form_of
from grouplearn.models.outputs.link import Link
from grouplearn.sqltext import identifier

#: Steps.
ROWS, ROUTED, ENCODED = "rows", "routed", "encoded"
#: Added columns: the group of a row, and of its model the level, the threshold and the link.
GROUP, LEVEL, THRESHOLD, LINK = (f"__grouplearn_{name}" for name in ("group", "level", "threshold", "link"))
#: The added column of a row's number, where queries see it always the same.
NUMBER = "__grouplearn_number"
#: Most levels of keys, each a join.
MOST_LEVELS = 16
#: The greatest finite double.
_MOST = "1.7976931348623157e308"
_INFINITE = "CAST('inf' AS DOUBLE)"
_MINUS_INFINITE = "CAST('-inf' AS DOUBLE)"


def feature(number: int) -> str:
    """Return the added column of an item: its encoded number, or the place of its category among the feature columns."""
    return f"__grouplearn_x{number + 1}"


def encode_rows(model: ExportedModel, *, finite: bool, numbered: bool) -> None:
    """Add the tables of groups and categories, and the steps to rows with their encoded features.

    With ``finite`` an infinite number is NULL; else only NaN is. ``numbered`` rows will be taken apart and put together again.
    """
    groups = _groups(model)
    _read(model, numbered)
    _route(model, groups)
    _encode(model, groups, finite)


def _groups(model: ExportedModel) -> str:
    """Add the table of groups, and return its name."""
    definition = model.definition
    keys = [
        (f"key_{place}", plain_type(key.type, f'key "{key.name}"', model.database))
        for place, key in enumerate(definition.keys, start=1)
    ]
    items = [column for number in range(len(definition.items)) for column in _item_columns(model, number)]
    own = _own_columns(model)
    columns = [("group_id", "BIGINT"), ("level", "BIGINT"), *keys, *((name, kind) for name, kind, _ in own), *items]
    rows = (
        (
            group.id,
            group.level,
            *group.keys,
            *(value(group) for _, _, value in own),
            *(value for fitted in group.fitted for value in _item_values(fitted)),
        )
        for group in model.groups
    )
    return model.table("groups", columns, rows)


def _own_columns(model: ExportedModel) -> list[tuple[str, str, Callable[[GroupModel], Any]]]:
    """Return what groups differ in beside their items: columns, types and values."""
    definition, form = model.definition, form_of(model.definition)
    found: list[tuple[str, str, Callable[[GroupModel], Any]]] = []
    if definition.threshold_metric:
        found.append(("threshold", "DOUBLE", lambda group: group.threshold))
    if len(links_of(model)) > 1:
        found.append(("link", "VARCHAR", lambda group: form.link(definition, group)))
    return found


def links_of(model: ExportedModel) -> frozenset[Link]:
    """Return the links of the scores of all configs."""
    definition = model.definition
    return frozenset(registry.links(definition.learner, definition.configs, definition.label))


def _item_columns(model: ExportedModel, number: int) -> list[tuple[str, str]]:
    """Return the columns of an item in the table of groups."""
    entry, at = model.definition.items[number], number + 1
    item, encoder = entry.item, encoder_of(entry.item)
    if item.kind == "binned":
        ends = ((f"end_{at}_{end}", "DOUBLE") for end in range(1, item.option("n")))
        return [(f"first_{at}", "BIGINT"), *ends, (f"null_{at}", "BIGINT")]
    if is_looked_up(entry):
        return [(f"null_{at}", _encoding_type(entry)), (f"rest_{at}", _encoding_type(entry))]
    fill = [(f"fill_{at}", "DOUBLE")] if item.impute is not None else []
    return [*fill, *([(f"center_{at}", "DOUBLE"), (f"scale_{at}", "DOUBLE")] if encoder.scales else [])]


def _item_values(fitted: FittedItem) -> Iterator[Any]:
    item, encoder = fitted.item, encoder_of(fitted.item)
    if item.kind == "binned":
        ends = [text for text in fitted.categories if text != NULL]
        yield 0 if ends else None
        yield from [*ends[1:], *[None] * (item.option("n") - max(len(ends), 1)), _place(fitted, NULL)]
    elif encoder.learns_labels:
        known = dict(_encodings(fitted))
        yield from (known.get(NULL, fitted.fill), fitted.fill)
    elif encoder.elsewhere in LOOKED_UP:
        rest = _place(fitted, encoder.rest(item))
        own = _place(fitted, NULL) if names_null(item) else None
        yield from (rest if names_null(item) and own is None else own, rest)
    else:
        yield from [fitted.fill] if item.impute is not None else []
        yield from [fitted.center, fitted.scale] if encoder.scales else []


def _encodings(fitted: FittedItem) -> Iterator[tuple[str, float]]:
    """Yield each category with its place, or with what it is encoded by."""
    values = np.frombuffer(fitted.values).tolist() if fitted.values else range(len(fitted.categories))
    yield from zip(fitted.categories, values, strict=True)


def _encoding_type(entry: ItemColumn) -> str:
    return "DOUBLE" if encoder_of(entry.item).learns_labels else "BIGINT"


def _place(fitted: FittedItem, category: str | None) -> int | None:
    """Return the place of a category of a group, None if it has none."""
    return fitted.categories.index(category) if category in fitted.categories else None


def _read(model: ExportedModel, numbered: bool) -> None:
    """Add the step of rows with the values of their keys and items."""
    query, definition = model.query, model.definition
    columns = [query.row(ROW)]
    if model.database.stays and numbered:
        columns.append(query.added(NUMBER, "ROW_NUMBER() OVER ()"))
    columns += [
        query.added(f"__grouplearn_key{place}", key_value(model, key)[0])
        for place, key in enumerate(definition.keys, start=1)
    ]
    columns += [query.added(_raw(number), item_value(model, entry)) for number, entry in enumerate(definition.items)]
    query.step(ROWS, f"SELECT {', '.join(columns)} FROM {identifier(SOURCE)} AS {identifier(ROW)}")


def _raw(number: int) -> str:
    return f"__grouplearn_item{number + 1}"


def _route(model: ExportedModel, groups: str) -> None:
    """Add the step that finds the group of each row, at the finest level that has one."""
    definition, query = model.definition, model.query
    levels = range(len(definition.sets) if definition.missing_group == "parent" else 1)
    if len(levels) > MOST_LEVELS:
        raise NotInDialect(f"the model has {len(levels)} levels of keys, and {MOST_LEVELS} are the most of a query")
    found, joins = [], []
    for level in levels:
        members = [group for group in model.groups if group.level == level]
        if not definition.sets[level]:
            found += [str(group.id) for group in members]
        elif members:
            same = [_same(model, level, key, members) for key in definition.sets[level]]
            found.append(f"l{level}.group_id")
            joins.append(f"LEFT JOIN {groups} AS l{level} ON l{level}.level = {level} AND {' AND '.join(same)}")
    group = query.added(GROUP, f"CAST(COALESCE({', '.join([*found, 'NULL'])}) AS BIGINT)")
    query.step(ROUTED, f"SELECT r.*, {group} FROM {ROWS} AS r {' '.join(joins)}")


def _same(model: ExportedModel, level: int, key: int, members: Sequence[GroupModel]) -> str:
    """Return the condition that a row has the key of a group; a key may be NULL."""
    here, there = f'r."__grouplearn_key{key + 1}"', f"l{level}.key_{key + 1}"
    if all(group.keys[key] is not None for group in members):
        return f"{there} = {here}"
    column = model.definition.keys[key]
    some = some_value(plain_type(column.type, "", model.database), model.database)
    missing = "CASE WHEN {} IS NULL THEN 1 ELSE 0 END"
    return f"COALESCE({there}, {some}) = COALESCE({here}, {some}) AND {missing.format(there)} = {missing.format(here)}"


def _encode(model: ExportedModel, groups: str, finite: bool) -> None:
    """Add the step of routed rows with their encoded features."""
    definition, query = model.definition, model.query
    columns, joins = ["r.*", query.added(LEVEL, "g.level")], [f"LEFT JOIN {groups} AS g ON g.group_id = r.{GROUP}"]
    columns += [query.added(f"__grouplearn_{name}", f"g.{name}") for name, _, _ in _own_columns(model)]
    for number, entry in enumerate(definition.items):
        value, own = f'r."{_raw(number)}"', f"c{number + 1}"
        if is_looked_up(entry):
            table = _categories(model, number)
            joins.append(f"LEFT JOIN {table} AS {own} ON {own}.group_id = r.{GROUP} AND {own}.value = {value}")
        columns.append(query.added(feature(number), _encoded(model, number, value, finite)))
    query.step(ENCODED, f"SELECT {', '.join(columns)} FROM {ROUTED} AS r {' '.join(joins)}")


def _categories(model: ExportedModel, number: int) -> str:
    """Add the table of an item's categories by group, and return its name."""
    entry = model.definition.items[number]
    special = {NULL, encoder_of(entry.item).rest(entry.item)} if is_marked(entry) else set()
    rows = (
        (group.id, category_value(entry, text), place)
        for group in model.groups
        for text, place in _encodings(group.fitted[number])
        if text not in special
    )
    columns = [("group_id", "BIGINT"), ("value", category_type(model, entry)), ("place", _encoding_type(entry))]
    return model.table(f"item_{number + 1}", columns, rows)


def _encoded(model: ExportedModel, number: int, value: str, finite: bool) -> str:
    entry, at = model.definition.items[number], number + 1
    item = entry.item
    if is_looked_up(entry):
        return f"CASE WHEN {value} IS NULL THEN g.null_{at} ELSE COALESCE(c{at}.place, g.rest_{at}) END"
    if item.kind == "hash":
        return bucket(model, value, item.buckets)
    known = f"{value} BETWEEN {_MINUS_INFINITE} AND {_INFINITE}"
    if item.kind == "binned":
        above = [f"CASE WHEN {value} >= g.end_{at}_{end} THEN 1 ELSE 0 END" for end in range(1, item.option("n"))]
        return f"CASE WHEN {known} THEN g.first_{at} + {' + '.join(above)} ELSE g.null_{at} END"
    is_finite = f"{value} BETWEEN -{_MOST} AND {_MOST}"
    fill = f" ELSE g.fill_{at}" if item.impute is not None else ""
    encoded = f"CASE WHEN {is_finite if finite or fill else known} THEN {value}{fill} END"
    return f"({encoded} - g.center_{at}) / g.scale_{at}" if encoder_of(item).scales else encoded
