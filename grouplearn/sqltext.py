"""The one place where names and values become SQL text.

A value's class may derive from str, int, float, date, ... and override its methods: markupsafe.Markup, members of an enum.
Here the base class's methods are used, as DuckDB does when it binds a value: overridden ones could return any SQL.
"""

import datetime as dt
import decimal
import math
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grouplearn.failures import WrongData

_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_CONTROL = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f])")


def identifier(name: str) -> str:
    """Return ``name`` as a double-quoted SQL identifier."""
    return '"' + str.replace(name, '"', '""') + '"'


def written(name: str) -> str:
    """Return a name as a user would write it: quoted where it needs to be."""
    return name if name.isidentifier() else identifier(name)


def plain(text: str) -> str:
    """Return a text of any subclass of str as a str."""
    return str.__str__(text)


def folded(name: str) -> str:
    """Return ``name`` as DuckDB compares names: only A to Z are the same as a to z."""
    return name.translate(_LOWER)


def qualified(*parts: str | None) -> str:
    """Return ``a.b.c`` with each part quoted; parts that are None are left out."""
    return ".".join(identifier(part) for part in parts if part is not None)


def four_digits(column: str) -> str:
    """Return SQL of a DOUBLE column rounded to four digits, or to a whole number, under its name."""
    name = identifier(column)
    # round() alone would turn small errors into 0, and '%.4g' alone digits before the decimal point.
    return f"CASE WHEN abs({name}) < 1000 THEN CAST(printf('%.4g', {name}) AS DOUBLE) ELSE round({name}) END AS {name}"


def string(value: str) -> str:
    """Return ``value`` as a SQL string expression; control characters other than tabs and line ends become ``chr(13)``.

    A SQL text cannot contain NUL, and programs that read line by line turn ``\\r`` into ``\\n``.
    """
    if _CONTROL.search(value) is None:
        return _quoted(value)
    pieces = _CONTROL.split(value)  # those at odd places are control characters
    terms = [f"chr({ord(piece)})" if place % 2 else _quoted(piece) for place, piece in enumerate(pieces)]
    return f"({' || '.join(terms)})"


def _quoted(value: str) -> str:
    return "'" + str.replace(value, "'", "''") + "'"


def literal(value: Any) -> str:
    """Return a Python value as a SQL expression of the type that DuckDB would bind it as.

    Raises DataError for a type that has no SQL form.
    """
    numpy = sys.modules.get("numpy")  # if it is not loaded no value is its
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        value = value.tolist()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        digits = float.__repr__(value)
        return f"({digits})::DOUBLE" if math.isfinite(value) else f"'{digits}'::DOUBLE"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"from_hex('{memoryview(value).tobytes().hex()}')"
    if isinstance(value, list | tuple):
        items = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        return "[" + ", ".join(literal(item) for item in items) + "]"
    if isinstance(value, Mapping) and _is_map(value):
        return f"MAP({', '.join(map(literal, value.values()))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{identifier(str(key))}: {literal(item)}" for key, item in value.items()) + "}"
    if _is_missing(value):
        return "NULL"
    for kind, written in _CAST_FROM_TEXT:
        if isinstance(value, kind):
            text, name = written(value)
            return f"CAST({_quoted(text)} AS {name})"
    constants = sys.modules.get("duckdb.value.constant")
    if constants is not None and isinstance(value, constants.Value):
        return f"CAST({literal(value.object)} AS {value.type})"
    raise WrongData(f"a parameter of type {type(value).__name__} has no SQL form")


def _is_map(value: Mapping[Any, Any]) -> bool:
    """Whether DuckDB takes it for a MAP, whose keys may be of any type: {'key': [1, 2], 'value': ['a', 'b']}."""
    lists = [each for each in value.values() if isinstance(each, list | tuple)]
    return not value or (value.keys() == {"key", "value"} and len(lists) == 2 and len(lists[0]) == len(lists[1]))


def _is_missing(value: Any) -> bool:
    """Whether it is one of pandas' values for NULL; NaT derives from datetime."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and any(value is getattr(pandas, name, None) for name in ("NaT", "NA"))


def _integer(value: int) -> str:
    try:
        digits = int.__repr__(value)
    except ValueError:  # Python converts at most some thousand digits
        raise WrongData(f"an integer of {int.bit_length(value):,} bits is too large; DuckDB's have 128") from None
    if 2**63 <= value < 2**64:
        return f"{digits}::UBIGINT"
    return f"({digits})" if digits.startswith("-") else digits


def _decimal(value: decimal.Decimal) -> tuple[str, str]:
    _, digits, exponent = decimal.Decimal.as_tuple(value)
    if not isinstance(exponent, int):  # NaN and infinities
        return decimal.Decimal.__str__(value), "FLOAT"
    scale, width = max(0, -exponent), len(digits) + max(0, exponent)
    return decimal.Decimal.__format__(value, "f"), f"DECIMAL({min(38, max(width, scale + 1))}, {scale})"


def _timestamp(value: dt.datetime) -> tuple[str, str]:
    bare = dt.datetime.combine(dt.datetime.date(value), dt.datetime.timetz(value))
    return bare.isoformat(" "), "TIMESTAMP" if bare.tzinfo is None else "TIMESTAMPTZ"


def _time(value: dt.time) -> tuple[str, str]:
    zoned = dt.time.utcoffset(value) is not None
    return dt.time.isoformat(value), "TIMETZ" if zoned else "TIME"


def _interval(value: dt.timedelta) -> tuple[str, str]:
    days, seconds, rest = (getattr(dt.timedelta, part).__get__(value) for part in ("days", "seconds", "microseconds"))
    return f"{days} days {seconds} seconds {rest} microseconds", "INTERVAL"


_CAST_FROM_TEXT: tuple[tuple[type, Any], ...] = (
    (decimal.Decimal, _decimal),
    (dt.datetime, _timestamp),
    (dt.date, lambda value: (dt.date.isoformat(value), "DATE")),
    (dt.time, _time),
    (dt.timedelta, _interval),
    (uuid.UUID, lambda value: (uuid.UUID.__str__(value), "UUID")),
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A value of DuckDB that Python does not have, such as an infinite date: its text and its type."""

    text: str
    type: str

    def __str__(self) -> str:
        return self.text


def shown(value: object) -> str:
    """Return a value in a message as SQL writes it: NULL, true, 1.0, 'text'."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Typed):
        return f"{value.type} {_quoted(value.text)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value) if isinstance(value, str | dict) else str(value)
