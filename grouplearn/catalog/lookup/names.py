"""Every name that an expression uses, directly or through the definitions of macros, views and columns.

DuckDB parses the texts (``json_serialize_sql``); nothing is bound, as binding may open files and install extensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal

from grouplearn.catalog.checks.fragments import Fragment, Node, has_large_array, serialized, statement_of
from grouplearn.catalog.lookup.environment import BOTTOMLESS, OF_DUCKDB, Definition, Environment
from grouplearn.catalog.lookup.search_path import Place
from grouplearn.sqltext import folded

#: The query around a clause: an expression or several columns, and a FROM clause.
EXPRESSION = ("SELECT ({}\n)", "SELECT {}\n")
AFTER_FROM = ("SELECT * FROM {}\n",)
OUTSIDE = "which may read or write outside the database"
#: Queries that only read; others in WITH insert, change and delete.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
#: Parts of FROM that name nothing themselves.
_SOURCES = frozenset(
    {"EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "COLUMN_DATA", "PIVOT", "CTE", "DELIM_GET", "BOUND_TABLE_REF"}
)
#: Words that call a macro even when written as a column name.
_WORDS = frozenset(
    {"current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp",
     "current_user", "localtime", "localtimestamp", "session_user", "user"}
)  # fmt: skip
#: Functions that look something up by a name given as text, and those that return the search path.
_OF_PATH = frozenset(
    {"current_catalog", "current_database", "current_schema", "current_schemas", "currval", "nextval", "query", "query_table"}
)  # fmt: skip
#: Types of which DuckDB 1 gives only the name.
_NAMED_TYPES = frozenset({"USER_TYPE_INFO", "UNBOUND_TYPE_INFO"})
#: Most nodes in the trees of one expression and of everything that it names.
_MOST_NODES = 500_000
#: A name as written, its kind, and where it is found first; None for nowhere.
Meaning = tuple[str, str, Hashable]


@dataclass(frozen=True, slots=True)
class Use:
    """A name as it is written somewhere in an expression.

    ``kind`` is a ``function``, a table function (``rows``), a ``word`` that calls one without parentheses, a ``table``, or a
    ``type``. A ``definition`` is one that was reached; ``forbidden`` and ``unread`` (which may name anything) have in ``name``
    what is wrong. ``path`` is where DuckDB looks for names there, ``through`` are the definitions around it, and ``home`` is
    the place of the innermost one.
    """

    kind: Literal["function", "rows", "word", "table", "type", "definition", "forbidden", "unread"]
    name: str
    database: str = ""
    schema: str = ""
    node: Node = field(default_factory=dict)
    path: tuple[Place, ...] = ()
    through: tuple[str, ...] = ()
    defined: Definition | None = None
    home: Place | None = None

    @property
    def is_call(self) -> bool:
        """Whether it is called with arguments."""
        return self.kind in ("function", "rows")

    @property
    def arguments(self) -> Sequence[Node]:
        """The trees of a call's arguments."""
        return self.node.get("children") or self.node.get("arguments") or ()

    def text(self, number: int) -> str | None:
        """Return an argument that is written as a text; None if it is anything else, or is not there."""
        said: Node = self.arguments[number] if len(self.arguments) > number else {}
        said = said.get("expression", said)  # DuckDB 2 has named arguments
        literal, value = said.get("literal") or {}, said.get("value") or {}
        text = literal.get("text") if literal.get("kind") == "STRING" else value.get("value")
        return text if said.get("class") == "CONSTANT" and isinstance(text, str) else None

    def places(self, environment: Environment) -> list[Place]:
        """Return where DuckDB looks for it, in order."""
        return environment.places(folded(self.database), folded(self.schema), self.path)

    def said(self, problem: str) -> str:
        """Return a problem with it as one of the whole expression."""
        return "".join(f"names {name}, which " for name in self.through) + problem


@dataclass(frozen=True, slots=True)
class _Tree:
    """A tree, where DuckDB looks for names in it, the definitions around it, and the place of the innermost one."""

    node: Node
    path: tuple[Place, ...]
    through: tuple[str, ...] = ()
    home: Place | None = None

    def placed(self, use: Use) -> Use:
        """Return a use in this tree."""
        return replace(use, path=self.path, through=self.through, home=self.home)


def follow(
    environment: Environment,
    trees: Iterable[Node],
    defined: Iterable[Definition] = (),
    passing: frozenset[str] = frozenset(),
) -> Iterator[Use]:
    """Yield what trees name, and what the definitions of these names do, each once, beginning also with those ``defined``.

    With ``passing``, the definitions of functions of these names are passed by, and only the macros that a call finds first
    are followed; without, those of its name in any place.
    """
    course = _Course(environment, passing, [_Tree(tree, environment.path) for tree in trees])
    yield from course.uses()
    for each in defined:
        yield from course.opened(each, Use("table", each.name, path=environment.path))
        yield from course.uses()


