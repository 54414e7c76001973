"""What a model's expressions may call: only what reads and writes nothing outside the attached databases.

DuckDB's own functions of numbers, text, lists and so on are known; any other function could do anything. Macros and views
that an expression names are checked through their definitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from grouplearn.bind.sql.pristine import types
from grouplearn.catalog.checks.fragments import Fragment, Node, has_large_array, serialized, statement_of
from grouplearn.catalog.checks.surroundings import BOTTOMLESS, OF_DUCKDB, SYNTAX, Defined, Surroundings, own_functions
from grouplearn.errors import NotTrusted
from grouplearn.sqltext import folded

#: DuckDB functions that are refused. They read or change more than their arguments: the session, settings, sequences, the
#: random generator, the log, the catalog; they parse or plan text, and so may open what it says; they take the name of a
#: type, for which DuckDB may install an extension; or they recurse as deep as a value is nested, until the stack overflows.
#: Comparison functions called by name take arguments of any type without a cast.
_DENIED = frozenset(
    {"!=", "<", "<=", "=", ">", ">=", "cast_to_type", "combine", "current_query", "current_setting", "currval",
     "finalize", "from_json", "from_json_strict", "get_block_size", "getenv", "index_key", "is distinct from",
     "is not distinct from", "json_contains", "json_deserialize_sql", "json_group_structure", "json_merge_patch",
     "json_serialize_plan", "json_serialize_sql", "json_structure", "json_transform", "json_transform_strict",
     "make_type", "nextval", "pg_get_constraintdef", "pg_get_viewdef", "pg_sleep", "remap_struct", "replace_type",
     "setseed", "setval", "sleep_ms", "stats", "to_aggregate_state", "write_log"}
)  # fmt: skip
#: Prefixes of further refused names.
_DENIED_FAMILIES = ("__", "variant_")
#: Functions that call an aggregate given by name as text.
_BY_NAME = frozenset({"aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"})
#: Table functions that read only their arguments.
_OF_ROWS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})
_SOURCES = frozenset(
    {"EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "COLUMN_DATA", "PIVOT", "CTE", "DELIM_GET", "BOUND_TABLE_REF"}
)
#: The query around a clause: an expression or several columns, and a FROM clause.
EXPRESSION = ("SELECT ({}\n)", "SELECT {}\n")
AFTER_FROM = ("SELECT * FROM {}\n",)
#: Queries that only read; others in WITH insert, change and delete.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
#: Words that call a macro even when written as a column name.
_WORDS = frozenset(
    {"current_catalog", "current_date", "current_role", "current_schema", "current_time", "current_timestamp",
     "current_user", "localtime", "localtimestamp", "session_user", "user"}
)  # fmt: skip
#: Functions that look something up by a name given as text, and those that return the search path.
_OF_PATH = frozenset(
    {"current_catalog", "current_database", "current_schema", "current_schemas", "currval", "nextval", "query", "query_table"}
)  # fmt: skip
_BY_DEPTH = f"has type {BOTTOMLESS}, for which DuckDB may end the process"
#: Types of which DuckDB 1 gives only the name.
_NAMED_TYPES = frozenset({"USER_TYPE_INFO", "UNBOUND_TYPE_INFO"})
#: Most nodes in the trees of one expression and of everything that it names.
_MOST_NODES = 500_000
_OUTSIDE = "which may read or write outside the database"
#: A name as written, its kind, and where it is found first; None for nowhere.
Meaning = tuple[str, str, Hashable]


_TRUST = (
    "The model was not trained in this session, or what it calls has changed since. If you know who made it, and trust it, SET"
    " grouplearn_trust = true."
)
_GONE = "and there is no function or macro of that name now"
_TO_BE_MADE = (
    "CREATE MACRO makes it again, or LOAD of the extension that it was of. The macro m_predict knows temporary ones that predict"
    " does not."
)
_ELSEWHERE = "where names are not looked for now"
_WHERE_TO_BE = (
    "USE the database that the model is in: DuckDB looks for a name without a schema in the current one alone."
)


def refuse(model: str, fragments: Iterable[Fragment], surroundings: Surroundings) -> None:
    """Raise NotTrusted if an expression calls something that may access anything outside the databases, or is unknown."""
    for fragment in fragments:
        if fragment.tree is not None:
            reason = Walk(surroundings, surroundings.path).reason(fragment.tree)
            if reason is not None:
                raise _refusal(model, fragment, reason)


def named(fragments: Iterable[Fragment], surroundings: Surroundings) -> list[Defined]:
    """Return in a fixed order the macros, views and generated columns that expressions name, directly or through each
    other."""
    course = Reached(to_the_end=True)
    for fragment in fragments:
        Walk(surroundings, surroundings.path, course).reason(fragment.tree)
    return sorted({defined for defined, _ in course.seen}, key=astuple)


def look_elsewhere(fragments: Iterable[Fragment], surroundings: Surroundings) -> bool:
    """Return whether expressions name tables, views, macros or types that somebody made, whose meaning may change."""
    found: dict[Meaning, None] = {}
    course = Reached(to_the_end=True, found=found)
    for fragment in fragments:
        Walk(surroundings, surroundings.path, course).reason(fragment.tree)
    return any(what == "table" or first is not None for _, what, first in found)


def meanings(clauses: Iterable[tuple[str, Sequence[str]]], surroundings: Surroundings) -> list[Meaning]:
    """Return the meaning of each name in clauses, followed by those of the names in its definition.

    A clause is text with the forms in which it may be read. If only running it could tell (a name that is a value, an
    unreadable clause), the meaning depends on the search path.
    """
    found: dict[Meaning, None] = {}
    course = Reached(to_the_end=True, found=found)
    for text, forms in clauses:
        nodes = _readings(surroundings, text, forms)
        reasons = [Walk(surroundings, surroundings.path, course).reason(node) for node in nodes]
        if not nodes or any(reasons):
            found[text, "text", surroundings.path] = None
    return [*found]


def refuse_clause(
    model: str, fragment: Fragment, surroundings: Surroundings, forms: Sequence[str] = EXPRESSION
) -> None:
    """As ``refuse``, for a clause of TRAIN in each of the forms in which it may be read."""
    nodes = _readings(surroundings, fragment.text, forms)
    reasons = [Walk(surroundings, surroundings.path).reason(node) for node in nodes]
    reason = next(filter(None, reasons), None) if nodes else "is not SQL that can be read"
    if reason is not None:
        raise _refusal(model, fragment, reason)


def written_argument(call: Node, number: int) -> str | None:
    """Return an argument of a call that is written as a text; None if it is anything else, or is not there."""
    arguments: list[Node] = call.get("children") or call.get("arguments") or []
    said: Node = arguments[number] if len(arguments) > number else {}
    said = said.get("expression", said)  # DuckDB 2 has named arguments
    literal, value = said.get("literal") or {}, said.get("value") or {}
    text = literal.get("text") if literal.get("kind") == "STRING" else value.get("value")
    return text if said.get("class") == "CONSTANT" and isinstance(text, str) else None


def _named_aggregate(node: Node) -> str | None:
    """Return what is wrong with the aggregate named by the second argument of a call."""
    text = written_argument(node, 1)
    if text is None:
        return "calls a function whose name is made, and not written"
    name = folded(text)
    if name in own_functions().names and name not in _DENIED:
        return None
    return f"calls {name}, which is none of the functions that DuckDB itself has"


def _readings(surroundings: Surroundings, text: str, forms: Sequence[str]) -> list[Node]:
    """Return the trees of a clause in the forms in which it can be parsed."""
    documents = serialized(surroundings.con, [form.format(text) for form in forms])
    return [node for document in documents if (node := statement_of(document)) is not None]


def _refusal(model: str, fragment: Fragment, reason: str) -> NotTrusted:
    message = f'{fragment.what} of model "{model}" {reason}\nExpression: {fragment.shown}'
    hints = ((_ELSEWHERE, _WHERE_TO_BE), (_GONE, _TO_BE_MADE))
    return NotTrusted(message, hint=next((hint for end, hint in hints if reason.endswith(end)), _TRUST))


@dataclass
class Reached:
    """Progress through one expression: the definitions reached, each with its search path.

    Each definition is checked once. ``to_the_end``: do not stop at the first problem.
    """

    to_the_end: bool = False
    nodes: int = 0
    seen: set[tuple[Defined, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    #: The meanings found, in order; None if they are not collected.
    found: dict[Meaning, None] | None = None


@dataclass
class Walk:
    """Walks a tree and the definitions that it names."""

    surroundings: Surroundings
    path: tuple[tuple[str, str], ...]
    course: Reached = field(default_factory=Reached)

    def reason(self, node: Any) -> str | None:
        """Return the first problem found."""
        pending: list[tuple[Any, frozenset[str]]] = [(node, frozenset())]
        if has_large_array(node):
            return "has a type with an array of more numbers than DuckDB has memory for"
        while pending:
            node, known = pending.pop()
            if isinstance(node, list):
                pending += [(each, known) for each in node]
            elif isinstance(node, dict):
                self.course.nodes += 1
                if self.course.nodes > _MOST_NODES:
                    return f"is too long to be checked: with what it names it has more than {_MOST_NODES:,} parts"
                found = self._own(node, known)
                if found is not None and not self.course.to_the_end:
                    return found
                pending += self._below(node, known)
        return None

    def _below(self, node: Node, known: frozenset[str]) -> list[tuple[Any, frozenset[str]]]:
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

    def _own(self, node: Node, known: frozenset[str]) -> str | None:
        kind, of_class = node.get("type"), node.get("class")
        if "type_info" in node and folded(str(node.get("id"))) == BOTTOMLESS:  # as DuckDB 1 says it
            return _BY_DEPTH
        if of_class == "TYPE" or (isinstance(kind, str) and kind in _NAMED_TYPES):
            return self._type(node)
        if of_class in ("FUNCTION", "WINDOW"):
            return self._function(node, of_rows=False)
        if of_class == "PARAMETER":
            return "has a parameter"
        if of_class == "COLUMN_REF":  # it may be current_date, for example
            word = folded(str(node["column_names"][-1]))
            self._note_path(word)
            return self._macro(word, None) if word in _WORDS else None
        if of_class is None and str(kind).endswith("_NODE") and kind not in _READING:
            return "changes a table"
        if of_class is not None or kind is None or "alias" not in node or "sample" not in node:
            return None
        if kind == "TABLE_FUNCTION":
            return self._function(node.get("function") or {}, of_rows=True)
        if kind == "BASE_TABLE":
            return self._table(node, known)
        if kind == "SHOW_REF":
            return None if node.get("query") else f"calls SHOW, {_OUTSIDE}"
        return None if kind in _SOURCES else f"reads {kind}, {_OUTSIDE}"

    def _function(self, node: Node, of_rows: bool) -> str | None:
        name = folded(str(node.get("function_name", "")))
        # A table macro and a scalar macro may share a name.
        macros = [macro for macro in self.surroundings.macros.get(name, ()) if macro.is_query == of_rows]
        there = (macro.place for macro in macros)
        self._note("function", (str(node.get("catalog") or ""), str(node.get("schema") or ""), name), there)
        self._note_path(name)
        found = self._macro(name, len(node.get("arguments") or node.get("children") or ()))
        if found is not None:
            return found
        database, schema = (folded(str(node.get(key) or "")) for key in ("catalog", "schema"))
        places = self.surroundings.places(database, schema)
        if any(macro.place in places for macro in macros):
            return None
        if name in _BY_NAME and (found := _named_aggregate(node)) is not None:
            return found
        own = own_functions()
        usual = name in own.names and name not in _DENIED and not name.startswith(_DENIED_FAMILIES)
        if name in _OF_ROWS if of_rows else usual or name in SYNTAX:
            return None
        if macros and not (database or schema or usual):
            return f"calls {name}, a macro of {macros[0].database}.{macros[0].schema}, {_ELSEWHERE}"
        listed = name in own.names or name in own.of_rows or name in _DENIED or name.startswith(_DENIED_FAMILIES)
        if not listed and not macros and not self.surroundings.has_function(name):
            return f"calls {name}, {_GONE}"
        return f"calls {name}, {_OUTSIDE if listed else 'which is none of the functions that DuckDB itself has'}"

    def _note(self, what: str, parts: tuple[str, str, str], there: Iterable[tuple[str, str]]) -> None:
        """Record which place on the search path has something of that name first."""
        if self.course.found is not None:
            known = {*there}
            places = self.surroundings.places(folded(parts[0]), folded(parts[1]), self.path)
            first = next((place for place in places if place in known), None)
            self.course.found[".".join(filter(None, parts)), what, first] = None

    def _note_path(self, name: str) -> None:
        """Record a function that uses the search path itself."""
        if self.course.found is not None and (name in _OF_PATH or name.startswith("pragma_")):
            self.course.found[name, "path", self.path] = None

    def _type(self, node: Node) -> str | None:
        """Return the problem with a type: for an unknown name DuckDB may install an extension."""
        name = folded(str(node.get("type_name") or node.get("user_type_name") or node.get("name") or ""))
        if name == BOTTOMLESS:
            return _BY_DEPTH
        database, schema = (folded(str(node.get(key) or "")) for key in ("catalog", "schema"))
        places = self.surroundings.places(database, schema)
        named = ((own, schema) for own, schema, each in self.surroundings.types if each == name)
        self._note("type", (database, schema, name), named)
        made = [known for place in places if (known := self.surroundings.types.get((*place, name))) is not None]
        if made:
            return None if all(made) else f"has type {name}, which has members that DuckDB does not tell"
        if name in types() and not (database or schema):  # DuckDB looks for JSON after user-made types
            return None
        return f"has type {name}, which is none of those that DuckDB itself or an attached database has"

    def _macro(self, name: str, arguments: int | None) -> str | None:
        """Return the problem with a macro of that name in any place, called with this many arguments or used as a name."""
        for macro in self.surroundings.macros.get(name, ()):
            found = self._defined(name, macro)
            unseen = arguments is not None and arguments < macro.parameters and macro.database != "temp"
            if found is None and unseen and not self.course.to_the_end:
                found = f"calls {name} without all of its arguments, and nobody tells what stands for the others"
            if found is not None:
                return found
        return None

    def _table(self, node: Node, known: frozenset[str]) -> str | None:
        database, schema, name = (str(node.get(key) or "") for key in ("catalog_name", "schema_name", "table_name"))
        if not database and not schema and folded(name) in known:
            return None
        places = self.surroundings.places(folded(database), folded(schema), self.path)
        run = self.surroundings.table(places, folded(name))
        own = (place for place in places if self.surroundings.table([place], folded(name)) is not None)
        self._note("table", (database, schema, name), own)
        if run is None:
            whole = ".".join(part for part in (database, schema, name) if part)
            return f'reads "{whole}", which is no table or view of an attached database'
        if OF_DUCKDB in run:
            return f'reads "{name}", a view of DuckDB\'s own, of what is attached, set or logged'
        if any((*place, folded(name)) in self.surroundings.with_variants for place in places):
            return f'reads "{name}", which has a column of type {BOTTOMLESS}, for which DuckDB may end the process'
        return next((found for each in run if (found := self._defined(name, each)) is not None), None)

    def _defined(self, name: str, defined: Defined) -> str | None:
        # DuckDB looks up the names in a view where the view is and where the session looks, not where a view that names it
        # is; also for calls that nobody wrote: those of SUMMARIZE and of its own macros.
        path = (defined.place, *self.surroundings.path) if defined.at_home else self.path
        if (entry := (defined, path)) in self.course.seen:
            return None
        self.course.seen.add(entry)
        if (
            defined.at_home
            and defined.database != "temp"
            and (hiding := self.surroundings.hiding(defined.place)) is not None
        ):
            place = ".".join(defined.place)
            return f"names {name} of {place}, where macro {hiding} hides DuckDB's own"
        query = defined.sql if defined.is_query else f"SELECT ({defined.sql}\n)"
        node = statement_of(next(serialized(self.surroundings.con, [query])))
        if node is None:
            return f"names {name}, whose definition cannot be read"
        found = replace(self, path=path).reason(node)
        return None if found is None else f"names {name}, which {found}"
