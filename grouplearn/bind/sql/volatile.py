"""Rows are read more than once, and a feature again to predict: a value must be the same each time that it is read."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable

from grouplearn import sqltext
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import calls, samples_anew
from grouplearn.bind.sql.pristine import functions, keywords
from grouplearn.messages import Span
from grouplearn.parser.statements import Sql

_WORD = re.compile(r"\w+")
_CALL = re.compile(r'\b(\w+)"?\s*\(')
#: It has no value at all, and nothing is lost by reading it twice.
_HARMLESS = "error"
_IN_A_TABLE = "Keep the rows in a table first: CREATE TEMP TABLE kept AS SELECT ...; then TRAIN ... FROM kept."


class Volatility:
    """Which functions of a connection give another value each time they are called, those made by users among them."""

    def __init__(self, checker: SqlChecker) -> None:
        self._checker = checker
        #: Functions of users, by name: to ask for one takes as long as to ask for all.
        self._asked: dict[str, bool] = {}

    def refuse(self, fragments: Iterable[Sql], hint: str = _IN_A_TABLE) -> None:
        """Raise BindError at the first volatile function or sample without a seed."""
        for fragment in fragments:
            for name in self._volatile(fragment.text):
                if calls(self._checker, fragment, name):
                    message = (
                        f"{name}() gives another value each time that it is read, and rows are read more than once"
                    )
                    raise self._checker.error(message, self._span(fragment, name), hint)
            if "sample" in fragment.text.casefold() and samples_anew(self._checker, fragment):
                message = (
                    "a sample without a seed has other rows each time that it is read, and rows are read more than once"
                )
                seeded = "Give it a seed: TABLESAMPLE reservoir(10%) REPEATABLE (1)."
                raise self._checker.error(message, fragment.span, f"{seeded} Or keep the rows in a table first.")

    def refuse_source(self, source: Sql) -> None:
        """As ``refuse``, of FROM and of the views that it names."""
        self.refuse([source])
        seen: set[str] = set()
        texts = [source.text]
        while names := {name for text in texts for name in _WORD.findall(text.casefold())} - seen:
            seen |= names
            texts = []
            for view, text in self._views(names):
                texts.append(text)
                for name in self._volatile(text):
                    message = f'view "{view}" calls {name}(), which gives another value each time that it is read'
                    raise self._checker.error(message, source.span, _IN_A_TABLE)

    def _views(self, names: Collection[str]) -> list[tuple[str, str]]:
        # To tell the text of a view takes longer than all else, and DuckDB would tell that of every view there is.
        views = self._checker.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        found = sorted({view for (view,) in views if view.casefold() in names})
        if not found:
            return []
        listed = ", ".join(map(sqltext.literal, found))
        rows = self._checker.rows(
            f"SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND view_name IN ({listed})"
        )
        return [(row[0], row[1]) for row in rows]

    def _volatile(self, text: str) -> list[str]:
        called = dict.fromkeys(name.casefold() for name in _CALL.findall(text))
        return [name for name in called if self._is_volatile(name)]

    def _is_volatile(self, name: str) -> bool:
        known = _functions_of_duckdb().get(name, self._asked.get(name))
        if known is not None:
            return known
        self._asked[name] = False  # a macro that calls itself calls nothing else by that
        query = (
            "SELECT coalesce(stability = 'VOLATILE', false), coalesce(macro_definition, '') FROM duckdb_functions()"
            f" WHERE lower(function_name) = {sqltext.literal(name)}"
        )
        found = self._checker.rows(query)
        self._asked[name] = any(volatile or self._volatile(definition) for volatile, definition in found)
        return self._asked[name]

    def _span(self, fragment: Sql, name: str) -> Span:
        text = self._checker.text[fragment.span.start : fragment.span.end]
        found = re.search(rf'\b{re.escape(name)}"?\s*\(\s*\)?', text, re.IGNORECASE)
        return Span(fragment.span.start + found.start(), fragment.span.start + found.end()) if found else fragment.span


@functools.cache
def _functions_of_duckdb() -> dict[str, bool]:
    """Return whether each of DuckDB's own functions is volatile; a keyword that stands before a bracket is not."""
    volatile = {name: found.is_volatile for name, found in functions().items()}
    return {**dict.fromkeys(keywords(), False), **volatile, _HARMLESS: False}
