"""Facts about SQL expressions from DuckDB's parser, and each expression rewritten for the rows to predict."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from grouplearn import sqltext
from grouplearn.bind.sql.checker import Column, SqlChecker
from grouplearn.messages import Span
from grouplearn.models.definition import ROW
from grouplearn.parser.lexer.tokens import lex
from grouplearn.parser.statements import Sql

#: Fields of DuckDB's tree nodes that do not change the meaning.
_PLACES = frozenset({"query_location", "query_location_length", "alias"})
#: DuckDB's functions that make rows of a list.
_UNNESTING = ("unnest", "unlist")
#: Nested calls, about six for each of DuckDB's 1,000 levels.
_LEVELS = 8_000
#: A single quoted column, as we write it for ``*``.
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_WORD = re.compile(r"\w+")
#: Functions that read the table or query named by a string.
_OF_TEXTS = re.compile(r"\bquery(?:_table)?\"?\s*\(", re.IGNORECASE)


def read_ahead(checker: SqlChecker, source: Sequence[str | Sql], expressions: Iterable[Sql]) -> None:
    """Parse in one query everything that the functions here will ask about: one question costs as much as all."""
    froms = (_from(source[:2]), _from(source))
    named = [f"FROM {piece.text}" for piece in source[1:2] if isinstance(piece, Sql)]  # as ``tables_named`` asks for it
    checker.read_ahead([*froms, *named, *(_selected(fragment) for fragment in expressions)])


@dataclass
class _DeepThreads:
    """How many threads are in ``deep_stack``, and the recursion limit of the process, which they share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    threads: int = 0
    before: int = 0


_deep_threads = _DeepThreads()


@contextmanager
def deep_stack() -> Iterator[None]:
    """Allow recursion as deep as DuckDB's trees: a sum of 900 terms has 900 levels, with a few calls of ours each."""
    with _deep_threads.lock:
        if not _deep_threads.threads:
            _deep_threads.before = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_deep_threads.before, _LEVELS))
        _deep_threads.threads += 1
    try:
        yield
    finally:
        with _deep_threads.lock:
            _deep_threads.threads -= 1
            if not _deep_threads.threads:
                sys.setrecursionlimit(_deep_threads.before)


def _selected(fragment: Sql) -> str:
    return f"SELECT {fragment.text}"


def _from(source: Sequence[str | Sql]) -> str:
    """Return a query of a source, FROM and maybe WHERE, as text."""
    return " ".join(("SELECT 1", *(piece if isinstance(piece, str) else f"{piece.text}\n" for piece in source)))


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)


def _column_references(node: Any) -> Iterator[dict[str, Any]]:
    return (each for each in _nodes(node) if each.get("class") == "COLUMN_REF")


def columns_used(checker: SqlChecker, fragment: Sql, columns: frozenset[str]) -> frozenset[str]:
    """Return those of ``columns`` (folded) that the expression mentions, qualified or not."""
    tree = checker.tree(_selected(fragment))
    parts = (sqltext.folded(part) for node in _column_references(tree) for part in node["column_names"])
    return frozenset(parts) & columns


def first_column(checker: SqlChecker, fragment: Sql) -> str | None:
    """Return the first column that the expression mentions, as written; None if there is none."""
    node = next(_column_references(checker.tree(_selected(fragment))), None)
    return None if node is None else ".".join(node["column_names"])


@dataclass(frozen=True, slots=True)
class Star:
    """A star in an expression: of which table, and whether each column is taken unchanged."""

    table: str
    as_is: bool


def star(checker: SqlChecker, fragment: Sql) -> Star | None:
    """Return the ``*``, ``t.*`` or ``COLUMNS(...)`` of an expression; those inside subqueries do not count."""
    tree = checker.tree(_selected(fragment))
    if tree is None:
        return None
    [item] = tree["statements"][0]["node"]["select_list"] or [None]
    found = next((node for node in _outside_subqueries(item) if node.get("class") == "STAR"), None)
    if found is None:
        return None
    changed = found is not item or found["replace_list"] or found["rename_list"]
    return Star(found["relation_name"], as_is=not changed)


def looks_at_other_rows(checker: SqlChecker, fragment: Sql) -> bool:
    """Whether the expression has a window function outside of its subqueries."""
    tree = checker.tree(_selected(fragment))
    return tree is not None and any(node.get("class") == "WINDOW" for node in _outside_subqueries(tree))


