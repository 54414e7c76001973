"""Where ``predict`` is called in a query: in the query itself, or in a view or macro that it names.

DuckDB does not tell a function from where it is called. So the query's text is read, and the views and macros that it names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import duckdb

from grouplearn.bind.sql.expressions import query_of_view
from grouplearn.catalog.checks.allowed_calls import problem
from grouplearn.catalog.checks.fragments import Node, serialized
from grouplearn.catalog.lookup.environment import Environment, environment_of
from grouplearn.catalog.lookup.names import Use, follow
from grouplearn.catalog.lookup.search_path import Place

#: The functions that take a model's name.
_FUNCTIONS = frozenset({"predict", "predict_value", "predict_probability", "forecast"})
#: Functions that read a table whose name is made, and not written.
_BY_NAME = frozenset({"query", "query_table"})
_CREATES = re.compile(r"\s*CREATE\s(?:\s*(?:OR|REPLACE|TEMP|TEMPORARY)\s)*\s*TABLE\b", re.IGNORECASE)
#: What may stand before the query of a statement that runs it; no expression can be in it.
_BEFORE = re.compile(
    r"\s*(?:EXPLAIN\s+ANALYZE\s+)?(?:INSERT\s+INTO\s[^'();]*?(?:\([^'();]*\)\s*)?)?(?=(?:SELECT|FROM|WITH)\b|\()",
    re.IGNORECASE,
)


def callers(con: duckdb.DuckDBPyConnection, reference: str, text: str | None) -> set[Place | None]:
    """Return where the name ``reference`` may be given to ``predict``: places of views and macros, None for the query.

    ``text`` is the running query. If it is None, or cannot tell, these are the query and all views and macros with such a
    call.
    """
    environment = environment_of(con)
    tree = None if text is None else _query(con, text)
    uses = [] if tree is None else [*follow(environment, [tree], passing=_FUNCTIONS)]
    places = _places(uses, reference, environment)
    if not places or any(_may_call(use, environment) for use in uses):
        defined = (*environment.views(), *itertools.chain.from_iterable(environment.macros.values()))
        places |= {None} | _places(follow(environment, [], defined, _FUNCTIONS), reference, environment)
    return {None if place is None or place[0] == "temp" else place for place in places}


def _places(uses: Iterable[Use], reference: str, environment: Environment) -> set[Place | None]:
    """Return where a model may be named by ``reference``, and what is not read to its end."""
    found: set[Place | None] = set()
    for use in uses:
        given = use.text(0) if use.name in _FUNCTIONS and use.is_call else None
        if given == reference:
            found.add(use.home)
        elif use.kind == "unread" or (given is None and use.name in _FUNCTIONS and use.is_call):
            # A name that is an argument of a macro is given where the macro is called.
            found.add(None if use.path == environment.path else use.path[0])
    return found


def _may_call(use: Use, environment: Environment) -> bool:
    """Return whether nobody tells what a use reads, so that it may call ``predict``."""
    if use.kind == "unread" or (use.is_call and use.name in _BY_NAME):
        return True
    if use.is_call and use.name not in _FUNCTIONS:
        return problem(use, environment) is not None and not environment.has_function(use.name)
    return use.kind == "table" and problem(use, environment) is not None


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
