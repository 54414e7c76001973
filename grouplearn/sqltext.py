"""The one place where names and values become SQL text."""

import datetime as dt
import decimal
import math
import re
import sys
import uuid
from collections.abc import Mapping
from typing import Any

from grouplearn.errors import data_error

_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_CONTROL = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f])")


def identifier(name: str) -> str:
    """Return ``name`` as a double-quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def folded(name: str) -> str:
    """Return ``name`` as DuckDB compares names: A to Z alone are the same as a to z."""
    return name.translate(_LOWER)


def qualified(*parts: str | None) -> str:
    """Return ``a.b.c`` with each part quoted; parts that are None are left out."""
    return ".".join(identifier(part) for part in parts if part is not None)


def string(value: str) -> str:
    """Return ``value`` as a SQL string expression, its control characters but tabs and line ends as ``chr(13)``.

    A SQL text cannot hold NUL, and programs that read one line by line make ``\\n`` of ``\\r``.
    """
    if _CONTROL.search(value) is None:
        return _quoted(value)
    pieces = _CONTROL.split(value)  # those at odd places are control characters
    terms = [f"chr({ord(piece)})" if place % 2 else _quoted(piece) for place, piece in enumerate(pieces)]
    return f"({' || '.join(terms)})"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def literal(value: Any) -> str:
    """Return a Python value as a SQL expression of the DuckDB type that binding it as a parameter would give.

    Raises DataError for a type that has no SQL form.
    """
    numpy = sys.modules.get("numpy")  # where it is not loaded there is none of its values
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        return f"({value!r})::DOUBLE" if math.isfinite(value) else f"'{value}'::DOUBLE"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"from_hex('{bytes(value).hex()}')"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{identifier(str(key))}: {literal(item)}" for key, item in value.items()) + "}"
    for kind, name in _CAST_FROM_TEXT:
        if isinstance(value, kind):
            return f"CAST('{value}' AS {name(value)})"
    raise data_error(f"a parameter of type {type(value).__name__} has no SQL form")


def _decimal_type(value: decimal.Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return f"DECIMAL({min(38, max(len(digits), scale + 1))}, {scale})"


_CAST_FROM_TEXT: tuple[tuple[type, Any], ...] = (
    (decimal.Decimal, _decimal_type),
    (dt.datetime, lambda value: "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"),
    (dt.date, lambda _: "DATE"),
    (dt.time, lambda _: "TIME"),
    (dt.timedelta, lambda _: "INTERVAL"),
    (uuid.UUID, lambda _: "UUID"),
)


def shown(value: object) -> str:
    """Return a value in a message as SQL writes it: NULL, true, 1.0, 'text'."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value) if isinstance(value, str | dict) else str(value)


#: Most characters of a type that a model has: it stands in its SQL several times. An ENUM of 40,000 values has as many.
LONGEST_TYPE = 1 << 19
#: What texts of catalogs may have at most to be given to a parser: the stack of DuckDB's ends at some 16,000 operators one in the
#: other, or 32,000 sources of a FROM; parentheses in FROM take time by the cube of their depth.
_MOST_CHARACTERS, _MOST_TOKENS, _MOST_WORDS, _MOST_LEVELS = 1 << 20, 20_000, 4_000, 100
#: Where nothing of this is, quotes are what they look like: texts between dollars, with backslashes, comments.
_UNCLEAR = re.compile(r"\$[^$]*\$|[eE]'|--|/\*")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
#: Of digits those of ASCII alone are none of names for DuckDB.
_TOKEN = re.compile(r"(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<word>[^\W0-9]\w*|[^\w\s,])|[0-9]+(?:\.[0-9]+)?|,")


#: Words, numbers and commas of all expressions of a model together: DuckDB makes a tree of 25 times their size.
MOST_TOGETHER = 200_000


def tokens(text: str) -> int:
    """Return how many words, numbers and commas SQL has, counted without parsing it."""
    return sum(1 for _ in _TOKEN.finditer(text))


def excess(text: str, within: int = 0) -> str | None:
    """Return why SQL of a stranger's is not to be parsed, None where it may be: counted without parsing it, and never too low.

    It is said of a text ``within`` so many levels of a few words. Words are names, keywords and signs; numbers, texts and commas
    count as tokens alone, so that long lists have room.
    """
    if len(text) > _MOST_CHARACTERS:
        return f"is too long: more than {_MOST_CHARACTERS:,} characters"
    clear = _UNCLEAR.search(text) is None
    if clear:
        text = _QUOTED.sub(lambda found: " 0 " if found[0][0] == "'" else " q ", text)
    tokens, words, level = 0, 4 * within, within
    for found in _TOKEN.finditer(text):
        tokens += 1
        words += found.lastgroup in ("word", "open")
        level += (found.lastgroup == "open") - (found.lastgroup == "close" and clear)
        if level > _MOST_LEVELS:
            return f"is nested too deeply: more than {_MOST_LEVELS} levels"
    if words > _MOST_WORDS:
        return f"is too long: more than {_MOST_WORDS:,} words"
    return f"is too long: more than {_MOST_TOKENS:,} words, numbers and commas" if tokens > _MOST_TOKENS else None
