"""Tables of a model for other databases: columns of one value each, and their rows as INSERTs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from grouplearn.data.encoding.types import is_floating, is_whole
from grouplearn.models.dialects.databases import Database, NotInDialect, sqlglot

#: Rows per INSERT.
_BATCH = 500
_TEXT = re.compile(r"VARCHAR|ENUM\(.*\)|UUID|CHAR", re.DOTALL)
_AS_THEY_ARE = re.compile(r"BOOLEAN|DATE|DECIMAL\(.*\)|FLOAT|DOUBLE")
_TIMESTAMP = re.compile(r"TIMESTAMP(_S|_MS|_NS)?")
_FITS_BIGINT = re.compile(r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT")
#: Any value of a type: two that are NULL are compared by it.
_SOME = {"VARCHAR": "", "BOOLEAN": "false", "DATE": "1970-01-01", "TIMESTAMP": "1970-01-01 00:00:00"}


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table: its name, its columns by name with DuckDB's types, and its rows."""

    name: str
    columns: Sequence[tuple[str, str]]
    rows: Iterable[Sequence[Any]]


def plain_type(type_name: str, what: str, database: Database) -> str:
    """Return the type, in DuckDB's words, of a column whose values are compared with those of a key or category; raises
    NotInDialect for a type that databases do not share."""
    if _TEXT.fullmatch(type_name):
        return "VARCHAR"
    if is_whole(type_name):
        return "BIGINT" if _FITS_BIGINT.fullmatch(type_name) else "DECIMAL(38,0)"
    if _TIMESTAMP.fullmatch(type_name):
        return "TIMESTAMP"
    if _AS_THEY_ARE.fullmatch(type_name):
        return type_name
    message = f"{what} has type {type_name}, whose values {database.title} has no equal of"
    raise NotInDialect(message, "Make it a text, a number, a date or a timestamp, and train the model on that.")


def some_value(type_name: str, database: Database) -> str:
    """Return the SQL of any value of a type of ``plain_type``."""
    return constant(_SOME.get(type_name, "0"), type_name, database)


def sql_type(type_name: str, database: Database) -> str:
    """Return a type of ``plain_type`` in a database's words."""
    exp = sqlglot().exp
    return database.types.get(type_name) or str(exp.DataType.build(type_name, dialect="duckdb").sql(database.name))


@cache
def text_literal(text: str, database_name: str) -> str:
    """Return a text as a string of a database; raises NotInDialect for the character 0."""
    if "\0" in text:
        raise NotInDialect("a text of the model has the character 0, which texts of other databases cannot have")
    return str(sqlglot().exp.Literal.string(text).sql(database_name))


def constant(value: Any, type_name: str, database: Database) -> str:
    """Return a value, or its text in DuckDB, as SQL of a type of ``plain_type``."""
    if value is None:
        return "NULL"
    if type_name == "VARCHAR":
        return text_literal(str(value), database.name)
    if type_name == "BOOLEAN":
        return str(value).upper()
    if is_floating(type_name):
        number = float(value)
        return repr(number) if math.isfinite(number) else _cast(repr(number), type_name, database)
    if is_whole(type_name) or type_name.startswith("DECIMAL"):
        return str(value)
    return _cast(str(value), type_name, database)


def _cast(text: str, type_name: str, database: Database) -> str:
    return f"CAST({text_literal(text, database.name)} AS {sql_type(type_name, database)})"


def quoted(name: str, database: Database) -> str:
    """Return a name of ours in quotes."""
    return str(sqlglot().exp.to_identifier(name, quoted=True).sql(database.name))


def statements(table: PlainTable, database: Database) -> Iterator[str]:
    """Yield the statements that make a table."""
    name = quoted(table.name, database)
    columns = ", ".join(f"{quoted(column, database)} {sql_type(kind, database)}" for column, kind in table.columns)
    yield f"CREATE TABLE {name} ({columns}){database.table};\n"
    kinds = [kind for _, kind in table.columns]
    batch: list[str] = []
    for row in table.rows:
        values = (constant(value, kind, database) for value, kind in zip(row, kinds, strict=True))
        batch.append(f"({', '.join(values)})")
        if len(batch) == _BATCH:
            yield _insert(name, batch)
            batch = []
    if batch:
        yield _insert(name, batch)
    yield database.filled.format(name)


def _insert(name: str, rows: Sequence[str]) -> str:
    return f"INSERT INTO {name} VALUES\n" + ",\n".join(rows) + ";\n"
