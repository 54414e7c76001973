"""The databases whose SQL a model can be exported to, and in what they differ beyond what sqlglot translates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: A name that databases take without quotes.
_PLAIN = re.compile("[a-z_][a-z0-9_]*")


class NotInDialect(ValueError):
    """A model, or something in it, has no form in another database; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class SqlglotMissing(ImportError):
    """The package sqlglot is not installed."""

    hint = "pip install 'grouplearn[dialects]'"


def sqlglot() -> Any:
    """Return the package; raises SqlglotMissing."""
    try:
        import sqlglot as package
    except ImportError:
        raise SqlglotMissing("DIALECT needs the package sqlglot, which is not installed") from None
    return package


@dataclass(frozen=True, slots=True)
class Database:
    """A database: its ``name`` in DIALECT, which is sqlglot's, and its ``title``.

    - ``folds``: how it reads names without quotes. Names of the model's expressions in small letters are such names.
    - ``row``: how a query carries the columns of a row whose names it does not know: as one value (``composite``, ``struct``),
      or beside others that are left out at the end (``except``).
    - ``order``: what a row is numbered by; ``stays``: a query that reads rows twice sees the same numbers.
    - ``types``: its types, where those of sqlglot hold less.
    - ``begin`` and ``end`` of a script, ``table`` after a table's columns, ``filled``: a statement after the rows of a table
      ``{}``, ``settings`` after a query.
    - ``hexadecimal``: the number of 8 hexadecimal digits ``{}``, as a whole number of 64 bits.
    - ``times``: parts of a time ``{}`` that databases call differently, by DuckDB's name, and the days since 1970-01-01.
    - ``longest``: most bytes of a name. ``rounds``: it casts to whole and to single-precision numbers as DuckDB does.
      ``nulls_spread``: the greatest of numbers is NULL where one is.
    """

    name: str
    title: str
    folds: Literal["lower", "upper", "never"]
    row: Literal["composite", "struct", "except"]
    hexadecimal: str
    times: Mapping[str, str]
    order: str = ""
    stays: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    begin: str = ""
    end: str = ""
    table: str = ""
    filled: str = ""
    settings: str = ""
    longest: int = 255
    rounds: bool = False
    nulls_spread: bool = False

    def folded(self, name: str, quoted: bool) -> str:
        """Return a name of a user's expression as it stands between quotes."""
        if self.folds == "upper" and _PLAIN.fullmatch(name):
            return name.upper()
        return name.lower() if self.folds == "lower" and not quoted else name


#: The databases by their names in DIALECT.
DATABASES: Mapping[str, Database] = {
    each.name: each
    for each in (
        Database(
            "postgres",
            "PostgreSQL",
            "lower",
            "composite",
            "CAST(CAST('x' || {} AS BIT(32)) AS BIGINT)",
            {
                "isodow": "EXTRACT(ISODOW FROM {})",
                "doy": "EXTRACT(DOY FROM {})",
                "days": "CAST(EXTRACT(EPOCH FROM {}) AS DOUBLE PRECISION) / 86400",
            },
            stays=True,
            begin="BEGIN;\n",
            end="COMMIT;\n",
            # It guesses 1,000 rows or more in a table that it has not analyzed, and compiles the query for a minute.
            filled="ANALYZE {};\n",
            longest=63,
            rounds=True,
        ),
        Database(
            "snowflake",
            "Snowflake",
            "upper",
            "except",
            "TO_NUMBER({}, 'XXXXXXXX')",
            {
                "isodow": "DAYOFWEEKISO({})",
                "doy": "DAYOFYEAR({})",
                "days": "DATE_PART(EPOCH_MICROSECOND, {}) / 86400000000.0",
            },
            order="ORDER BY 1",
        ),
        Database(
            "bigquery",
            "BigQuery",
            "never",
            "except",
            "CAST(CONCAT('0x', {}) AS INT64)",
            {
                "isodow": "MOD(EXTRACT(DAYOFWEEK FROM {}) + 5, 7) + 1",
                "doy": "EXTRACT(DAYOFYEAR FROM {})",
                "days": "UNIX_MICROS(TIMESTAMP({})) / 86400000000.0",
            },
            types={"DECIMAL(38,0)": "BIGNUMERIC"},
            nulls_spread=True,
        ),
        Database(
            "spark",
            "Spark",
            "never",
            "struct",
            "CAST(CONV({}, 16, 10) AS BIGINT)",
            {
                "isodow": "WEEKDAY({}) + 1",
                "doy": "DAYOFYEAR({})",
                "days": "UNIX_MICROS(TO_UTC_TIMESTAMP({}, CURRENT_TIMEZONE())) / 86400000000.0",
            },
            order="ORDER BY 1",
        ),
        Database(
            "clickhouse",
            "ClickHouse",
            "never",
            "except",
            "reinterpretAsUInt32(reverse(unhex({})))",
            {
                "isodow": "toDayOfWeek({})",
                "doy": "toDayOfYear({})",
                "days": "toUnixTimestamp64Micro({}) / 86400000000.0",
            },
            types={"TIMESTAMP": "Nullable(DateTime64(6, 'UTC'))", "DATE": "Nullable(Date32)"},
            table=" ENGINE = MergeTree ORDER BY tuple()",
            settings=" SETTINGS join_use_nulls = 1",
        ),
    )
}