def unnests(checker: SqlChecker, fragment: Sql) -> bool:
    """Whether the expression makes several rows of one, outside of its subqueries."""
    tree = checker.tree(_selected(fragment))
    nodes = () if tree is None else _outside_subqueries(tree)
    return any(sqltext.folded(str(node.get("function_name"))) in _UNNESTING for node in nodes)


def samples(checker: SqlChecker, source: Sql) -> bool:
    """Whether a FROM clause ends in ``USING SAMPLE``, which belongs to a whole query."""
    tree = checker.tree(_from(("FROM", source)))
    return tree is not None and tree["statements"][0]["node"].get("sample") is not None


def calls(checker: SqlChecker, fragment: Sql, name: str) -> bool:
    """Whether an expression or a FROM clause calls a function of that name."""
    tree = _any_tree(checker, fragment)
    return tree is None or any(sqltext.folded(str(node.get("function_name"))) == name for node in _nodes(tree))


def is_call(checker: SqlChecker, fragment: Sql, name: str) -> bool:
    """Whether an expression is a call of a function of that name."""
    tree = checker.tree(_selected(fragment))
    return tree is not None and sqltext.folded(str(_item(tree).get("function_name"))) == name


def sampled_anew(checker: SqlChecker, fragment: Sql | str) -> str | None:
    """Return what kind of sample, with other rows each time, an expression, a FROM clause, or a query as text has; else None.

    Whole vectors of rows (system), which a percentage means by default, are chosen by each thread without regard to the seed.
    """
    samples = [node.get("sample") or {} for node in _nodes(_any_tree(checker, fragment))]
    if any(sample.get("repeatable") is False for sample in samples):
        return "a sample without a seed"
    if any(sample.get("method") == "System" for sample in samples):
        return "a sample by method system (which a percentage means), even with a seed,"
    return None


def tables_named(checker: SqlChecker, fragment: Sql | str) -> frozenset[str]:
    """Return the folded names of tables and views that an expression, a FROM clause, or a query as text reads.

    For statements that can only be parsed as a whole, and for names in strings, it is every word.
    """
    text = fragment if isinstance(fragment, str) else fragment.text
    tree = None if _OF_TEXTS.search(text) else _any_tree(checker, fragment)
    if tree is None:
        return frozenset(map(sqltext.folded, _WORD.findall(text)))
    return frozenset(sqltext.folded(node["table_name"]) for node in _nodes(tree) if node.get("type") == "BASE_TABLE")


def reads_once(checker: SqlChecker, queries: Sequence[str], table: str) -> bool:
    """Whether queries and expressions, together, name a table once, where DuckDB reads it once: in no WITH and no PIVOT."""
    if any(map(_OF_TEXTS.search, queries)):
        return False
    trees = [_any_tree(checker, query) for query in queries if sqltext.folded(table) in sqltext.folded(query)]
    nodes = [node for tree in trees for node in _nodes(tree)]
    often = any(node.get("type") == "PIVOT" or (node.get("cte_map") or {}).get("map") for node in nodes)
    named = [
        node
        for node in nodes
        if node.get("type") == "BASE_TABLE" and sqltext.folded(node["table_name"]) == sqltext.folded(table)
    ]
    return not often and None not in trees and len(named) == 1


def query_of_view(text: str) -> str:
    """Return the query of a view: what follows AS in ``CREATE VIEW v(a, b) AS SELECT ...;``."""
    depth = 0
    for token in lex(text):
        word = text[token.start : token.end]
        depth += (word == "(") - (word == ")")
        if depth == 0 and word.upper() == "AS":
            return text[token.end :].rstrip().removesuffix(";")
    return ""


def _any_tree(checker: SqlChecker, fragment: Sql | str) -> dict[str, Any] | None:
    if isinstance(fragment, str):
        return checker.tree(fragment) or checker.tree(f"SELECT {fragment}")
    return checker.tree(_selected(fragment)) or checker.tree(_from(("FROM", fragment)))


def _outside_subqueries(node: Any) -> Iterator[dict[str, Any]]:
    return _outside(node, lambda each: each.get("class") == "SUBQUERY")


