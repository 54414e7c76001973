"""Why a Python variable that a statement names is no table, or a column of it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb

from grouplearn.errors import BindError, Error
from grouplearn.messages import Span
from grouplearn.sqltext import identifier

_MISSING = re.compile(r"Table with name (.+?) does not exist!")
#: How DuckDB says that a value is not of its column's type, which it takes from the first values.
_UNCONVERTED = re.compile(
    r"failed to cast value|could not convert|python conversion failure|transform python", re.IGNORECASE
)
_READ_ONCE = re.compile(r"already (?:been )?(?:consumed|scanned|released)")
_KIND = re.compile(r"^[A-Z][\w ]+ Error: ")
#: DuckDB's words for what it does not know at all.
_NO_TABLE = "not suitable for replacement scans"
_TABLES = (
    "Tables are data frames of pandas and Polars, Arrow tables, datasets and scanners, relations, and NumPy arrays."
)
#: Most columns that are named.
_SHOWN = 3


def explained(
    error: Error, text: str, frames: Mapping[str, Any], find: Callable[[str], Any], sample: int
) -> BindError | None:
    """Return a better error where a statement fails by a Python variable, else None.

    ``frames`` are those that the statement reads, ``find`` returns any variable, or None. ``sample`` is the number of values
    from which DuckDB takes the type of a column of Python objects.
    """
    message = str(error)
    missing = _MISSING.search(message)
    if missing and (value := find(missing[1])) is not None:
        return read_once(text, missing[1]) if is_one_time(value) else _no_table(text, missing[1], value)
    for name, value in frames.items():
        if _READ_ONCE.search(message) and hasattr(type(value), "scan_batches"):
            return read_once(text, name)
        if _UNCONVERTED.search(message) and (found := _mixed(text, name, value, sample)):
            return found
    return None


def is_one_time(value: object) -> bool:
    """Whether the rows of a value are gone once they are read: a reader, a result, a generator."""
    return is_reader(value) or is_result(value) or isinstance(value, Iterator)


def is_reader(value: object) -> bool:
    """Whether a value gives record batches one after another."""
    return hasattr(type(value), "read_next_batch")


def is_result(value: object) -> bool:
    """Whether a value is a connection to DuckDB, whose last result may not have been read."""
    return hasattr(type(value), "cursor") and hasattr(value, "to_arrow_reader")


def read_once(text: str, name: str) -> BindError:
    """Return the error for a stream that cannot be read twice."""
    message = f'"{name}" is a stream that can be read only once, and rows are read more than once'
    hint = f"Read it into a table first: {name} = {name}.read_all(), or {name}.to_table() of a scanner."
    return BindError(message, text=text, span=place_of(text, name), hint=hint)


def _no_table(text: str, name: str, value: Any) -> BindError | None:
    reason = _reason(name, value)
    if reason is None:
        return None
    kind, hint = type(value), None
    shown = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}".removeprefix("builtins.")
    message = f'the Python variable "{name}" ({shown}) is no table that DuckDB reads'
    if _NO_TABLE in reason:
        hint = _TABLES
    else:
        message = f"{message}: {reason}"
        columns = [column for column, alone in _columns(value) if _reason(name, alone)]
        if columns:
            message = f"{message}, in column {', '.join(map(identifier, columns[:_SHOWN]))}"
            hint = "Cast such a column to a type that DuckDB has, or leave it out."
    return BindError(message, text=text, span=place_of(text, name), hint=hint)


def _mixed(text: str, name: str, value: Any, sample: int) -> BindError | None:
    """Return the error for a column of Python objects of several types, None if the value has none."""
    for column, alone in _columns(value):
        if (reason := _reason(name, alone, sample)) is not None:
            message = f'column "{column}" of the data frame "{name}" has values of several types: {reason}'
            at = f"{name}[{column!r}]"
            hint = (
                f"DuckDB takes the type of such a column from {sample:,} of its values. Make it one, {at} = {at}.astype(str), "
                f"or let DuckDB look at all: SET pandas_analyze_sample = {len(value)}."
            )
            return BindError(message, text=text, span=place_of(text, name), hint=hint)
    return None


def _reason(name: str, value: Any, sample: int | None = None) -> str | None:
    """Return why DuckDB does not read a value, all of it where ``sample`` is given; None if it does."""
    with duckdb.connect() as con:
        try:
            if sample is not None:
                con.execute(f"SET pandas_analyze_sample = {sample}")
            con.register(name, value)
            if sample is not None:
                con.execute(f"SELECT max(hash(COLUMNS(*))) FROM {identifier(name)}").fetchall()
        except Exception as error:  # whatever the value's own methods raise
            first = _KIND.sub("", str(error)).partition("\n")[0] or type(error).__name__
            return first.removeprefix("Failed to cast value: ")
    return None


def _columns(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names of a table's columns, and a table of each alone; of pandas' only those that may be of any type."""
    is_pandas = hasattr(value, "dtypes") and hasattr(value, "iloc")
    names = getattr(value, "column_names", getattr(value, "columns", ()))
    for name in names if hasattr(value, "select") or is_pandas else ():
        yield str(name), value[[name]] if is_pandas else value.select([name])


def place_of(text: str, name: str) -> Span | None:
    """Return where a statement first names a table."""
    written = rf"(?:{re.escape(identifier(name))}|{re.escape(name)}(?!\w))"
    found = re.search(rf"(?:\b(?:from|join|on)\b|,)[\s(]*({written})", text, re.IGNORECASE)
    return Span(*found.span(1)) if found else None