@dataclass
class _Course:
    """Goes through trees that are ``waiting``, and through the definitions reached, of which it has ``seen`` some."""

    environment: Environment
    passing: frozenset[str]
    waiting: list[_Tree]
    seen: set[tuple[Definition, tuple[Place, ...]]] = field(default_factory=set)
    nodes: int = 0

    def uses(self) -> Iterator[Use]:
        """Yield the uses of all trees and of the definitions reached."""
        while self.waiting:
            tree = self.waiting.pop()
            if has_large_array(tree.node):
                yield tree.placed(Use("unread", "has a type with an array of more numbers than DuckDB has memory for"))
                continue
            for use in self._uses(tree):
                yield use
                for each in self._definitions(use):
                    yield from self.opened(each, use)

    def opened(self, defined: Definition, use: Use) -> Iterator[Use]:
        """Yield the definition of a use, or why it cannot be read, and let its tree wait."""
        # DuckDB looks up the names in a view where the view is and where the session looks, not where a view that names it
        # is; also for calls that nobody wrote: those of SUMMARIZE and of its own macros.
        path = (defined.place, *self.environment.path) if defined.at_home else use.path
        if (defined, path) in self.seen:
            return
        self.seen.add((defined, path))
        yield Use("definition", defined.name, path=path, through=use.through, defined=defined)
        query = defined.sql if defined.is_query else f"SELECT ({defined.sql}\n)"
        tree, place = statement_of(next(serialized(self.environment.con, [query]))), ".".join(defined.place)
        hiding = next(self.environment.hiding({defined.place}), None)
        unread = None if tree else f"names {defined.name}, whose definition cannot be read"
        if hiding is not None and defined.at_home and defined.database != "temp":
            unread = f"names {defined.name} of {place}, where macro {hiding.name} hides DuckDB's own"
        if tree is None or unread is not None:
            yield Use("unread", unread or "", path=path, through=use.through)
        else:
            self.waiting.append(_Tree(tree, path, (*use.through, defined.name), defined.place))

    def _definitions(self, use: Use) -> Iterable[Definition]:
        """Return everything that a use may mean."""
        if use.kind == "table":
            found = self.environment.table(use.places(self.environment), folded(use.name)) or ()
            return [each for each in found if each is not OF_DUCKDB]
        calls = (use.is_call or use.kind == "word") and use.name not in self.passing
        macros = self.environment.macros.get(use.name, ()) if calls else ()
        by_place = ([each for each in macros if each.place == place] for place in use.places(self.environment))
        return next(filter(None, by_place), macros) if self.passing and macros else macros

    def _uses(self, tree: _Tree) -> Iterator[Use]:
        pending: list[tuple[Any, frozenset[str]]] = [(tree.node, frozenset())]
        while pending:
            node, known = pending.pop()
            if isinstance(node, list):
                pending += [(each, known) for each in node]
            elif isinstance(node, dict):
                self.nodes += 1
                if self.nodes > _MOST_NODES:
                    most = f"with what it names it has more than {_MOST_NODES:,} parts"
                    yield tree.placed(Use("unread", f"is too long to be checked: {most}"))
                    return
                if (use := _named(node, known)) is not None:
                    yield tree.placed(use)
                pending += _below(node, known)


def _below(node: Node, known: frozenset[str]) -> list[tuple[Any, frozenset[str]]]:
    """Return the parts of a node with the WITH queries in scope: the earlier ones.

    A recursive query sees itself only in its second part: in the first, its name means something else, such as a file.
    """
    parts: list[tuple[Any, frozenset[str]]] = []
    for entry in (node.get("cte_map") or {}).get("map", ()):
        parts.append((entry["value"], known))
        known = known | {folded(entry["key"])}
    skipped = ("cte_map", "function") if node.get("type") == "TABLE_FUNCTION" else ("cte_map",)
    again = known | {folded(str(node.get("cte_name", "")))} if node.get("type") == "RECURSIVE_CTE_NODE" else known
    parts += [(value, again if key == "right" else known) for key, value in node.items() if key not in skipped]
    if node.get("type") == "TABLE_FUNCTION":
        function = node.get("function") or {}
        parts += [(value, known) for key, value in function.items() if isinstance(value, dict | list)]
    return parts


