"""A model's expressions and types in a form that any program that splits SQL scripts reads correctly.

Programs such as the ``duckdb`` shell find the ends of statements themselves, and take a following line that begins with a
dot for a command. They may not know that comments nest, or that ``E'\\''`` and ``$$'$$`` are strings, and see the end of a
statement where DuckDB reads one expression. So scripts contain no comments, only single-quoted strings, and no line breaks
outside quotes; DuckDB's parser confirms that the expression is unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import duckdb

from grouplearn.catalog.checks import fragments
from grouplearn.catalog.checks.fragments import Fragment
from grouplearn.catalog.records import ModelDefinition
from grouplearn.exchange.directory_reader import CannotExchange
from grouplearn.parser.lexer.tokens import Kind, Token, lex
from grouplearn.sqltext import string

#: A token's position in the parsed text.
_PLACE = re.compile(r'"query_location(?:_length)?": \d+')
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


def with_plain_expressions(con: duckdb.DuckDBPyConnection, definition: ModelDefinition) -> ModelDefinition:
    """Return the model with its keys, features and types in plain form.

    Raises CannotExchange if one has no plain form.
    """
    keys = [Fragment(f'key "{key.name}"', key.sql) for key in definition.keys]
    items = [Fragment(f'feature "{entry.item.name}"', entry.sql) for entry in definition.items]
    texts = iter(_plain(con, [*keys, *items], "SELECT ({}\n)"))
    types = [Fragment("a type", text) for text in fragments.types(definition)]
    known = dict(zip((each.text for each in types), _plain(con, types, "SELECT CAST(NULL AS {}\n)"), strict=True))
    return replace(
        definition,
        label_type=None if definition.label_type is None else known[definition.label_type],
        keys=tuple(replace(key, sql=next(texts), type=known[key.type]) for key in definition.keys),
        items=tuple(replace(entry, sql=next(texts), type=known[entry.type]) for entry in definition.items),
        hyperparameters=tuple(replace(each, type=known[each.type]) for each in definition.hyperparameters),
    )


def _plain(con: duckdb.DuckDBPyConnection, parts: Sequence[Fragment], within: str) -> list[str]:
    plain = [_written(con, part) for part in parts]
    before, after = _trees(con, [part.text for part in parts], within), _trees(con, plain, within)
    for fragment, one, other in zip(parts, before, after, strict=True):
        if one is None or one != other:
            raise _refusal(fragment, "it means something else without its comments and line breaks")
    return plain


def _trees(con: duckdb.DuckDBPyConnection, texts: Sequence[str], within: str) -> list[str | None]:
    """Return DuckDB's parse tree of each text, as JSON without positions; None for invalid SQL."""
    documents = fragments.serialized(con, [within.format(text) for text in texts])
    return [None if each.get("error") else _PLACE.sub("", json.dumps(each)) for each in documents]


def _written(con: duckdb.DuckDBPyConnection, fragment: Fragment) -> str:
    """Return the tokens of a text, separated by one space where anything separates them."""
    words, end = [""], 0
    for token in lex(fragment.text):
        if token.start > end and words[-1]:
            words.append("")
        words[-1] += _quoted(con, token, fragment)
        end = token.end
    text = " ".join(words)
    if _CONTROL.search(text):
        raise _refusal(fragment, "it has a control character, which programs that read lines take for another")
    return text


def _quoted(con: duckdb.DuckDBPyConnection, token: Token, fragment: Fragment) -> str:
    """Return a token unchanged, strings of other kinds in single quotes."""
    if token.kind is not Kind.STRING or token.text[0] not in "eE$":
        return token.text
    node = fragments.statement_of(next(fragments.serialized(con, [f"SELECT {token.text}"])))
    constant = node["select_list"][0] if node else {}
    # The forms of DuckDB 2 and 1.
    value = constant.get("literal", {}).get("text") or constant.get("value", {}).get("value", "")
    if constant.get("class") != "CONSTANT" or not isinstance(value, str):
        raise _refusal(fragment, f"DuckDB takes {token.text[:60]} for no text")
    return f" {string(value)} "


def _refusal(fragment: Fragment, why: str) -> CannotExchange:
    message = f"{fragment.what} cannot be written into a script, for {why}: {fragment.shown}"
    return CannotExchange(message, "Make a column or a view of it, and train the model on that.")
