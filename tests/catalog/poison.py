"""Hostile values for every column of every catalog table, as SQL that spoils a database in which models are stored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

#: What a text may be; {canary} is a file that nothing may write, {secret} one that nothing may read.
TEXTS = (
    "",
    "1); COPY (SELECT 1) TO '{canary}'; SELECT (1",
    "1) AS z, (SELECT content FROM read_text('{secret}')) AS y, (1",
    "1; COPY (SELECT 1) TO '{canary}'",
    "x'; COPY (SELECT 1) TO '{canary}'; --",
    "x\"; COPY (SELECT 1) TO '{canary}'; --",
    "x -- ",
    "x /* ",
    "*/ x",
    "((((x",
    "x))))",
    "(SELECT max(length(content)) FROM read_text('{secret}'))",
    "error((SELECT content FROM read_text('{secret}')))",
    "(SELECT error(column0) FROM '{secret}.csv')",
    "(FROM query('COPY (SELECT 1) TO ''{canary}'''))",
    "getenv('HOME')",
    "hidden_reader('{secret}')",
    "(SELECT content FROM hidden_view)",
    "tanh",
    "DOUBLE[999999999]",
    "DOUBLE); COPY (SELECT 1) TO '{canary}'; SELECT CAST(1 AS INTEGER",
    "NULL",
    "$1",
    "COLUMNS(*)",
    "x, x",
    "predict('linear', t)",
    "(" * 3000 + "x" + ")" * 3000,
    "-" + " -" * 4000 + "x",
    "\x01\x1b[31m\r\n\t\u202e",
    "a" * 100_000,
    "TRAIN MODEL linear USING linear_regression PREDICT y FEATURES (x) FROM read_csv('{secret}.csv')",
    "'' OR '1'='1",
    "../../{canary}",
)
_WHOLE = ("-1", "0", "20000", "2147483647", "-2147483648", "NULL")
_BROKEN = ("NULL", "'nan'::DOUBLE", "'inf'::DOUBLE", "1e308", "-1e308")
#: What a file makes an expression call: a macro and a view that read.
DEFINED = (
    "CREATE MACRO hidden_reader(f) AS (SELECT error(content) FROM read_text(f))",
    "CREATE VIEW hidden_view AS SELECT error(content) AS content FROM read_text('{secret}')",
)
#: Structures that are not ours; the first word of each is what is left of the table.
STRUCTURES = (
    "CREATE TABLE other AS FROM grouplearn.{table}; DROP TABLE grouplearn.{table}; CREATE VIEW grouplearn.{table} AS"
    " SELECT * FROM other, (SELECT error(content) FROM read_text('{secret}'))",
    "ALTER TABLE grouplearn.{table} ADD COLUMN more VARCHAR",
    "CREATE TABLE other AS FROM grouplearn.{table}; DROP TABLE grouplearn.{table}; CREATE TABLE grouplearn.{table} AS"
    " SELECT 'x''::UUID; COPY (SELECT 1) TO ''{canary}''; --' AS model, * EXCLUDE (model) FROM other",
    "DROP TABLE grouplearn.{table}",
    "CREATE INDEX odd ON grouplearn.{table} ((hash(model)))",
    "CREATE MACRO \"=\"(a, b) AS (SELECT error(content) FROM read_text('{secret}'))",
    "CREATE MACRO count_star() AS (SELECT error(content) FROM read_text('{secret}'))",
    "CREATE MACRO duckdb_tables() AS TABLE SELECT error(content) FROM read_text('{secret}')",
    "CREATE MACRO current_database() AS (SELECT error(content) FROM read_text('{secret}'))",
    "CREATE MACRO list_value(a) AS (SELECT error(content) FROM read_text('{secret}'))",
)


@dataclass(frozen=True)
class Case:
    """A way to spoil a database."""

    name: str
    sql: str


def cases(con: duckdb.DuckDBPyConnection, seed: int) -> list[Case]:
    """Return every case for the database that is open, in a random order."""
    found = list(_values(con))
    tables = [
        name
        for (name,) in con.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'grouplearn'").fetchall()
    ]
    for table in sorted(tables):
        found += [Case(f"{table}: {sql[:60]}", sql.replace("{table}", table)) for sql in STRUCTURES]
    random.Random(seed).shuffle(found)
    return found


def _values(con: duckdb.DuckDBPyConnection) -> Iterator[Case]:
    columns = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'grouplearn' ORDER BY ALL"
    ).fetchall()
    for table, column, kind in columns:
        for place, value in enumerate(_hostile(column, kind)):
            name = f"{table}.{column} {place}: {value[:60]}"
            yield Case(name, f"UPDATE grouplearn.{table} SET {column} = {value}")


def _hostile(column: str, kind: str) -> Iterator[str]:
    if kind.startswith("STRUCT"):
        yield from ("[]", f"{column} || {column}", f"{column}[2:]", f"list_reverse({column})")
        yield f"list_resize({column}, 100_000, {column}[1])"
        names = [part.split()[0].strip('"') for part in kind[kind.index("(") + 1 : kind.rindex(")")].split(", ")]
        for name in names:
            for value in _values_of("INTEGER" if name in ("position", "buckets") else "VARCHAR"):
                fields = [f"'{each}': {value if each == name else f'i.{each}'}" for each in names]
                yield f"list_transform({column}, lambda i: {{{', '.join(fields)}}})"
    elif kind.startswith("MAP"):
        yield "MAP {}"
        yield from (f"MAP {{{value}: {value}}}" for value in _values_of("VARCHAR") if value != "NULL")
    elif kind.endswith("[]"):
        yield from ("[]", "[NULL]", "NULL", f"{column} || {column}", f"{column}[2:]", f"list_reverse({column})")
        yield f"list_resize({column}, 100_000, {column}[1])"
        yield from (f"[{value}]" for value in _hostile(column, kind[:-2]) if value != "NULL")
    else:
        yield from _values_of(kind)


def _values_of(kind: str) -> Iterator[str]:
    if kind == "VARCHAR":
        yield "NULL"
        yield from ("'" + text.replace("'", "''") + "'" for text in TEXTS)
    elif kind in ("INTEGER", "BIGINT"):
        yield from _WHOLE
        yield from ("9223372036854775807",) if kind == "BIGINT" else ()
    elif kind == "DOUBLE":
        yield from _BROKEN
    elif kind == "BOOLEAN":
        yield from ("NULL", "true", "false")
    elif kind == "UUID":
        yield "'00000000-0000-0000-0000-000000000000'::UUID"
    elif kind == "BLOB":
        yield from ("NULL", "''::BLOB", "'tree'::BLOB", "'\\xff\\xfe\\x00tree'::BLOB")
    elif kind == "TIMESTAMP":
        yield from ("NULL", "'infinity'::TIMESTAMP", "'290000-01-01'::TIMESTAMP")
