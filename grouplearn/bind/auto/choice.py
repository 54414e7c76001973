"""What each column becomes under AUTO, by its type, its values and the learner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from grouplearn import sqltext
from grouplearn.bind.auto.seen import SeenColumn, SeenRows, is_day
from grouplearn.data.encoding import types
from grouplearn.data.encoding.categories.hash import Hash
from grouplearn.data.encoding.categories.onehot import OneHot
from grouplearn.data.encoding.categories.ordinal import Ordinal
from grouplearn.data.encoding.lists.multihot import MultiHot
from grouplearn.data.encoding.numbers.impute import Imputed
from grouplearn.data.encoding.numbers.zscore import ZScore
from grouplearn.data.encoding.registry import automatic
from grouplearn.messages import Span
from grouplearn.parser.statements import Feature, Name, Option, Sql

#: Fewer rows say little about what a column is: nothing is left out for its values.
FEWEST_ROWS = 20
#: More categories than these become one, ``(other)``, as far as they are rare.
_MANY = 100
#: A category has at least so many rows of an average group, and at least this share of them.
_RARE, _SHARE = 5, 100
#: The share of distinct values from which a column of texts, or of whole numbers named as an id, tells rows apart.
_UNIQUE = 0.5
#: Longer texts are sentences.
_LONG = 50
#: Elements of lists that have a column each; more share this number of columns.
_ELEMENTS, _BUCKETS = 500, 256
#: Days from which the month, or the day of the week, is a feature of a date.
_MONTHS, _WEEK = 60, 7
#: Missing values above this share of rows are a feature of their own.
_MISSING = 0.01
#: Names of ids, and of the numbers of rows.
NAMED_ID = re.compile(r"(?:^|.*[_\W])(?:id|uuid|guid|key|nr|no)\W*|.*[a-z](?:Id|ID)\W*", re.IGNORECASE)
_NAMED_ROW = re.compile(r"row_?(?:id|names?|num(?:ber)?|nr|no)|index|unnamed: \d+", re.IGNORECASE)
#: The call that fills missing numbers, which has no encoder's name: what is filled is a number.
IMPUTE = Imputed.call.name if Imputed.call else ""
#: In impute(a, b) the second would be what replaces NULL.
_MEAN = (("method", "mean"),)


class Item(NamedTuple):
    """One item of FEATURES for one column: a call with options, or the expression alone."""

    sql: Sql
    encoder: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    alias: str = ""


class Left(NamedTuple):
    """Why a column is left out."""

    why: str


@dataclass(frozen=True, slots=True)
class Taste:
    """What a learner wants of features.

    ``missing``: it handles missing values itself, and takes categories as they are. ``scaled``: it learns better from numbers
    that have one scale.
    """

    missing: bool
    scaled: bool


def chosen(rows: SeenRows, taste: Taste) -> tuple[list[Item], dict[str, str]]:
    """Return the items, and why each column that is left out is no feature.

    Numbers that are all that there is are meant to be features, whatever they look like.
    """
    items: list[Item] = []
    left: dict[str, str] = {}
    for column in rows.columns:
        for each in _of(column, rows, taste):
            if isinstance(each, Left):
                left[column.name] = each.why
            else:
                items.append(each if each.alias or column.is_column else each._replace(alias=column.name))
    if not items:
        numbers = [column for column in rows.columns if types.kind(column.type) == "numeric" and column.known]
        items = [Item(column.sql, alias="" if column.is_column else column.name) for column in numbers]
        left = {name: why for name, why in left.items() if name not in {column.name for column in numbers}}
    return items, left


def _of(column: SeenColumn, rows: SeenRows, taste: Taste) -> Iterator[Item | Left]:
    kind, known = types.kind(column.type), rows.rows >= FEWEST_ROWS
    if types.is_untyped(column.type) or (known and _is_judged(column) and not column.known):
        yield Left("NULL in every row")
    elif known and column.is_label:
        yield Left("a copy of the label")
    elif known and column.constant and column.known == rows.rows:
        yield Left("constant")
    elif kind == "numeric":
        yield from _number(column, rows, taste)
    elif kind == "category":
        yield from _category(column, rows, taste)
    elif types.is_time(column.type):
        yield from _time(column, rows, taste)
    elif column.type == "INTERVAL":
        yield from _computed(f"epoch({column.sql.text}) / 3600", f"{column.name}_hours", column, taste)
    else:
        yield from _nested(column, rows, taste)


def _is_judged(column: SeenColumn) -> bool:
    """Whether a column of its type without a value, or with empty lists alone, is none."""
    return types.kind(column.type) != "other" or types.is_time(column.type) or column.type.endswith("]")


def _number(column: SeenColumn, rows: SeenRows, taste: Taste) -> Iterator[Item | Left]:
    is_named_id = NAMED_ID.fullmatch(column.name) or _NAMED_ROW.fullmatch(column.name)
    if is_named_id and types.is_whole(column.type) and rows.rows >= FEWEST_ROWS:
        if column.distinct <= min(_MANY, _UNIQUE * column.known):
            yield from _category(column, rows, taste)
        else:
            yield Left("an id")
        return
    missing = rows.rows - column.known
    if taste.missing or rows.rows == 0:
        yield Item(column.sql)
        return
    yield _filled(column.sql, "", scaled=taste.scaled and column.type != "BOOLEAN")
    if missing > _MISSING * rows.rows:
        text = column.sql.text
        test = f"NOT coalesce(isfinite({text}), false)" if column.any_nan else f"{text} IS NULL"
        yield Item(Sql(test, column.sql.span), alias=f"{column.name}_missing")


def _category(column: SeenColumn, rows: SeenRows, taste: Taste) -> Iterator[Item | Left]:
    if rows.rows >= FEWEST_ROWS and column.distinct > _UNIQUE * column.known:
        yield Left("mostly different texts" if column.type == "VARCHAR" else "mostly different values")
    elif column.distinct > _MANY and column.length > _LONG:
        yield Left("long texts")
    elif taste.missing:
        yield Item(column.sql, Ordinal.name)
    else:
        options: list[tuple[str, Any]] = [("null", True)] if column.known < rows.rows else []
        if column.distinct > _MANY:
            average = rows.rows / rows.groups
            options.append(("min_count", max(_RARE, round(average / _SHARE))))
        yield Item(column.sql, OneHot.name, tuple(options))


def _time(column: SeenColumn, rows: SeenRows, taste: Taste) -> Iterator[Item]:
    """Yield the parts of a date or a time that vary, and of a date the days since 1970-01-01."""
    text, name = column.sql.text, column.name
    if column.type == "TIMESTAMP WITH TIME ZONE":
        text = f"(({text})::TIMESTAMPTZ AT TIME ZONE 'UTC')"
    elif is_day(column.type) and not column.meant:  # later rows may have texts
        text = f"{text}::TIMESTAMP" if column.is_column else f"({text})::TIMESTAMP"
    if not is_day(column.type):
        yield from _computed(f"date_part('epoch', {text}) / 3600", f"{name}_hours", column, taste)
        return
    yield from _computed(f"date_part('epoch', {text}) / 86400", f"{name}_days", column, taste)
    parts = (("month", column.days >= _MONTHS), ("dayofweek", column.days >= _WEEK), ("hour", column.has_hours))
    for part, varies in parts:
        if varies:
            sql, alias = Sql(f"{part}({text})", column.sql.span), f"{name}_{part}"
            null = (("null", True),) if column.known < rows.rows else ()
            yield Item(sql, alias=alias) if taste.missing else Item(sql, OneHot.name, null, alias)


def _computed(text: str, alias: str, column: SeenColumn, taste: Taste) -> Iterator[Item]:
    """Yield a number that is computed of a column: its values were not counted."""
    sql = Sql(text, column.sql.span)
    yield Item(sql, alias=alias) if taste.missing else _filled(sql, alias, scaled=taste.scaled)


def _filled(sql: Sql, alias: str, *, scaled: bool) -> Item:
    """Return the item of a number; the mean replaces missing values, also where only later rows have some."""
    return Item(sql, ZScore.name, (("impute", "mean"),), alias) if scaled else Item(sql, IMPUTE, alias=alias)


def _nested(column: SeenColumn, rows: SeenRows, taste: Taste) -> Iterator[Item | Left]:
    described = types.column_of(column.type)
    shortest, longest = column.lengths
    if column.type.endswith("]") and rows.rows and not longest:
        yield Left("empty in every row")
    elif automatic(described) is not None and shortest == longest and (taste.missing or column.known == rows.rows):
        yield Item(column.sql)
    elif described.element is not None and described.element.named and not types.has_fractions(described.element.type):
        if column.distinct <= _ELEMENTS:
            yield Item(column.sql, MultiHot.name)
        else:
            yield Item(column.sql, Hash.name, (("buckets", _BUCKETS),))
    else:
        yield Left(f"of type {column.type if len(column.type) <= _LONG else column.type[:_LONG] + '...'}")


def features(items: Iterable[Item], span: Span) -> tuple[Feature, ...]:
    """Return the items as those of FEATURES, columns with the same call in one."""
    together: dict[tuple[str, tuple[tuple[str, Any], ...]], list[Sql]] = {}
    written: list[tuple[str, tuple[tuple[str, Any], ...], list[Sql], str]] = []
    for item in items:
        call = item.encoder, item.options
        alone = not item.encoder or bool(item.alias)
        if not alone and call in together:
            together[call].append(item.sql)
            continue
        arguments = [item.sql]
        if not alone:
            together[call] = arguments
        written.append((*call, arguments, item.alias))
    return tuple(
        Feature(
            tuple(arguments),
            Name(encoder, span) if encoder else None,
            tuple(
                Option(Name(name, span), Sql(sqltext.literal(value), span))
                for name, value in (_MEAN if encoder == IMPUTE and len(arguments) > 1 else options)
            ),
            Name(alias, span) if alias else None,
            span=span,
        )
        for encoder, options, arguments, alias in written
    )


def shown(left: Mapping[str, str]) -> str:
    """Return the columns that are left out and why: ``id (an id), nm (constant)``."""
    return ", ".join(f"{name} ({why})" for name, why in left.items())
