"""What the values of columns show: one query over the rows of a statement, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.bound import BoundTarget
from grouplearn.bind.clauses.feature_advice import (
    LOOKED_AT,
    TextContents,
    as_written,
    date_written,
    text_contents,
)
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.data.encoding import types
from grouplearn.parser.statements import Sql

#: Texts that are numbers are categories as long as there are at most so many.
FEW = 20
_MEANT = {
    "numbers with points": "numbers with a point after each thousand",
    "numbers with a decimal comma": "numbers with a decimal comma",
}
#: Equal rows are copies where there are so many times more combinations of values than rows, and one column alone has at
#: most so many times fewer.
_BY_CHANCE = 10
#: A larger share of copies is noted.
_FEW_COPIES = 0.01
#: Columns of one query: DuckDB's planning time grows with their square.
_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A column of FROM, or a field of one, and what its values show.

    ``sql`` is its expression. ``known`` counts values that are neither NULL nor infinite, ``distinct`` different values
    (DuckDB's estimate; of a list its elements), ``length`` the characters of an average text. ``constant``: all known values
    are equal. ``is_label``: it is equal to the label in every row. ``any_nan``: some numbers are infinite or NaN. ``days`` is
    the number of days between the first and the last time, ``has_hours``: some times are not midnight. ``lengths`` are those of
    the shortest and the longest list, array or BLOB. ``meant``: what texts are taken for, empty if for texts;
    ``says_missing``: some say that a value is missing.
    """

    name: str
    sql: Sql
    type: str
    known: int = 0
    distinct: int = 0
    length: float = 0.0
    constant: bool = False
    is_label: bool = False
    any_nan: bool = False
    days: int = 0
    has_hours: bool = False
    lengths: tuple[int, int] = (0, 0)
    meant: str = ""
    says_missing: bool = False

    @property
    def is_column(self) -> bool:
        """Whether its expression is its name."""
        return sqltext.folded(self.sql.text.strip('"')) == sqltext.folded(self.name)


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The number of rows and of groups (an estimate), and the columns."""

    rows: int
    groups: int
    columns: tuple[SeenColumn, ...]


def seen(
    checker: SqlChecker,
    source: Sequence[str | Sql],
    columns: Sequence[SeenColumn],
    target: BoundTarget | None,
    keys: Sequence[Sql],
) -> SeenRows:
    """Return the columns with what their values show, by one query, and another of texts that are numbers or dates."""
    found = _counted(checker, source, columns, target, keys)
    meant = _with_contents(checker, source, found.columns)
    changed = [each for each, before in zip(meant, found.columns, strict=True) if each != before]
    if not changed:
        return found
    again = {each.name: each for each in _counted(checker, source, changed, target, ()).columns}
    return replace(found, columns=tuple(again.get(each.name, each) for each in meant))


def may_have_copies(rows: SeenRows) -> bool:
    """Return whether equal rows would be copies: rows whose columns have few values are equal by chance."""
    distinct = [max(1.0, float(column.distinct)) for column in rows.columns]
    most, combinations = max(distinct, default=1), math.prod(distinct)
    return bool(rows.rows and most > rows.rows / _BY_CHANCE and combinations > _BY_CHANCE * rows.rows)


def copies(checker: SqlChecker, source: Sequence[str | Sql], columns: Sequence[Column]) -> str:
    """Return how many of some of the rows have the same values as another in all columns, ``20 of 400``; empty if few."""
    names = ", ".join(sqltext.identifier(column.name) for column in columns)
    looked = [f"FROM (SELECT hash({names}) AS h", *source, f"LIMIT {LOOKED_AT})"]
    found = checker.rows("SELECT {'rows': count(*), 'different': count(DISTINCT h)}", *looked)[0][0]
    n_copies = found["rows"] - found["different"]
    return f"{n_copies:,} of {found['rows']:,}" if n_copies > _FEW_COPIES * found["rows"] else ""


def _counted(
    checker: SqlChecker,
    source: Sequence[str | Sql],
    columns: Sequence[SeenColumn],
    target: BoundTarget | None,
    keys: Sequence[Sql],
) -> SeenRows:
    groups: list[str | Sql] = ["1"]
    if keys:
        groups = ["approx_count_distinct((", *(piece for key in keys for piece in (key, "\n, ")), "1))"]
    shown: list[SeenColumn] = []
    rows = n_groups = 0
    for start in range(0, len(columns), _TOGETHER):
        part = columns[start : start + _TOGETHER]
        asked = [piece for each in part for piece in (",", *_counts(each, target))]
        found = checker.rows("SELECT count(*),", *groups, *asked, *source)[0]
        rows, n_groups = found[0], found[1]
        shown += [replace(each, **counts) for each, counts in zip(part, found[2:], strict=True)]
    return SeenRows(rows, max(1, n_groups), tuple(_with_elements(checker, source, shown)))


def _counts(column: SeenColumn, target: BoundTarget | None) -> Iterator[str | Sql]:
    """Yield SQL of a struct whose fields are those of ``SeenColumn``."""
    (sql, name), kind = (f"({column.sql.text}\n)", column.type), types.kind(column.type)
    counts = {"known": f"count({sql})"}
    if types.is_floating(name):
        counts["known"] = f"count(*) FILTER (isfinite({sql}))"
        counts["any_nan"] = f"coalesce(bool_or(NOT isfinite({sql})), false)"
    if kind != "other" or types.is_time(name):
        compared = types.uncollated(sql, name)
        counts["distinct"] = f"approx_count_distinct({compared})"
        counts["constant"] = f"min({compared}) IS NOT DISTINCT FROM max({compared})"
    if is_day(name):
        finite = f"CASE WHEN isfinite({sql}) THEN {sql} END"
        counts["days"] = f"coalesce(date_diff('day', min({finite}), max({finite})), 0)"
    if name.startswith("TIMESTAMP"):
        counts["has_hours"] = f"coalesce(bool_or(isfinite({sql}) AND date_trunc('day', {sql}) <> {sql}), false)"
    if (length := length_sql(sql, name)) is not None:
        counts["lengths"] = f"[coalesce(min({length}), 0), coalesce(max({length}), 0)]"
    if kind == "category":
        counts["length"] = f"coalesce(avg(length(CAST({sql} AS VARCHAR))), 0)"
    yield "{" + ", ".join(f"'{field}': {text}" for field, text in counts.items())
    if target is not None and target.array is None and kind != "other" and types.kind(target.type) != "other":
        numbers = kind == types.kind(target.type) == "numeric"
        cast = "DOUBLE" if numbers else "VARCHAR"
        yield f", 'is_label': coalesce(bool_and(CAST({sql} AS {cast}) IS NOT DISTINCT FROM CAST(("
        yield target.extract
        yield f"\n) AS {cast})), false)"
    yield "}"


def is_day(type_name: str) -> bool:
    """Whether values of the type are dates, with or without a time."""
    return type_name.startswith(("DATE", "TIMESTAMP")) and types.is_time(type_name)


def length_sql(sql: str, type_name: str) -> str | None:
    """Return SQL of the length of a value that may be an array; None for other types."""
    if type_name == "BLOB":
        return f"octet_length({sql})"
    return f"len({sql})" if type_name.endswith("]") else None


def _with_contents(checker: SqlChecker, source: Sequence[str | Sql], columns: Sequence[SeenColumn]) -> list[SeenColumn]:
    """Return the columns; texts that are numbers or dates become numbers or dates."""
    texts = [each for each in columns if each.type == "VARCHAR" and each.known]
    if not texts:
        return list(columns)
    found = text_contents(checker, source, [each.sql for each in texts])
    meant = {each.name: _meant(each, contents) for each, contents in zip(texts, found, strict=True)}
    return [meant.get(each.name, each) for each in columns]


def _meant(column: SeenColumn, contents: TextContents) -> SeenColumn:
    """Return a column of texts as what they are; a text of another kind becomes NULL."""
    text, span = column.sql.text, column.sql.span
    if contents.kind == "texts" or (contents.kind != "dates" and column.distinct <= FEW):
        return column
    if contents.kind == "dates":
        written = date_written(text, contents) if contents.date_format else f"TRY_CAST({text} AS TIMESTAMP)"
        return SeenColumn(column.name, Sql(written, span), "TIMESTAMP", meant="dates")
    number = Sql(f"TRY_CAST({contents.number_sql(text)} AS DOUBLE)", span)
    meant = _MEANT.get(contents.kind, "numbers")
    return SeenColumn(column.name, number, "DOUBLE", meant=meant, says_missing=contents.missing)


def _with_elements(
    checker: SqlChecker, source: Sequence[str | Sql], columns: Sequence[SeenColumn]
) -> Iterator[SeenColumn]:
    """Yield the columns, lists with the number of their different elements."""
    for column in columns:
        found: Any = column.distinct
        if types.column_of(column.type).element is not None and column.known:
            inner = f"FROM (SELECT unnest(({column.sql.text}\n)) AS e"
            found = checker.rows(f"SELECT approx_count_distinct(CAST(e AS VARCHAR)) {inner}", *source, ")")[0][0]
        yield replace(column, distinct=found)


def fields_of(checker: SqlChecker, source: Sequence[str | Sql], column: SeenColumn) -> Iterator[SeenColumn]:
    """Yield a column, or each field of a struct, and of structs in it."""
    if not column.type.startswith("STRUCT(") or column.type.endswith("]"):
        yield column
        return
    for field in checker.describe("SELECT unnest(", column.sql, ")", *source):
        inner = Sql(f"({column.sql.text}).{as_written(field.name)}", column.sql.span)
        yield from fields_of(checker, source, SeenColumn(f"{column.name}.{field.name}", inner, field.type))
