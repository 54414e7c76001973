"""What a DuckDB type can be to a model."""

from __future__ import annotations

import re
from typing import Literal

from grouplearn.data.encoding.columns import SqlColumn

_NUMERIC = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)$")
_CATEGORY = re.compile(r"^(VARCHAR|ENUM\(.*\)|UUID|CHAR)$", re.DOTALL)
_FITS_FLOAT = re.compile(r"^(FLOAT|U?TINYINT|U?SMALLINT|BOOLEAN)$")
_WHOLE = r"(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM)"
#: The types that a category is cast to where it is replayed: any other is read as a text, and a text is one already.
_CAST = re.compile(
    rf"^({_WHOLE}|BOOLEAN|DECIMAL\(.*\)|FLOAT|DOUBLE|DATE|TIME.*|INTERVAL|UUID|BLOB|BIT)$",
)
#: What a cast may round to, and the type in which what it rounded differs from what it was.
_ROUNDED = (
    (re.compile(rf"^({_WHOLE}|BOOLEAN|DECIMAL\(.*\))$"), "DOUBLE"),
    (re.compile(r"^(DATE|TIMESTAMP_M?S)$"), "TIMESTAMP"),
)
_NESTED = re.compile(r"(\]$|^(STRUCT|MAP|UNION|LIST)\b)")
#: A list or an array, and the type of what is in it.
_LIST = re.compile(r"(.+)\[\d*\]", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")

Kind = Literal["numeric", "category", "other"]


def kind(type_name: str) -> Kind:
    """Return how a column of this type becomes a feature without an encoder."""
    if _NUMERIC.match(type_name):
        return "numeric"
    return "category" if _CATEGORY.match(type_name) else "other"


def is_nested(type_name: str) -> bool:
    """Lists, arrays, structs, maps and unions: they have no single text that names a category."""
    return bool(_NESTED.search(type_name))


def is_nameless(type_name: str) -> bool:
    """Values of this type have no text that names a class: 1 and '1' of VARIANT have one, and a GEOMETRY is a list of points."""
    return is_nested(type_name) or type_name == "VARIANT" or type_name.startswith("GEOMETRY")


def unreadable_part(type_name: str) -> str | None:
    """Return the part of a key's type, UNION or VARIANT, whose values cannot be read again from their text; None: all can."""
    found = re.search(r"\b(UNION(?=\()|VARIANT)\b", _QUOTED.sub("", type_name))
    return found[1] if found else None


def is_class_label(type_name: str) -> bool:
    """A label of this type means classes unless the statement says ``task = 'regression'``."""
    return type_name == "BOOLEAN" or kind(type_name) == "category"


def has_fractions(type_name: str) -> bool:
    """A label of this type can hold numbers that are not whole."""
    return is_floating(type_name) or type_name.startswith("DECIMAL")


def is_floating(type_name: str) -> bool:
    """A label of this type can hold NaN and infinities."""
    return type_name in {"FLOAT", "DOUBLE"}


def fits_float(type_name: str) -> bool:
    """Every value of this type is one of FLOAT, too."""
    return bool(_FITS_FLOAT.match(type_name))


def column_of(type_name: str) -> SqlColumn:
    """Return what encoders ask of a type."""
    listed = _LIST.fullmatch(type_name)
    return SqlColumn(
        type=type_name,
        kind=kind(type_name),
        named=not is_nameless(type_name),
        text=as_text(type_name),
        text_of=as_text_of(type_name),
        element=column_of(listed[1]) if listed else None,
    )


def as_text(type_name: str) -> tuple[str, str]:
    """Return what stands before and after an expression to make it a text; equal values have equal texts.

    DuckDB takes 0.0 and -0.0 for one value, with two texts, and so NaN of either sign; -0.0 + 0 is 0.0. It takes 24 hours for a
    day and 30 days for a month. A moment reads as it does in UTC, whatever the time zone of the session.
    """
    if is_floating(type_name):
        return "replace(CAST((\n", "\n) + 0 AS VARCHAR), '-nan', 'nan')"
    if type_name == "TIMESTAMP WITH TIME ZONE":
        return "replace(CAST((\n", "\n) AT TIME ZONE 'UTC' AS VARCHAR) || '+00', 'infinity+00', 'infinity')"
    if type_name == "INTERVAL":
        return "CAST(normalized_interval((\n", "\n)) AS VARCHAR)"
    return "CAST((\n", "\n) AS VARCHAR)"


def as_text_of(type_name: str) -> tuple[str, str]:
    """As ``as_text``, of an expression that may have another type by now: its value is cast to ``type_name`` first.

    1.0 of DOUBLE is the 1 of an INTEGER; 1.5, which a cast would round to 2, is none of its values and NULL, as is what
    cannot be cast.
    """
    before, after = as_text(type_name)
    if not _CAST.match(type_name):
        return before, after
    if _wide(type_name) is None:
        return f"{before}TRY_CAST((\n", f"\n) AS {type_name}){after}"
    return "list_transform([(\n", f"\n)], lambda v: {before}{exactly('v', type_name)}{after})[1]"


def exactly(value: str, type_name: str) -> str:
    """Return a value, which is a name, cast to a type; NULL where the type has none that is equal to it."""
    cast, wide = f"TRY_CAST({value} AS {type_name})", _wide(type_name)
    if wide is None:
        return cast
    return f"CASE WHEN coalesce(TRY_CAST({cast} AS {wide}) = TRY_CAST({value} AS {wide}), true) THEN {cast} END"


def _wide(type_name: str) -> str | None:
    return next((wide for narrow, wide in _ROUNDED if narrow.match(type_name)), None)


def told_apart(sql: str, type_name: str) -> str:
    """Return an expression in parentheses, other texts being other values whatever the collation of a column or a session."""
    return f"(({sql}\n) COLLATE POSIX)" if type_name == "VARCHAR" else f"({sql}\n)"


def is_classless(type_name: str) -> bool:
    """Values of this type do not name a class."""
    return is_nameless(type_name) or type_name in {"INTERVAL", '"NULL"'}


def is_time(type_name: str) -> bool:
    """Values of this type are dates or times."""
    return type_name.startswith(("DATE", "TIME")) and not is_nested(type_name)


def advice(type_name: str) -> str:
    """Return what a user can do about a feature of an unsupported type."""
    if is_nameless(type_name) and not is_nested(type_name):
        return f"Cast it, e.g. x::VARCHAR{' or x::DOUBLE' if type_name == 'VARIANT' else ''}."
    inner = inside(type_name)
    if inner is None:
        return "Leave it out, or turn it into a number or a text with a SQL expression."
    return f"{inner[0].upper()}{inner[1:]}."


def inside(type_name: str) -> str | None:
    """Return, as the end of a sentence, how to take a feature out of a value ``x`` of this type, None where nothing is in it."""
    if is_time(type_name):
        part = "month" if type_name == "DATE" else "hour"
        return f"take a number out of it, e.g. date_part('{part}', x) or epoch(x)"
    if type_name == "INTERVAL":
        return "take a number out of it, e.g. epoch(x)"
    return f"take single values out of it, e.g. {_single('x', type_name)}" if is_nested(type_name) else None


def _single(value: str, type_name: str) -> str:
    """Return a number or a text out of a value, as SQL; of a member nothing is known."""
    listed = _LIST.fullmatch(type_name)
    if listed:
        return _single(f"{value}[1]", listed[1])
    if is_nested(type_name):
        return f"{value}['key']" if type_name.startswith("MAP") else f"{value}.field"
    if is_time(type_name) or type_name == "INTERVAL":
        return f"epoch({value})"
    return f"{value}::VARCHAR" if kind(type_name) == "other" else value
