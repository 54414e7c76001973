"""What a model can use each DuckDB type for."""

from __future__ import annotations

import re
from typing import Literal

from grouplearn.data.encoding.columns import SqlColumn

_NUMERIC = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)$")
_CATEGORY = re.compile(r"^(VARCHAR|ENUM\(.*\)|UUID|CHAR)$", re.DOTALL)
_FITS_FLOAT = re.compile(r"^(FLOAT|U?TINYINT|U?SMALLINT|BOOLEAN)$")
_FITS_BIGINT = re.compile(r"^(U?(TINY|SMALL)INT|U?INTEGER|BIGINT)$")
_WHOLE = r"(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM)"
_WHOLE_NUMBERS = re.compile(rf"^{_WHOLE}$")
#: Types to which a category is cast when it is replayed; all others are read as text.
_CAST = re.compile(
    rf"^({_WHOLE}|BOOLEAN|DECIMAL\(.*\)|FLOAT|DOUBLE|DATE|TIME.*|INTERVAL|UUID|BLOB|BIT)$",
)
#: Types whose cast may round, and the type in which rounded and original value are compared.
_ROUNDED = (
    (re.compile(rf"^({_WHOLE}|BOOLEAN|DECIMAL\(.*\))$"), "DOUBLE"),
    (re.compile(r"^(DATE|TIMESTAMP_M?S)$"), "TIMESTAMP"),
)
_NESTED = re.compile(r"(\]$|^(STRUCT|MAP|UNION|LIST)\b)")
#: A list or an array, and its element type.
_X = re.compile(r"\bx\b")
_COLUMN = re.compile(r'(?:\w+|"[^"]+")(?:\.(?:\w+|"[^"]+"))*')
_LIST = re.compile(r"(.+)\[\d*\]", re.DOTALL)
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")

Kind = Literal["numeric", "category", "other"]


def kind(type_name: str) -> Kind:
    """Return the feature kind of a column of this type without an encoder."""
    if _NUMERIC.match(type_name):
        return "numeric"
    return "category" if _CATEGORY.match(type_name) else "other"


def is_nested(type_name: str) -> bool:
    """Lists, arrays, structs, maps and unions: they have no unique text that could name a category."""
    return bool(_NESTED.search(type_name))


def is_nameless(type_name: str) -> bool:
    """Types without a unique text per class: 1 and '1' share one as VARIANT, and a GEOMETRY is a list of points."""
    return is_nested(type_name) or type_name == "VARIANT" or type_name.startswith("GEOMETRY")


def unreadable_part(type_name: str) -> str | None:
    """Return the UNION or VARIANT part of a key's type, whose values cannot be restored from text; None if there is none."""
    found = re.search(r"\b(UNION(?=\()|VARIANT)\b", _QUOTED.sub("", type_name))
    return found[1] if found else None


def is_class_label(type_name: str) -> bool:
    """Whether a label of this type has classes unless ``task = 'regression'`` is given."""
    return type_name == "BOOLEAN" or kind(type_name) == "category"


def is_whole(type_name: str) -> bool:
    """Whether the type holds whole numbers."""
    return bool(_WHOLE_NUMBERS.match(type_name))


def has_fractions(type_name: str) -> bool:
    """Whether the type holds numbers that are not whole."""
    return is_floating(type_name) or type_name.startswith("DECIMAL")


def is_floating(type_name: str) -> bool:
    """Whether the type holds NaN and infinities."""
    return type_name in {"FLOAT", "DOUBLE"}


def fits_float(type_name: str) -> bool:
    """Whether FLOAT holds every value of this type exactly."""
    return bool(_FITS_FLOAT.match(type_name))


def fits_bigint(type_name: str) -> bool:
    """Whether every value of this type is a whole number that BIGINT holds."""
    return bool(_FITS_BIGINT.match(type_name))


def column_of(type_name: str) -> SqlColumn:
    """Return what encoders need to know about a type."""
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
    """Return the SQL before and after an expression that makes it text; equal values have equal text.

    To DuckDB 0.0 and -0.0 are equal, with two texts, as are NaNs of either sign (-0.0 + 0 is 0.0), 24 hours and a day, 30
    days and a month. Timestamps are shown in UTC, whatever the session's time zone.
    """
    if is_floating(type_name):
        return "replace(CAST((\n", "\n) + 0 AS VARCHAR), '-nan', 'nan')"
    if type_name == "TIMESTAMP WITH TIME ZONE":
        return "replace(CAST((\n", "\n) AT TIME ZONE 'UTC' AS VARCHAR) || '+00', 'infinity+00', 'infinity')"
    if type_name == "INTERVAL":
        return "CAST(normalized_interval((\n", "\n)) AS VARCHAR)"
    return "CAST((\n", "\n) AS VARCHAR)"


