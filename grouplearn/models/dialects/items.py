"""What the items of a model read of a row, in the SQL that all databases share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from grouplearn.data.encoding.categories.category import NULL, marked, names_null
from grouplearn.data.encoding.encoder import Elsewhere
from grouplearn.data.encoding.numbers.parts import DAYS, in_circle
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.data.encoding.types import column_of
from grouplearn.data.frequency import ZONED
from grouplearn.models.definition import ItemColumn, KeyColumn
from grouplearn.models.dialects.databases import NotInDialect, sqlglot
from grouplearn.models.dialects.exported import ExportedModel
from grouplearn.models.dialects.expressions import number_of_truth, translated
from grouplearn.models.dialects.plain_tables import plain_type, sql_type
from grouplearn.sqltext import literal

#: Types by which the SQL of a combination of values is known again.
_TYPES = ("VARCHAR", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "DATE")
#: What stands between the SQL of two values of a combination.
_BETWEEN = ", '&', '\\&') || ' & ' || replace("
_FIRST, _LAST = "(replace(", ", '&', '\\&'))"
#: What encoders read that look values up.
LOOKED_UP: tuple[Elsewhere, ...] = ("value", "combination")
_TWO_PI = "6.283185307179586"
#: A text that looks like a category of ours, with the backslash that marks it as none.
_MARKED = re.compile(r"\\(\\*\((?:null|other)\))")


def key_value(model: ExportedModel, key: KeyColumn) -> tuple[str, str]:
    """Return the SQL of a key of a row, and its plain type."""
    what = f'key "{key.name}"'
    kind = plain_type(key.type, what, model.database)
    return _typed(model.query.expression(translated(key.sql, what, model.database)), kind), kind


def item_value(model: ExportedModel, entry: ItemColumn) -> str:
    """Return the SQL of what an item reads of a row, not encoded: a number, a value of ``category_type``, or a bucket."""
    encoder = encoder_of(entry.item)
    read = _READ.get(encoder.elsewhere)
    if read is None:
        message = f"{_what(entry)} is {encoder.shown}, which has no form in the SQL of other databases"
        raise NotInDialect(message, "Take single values out of it, and train the model on these.")
    return read(model, entry)


def is_looked_up(entry: ItemColumn) -> bool:
    """Return whether an item is a value that is looked up among the categories of a group."""
    return encoder_of(entry.item).elsewhere in LOOKED_UP


def is_marked(entry: ItemColumn) -> bool:
    """Return whether ``(null)`` may stand beside an item's categories, so that a text that looks like it is marked."""
    return names_null(entry.item) or entry.item.has("min_count") or encoder_of(entry.item).learns_labels


def category_type(model: ExportedModel, entry: ItemColumn) -> str:
    """Return the plain type of the values that a category is compared by."""
    if _combines(entry):
        return "VARCHAR"
    return plain_type(entry.type, _what(entry), model.database)


def category_value(entry: ItemColumn, text: str) -> str:
    """Return a category's value as DuckDB's text: without the mark of a text that looks like ``(null)``."""
    found = _MARKED.fullmatch(text) if is_marked(entry) and not _combines(entry) else None
    return found[1] if found else text


def _combines(entry: ItemColumn) -> bool:
    return encoder_of(entry.item).elsewhere == "combination"


def _what(entry: ItemColumn) -> str:
    return f'feature "{entry.item.name}"'


def _number(model: ExportedModel, entry: ItemColumn) -> str:
    tree = translated(_one(entry), _what(entry), model.database)
    if entry.type == "BOOLEAN":
        tree = number_of_truth(tree, sqlglot().exp)
    return f"CAST({model.query.expression(tree)} AS DOUBLE)"


