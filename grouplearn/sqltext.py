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