def _named(node: Node, known: frozenset[str]) -> Use | None:
    """Return what a node itself names, apart from the queries of WITH that are ``known``."""
    kind, of_class = node.get("type"), node.get("class")
    if "type_info" in node and folded(str(node.get("id"))) == BOTTOMLESS:  # as DuckDB 1 says it
        return Use("type", BOTTOMLESS)
    if of_class == "TYPE" or (isinstance(kind, str) and kind in _NAMED_TYPES):
        name = str(node.get("type_name") or node.get("user_type_name") or node.get("name") or "")
        database, schema = (folded(str(node.get(key) or "")) for key in ("catalog", "schema"))
        return Use("type", folded(name), database, schema)
    if of_class in ("FUNCTION", "WINDOW"):
        return _call("function", node)
    if of_class == "PARAMETER":
        return Use("forbidden", "has a parameter")
    if of_class == "COLUMN_REF":  # it may be current_date, for example
        word = folded(str(node["column_names"][-1]))
        return Use("word", word) if word in _WORDS else None
    if of_class is None and str(kind).endswith("_NODE") and kind not in _READING:
        return Use("forbidden", "changes a table")
    if of_class is not None or kind is None or "alias" not in node or "sample" not in node:
        return None
    return _source(str(kind), node, known)


def _source(kind: str, node: Node, known: frozenset[str]) -> Use | None:
    """Return what a part of FROM names."""
    if kind == "TABLE_FUNCTION":
        return _call("rows", node.get("function") or {})
    if kind == "BASE_TABLE":
        name, database, schema = (str(node.get(f"{key}_name") or "") for key in ("table", "catalog", "schema"))
        is_known = not database and not schema and folded(name) in known
        return None if is_known else Use("table", name, database, schema)
    if kind == "SHOW_REF":
        return None if node.get("query") else Use("forbidden", f"calls SHOW, {OUTSIDE}")
    return None if kind in _SOURCES else Use("forbidden", f"reads {kind}, {OUTSIDE}")


def _call(kind: Literal["function", "rows"], node: Node) -> Use:
    name, database, schema = (str(node.get(key) or "") for key in ("function_name", "catalog", "schema"))
    return Use(kind, folded(name), database, schema, node)


def named(fragments: Iterable[Fragment], environment: Environment) -> list[Definition]:
    """Return in a fixed order the macros, views and generated columns that expressions name."""
    uses = follow(environment, _trees(fragments))
    return sorted({use.defined for use in uses if use.defined is not None}, key=astuple)


def look_elsewhere(fragments: Iterable[Fragment], environment: Environment) -> bool:
    """Return whether expressions name tables, views, macros or types that somebody made, whose meaning may change."""
    found = (meaning for use in follow(environment, _trees(fragments)) for meaning in _meanings(use, environment))
    return any(what == "table" or first is not None for _, what, first in found)


def meanings(clauses: Iterable[tuple[str, Sequence[str]]], environment: Environment) -> list[Meaning]:
    """Return the meaning of each name in clauses, followed by those of the names in its definition.

    A clause is text with the forms in which it may be read. If only running it could tell (a name that is a value, an
    unreadable clause), the meaning depends on the search path.
    """
    found: dict[Meaning, None] = {}
    for text, forms in clauses:
        trees = readings(environment, text, forms)
        uses = [*follow(environment, trees)]
        found |= dict.fromkeys(meaning for use in uses for meaning in _meanings(use, environment))
        if not trees or any(use.kind == "unread" for use in uses):
            found[text, "text", environment.path] = None
    return [*found]


def readings(environment: Environment, text: str, forms: Sequence[str]) -> list[Node]:
    """Return the trees of a clause in the forms in which it can be parsed."""
    documents = serialized(environment.con, [form.format(text) for form in forms])
    return [node for document in documents if (node := statement_of(document)) is not None]


def _trees(fragments: Iterable[Fragment]) -> list[Node]:
    return [fragment.tree for fragment in fragments if fragment.tree is not None]


def _meanings(use: Use, environment: Environment) -> Iterator[Meaning]:
    """Yield which place on the search path has something of a use's name first; and that a function uses the path itself."""
    name, kind = folded(use.name), "function" if use.is_call else use.kind
    places = use.places(environment)
    if use.is_call:
        known = {each.place for each in environment.macros.get(name, ()) if each.is_query == (use.kind == "rows")}
    elif kind == "table":
        known = {place for place in places if environment.table([place], name) is not None}
    else:
        known = {(database, schema) for database, schema, each in environment.types if kind == "type" and each == name}
    if kind in ("function", "table", "type"):
        whole = ".".join(filter(None, (use.database, use.schema, use.name)))
        yield whole, kind, next((place for place in places if place in known), None)
    if kind in ("function", "word") and (name in _OF_PATH or name.startswith("pragma_")):
        yield name, "path", use.path