def _part_of_time(model: ExportedModel, entry: ItemColumn) -> str:
    """Return a part of a date or timestamp, as ``Part`` reads it."""
    query, database = model.query, model.database
    if entry.type == ZONED:
        raise NotInDialect(f"{_what(entry)} is a part of a time with a time zone, which databases read differently")
    value = query.expression(translated(_one(entry), _what(entry), database))
    time, part = query.own(f"CAST({value} AS {sql_type('TIMESTAMP', database)})"), entry.item.option("part")
    if part == DAYS:
        return query.own(database.times[DAYS].format(time))
    number, turn, first, length = in_circle(part)
    own = database.times.get(number)
    sql = query.own(own.format(time)) if own else f"EXTRACT({number.upper()} FROM {time})"
    sql = f"CAST({sql} AS DOUBLE)"
    return f"{turn.upper()}({_TWO_PI} * ({sql} - {first}) / {length})" if turn else sql


def _category(model: ExportedModel, entry: ItemColumn) -> str:
    value = model.query.expression(translated(_one(entry), _what(entry), model.database))
    return _typed(value, category_type(model, entry))


def _typed(value: str, kind: str) -> str:
    return f"CAST({value} AS VARCHAR)" if kind == "VARCHAR" else value


def _digest(model: ExportedModel, entry: ItemColumn) -> str:
    """Return the MD5 of a value's text, in hexadecimal digits."""
    if entry.type not in _TYPES and plain_type(entry.type, _what(entry), model.database) != "VARCHAR":
        raise NotInDialect(f"{_what(entry)} hashes values that databases write differently", "Cast them to VARCHAR.")
    value = model.query.expression(translated(_one(entry), _what(entry), model.database))
    return f"MD5({_text(value, entry.type)})"


def bucket(model: ExportedModel, digest: str, buckets: int) -> str:
    """Return the SQL of the bucket of an MD5, as ``md5_number_lower`` modulo ``buckets``: of its last 8 bytes, the last first."""

    def number(start: int) -> str:
        digits = " || ".join(f"SUBSTRING({digest}, {first}, 2)" for first in range(start, start - 8, -2))
        return model.query.own(model.database.hexadecimal.format(model.query.shared(digits)))

    high, low = number(31), number(23)
    return f"(({high} % {buckets}) * {2**32 % buckets} + {low}) % {buckets}"


def _text(value: str, type_name: str) -> str:
    """Return a value as the text that DuckDB makes of it."""
    if type_name == "BOOLEAN":
        return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
    return f"CAST({value} AS VARCHAR)"


def _one(entry: ItemColumn) -> str:
    """Return the user's expression of an item of one column."""
    before, after = encoder_of(entry.item).reading(column_of(entry.type), entry.item).replayed
    return _within(entry.sql, before, after)


def _within(sql: str, before: str, after: str) -> str:
    if not (sql.startswith(before) and sql.endswith(after)):
        raise NotInDialect(f"the SQL of a feature is not as this version writes it: {sql[:60]}")
    return sql[len(before) : len(sql) - len(after)]


def _combination(model: ExportedModel, entry: ItemColumn) -> str:
    """Return the text of a combination of values, as ``Cross`` reads it."""
    nulls = names_null(entry.item)
    parts = _within(entry.sql, _FIRST, _LAST).split(_BETWEEN)
    return " || ' & ' || ".join(f"REPLACE({_part(model, entry, part, nulls)}, '&', '\\&')" for part in parts)


def _part(model: ExportedModel, entry: ItemColumn, sql: str, nulls: bool) -> str:
    """Return the text of one value of a combination."""
    for type_name in _TYPES:
        before, after = marked(column_of(type_name), nulls).replayed
        if sql.startswith(before) and sql.endswith(after):
            tree = translated(sql[len(before) : len(sql) - len(after)], _what(entry), model.database)
            break
    else:
        raise NotInDialect(f"{_what(entry)} combines values that databases write differently", "Cast them to VARCHAR.")
    text = _text(model.query.expression(tree), type_name)
    odd = ", ".join(literal(f"{mark}({name})") for mark in ("", "\\", "\\\\") for name in ("null", "other"))
    text = f"CASE WHEN {text} IN ({odd}) THEN '\\' || {text} ELSE {text} END" if type_name == "VARCHAR" else text
    return f"COALESCE({text}, {literal(NULL)})" if nulls else text


_READ: Mapping[Elsewhere, Callable[[ExportedModel, ItemColumn], str]] = {
    "number": _number,
    "part": _part_of_time,
    "value": _category,
    "combination": _combination,
    "digest": _digest,
}