def as_text_of(type_name: str) -> tuple[str, str]:
    """As ``as_text``, for an expression whose type may have changed: its value is cast to ``type_name`` first.

    1.0 of DOUBLE is the 1 of an INTEGER; 1.5, which the cast would round to 2, and what cannot be cast become NULL.
    """
    before, after = as_text(type_name)
    if not _CAST.match(type_name):
        return before, after
    if _wide(type_name) is None:
        return f"{before}TRY_CAST((\n", f"\n) AS {type_name}){after}"
    return "list_transform([(\n", f"\n)], lambda v: {before}{exactly('v', type_name)}{after})[1]"


def as_key_text(type_name: str) -> tuple[str, str]:
    """As ``as_text_of``, for keys: a value that the type does not have keeps its own text, so that it is not NULL."""
    if not _CAST.match(type_name):
        return as_text(type_name)
    before, after = as_text(type_name)
    text = f"coalesce({before}{exactly('v', type_name)}{after}, CAST(v AS VARCHAR))"
    return "list_transform([(\n", f"\n)], lambda v: {text})[1]"


def exactly(value: str, type_name: str) -> str:
    """Return SQL that casts a named value to a type, NULL if the type has no equal value."""
    cast, wide = f"TRY_CAST({value} AS {type_name})", _wide(type_name)
    if wide is None:
        return cast
    return f"CASE WHEN coalesce(TRY_CAST({cast} AS {wide}) = TRY_CAST({value} AS {wide}), true) THEN {cast} END"


def _wide(type_name: str) -> str | None:
    return next((wide for narrow, wide in _ROUNDED if narrow.match(type_name)), None)


def uncollated(sql: str, type_name: str) -> str:
    """Return an expression in parentheses that compares text byte by byte, whatever the collation of a column or session."""
    return f"(({sql}\n) COLLATE POSIX)" if type_name == "VARCHAR" else f"({sql}\n)"


def bytewise(name: str, type_name: str) -> str:
    """As ``uncollated``, for columns of any type, also to hash and to order them: hash() follows a collation, and that of the
    session inside lists and structs, too."""
    if type_name == "VARCHAR[]":
        return f"list_transform({name}, lambda text: encode(text))"
    if has_text(type_name) and type_name != "VARCHAR":
        return uncollated(f"CAST({name} AS VARCHAR)", "VARCHAR")
    return uncollated(name, type_name)


def has_text(type_name: str) -> bool:
    """Whether values of the type are texts, or have texts in them."""
    return "VARCHAR" in type_name or "JSON" in type_name


def is_classless(type_name: str) -> bool:
    """Whether values of this type cannot be class names."""
    return is_nameless(type_name) or type_name == "INTERVAL" or is_untyped(type_name)


def has_inner_numbers(type_name: str) -> bool:
    """Whether values of the type are lists, structs or maps with numbers that have several texts."""
    return is_nested(type_name) and re.search(r"\b(FLOAT|DOUBLE|INTERVAL)\b", _QUOTED.sub("", type_name)) is not None


def is_untyped(type_name: str) -> bool:
    """Whether the type has no value but NULL."""
    return type_name == '"NULL"'


def is_time(type_name: str) -> bool:
    """Whether values of this type are dates or times."""
    return type_name.startswith(("DATE", "TIME")) and not is_nested(type_name)


def is_date_or_timestamp(type_name: str) -> bool:
    """Whether values of this type have a date."""
    return is_time(type_name) and (type_name == "DATE" or "STAMP" in type_name)


def advice(type_name: str) -> str:
    """Return what a user can do with a feature of an unsupported type."""
    if is_untyped(type_name):
        return "It has no type: leave it out, or cast it, e.g. x::DOUBLE."
    if is_nameless(type_name) and not is_nested(type_name):
        return f"Cast it, e.g. x::VARCHAR{' or x::DOUBLE' if type_name == 'VARIANT' else ''}."
    inner = inside(type_name)
    if inner is None:
        return "Leave it out, or turn it into a number or a text with a SQL expression."
    return f"{inner[0].upper()}{inner[1:]}."


def about(sql: str, hint: str) -> str:
    """Return a hint about ``x`` with a column in its place; for another expression it stays as it is."""
    column = sql.strip()
    return _X.sub(lambda _: column, hint) if _COLUMN.fullmatch(column) else hint


def inside(type_name: str) -> str | None:
    """Return how to take a feature out of a value ``x`` of this type, as the end of a sentence; None if impossible."""
    if is_time(type_name):
        part = "month" if type_name == "DATE" else "hour"
        return f"take a number out of it, e.g. date_part('{part}', x) or epoch(x)"
    if type_name == "INTERVAL":
        return "take a number out of it, e.g. epoch(x)"
    return f"take single values out of it, e.g. {_single('x', type_name)}" if is_nested(type_name) else None


def _single(value: str, type_name: str) -> str:
    """Return SQL that takes a number or text out of a value; for a union member the type is unknown."""
    listed = _LIST.fullmatch(type_name)
    if listed:
        return _single(f"{value}[1]", listed[1])
    if is_nested(type_name):
        return f"{value}['key']" if type_name.startswith("MAP") else f"{value}.field"
    if is_time(type_name) or type_name == "INTERVAL":
        return f"epoch({value})"
    return f"{value}::VARCHAR" if kind(type_name) == "other" else value
