"""Columns that are arrays: which types are, the SQL that reads them, and how long they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grouplearn.bind.sql import types
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.models.label import NUMBER, Label
from grouplearn.parser.statements import Sql

if TYPE_CHECKING:
    from grouplearn.bind.bound import BoundTarget, BoundTrain
    from grouplearn.bind.features import BoundItem

_ARRAY = re.compile(r"^([^\[\]]+)\[(\d*)\]$")
#: How SQL that reads an array of numbers ends; line breaks may be gone.
_AS_DOUBLES = re.compile(r"\bAS DOUBLE\[\]\)\s*$")
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


def reads_bytes(sql: str) -> bool:
    """Return whether SQL made by ``reading`` yields bytes."""
    return not _AS_DOUBLES.search(sql)


def each_class(kind: ArrayType) -> tuple[str, str]:
    """Return the SQL before and after a label that gives each of its values as a whole number."""
    before, after = _BYTES if kind.is_bytes else ("CAST((", ") AS HUGEINT[])")
    return f"unnest({before}", f"{after})"


def measured_lengths(checker: SqlChecker, bound: BoundTrain) -> tuple[tuple[int, ...], int]:
    """Return the length of each item (1 for those that are no arrays) and of the label (0 when it is none).

    Raises BindError when the arrays of one column have different lengths, or none at all.
    """
    lengths = []
    for item in bound.items:
        kind, name = item.array, f'feature "{item.stored.item.name}"'
        lengths.append(1 if kind is None else _length(checker, bound, kind, item.source, name))
    target = bound.target
    return tuple(lengths), _length(
        checker, bound, target.array, target.extract, "the label"
    ) if target and target.array else 0


def _length(checker: SqlChecker, bound: BoundTrain, kind: ArrayType, expression: Sql, what: str) -> int:
    if kind.length is not None:
        return kind.length
    function = "octet_length" if kind.is_bytes else "len"
    found = checker.rows(
        f"SELECT n, count(*) FROM (SELECT {function}((",
        expression,
        ")) AS n",
        *bound.source,
        ") WHERE n IS NOT NULL GROUP BY n ORDER BY count(*) DESC, n ASC",
    )
    if len(found) > 1:
        (usual, rows), others = found[0], sum(row[1] for row in found[1:])
        message = f"{what} has {rows:,} arrays of {usual:,} values and {others:,} of another length"
        hint = f"Take rows of one length: WHERE {function}({expression.text.strip()}) = {usual}."
        if what.startswith("feature") and not kind.is_bytes:
            hint += " For a list whose order means nothing write multihot(x) or hash(x, 64)."
        raise checker.error(message, expression.span, hint)
    if found and not found[0][0]:
        raise checker.error(f"{what} has empty arrays only", expression.span)
    return int(found[0][0]) if found else 1  # all NULL: every row is incomplete, so any length will do


def sized(items: Sequence[BoundItem], lengths: Sequence[int]) -> tuple[BoundItem, ...]:
    """Return the items with the lengths of their arrays, and their places among the numeric columns moved to match.

    Before: x, image of 3 values, z in columns 0, 1, 2. After: in columns 0, 1 (to 3), 4.
    """
    if all(bound.array is None for bound in items):
        return tuple(items)
    placed, at = [], 0
    for bound, length in zip(items, lengths, strict=True):
        item = bound.stored.item
        if item.kind in ("numeric", "array"):
            item = replace(item, column=at, buckets=length if item.kind == "array" else item.buckets)
            at += length
        placed.append(replace(bound, stored=replace(bound.stored, item=item)))
    return tuple(placed)


def label_type(target: BoundTarget, length: int) -> str:
    """Return the SQL type of predicted arrays; its length tells the catalog that they are arrays."""
    kind = target.array
    return f"{kind.element if kind is not None and target.classification else 'DOUBLE'}[{length}]"


def label_length(type_name: str) -> int:
    """Return the length of predicted arrays from their type, 0 for a single value."""
    found = _ARRAY.match(type_name)
    return int(found[2]) if found and found[2] else 0


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
        raise checker.error(message, expression.span, "Cast it, e.g. mask::UTINYINT[].")
    return classes
