"""Columns that are arrays: which types are, and the SQL that reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.models.label import NUMBER, Label
from grouplearn.parser.statements import Sql

_ARRAY = re.compile(r"^([^\[\]]+)\[(\d*)\]$")
_WHOLE = re.compile(r"^U?(TINY|SMALL|BIG|HUGE)INT$|^U?INTEGER$|^BOOLEAN$")
#: Bytes as whole numbers, which is how classes of arrays are shown and stored.
_BYTES = "list_transform(regexp_extract_all(hex((", ")), '..'), lambda byte: CAST('0x' || byte AS UTINYINT))"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The type of a column of arrays: the type of its values, their number if the type has it, and whether it is a BLOB."""

    element: str
    length: int | None
    is_bytes: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the values are whole numbers, which can be classes."""
        return bool(_WHOLE.match(self.element))


def array_type(type_name: str) -> ArrayType | None:
    """Return what a column of this type is an array of: ``FLOAT[3]``, ``FLOAT[]``, ``BLOB``; None for any other."""
    if type_name == "BLOB":
        return ArrayType("UTINYINT", None, is_bytes=True)
    found = _ARRAY.match(type_name)
    if not found or types.kind(found[1]) != "numeric":
        return None
    return ArrayType(found[1], int(found[2]) if found[2] else None)


def reading(kind: ArrayType) -> tuple[str, str]:
    """Return the SQL before and after an expression that reads it as a list of doubles, or as bytes."""
    return ("(\n", "\n)") if kind.is_bytes else ("CAST((\n", "\n) AS DOUBLE[])")


def each_class(kind: ArrayType) -> tuple[str, str]:
    """Return the SQL before and after a label that gives each of its values as a whole number."""
    before, after = _BYTES if kind.is_bytes else ("CAST((", ") AS HUGEINT[])")
    return f"unnest({before}", f"{after})"


def names_classes(
    checker: SqlChecker, kind: ArrayType, expression: Sql, labels: frozenset[Label], classified: bool | None
) -> bool:
    """Return whether an array label holds classes: bytes and booleans do, other whole numbers if the learner only
    classifies or ``task = 'classification'`` says so.
    """
    by_type = kind.is_bytes or kind.element == "BOOLEAN"
    classes = classified if classified is not None else by_type or NUMBER not in labels
    classes = classes and any(label.has_classes for label in labels)
    if classes and not kind.is_whole:
        message = f"classes are whole numbers, and the label is an array of {kind.element}"
        raise checker.error(message, expression.span, types.about(expression.text, "Cast it, e.g. x::UTINYINT[]."))
    return classes
