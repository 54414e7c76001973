"""Each SQL text in a catalog must be one expression or one type, or the model is refused.

A model stores the expressions of its statement as text, and the file's author may have stored something else: text that
ends the surrounding expression and begins another. The parser of the DuckDB that will run it decides, one text at a time,
as two invalid texts may be valid together.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import duckdb

from grouplearn.bind.sql.bounds import LONGEST_TYPE, MOST_TOGETHER, excess, tokens
from grouplearn.bind.sql.builtins import keywords
from grouplearn.catalog.records import ModelDefinition
from grouplearn.errors import NotTrusted

#: A part of the tree that DuckDB makes of a SELECT, as JSON.
Node = dict[str, Any]

#: The text around a fragment (in parentheses, before a line break), and around one that would close them too early.
_WITHIN, _ALONE = "SELECT ({}\n)", "SELECT {}\n"
_TYPE = "SELECT CAST(NULL AS {}) AS checked"
#: A column name, quoted or not, alone or cast to a number or text: it cannot do harm.
_NAME = re.compile(
    r'(?P<cast>CAST\(\(\n)?(?:(?P<word>[A-Za-z_]\w*)|"(?P<quoted>(?:[^"\0]|"")+)")'
    r"(?(cast)\n\) AS (?P<kind>DOUBLE|VARCHAR)\))",
    re.ASCII,
)
#: A token of JSON.
_TOKEN = re.compile(r'[{}\[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+')
#: DuckDB's error for an expression with more levels than ``max_expression_depth``: only its text tells it from others.
_TOO_DEEP = re.compile(r"expression depth limit of (\d+)", re.IGNORECASE)
_SIMPLE_TYPE = re.compile(
    r"(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|FLOAT|DOUBLE|BOOLEAN|VARCHAR|DATE|TIME|TIMESTAMP|UUID|BLOB|BIT"
    r"|INTERVAL|TIME(?:STAMP)? WITH TIME ZONE|TIMESTAMP_(?:S|MS|NS)|DECIMAL\(\d+,\s?\d+\)"
    r"|ENUM\('(?:[^'\0]|'')*'(?:, '(?:[^'\0]|'')*')*\))(?:\[\]){0,8}"
)
#: Most numbers of an array, nested ones included: DuckDB allocates all at once.
_MOST_IN_ARRAY = 100_000
#: Most characters of a fragment that an error shows.
_SHOWN = 200
_SHORTER = "Write it shorter, or make a column of it, and train the model anew."
_HINT = "The database was changed by hand, or it was made to do harm: do not trust it. DROP MODEL removes the model."


@dataclass(frozen=True, slots=True)
class Fragment:
    """SQL text of a model, its role there, and the tree of its expression; None for a column name."""

    what: str
    text: str
    tree: Node | None = None

    @property
    def shown(self) -> str:
        """The text as an error shows it."""
        return self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}..."


class _Memory:
    """A bounded, thread-safe set of digests; the least recently used goes first."""

    def __init__(self, most: int) -> None:
        self._known: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._most, self._lock = most, threading.Lock()

    def add(self, kind: str, digest: bytes) -> None:
        with self._lock:
            self._known[kind, digest] = None
            self._known.move_to_end((kind, digest))
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def has(self, kind: str, digest: bytes) -> bool:
        with self._lock:
            return (kind, digest) in self._known


#: Texts of models trained by this process from its user's statements, and texts that passed the check.
_TRAINED, _CHECKED = _Memory(3072), _Memory(1024)  # a trained model has three


def trained_here(definition: ModelDefinition, *meanings: str) -> None:
    """Remember that a model's texts come from a statement given to this process, checked by DuckDB.

    ``meanings`` is what else must be unchanged for the texts to mean the same.
    """
    digest = _digest(definition)
    for meaning in ("", *meanings):
        _TRAINED.add(meaning, digest)


def is_trained_here(definition: ModelDefinition, meaning: str = "") -> bool:
    """Return whether all texts of a model come from a statement given to this process, and mean the same."""
    return _TRAINED.has(meaning, _digest(definition))


def is_simple_type(text: str) -> bool:
    """Return whether a text is a type that is harmless and needs no parsing."""
    return len(text) <= LONGEST_TYPE and _SIMPLE_TYPE.fullmatch(text) is not None


def types(definition: ModelDefinition) -> list[str]:
    """Return the types of a model as stored."""
    return [fragment.text for fragment in _types(definition)]


def check(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> None:
    """Raise NotTrusted unless every text of a model that is used as SQL is one expression, or one type."""
    kind, digest = type(con).__name__, _digest(definition)  # the parser is this process's, or the host's
    if not (_TRAINED.has("", digest) or _CHECKED.has(kind, digest)):
        expressions(con, definition)
        _CHECKED.add(kind, digest)


def expressions(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> list[Fragment]:
    """Return a model's expressions with their trees, and its ``types_named``; raises as ``check``."""
    return [*types_named(con, definition), *parsed(con, definition.name, list(_fragments(definition)))]


