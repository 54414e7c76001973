"""Errors about calls of models' macros and functions, with the hints that DuckDB cannot give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from grouplearn.errors import ParseError
from grouplearn.messages import did_you_mean
from grouplearn.sqltext import literal

_PREDICTS_QUERY = re.compile(r"(\w+)_predict\s*\(\s*\(", re.IGNORECASE)
_BESIDE = re.compile(r'"query_table" does not support lateral join .*cannot use column "(.+)" in this context')

# A macro's names are looked up in the default database: this one has no models.
_NO_MODELS = 'because schema "grouplearn" does not exist'
_OF_DATABASE = re.compile(
    r'(\w+|"(?:[^"]|"")+")\s*\.(?:\s*(?:\w+|"(?:[^"]|"")+")\s*\.)?\s*(?:\w+_predict|"(?:[^"]|"")+_predict")(?=\s*\()',
    re.IGNORECASE,
)

_WRONG_ARGUMENTS = re.compile(
    r"Macro (\w+_predict)\(\) does not support the supplied arguments.*\n\t\1\((.*)\)", re.DOTALL
)
_SEVERAL_FIT = re.compile(r"Macro (\w+)\(\) has multiple overloads.*\n\t\1\(src, (?!database)(\w+)", re.DOTALL)
_MISSING = re.compile(r'(?:Table Function|Table) with name "?(\w+)"? does not exist!')
_NAMED = re.compile(r"(\w+)\s*(?::=|=>)")

# Errors of our functions, as DuckDB hands them on; that of ON MISSING GROUP ERROR is its own, as it is where a macro predicts.
_OF_FUNCTION = re.compile(
    r"Invalid Input Error: Python exception occurred while executing the UDF:"
    r" (?:(?:DataError|MissingDependency|NotSupportedHere|NotTrusted|OtherVersion): "
    r"|InvalidInputException: (?=Invalid Input Error: model \"))"
)


@contextmanager
def shortened_errors() -> Iterator[None]:
    """Raise errors of ``predict`` and its kin in their own words, without DuckDB's on how it calls functions."""
    try:
        yield
    except duckdb.InvalidInputException as error:
        ours = _OF_FUNCTION.match(str(error))
        if ours is None:
            raise
        raise duckdb.InvalidInputException(str(error)[ours.end() :]) from None


@contextmanager
def errors_with_hints(query: Any, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Say more than DuckDB does where a statement is near to one of ours, or a model's macro is given what it does not take."""
    try:
        yield
    except duckdb.ParserException:
        for statement, meant in _misspelt(query):
            if _cannot_be_read(statement, connection):
                raise meant from None
        raise
    except duckdb.CatalogException as error:  # SHOW MODELZ is DuckDB's, about a table
        hint = _hint_of_database(query, str(error)) if isinstance(query, str) else None
        if hint := hint or _hint_of_missing(str(error), connection):
            raise duckdb.CatalogException(f"{error}\n\nHint: {hint}") from None
        for _, meant in _misspelt(query):
            if meant.span is not None and query[meant.span.start : meant.span.end] in str(error):
                raise duckdb.CatalogException(f"{error}\n\nHint: {meant.hint}") from None
        raise
    except duckdb.BinderException as error:
        hint = _hint_of_macro(query, str(error)) if isinstance(query, str) else None
        if hint is None:
            raise
        raise duckdb.BinderException(f"{error}\n\nHint: {hint}") from None


def _misspelt(query: Any) -> Iterator[tuple[str, ParseError]]:
    """Yield the statements of a text that are near to one of ours, and what is wrong with each."""
    from grouplearn.parser.lexer.statement_split import split
    from grouplearn.parser.misspelt import misspelt

    for piece in split(query) if isinstance(query, str) else ():
        meant = misspelt(query, piece.start, piece.stop)
        if meant is not None:
            yield query[piece.start : piece.stop], meant


def _cannot_be_read(statement: str, connection: duckdb.DuckDBPyConnection) -> bool:
    try:
        connection.extract_statements(statement)
    except duckdb.ParserException:
        return True
    return False


def _hint_of_database(query: str, error: str) -> str | None:
    """Return how an attached database's macro finds its tables, where it looked in a default database without models."""
    macro = _OF_DATABASE.search(query) if _NO_MODELS in error else None
    if macro is None:
        return None
    database = macro[1].strip('"').replace('""', '"')
    return f"Name the database that has the model's tables: {macro[0]}(..., database := {literal(database)})."


def _hint_of_missing(error: str, connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return what is there in place of a view or function that models have, and that of the name does not."""
    from grouplearn.catalog.views import comments, macro_comments

    found = _MISSING.search(error)
    suffixes = (*comments(), *macro_comments())
    suffix = next((each for each in suffixes if each and found and found[1].endswith(each)), None)
    if found is None or suffix is None:
        return None
    model = found[1].removesuffix(suffix)
    try:
        known = model in [
            row[0] for row in connection.cursor().execute("SELECT view_name FROM duckdb_views()").fetchall()
        ]
    except duckdb.Error:
        return None
    return f"Model {model} has none: SHOW FUNCTIONS OF {model} lists what it has." if known else None


def _hint_of_macro(query: str, error: str) -> str | None:
    """Return what a model's macro takes, where it was given something else."""
    if "cannot contain subqueries" in error and (macro := _PREDICTS_QUERY.search(query)):
        name = f"{macro[1]}_predict"
        return f"{name} takes the name of a table, view or CTE: WITH r AS (SELECT ...) FROM {name}(r)."
    if beside := _BESIDE.search(error):
        macro = re.search(rf"(\w+_predict)\s*\([^()]*{re.escape(beside[1])}", query, re.IGNORECASE)
        if macro is not None:
            called = f"{macro[1]}({literal(beside[1])})"
            return f"Beside the table itself, give its name (no alias) in single quotes: {called}."
    if several := _SEVERAL_FIT.search(error):
        return f"Name what is given beside the table: {several[1]}(t, {several[2]} := ...)."
    if wrong := _WRONG_ARGUMENTS.search(error):
        return _hint_of_parameter(query, wrong[1], _NAMED.findall(wrong[2]))
    return None


def _hint_of_parameter(query: str, macro: str, allowed: Sequence[str]) -> str | None:
    """Return what may be meant by a parameter that a model's macro does not have."""
    calls = re.findall(rf'\b{re.escape(macro)}"?\s*\(([^()]*)', query, re.IGNORECASE)
    given = (name.lower() for call in calls for name in _NAMED.findall(call))
    unknown = next((name for name in given if name not in allowed), None)
    if unknown is None:
        return None
    if meant := did_you_mean(unknown, allowed):
        return meant
    if unknown == "level":
        return "Models of TRAIN ... WITH (keep_held_out = true) have a level, unless they are calibrated."
    return "Only predictions of two classes have a threshold." if did_you_mean(unknown, ("threshold",)) else None
