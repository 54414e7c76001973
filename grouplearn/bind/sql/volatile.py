"""Rows are read more than once, and features again for predictions: expressions must give the same value every time."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from grouplearn import sqltext
from grouplearn.bind.sql.builtins import functions, keywords
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.bind.sql.expressions import calls, query_of_view, sampled_anew, tables_named
from grouplearn.bind.sql.reading import leaves_out_rows
from grouplearn.messages import Span
from grouplearn.parser.statements import Sql

_CALL = re.compile(r'\b(\w+)"?\s*\(')
#: It is volatile to DuckDB but has no value.
_HARMLESS = "error"
_SEEDED = "Sample rows by a seed: TABLESAMPLE reservoir(10%) REPEATABLE (1). Or keep the rows in a table first."
_IN_A_TABLE = "Keep the rows in a table first: CREATE TEMP TABLE kept AS SELECT ...; then TRAIN ... FROM kept."


class Volatility:
    """Which functions of a connection are volatile, users' functions included; ``views`` as in ``bind``."""

    def __init__(self, checker: SqlChecker, views: Sequence[str] | None = None) -> None:
        self._checker = checker
        self._known_views = views
        #: Functions of users by name; one query for one takes as long as for all.
        self._asked: dict[str, bool] = {}
        #: Whether rows of what was looked at depend on the columns that are read.
        self.leaves_out_rows = False
        self._definitions: dict[str, list[str]] = {}

    def refuse_source(self, source: Sql) -> None:
        """As ``refuse``, for FROM."""
        self._refuse(source, f"FROM {source.text}")

    def refuse(self, fragments: Iterable[Sql], hint: str = _IN_A_TABLE) -> None:
        """Raise BindError at the first volatile function or sample that changes, in the views that are named too."""
        for fragment in fragments:
            self._refuse(fragment, fragment, hint)

    def _refuse(self, fragment: Sql, query: Sql | str, hint: str = _IN_A_TABLE) -> None:
        self.leaves_out_rows |= leaves_out_rows(fragment.text)
        for name in self._volatile(fragment.text):
            if calls(self._checker, fragment, name):
                message = f"{name}() gives another value each time that it is read, and rows are read more than once"
                raise self._checker.error(message, self._span(fragment, name), hint)
        if sample := self._samples(fragment):
            message = f"{sample} has other rows each time that it is read, and rows are read more than once"
            raise self._checker.error(message, fragment.span, _SEEDED)
        self._refuse_views(fragment, query)

    def _refuse_views(self, fragment: Sql, query: Sql | str) -> None:
        """As ``refuse``, for the views that a fragment names, and those that they and macros name."""
        if not self._names_of_views:
            return
        seen: set[str] = set()
        named = [(fragment.text, tables_named(self._checker, query))]
        while names := {name for text, tables in named for name in self._read(text, tables)} - seen:
            seen |= names
            named = []
            for view, text in self._views(names):
                query = query_of_view(text)
                self.leaves_out_rows |= leaves_out_rows(text)
                named.append((query, tables_named(self._checker, query)))
                for name in self._volatile(text):
                    message = f'view "{view}" calls {name}(), which gives another value each time that it is read'
                    raise self._checker.error(message, fragment.span, _IN_A_TABLE)
                if sample := self._samples(query):
                    message = f'view "{view}" has {sample.rstrip(",")}: other rows each time that it is read'
                    raise self._checker.error(message, fragment.span, _SEEDED)

    def _read(self, text: str, tables: Collection[str]) -> Iterator[str]:
        """Yield the tables that a text reads, itself or through the macros that it calls."""
        yield from tables
        for name in _called(text):
            for definition in self._definitions.pop(name, ()):
                yield from self._read(definition, tables_named(self._checker, definition))

    def _samples(self, fragment: Sql | str) -> str | None:
        text = fragment if isinstance(fragment, str) else fragment.text
        return sampled_anew(self._checker, fragment) if "sample" in text.casefold() else None

    @functools.cached_property
    def _names_of_views(self) -> Sequence[str]:
        if self._known_views is not None:
            return self._known_views
        return [
            view
            for (view,) in self._checker.rows("SELECT view_name FROM system.main.duckdb_views() WHERE NOT internal")
        ]

    def _views(self, names: Collection[str]) -> list[tuple[str, str]]:
        # Getting the text of a view is slow, and DuckDB would do it for every view.
        found = sorted({view for view in self._names_of_views if view.casefold() in names})
        if not found:
            return []
        listed = ", ".join(map(sqltext.literal, found))
        rows = self._checker.rows(
            f"SELECT view_name, sql FROM system.main.duckdb_views() WHERE NOT internal AND view_name IN ({listed})"
        )
        return [(row[0], row[1]) for row in rows]

    def _volatile(self, text: str) -> list[str]:
        return [name for name in _called(text) if self._is_volatile(name)]

    def _is_volatile(self, name: str) -> bool:
        known = _functions_of_duckdb().get(name, self._asked.get(name))
        if known is not None:
            return known
        self._asked[name] = False  # ends the recursion of a macro that calls itself
        query = (
            "SELECT coalesce(stability = 'VOLATILE', false), coalesce(macro_definition, '') FROM system.main.duckdb_functions()"
            f" WHERE lower(function_name) = {sqltext.literal(name)}"
        )
        found = self._checker.rows(query)
        self._definitions[name] = [definition for _, definition in found]
        self.leaves_out_rows |= any(map(leaves_out_rows, self._definitions[name]))
        self._asked[name] = any(
            volatile or self._volatile(definition) or self._samples(definition) is not None
            for volatile, definition in found
        )
        return self._asked[name]

    def _span(self, fragment: Sql, name: str) -> Span:
        text = self._checker.text[fragment.span.start : fragment.span.end]
        found = re.search(rf'\b{re.escape(name)}"?\s*\(\s*\)?', text, re.IGNORECASE)
        return Span(fragment.span.start + found.start(), fragment.span.start + found.end()) if found else fragment.span


def _called(text: str) -> dict[str, None]:
    return dict.fromkeys(name.casefold() for name in _CALL.findall(text))


@functools.cache
def _functions_of_duckdb() -> dict[str, bool]:
    """Return whether each of DuckDB's functions is volatile; a keyword before a bracket is not a function."""
    volatile = {name: found.is_volatile for name, found in functions().items()}
    return {**dict.fromkeys(keywords(), False), **volatile, _HARMLESS: False}
