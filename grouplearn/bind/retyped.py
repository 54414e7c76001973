"""Rows whose keys or label have other types than those of a stored model, with the same values."""

from __future__ import annotations

from dataclasses import replace

from grouplearn.bind.bound import BoundKey, BoundTarget, BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.models.definition import ModelDefinition
from grouplearn.parser.statements import Sql


def as_stored(checker: SqlChecker, bound: BoundTrain, stored: ModelDefinition) -> BoundTrain:
    """Return a statement whose keys and label have the types of a model, where that loses no value.

    Before: GROUP BY shop, an INTEGER; the model's is a BIGINT. After: GROUP BY CAST(shop AS BIGINT).
    """
    bound = _with_keys(checker, bound, stored)
    target = bound.target
    if target is None or stored.label_type is None or target.type == stored.label_type or target.array is not None:
        return bound
    return replace(bound, target=_with_type(checker, bound, target, stored.label_type))


def _with_keys(checker: SqlChecker, bound: BoundTrain, stored: ModelDefinition) -> BoundTrain:
    group_by = bound.statement.group_by
    if group_by is None or len(bound.keys) != len(stored.keys):
        return bound
    keys = []
    for key, known in zip(bound.keys, stored.keys, strict=True):
        differs = key.stored.sql == known.sql and key.stored.type != known.type
        is_cast = differs and _keeps_values(checker, bound, key.extract, key.stored.type, known.type)
        keys.append(BoundKey(known, _cast(key.extract, known.type)) if is_cast else key)
    group_by = replace(group_by, keys=tuple(key.extract for key in keys))
    return replace(bound, keys=tuple(keys), statement=replace(bound.statement, group_by=group_by))


def _with_type(checker: SqlChecker, bound: BoundTrain, target: BoundTarget, wanted: str) -> BoundTarget:
    if not target.classification:  # a number is read as one
        is_number = "numeric" == types.kind(target.type) == types.kind(wanted)
        return replace(target, type=wanted) if is_number else target
    if not _keeps_values(checker, bound, target.extract, target.type, wanted):
        return target
    return replace(target, type=wanted, extract=_cast(target.extract, wanted))


def _cast(value: Sql, wanted: str) -> Sql:
    return replace(value, text=f"CAST(({value.text}\n) AS {wanted})")


def _keeps_values(checker: SqlChecker, bound: BoundTrain, value: Sql, given: str, wanted: str) -> bool:
    """Return whether a value can be cast to another type and back, for all values that it has in the rows."""
    if types.is_untyped(given) or not _may_be_cast(checker, given, wanted):
        return types.is_untyped(given)
    lost = f"TRY_CAST(TRY_CAST(v AS {wanted}) AS {given}) IS DISTINCT FROM v"
    ((n_lost,),) = checker.rows(f"SELECT count(*) FILTER ({lost}) FROM (SELECT (", value, ") AS v", *bound.source, ")")
    return not n_lost


def _may_be_cast(checker: SqlChecker, given: str, wanted: str) -> bool:
    """Return whether equal values of two types are the same: whole numbers, texts, and what DuckDB casts without being asked.

    It casts all values to text, and times by the session's time zone, which is not meant here.
    """
    if types.is_whole(given) and types.is_whole(wanted):
        return True
    texts = ("VARCHAR", "ENUM(")
    if given.startswith(texts) and wanted.startswith(texts):
        return not (types.is_nested(given) or types.is_nested(wanted))
    if types.has_text(wanted) or "TIME ZONE" in wanted:
        return False
    ((is_implicit,),) = checker.rows(f"SELECT can_cast_implicitly(NULL::{given}, NULL::{wanted})")
    return bool(is_implicit)
