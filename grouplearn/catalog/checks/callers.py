"""Where ``predict`` is called in a query: in the query itself, or in a view that it reads.

DuckDB does not tell a function from where it is called. So the query's text is read, and the views and macros that it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import duckdb

from grouplearn.bind.sql.expressions import query_of_view
from grouplearn.catalog.checks.calls import Reached, Walk, written_argument
from grouplearn.catalog.checks.fragments import Node, serialized
from grouplearn.catalog.checks.search_path import Place
from grouplearn.catalog.checks.surroundings import Defined
from grouplearn.catalog.checks.trust import surroundings
from grouplearn.sqltext import folded

#: The functions that take a model's name.
_FUNCTIONS = frozenset({"predict", "predict_value", "predict_probability"})
#: Functions that read a table whose name is made, and not written.
_BY_NAME = frozenset({"query", "query_table"})
_CREATES = re.compile(r"\s*CREATE\s(?:\s*(?:OR|REPLACE|TEMP|TEMPORARY)\s)*\s*TABLE\b", re.IGNORECASE)
#: What may stand before the query of a statement that runs it; no expression can be in it.
_BEFORE = re.compile(
    r"\s*(?:EXPLAIN\s+ANALYZE\s+)?(?:INSERT\s+INTO\s[^'();]*?(?:\([^'();]*\)\s*)?)?(?=(?:SELECT|FROM|WITH)\b|\()",
    re.IGNORECASE,
)


@dataclass
class _Calls(Walk):
    """Collects the search paths at the calls that may name a model by ``reference``, and the names that are not known."""

    reference: str = ""
    paths: set[tuple[Place, ...]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def every_view(self) -> None:
        """Go through all views that there are."""
        for name, view in self.surroundings.views():
            self._defined(name, view)

    def _function(self, node: Node, of_rows: bool) -> str | None:
        name = folded(str(node.get("function_name", "")))
        if name in _FUNCTIONS:
            if written_argument(node, 0) in (None, self.reference):
                self.paths.add(self.path)
            return None
        reason = super()._function(node, of_rows)
        if name in _BY_NAME or (reason is not None and not self.surroundings.has_function(name)):
            self.unknown.add(name)
        return reason

    def _table(self, node: Node, known: frozenset[str]) -> str | None:
        reason = super()._table(node, known)
        if reason is not None:
            self.unknown.add(str(node.get("table_name")))
        return reason

    def _defined(self, name: str, defined: Defined) -> str | None:
        reason = super()._defined(name, defined)
        if reason is not None:  # it is not read to its end, and may call anything
            self.paths.add((defined.place, *self.surroundings.path) if defined.at_home else self.path)
        return reason


def callers(con: duckdb.DuckDBPyConnection, reference: str, text: str | None) -> set[Place | None]:
    """Return where calls of ``predict`` that may name a model by ``reference`` stand: places of views, None for the query.

    ``text`` is the running query. If it is None, or cannot tell, these are the query and all views with such a call.
    """
    around = surroundings(con)
    walk = _Calls(around, around.path, Reached(to_the_end=True), reference)
    tree = None if text is None else _query(con, text)
    reason = "" if tree is None else walk.reason(tree)
    if reason is not None or walk.unknown or not walk.paths:
        walk.paths.add(around.path)
        walk.every_view()
    return {None if path == around.path or path[0][0] == "temp" else path[0] for path in walk.paths}


def _query(con: duckdb.DuckDBPyConnection, text: str) -> Node | None:
    """Return the tree of the query that a statement runs; None if it is not known to run one alone."""
    before = _BEFORE.match(text)
    inner = query_of_view(text) if _CREATES.match(text) else text[before.end() :] if before else ""
    for document in serialized(con, [text, inner]):
        statements = document.get("statements") or []
        if not document.get("error") and len(statements) == 1:
            node: Node = statements[0]["node"]
            return node
    return None
