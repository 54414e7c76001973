"""What a DuckDB type can be to a model."""

from __future__ import annotations

import re
from typing import Literal

_NUMERIC = re.compile(r"^(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|BIGNUM|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)$")
_CATEGORY = re.compile(r"^(VARCHAR|ENUM\(.*\)|UUID|CHAR)$", re.DOTALL)
_FITS_FLOAT = re.compile(r"^(FLOAT|U?TINYINT|U?SMALLINT|BOOLEAN)$")
_NESTED = re.compile(r"(\]$|^(STRUCT|MAP|UNION|LIST)\b)")

Kind = Literal["numeric", "category", "other"]


def kind(type_name: str) -> Kind:
    """Return how a column of this type becomes a feature without an encoder."""
    if _NUMERIC.match(type_name):
        return "numeric"
    return "category" if _CATEGORY.match(type_name) else "other"


def is_nested(type_name: str) -> bool:
    """Lists, arrays, structs, maps and unions: they have no single text that names a category."""
    return bool(_NESTED.search(type_name))


def is_class_label(type_name: str) -> bool:
    """A label of this type means classes unless the statement says ``task = 'regression'``."""
    return type_name == "BOOLEAN" or kind(type_name) == "category"


def is_floating(type_name: str) -> bool:
    """A label of this type can hold NaN and infinities."""
    return type_name in {"FLOAT", "DOUBLE"}


def fits_float(type_name: str) -> bool:
    """Every value of this type is one of FLOAT, too."""
    return bool(_FITS_FLOAT.match(type_name))


def as_text(type_name: str) -> tuple[str, str]:
    """Return what stands before and after an expression to make it a text; equal values have equal texts.

    DuckDB takes 0.0 and -0.0 for one value, with two texts; -0.0 + 0 is 0.0.
    """
    return "CAST((", ") + 0 AS VARCHAR)" if is_floating(type_name) else ") AS VARCHAR)"


def is_classless(type_name: str) -> bool:
    """Values of this type have no single text that names a class: intervals such as 30 days and 1 month are equal."""
    return is_nested(type_name) or type_name in {"INTERVAL", '"NULL"'}


def advice(type_name: str) -> str:
    """Return what a user can do about a feature of an unsupported type."""
    if type_name.startswith(("DATE", "TIME")):
        part = "month" if type_name == "DATE" else "hour"
        return f"Take a number out of it, e.g. date_part('{part}', x) or epoch(x)."
    if type_name == "INTERVAL":
        return "Take a number out of it, e.g. epoch(x)."
    if is_nested(type_name):
        return "Take single values out of it, e.g. x[1] or x.field."
    return "Leave it out, or turn it into a number or a text with a SQL expression."