def types_named(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> list[Fragment]:
    """Return a model's types with their trees, if they may name something user-made or an extension's.

    Raises NotTrusted unless each is a type.
    """
    fragments = [fragment for fragment in _types(definition) if not is_simple_type(fragment.text)]
    found = []
    for fragment, document in zip(
        fragments, serialized(con, [_TYPE.format(fragment.text) for fragment in fragments]), strict=True
    ):
        node = statement_of(document)
        items = node.get("select_list", []) if node else []
        if len(items) != 1 or not _is_cast_of_null(items[0]) or has_large_array(items[0]):
            raise _refusal(definition.name, fragment, "a type")
        found.append(Fragment(fragment.what, fragment.text, items[0]))
    return found


def parsed(con: duckdb.DuckDBPyConnection, model: str, fragments: Sequence[Fragment]) -> list[Fragment]:
    """Return the fragments with their trees; raises NotTrusted unless each is one expression."""
    doubtful = [fragment for fragment in fragments if not _is_name(fragment.text)]
    _refuse_excess(model, doubtful)
    within = serialized(con, [_WITHIN.format(fragment.text) for fragment in doubtful])
    alone = serialized(con, [_ALONE.format(fragment.text) for fragment in doubtful])
    found = []
    for fragment in fragments:
        if _is_name(fragment.text):
            found.append(fragment)
            continue
        document = next(alone)
        is_read, tree = not next(within).get("error"), _expression(document)
        if deep := _TOO_DEEP.search(str(document.get("error_message"))):
            raise _too_deep(model, fragment, deep[1])
        if not is_read or tree is None:
            raise _refusal(model, fragment, "one expression")
        found.append(Fragment(fragment.what, fragment.text, tree))
    return found


def _refuse_excess(model: str, fragments: Sequence[Fragment]) -> None:
    """Raise NotTrusted if fragments exceed the parser's limits, each or together."""
    for fragment in fragments:
        if (reason := excess(fragment.text)) is not None:
            message = (
                f'{fragment.what} of model "{model}" {reason}, so it cannot be checked\nExpression: {fragment.shown}'
            )
            raise NotTrusted(message, hint=_SHORTER)
    if sum(tokens(fragment.text) for fragment in fragments) > MOST_TOGETHER:
        message = (
            f'the expressions of model "{model}" have more than {MOST_TOGETHER:,} words, numbers and commas together'
        )
        raise NotTrusted(f"{message}, so they cannot be checked", hint=_SHORTER)


def serialized(con: duckdb.DuckDBPyConnection, queries: Sequence[str]) -> Iterator[Node]:
    """Yield the parsed statements of each text, or an error, also for one that exceeds the parser's limits."""
    usable = [*filter(_is_usable, queries)]
    query = "SELECT system.main.json_serialize_sql(text) FROM (SELECT unnest(?::VARCHAR[]) AS text)"
    rows = iter(con.execute(query, [usable]).fetchall() if usable else ())
    for text in queries:
        if not _is_usable(text):
            yield {"error": True}
            continue
        yield _read(next(rows)[0])


def _is_usable(text: str) -> bool:
    """Whether DuckDB's parser may read a text: it stops at a NUL, and its stack overflows on an excessive one."""
    return "\0" not in text and excess(text) is None


def _read(text: str) -> Node:
    """Return parsed JSON of DuckDB's; a sum of hundreds of terms is nested too deep for Python's json."""
    try:
        document: Node = json.loads(text)
        return document
    except RecursionError:
        return _read_deep(text)


def _read_deep(text: str) -> Node:
    root: list[Any] = []
    open_parts: list[tuple[Any, str | None]] = []  # each unfinished object or list, and the key of its next value
    part: Any = root
    key: str | None = None
    for piece in _TOKEN.findall(text):
        if piece in "]}":
            part, key = open_parts.pop()
            continue
        if piece in ",:":
            continue
        value: Any = {} if piece == "{" else [] if piece == "[" else json.loads(piece)
        if isinstance(part, dict) and key is None:
            key = value
            continue
        if isinstance(part, dict):
            part[key] = value
        else:
            part.append(value)
        key = None
        if piece in "[{":
            open_parts.append((part, key))
            part = value
    document: Node = root[0]
    return document


def one_query(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return SQL made of catalog texts if it is one query; raises NotTrusted for anything else.

    It is the last check and does not say which text is at fault: each was checked before.
    """
    if getattr(con, "serves_predict", False):  # DuckDB runs in another process, maybe in another version
        count = "system.main.json_array_length(system.main.json_serialize_sql(?::VARCHAR), '$.statements')"
        one = "\0" not in query and con.execute(f"SELECT {count}", [query]).fetchall() == [(1,)]
    else:
        found = con.extract_statements(query)
        one = len(found) == 1 and found[0].type == duckdb.StatementType.SELECT
    if not one:
        raise NotTrusted("the expressions of the model do not make one query", hint=_HINT)
    return query


def query_of(definition: ModelDefinition, con: duckdb.DuckDBPyConnection) -> Callable[[str], str]:
    """Return a function that checks a model's view or macro query as ``one_query`` does; those trained by this process were
    checked then, of which the model's texts, which may be many, are asked once.
    """
    return str if is_trained_here(definition) else partial(one_query, con)


def statement_of(document: Node) -> Node | None:
    """Return the tree of a text's only statement; None if it has none, several, or one with parameters."""
    statements = document.get("statements") or []
    if document.get("error") or len(statements) != 1 or statements[0].get("named_param_map"):
        return None
    node: Node = statements[0]["node"]
    return node


def _expression(document: Node) -> Node | None:
    """Return the tree of a SELECT of exactly one expression, None for anything else."""
    node = statement_of(document)
    if node is None or node.pop("type") != "SELECT_NODE" or node.pop("from_table", {}).get("type") != "EMPTY":
        return None
    items = node.pop("select_list", ())
    others = (node.pop("cte_map", {}).get("map"), node.pop("aggregate_handling", "") != "STANDARD_HANDLING")
    if len(items) != 1 or items[0].get("alias") or items[0].get("class") == "STAR" or any((*others, *node.values())):
        return None
    expression: Node = items[0]
    return expression


def _is_name(text: str) -> bool:
    """Return whether a text is a column name or a cast of one, so that it calls nothing user-made."""
    found = _NAME.fullmatch(text)
    return found is not None and (found["word"] is None or found["word"].lower() not in _keywords())


def column_name(text: str) -> str | None:
    """Return the column name of a fragment, alone or cast to a number; None for other expressions."""
    found = _NAME.fullmatch(text) if _is_name(text) else None
    if found is None or found["kind"] == "VARCHAR":
        return None
    return found["word"] or found["quoted"].replace('""', '"')


@lru_cache
def _keywords() -> frozenset[str]:
    """Return the words that cannot be column names, and those that may be more than names."""
    return frozenset(word for word, category in keywords().items() if category != "unreserved")


def _is_cast_of_null(item: Node) -> bool:
    child, kind = item.get("child", {}), item.get("type_expr", {})
    null = child.get("literal", {}).get("kind") == "NULL_LITERAL" or child.get("value", {}).get("is_null") is True
    plain = item.get("class") == "CAST" and item.get("alias") == "checked" and child.get("class") == "CONSTANT"
    return plain and null and not item.get("try_cast") and all(name in ("TYPE", "CONSTANT") for name in _classes(kind))


def has_large_array(tree: Any) -> bool:
    """Whether an array type in a tree has too many numbers, nested arrays included."""
    pending: list[tuple[Any, int]] = [(tree, 1)]
    total = 0
    while pending:
        part, size = pending.pop()
        if isinstance(part, dict):
            if (own := _size(part)) > 1:
                size *= own
                total += size
            if total > _MOST_IN_ARRAY:
                return True
            pending += ((each, size) for each in part.values())
        elif isinstance(part, list):
            pending += ((each, size) for each in part)
    return False


def _size(node: Node) -> int:
    """Return the size of a node that is an array type, as DuckDB 1 or 2 gives it; 1 for other nodes."""
    if node.get("type") == "ARRAY_TYPE_INFO":
        return int(node.get("size") or 1)
    if node.get("class") != "TYPE" or str(node.get("type_name")).lower() != "array":
        return 1
    sizes = [
        str((child.get("literal") or child.get("value") or {}).get("text", "")) for child in node.get("children") or ()
    ]
    return max((int(size) for size in sizes if size.isdecimal()), default=1)


def _classes(node: Any) -> Iterator[str]:
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if "class" in part:
                yield part["class"]
            pending += part.values()
        elif isinstance(part, list):
            pending += part


def _fragments(definition: ModelDefinition) -> Iterator[Fragment]:
    if definition.target_sql is not None:
        yield Fragment("the label", definition.target_sql)
    if definition.weight_sql is not None:
        yield Fragment("the weight", definition.weight_sql)
    for key in (*definition.keys, *definition.series, *(definition.held_out or ())):
        yield Fragment(f'key "{key.name}"', key.sql)
    for entry in definition.items:
        yield Fragment(f'feature "{entry.item.name}"', entry.sql)


def _types(definition: ModelDefinition) -> Iterator[Fragment]:
    if definition.label_type is not None:
        yield Fragment("the type of the label", definition.label_type)
    for key in (*definition.keys, *definition.series, *(definition.held_out or ())):
        yield Fragment(f'the type of key "{key.name}"', key.type)
    for entry in definition.items:
        yield Fragment(f'the type of feature "{entry.item.name}"', entry.type)
    for column in definition.hyperparameters:
        yield Fragment(f'the type of hyperparameter "{column.name}"', column.type)


def _digest(definition: ModelDefinition) -> bytes:
    """Return a digest of a model's texts, each with its role, as a type is no expression."""
    texts = [definition.statement]
    for role, parts in (("expression", _fragments(definition)), ("type", _types(definition))):
        for part in parts:
            texts += [role, part.what, part.text]
    found = hashlib.sha256()
    for text in texts:
        content = text.encode(errors="surrogatepass")
        found.update(len(content).to_bytes(8, "little") + content)
    return found.digest()


def _too_deep(model: str, fragment: Fragment, most: str) -> NotTrusted:
    message = f'{fragment.what} of model "{model}" is nested too deeply to be checked: more than {most} levels'
    message += f"\nExpression: {fragment.shown}"
    hint = "SET max_expression_depth says how many levels DuckDB reads."
    return NotTrusted(message, hint=hint)


def _refusal(model: str, fragment: Fragment, wanted: str) -> NotTrusted:
    return NotTrusted(f'{fragment.what} of model "{model}" is not {wanted}: {fragment.shown}', hint=_HINT)
