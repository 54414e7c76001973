"""Label, keys, weight, split and features have one value per row; a feature must depend on its own row alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import columns_used, looks_at_other_rows, unnests
from grouplearn.errors import BindError
from grouplearn.parser.statements import Sql

#: Text without these words need not be parsed.
_UNNEST = re.compile("unnest|unlist", re.IGNORECASE)


def refuse_aggregates(checker: SqlChecker, source: Sequence[str | Sql], fragments: Sequence[Sql]) -> None:
    """Raise BindError at the first fragment that is an aggregate: it has no value per row."""
    if _fits_rows(checker, source, fragments):
        return
    for fragment in fragments:
        if checker.tried("SELECT *,", fragment, *source)[1]:
            try:
                checker.describe("SELECT *,", fragment, *source)
            except BindError as error:
                raise checker.error(error.message, fragment.span, error.hint) from None


def _fits_rows(checker: SqlChecker, source: Sequence[str | Sql], fragments: Sequence[Sql]) -> bool:
    listed: list[str | Sql] = []
    for fragment in fragments:
        listed += [",", fragment]
    return not checker.tried("SELECT *", *listed, *source)[1]


def refuse_windows(checker: SqlChecker, fragments: Sequence[Sql]) -> None:
    """Raise BindError at the first window function: a prediction sees one or some rows, never the training rows."""
    for fragment in fragments:
        if "over" in fragment.text.casefold() and looks_at_other_rows(checker, fragment):
            message = "a window function reads other rows, and a prediction has only its own"
            hint = "Compute it in FROM (SELECT *, lag(x) OVER (...) AS previous FROM ...), and predict from rows that have it."
            raise checker.error(message, fragment.span, hint)


def refuse_unnested(checker: SqlChecker, fragments: Sequence[Sql]) -> None:
    """Raise BindError at the first ``unnest``: it makes any number of rows of one."""
    for fragment in fragments:
        if _UNNEST.search(fragment.text) and unnests(checker, fragment):
            message = "unnest makes several rows of one, and here each row has one value"
            hint = "Make them in FROM: FROM (SELECT *, unnest(xs) AS x FROM ...)."
            raise checker.error(message, fragment.span, hint)


def refuse_places(checker: SqlChecker, fragments: Sequence[Sql]) -> None:
    """Raise BindError at the first ``rowid``: the position of a row means nothing in another table."""
    for fragment in fragments:
        if "rowid" in fragment.text.casefold() and columns_used(checker, fragment, frozenset({"rowid"})):
            message = "rowid is the place of a row in its table, which tells nothing about the rows to predict"
            hint = "Name a column for the order of rows where it matters: FROM (SELECT *, row_number() OVER (ORDER BY ...) ...)."
            raise checker.error(message, fragment.span, hint)
