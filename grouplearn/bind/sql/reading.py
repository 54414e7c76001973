"""FROM and WHERE of the queries that read rows: the same rows and values in every query, whatever it selects of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.parser.statements import Sql

#: A condition that every row meets. DuckDB 2.0 moves a cast directly over a CSV file into its reader, which then casts the
#: text in the file ('9.75') rather than the value of the column (10). Rows that are joined, be it with one row, are cast
#: above the join, which costs less than a nanosecond a row.
_VALUES_FIRST = "(SELECT true)"
#: A condition that every row meets and that reads every column of it.
_EVERY_COLUMN = "row(*COLUMNS(*)) IS DISTINCT FROM NULL"
#: Options of readers that leave out a row if a value in it is wrong, of the columns that the query reads.
_LEAVES_OUT = re.compile(r"\b(ignore_errors|store_rejects)\b", re.IGNORECASE)


def leaves_out_rows(text: str) -> bool:
    """Whether the rows of a FROM clause depend on the columns that are read."""
    return _LEAVES_OUT.search(text) is not None


def condition_of_all(every_column: bool) -> str:
    """Return a condition that every row meets.

    With ``every_column`` each query has the same rows, also where ``leaves_out_rows``.
    """
    return f"{_VALUES_FIRST} AND {_EVERY_COLUMN}" if every_column else _VALUES_FIRST


def rows_of(source: Sql, where: Sql | None, every_column: bool) -> tuple[str | Sql, ...]:
    """Return FROM and WHERE as pieces of a query; ``AND`` adds conditions."""
    pieces: Sequence[str | Sql] = (" AND (", where, ")") if where else ()
    return ("FROM", source, f"WHERE {condition_of_all(every_column)}", *pieces)