def _outside(node: Any, left_out: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a tree outside of those that are left out."""
    if isinstance(node, dict) and not left_out(node):
        yield node
        for child in node.values():
            yield from _outside(child, left_out)
    elif isinstance(node, list):
        for child in node:
            yield from _outside(child, left_out)


def _of_the_row(node: Any, names: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of an expression in which these (folded) column names are surely the row's: those of subqueries without
    FROM, too, and of lambdas without such parameters."""

    def is_of_others(each: dict[str, Any]) -> bool:
        match each.get("class"):
            case "LAMBDA":
                return not names.isdisjoint(_names_in(each["lhs"]))
            case "SUBQUERY":
                return (each["subquery"]["node"].get("from_table") or {}).get("type") != "EMPTY"
            case kind:
                return kind == "WINDOW"

    return _outside(node, is_of_others)


def _names_in(node: Any) -> frozenset[str]:
    """Return the (folded) first parts of the columns that an expression mentions."""
    return frozenset(sqltext.folded(each["column_names"][0]) for each in _column_references(node))


def _item(tree: Any) -> dict[str, Any]:
    """Return the only item of a SELECT."""
    item: dict[str, Any] = tree["statements"][0]["node"]["select_list"][0]
    return item


def _without_positions(node: Any) -> Any:
    """Return a tree without positions and aliases, column names folded."""
    if isinstance(node, list):
        return [_without_positions(child) for child in node]
    if not isinstance(node, dict):
        return node
    kept = {name: _without_positions(child) for name, child in node.items() if name not in _PLACES}
    if node.get("class") == "COLUMN_REF":
        kept["column_names"] = [sqltext.folded(name) for name in node["column_names"]]
    return kept


def _tables(node: Any) -> frozenset[str]:
    """Return the folded names that may qualify columns of a FROM clause, those in its subqueries included."""
    names = (each.get("alias") or each.get("table_name") for each in _nodes(node) if "query_location" in each)
    return frozenset(sqltext.folded(name) for name in names if isinstance(name, str))


class Replay:
    """Turns expressions over the statement's FROM into expressions over any prediction source.

    The table has another name there: ``f.distance + 1`` -> ``distance + 1``. In a subquery, whose own tables come first, a
    column of the source is named by ``ROW``: ``(SELECT max(o.v) FROM o WHERE o.k = f.k)`` -> ``... o.k = ROW.k``.
    """

    def __init__(self, checker: SqlChecker, source: Sequence[str | Sql], columns: Sequence[Column]) -> None:
        self._checker = checker
        self._source = tuple(source)
        self._names = tuple(column.name for column in columns)
        self._columns = frozenset(map(sqltext.folded, self._names))
        # DuckDB has already numbered columns that share a name: x, x_1.
        tree = checker.tree(_from(self._source))
        self._tables = _tables(tree["statements"][0]["node"]["from_table"]) if tree else frozenset()
        self._apart: set[str] = set()

    def stored(self, fragment: Sql) -> str:
        """Return the expression in its stored form; raises BindError if its column is ambiguous."""
        if _QUOTED.fullmatch(fragment.text):
            return fragment.text
        tree = self._checker.tree(_selected(fragment))
        if tree is None or not self._unqualify(tree["statements"][0]["node"]["select_list"], _Scope(), fragment.span):
            return fragment.text
        query = "SELECT json_deserialize_sql(?)"
        text: str = self._checker.connection.execute(query, [json.dumps(tree)]).fetchall()[0][0]
        return text.removeprefix("SELECT ")

    def meaning(self, fragment: Sql) -> Any:
        """Return a tree that is equal for expressions that differ only in brackets, quotes, case and table names."""
        return _without_positions(self._checker.tree(f"SELECT {self.stored(fragment)}"))

    def computes(self, fragment: Sql, part: Sql) -> bool:
        """Whether an expression computes another one on its way, of the same row.

        What it reads in subqueries with rows of their own and in windows is of other rows, and a lambda's parameters are its own.
        """
        wanted, tree = _item(self.meaning(part)), self.meaning(fragment)
        if any(node == wanted for node in _of_the_row(tree, _names_in(wanted))):
            return True
        if wanted.get("class") != "COLUMN_REF":
            return False
        by_row = {**wanted, "column_names": [ROW, *wanted["column_names"]]}
        return any(node == by_row for node in _nodes(tree))

    def refuse_ambiguous_among(self, names: Iterable[str], span: Span) -> None:
        """As ``refuse_ambiguous`` for many names, with one query if none is ambiguous."""
        several = {sqltext.folded(name): name for name in names}
        listed = ", ".join(map(sqltext.identifier, several.values()))
        if self._checker.tried("SELECT", listed, *self._source)[1]:
            for name in several.values():
                self.refuse_ambiguous(name, span)
        self._apart.update(several)

    def refuse_ambiguous(self, name: str, span: Span) -> None:
        """Raise BindError if FROM has several columns of that name: a prediction could read the wrong one."""
        if sqltext.folded(name) in self._apart:
            return
        if "mbiguous" in self._checker.tried("SELECT", sqltext.identifier(name), *self._source)[1]:
            message = f'FROM has more than one column "{name}", and the rows to predict could have only one of them'
            hint = (
                f"Give each a name of its own: FROM (SELECT a.{name} AS a_{name}, b.{name} AS b_{name}, ... FROM ...)."
            )
            raise self._checker.error(message, span, hint)
        self._apart.add(sqltext.folded(name))

    def _unqualify(self, node: Any, scope: _Scope, span: Span) -> bool:
        """Change the tree in place and return whether it changed."""
        if isinstance(node, list):
            return self._unqualify_all(node, scope, span)
        if not isinstance(node, dict):
            return False
        if node.get("class") == "COLUMN_REF":
            return self._unqualify_column(node["column_names"], scope, span)
        if node.get("class") == "POSITIONAL_REFERENCE" and not scope.in_subquery:
            raise self._by_position(node["index"], span)
        if node.get("class") == "LAMBDA":
            return self._unqualify(node["expr"], scope.with_parameters(node["lhs"]), span)
        return self._unqualify_all(node.values(), scope.within(node), span)

    def _unqualify_all(self, nodes: Iterable[Any], scope: _Scope, span: Span) -> bool:
        changed = False
        for node in nodes:
            changed |= self._unqualify(node, scope, span)
        return changed

    def _unqualify_column(self, names: list[str], scope: _Scope, span: Span) -> bool:
        folded = [sqltext.folded(name) for name in names]
        if len(names) == 1:
            self._refuse_row(names[0], scope, span)
            return False
        if any(name in scope.tables for name in folded[:-1]) or folded[0] in scope.parameters - self._tables:
            return False
        qualifiers = self._qualifiers(folded)
        if not qualifiers:
            return False
        del names[:qualifiers]
        self.refuse_ambiguous(names[0], span)
        if scope.in_subquery or folded[qualifiers] in scope.parameters:
            names.insert(0, ROW)
        return True

    def _qualifiers(self, names: Sequence[str]) -> int:
        """Return how many of (folded) names come before a column's: its table, and what that is in, or none.

        What follows the column are fields. If a table and a struct share a name, the table wins.
        """
        for count in range(1, len(names)):
            if names[count - 1] in self._tables and names[count] in self._columns:
                return count
        unknown = (number for number, name in enumerate(names[:-1]) if name in self._columns)
        return next(unknown, len(names) - 1)

    def _by_position(self, number: int, span: Span) -> Exception:
        """Return the error for a column that is named by its position."""
        name = self._names[number - 1] if 0 < number <= len(self._names) else None
        message = f"#{number} is a place among the columns of FROM, where the rows to predict may have another column"
        return self._checker.error(
            message, span, f"Name it: {sqltext.identifier(name)}." if name else "Name the column."
        )

    def _refuse_row(self, name: str, scope: _Scope, span: Span) -> None:
        """Raise BindError for a table that stands for its whole row, as a struct."""
        folded = sqltext.folded(name)
        if folded not in self._tables - self._columns - scope.tables - scope.parameters:
            return
        message = f'"{name}" is the whole row of a table of FROM, and the rows to predict have other columns'
        raise self._checker.error(message, span, f"Name the columns: {name}.x is column x of {name}.")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names mean inside an expression: the (folded) ``tables`` of the subqueries around, and the ``parameters`` of lambdas.

    ``siblings`` are those tables that are in one FROM clause with a subquery: it does not see its own name.
    """

    tables: frozenset[str] = frozenset()
    siblings: frozenset[str] = frozenset()
    parameters: frozenset[str] = frozenset()
    in_subquery: bool = False

    def with_parameters(self, named: Any) -> _Scope:
        """Return the scope inside a lambda with these parameters."""
        return replace(self, parameters=self.parameters | _names_in(named))

    def within(self, node: dict[str, Any]) -> _Scope:
        """Return the scope of what is below a node of the tree."""
        if "from_table" in node:
            own = _tables(node["from_table"])
            return replace(self, tables=self.tables | own, siblings=own - self.tables, in_subquery=True)
        if node.get("type") == "SUBQUERY" and "class" not in node:
            itself = self.siblings & {sqltext.folded(node.get("alias") or "")}
            return replace(self, tables=self.tables - itself)
        return self
