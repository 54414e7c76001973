"""The rows that a model learned from, read again by its own statement where that still works."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb

from grouplearn.catalog.checks.trust import other_name
from grouplearn.catalog.records import StoredModel
from grouplearn.errors import Error
from grouplearn.extract.streams.keeping import files_of
from grouplearn.parser.parse import parse
from grouplearn.parser.statements import TrainModel, sql_of
from grouplearn.prediction.prediction import predictor_for


def rows_of_series(
    con: duckdb.DuckDBPyConnection, stored: StoredModel, time: str, chosen: Sequence[Sequence[str | None]]
) -> list[tuple[Any, ...]] | None:
    """Return (texts of the keys, time, label) of the rows of some series now, in order of time; None if they cannot be read.

    ``time`` is SQL over the column ``moment``; ``chosen`` are the texts of the series' keys. Rows cannot be read if the
    statement's tables are gone or are others, or if a stranger wrote the statement and it may do harm.
    """
    train = _statement(con, stored)
    if train is None or train.order_by is None:
        return None
    keys = [*sql_of(train.group_by), *sql_of(train.series_by)]
    listed = ", ".join(f"CAST(({key}\n) AS VARCHAR)" for key in keys)
    where = "" if train.where is None else f" WHERE ({train.where.text}\n)"
    rows = (
        f"SELECT CAST([{listed}] AS VARCHAR[]) AS series, ({train.order_by.text}\n) AS moment,"
        f" CAST(({stored.definition.target_sql}\n) AS DOUBLE) AS label FROM {train.source.text}\n{where}"
    )
    query = f"SELECT series, {time} AS time, label FROM ({rows}) WHERE series IN (FROM chosen) AND isfinite(label) ORDER BY time"
    query = f"WITH chosen AS (SELECT unnest($chosen::VARCHAR[][])) {query}"
    given = {"chosen": [list(each) for each in chosen]}
    return con.execute(query, given).fetchall() if _is_bound(con, rows) else None


def _statement(con: duckdb.DuckDBPyConnection, stored: StoredModel) -> TrainModel | None:
    """Return the model's statement if its tables may be read, and their names mean what they meant."""
    definition = stored.definition
    guard = predictor_for(con).guard
    try:
        train = next(iter(parse(definition.statement)))
        if not isinstance(train, TrainModel) or any(files_of(train)):
            return None
        guard.admit(con, definition)
        guard.admit_statement(con, definition, train.source.text, sql_of(train))
    except Error:
        return None
    return None if other_name(con, definition, train.source.text, sql_of(train)) else train


def _is_bound(con: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Return whether DuckDB can bind a query; to run one that it cannot would abort the user's transaction."""
    found = con.execute("SELECT json_serialize_plan(?)", [query]).fetchall()
    plan = json.loads(found[0][0])
    # Files and data frames cannot be written as JSON: they have been bound before that is seen.
    return not plan["error"] or "serializ" in plan["error_message"].casefold()
