"""What a model's expressions may call: only what reads and writes nothing outside the attached databases.

DuckDB's own functions of numbers, text, lists and so on are known; any other function could do anything. Macros and views
that an expression names are checked through their definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from grouplearn.bind.sql.builtins import types
from grouplearn.catalog.checks.fragments import Fragment, Node
from grouplearn.catalog.lookup.environment import BOTTOMLESS, OF_DUCKDB, SYNTAX, Environment, own_functions
from grouplearn.catalog.lookup.names import EXPRESSION, OUTSIDE, Use, follow, readings
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
_BY_DEPTH = f"has type {BOTTOMLESS}, for which DuckDB may end the process"
_FOREIGN = "which is none of the functions that DuckDB itself has"

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


def refuse(model: str, fragments: Iterable[Fragment], environment: Environment) -> None:
    """Raise NotTrusted if an expression calls something that may access anything outside the databases, or is unknown."""
    for fragment in fragments:
        if fragment.tree is not None:
            _refuse(model, fragment, [fragment.tree], environment)


def refuse_clause(model: str, fragment: Fragment, environment: Environment, forms: Sequence[str] = EXPRESSION) -> None:
    """As ``refuse``, for a clause of TRAIN in each of the forms in which it may be read."""
    trees = readings(environment, fragment.text, forms)
    if not trees:
        raise _refusal(model, fragment, "is not SQL that can be read")
    for tree in trees:
        _refuse(model, fragment, [tree], environment)


def _refuse(model: str, fragment: Fragment, trees: Sequence[Node], environment: Environment) -> None:
    for use in follow(environment, trees):
        if (found := problem(use, environment)) is not None:
            raise _refusal(model, fragment, use.said(found))


def _refusal(model: str, fragment: Fragment, reason: str) -> NotTrusted:
    message = f'{fragment.what} of model "{model}" {reason}\nExpression: {fragment.shown}'
    hints = ((_ELSEWHERE, _WHERE_TO_BE), (_GONE, _TO_BE_MADE))
    return NotTrusted(message, hint=next((hint for end, hint in hints if reason.endswith(end)), _TRUST))


def problem(use: Use, environment: Environment) -> str | None:
    """Return what is wrong with a use itself; the definition of what it names has uses of its own."""
    if use.kind in ("forbidden", "unread"):
        return use.name
    if use.is_call:
        return _of_call(use, environment)
    if use.kind == "table":
        return _of_table(use, environment)
    return _of_type(use, environment) if use.kind == "type" else None


def _of_call(use: Use, environment: Environment) -> str | None:
    name, named = use.name, environment.macros.get(use.name, ())
    if any(len(use.arguments) < macro.parameters and macro.database != "temp" for macro in named):
        return f"calls {name} without all of its arguments, and nobody tells what stands for the others"
    macros = [macro for macro in named if macro.is_query == (use.kind == "rows")]  # of one name there may be both
    places = environment.places(folded(use.database), folded(use.schema))
    if any(macro.place in places for macro in macros):
        return None
    if name in _BY_NAME and (found := _of_named_aggregate(use)) is not None:
        return found
    own, is_denied = own_functions(), name in _DENIED or name.startswith(_DENIED_FAMILIES)
    usual = name in own.names and not is_denied
    if name in _OF_ROWS if use.kind == "rows" else usual or name in SYNTAX:
        return None
    if macros and not (use.database or use.schema or usual):
        return f"calls {name}, a macro of {macros[0].database}.{macros[0].schema}, {_ELSEWHERE}"
    listed = is_denied or name in own.names or name in own.of_rows
    if not listed and not macros and not environment.has_function(name):
        return f"calls {name}, {_GONE}"
    return f"calls {name}, {OUTSIDE if listed else _FOREIGN}"


def _of_named_aggregate(use: Use) -> str | None:
    """Return what is wrong with the aggregate named by the second argument of a call."""
    text = use.text(1)
    if text is None:
        return "calls a function whose name is made, and not written"
    name = folded(text)
    return None if name in own_functions().names and name not in _DENIED else f"calls {name}, {_FOREIGN}"


def _of_type(use: Use, environment: Environment) -> str | None:
    """Return the problem with a type: for an unknown name DuckDB may install an extension."""
    name, is_qualified = use.name, bool(use.database or use.schema)
    if name == BOTTOMLESS:
        return _BY_DEPTH
    places = environment.places(use.database, use.schema)
    made = [known for place in places if (known := environment.types.get((*place, name))) is not None]
    if made:
        return None if all(made) else f"has type {name}, which has members that DuckDB does not tell"
    if name in types() and not is_qualified:  # DuckDB looks for JSON after user-made types
        return None
    return f"has type {name}, which is none of those that DuckDB itself or an attached database has"


def _of_table(use: Use, environment: Environment) -> str | None:
    places, name = use.places(environment), folded(use.name)
    run = environment.table(places, name)
    if run is None:
        whole = ".".join(part for part in (use.database, use.schema, use.name) if part)
        return f'reads "{whole}", which is no table or view of an attached database'
    if OF_DUCKDB in run:
        return f'reads "{use.name}", a view of DuckDB\'s own, of what is attached, set or logged'
    if any((*place, name) in environment.with_variants for place in places):
        return f'reads "{use.name}", which has a column of type {BOTTOMLESS}, for which DuckDB may end the process'
    return None
