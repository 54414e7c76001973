"""Rows that no model will use, and groups that will fail: counted for EXPLAIN, before training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from grouplearn.bind.bind import grouping
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.parser.statements import Sql

_NEVER = "false"
_NAMES = re.compile(r"\b(y|w|x\d+)\b")


@dataclass(frozen=True, slots=True)
class Unused:
    """Numbers of rows by the reason why they are skipped, or fail their groups; a row counts for its first reason.

    ``groups`` are the numbers of groups that will fail for what is known before training, by their first reason.
    """

    skipped: tuple[tuple[str, int], ...] = ()
    failing: tuple[tuple[str, int], ...] = ()
    groups: tuple[tuple[str, int], ...] = ()


def unused(checker: SqlChecker, bound: BoundTrain) -> Unused:
    """Count rows in one query, and groups in another."""
    reasons = _reasons(bound)
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, (_, _, condition) in enumerate(reasons))
    pieces = [f"SELECT reason, count(*) FROM (SELECT CASE {cases} END AS reason FROM (SELECT ", *_values(bound)]
    counts = dict(checker.rows(*pieces, *bound.source, ")) WHERE reason IS NOT NULL GROUP BY reason"))
    found = [(what, skipped, counts.get(number, 0)) for number, (what, skipped, _) in enumerate(reasons)]
    return Unused(
        tuple((what, rows) for what, skipped, rows in found if skipped and rows),
        tuple((what, rows) for what, skipped, rows in found if not skipped and rows),
        _failing(checker, bound, reasons),
    )


def _reasons(bound: BoundTrain) -> list[tuple[str, bool, str]]:
    """Return why a row may be of no use, whether it is skipped then (or fails its group), and the condition for it."""
    skips = (bound.statement.null_label or "skip") == "skip"
    floating, weighted = (
        bound.target is not None and types.is_floating(bound.target.type),
        bound.options.rows.weight is not None,
    )
    weighs = " AND w IS DISTINCT FROM 0" if weighted else ""
    missing = [f"x{n} IS NULL{_infinite(n, item)}" for n, item in enumerate(bound.items) if _must_be_there(bound, item)]
    return [
        ("without a label", skips, "y IS NULL"),
        ("with a label that is NaN or infinite", False, f"NOT isfinite(y){weighs}" if floating else _NEVER),
        ("with a weight that is NULL, infinite or negative", False, _odd("w") if weighted else _NEVER),
        ("of weight 0", True, "w = 0" if weighted else _NEVER),
        ("with a missing or infinite feature", True, " OR ".join(missing) or _NEVER),
    ]


def _values(bound: BoundTrain) -> list[str | Sql]:
    """Return what a query selects as label, features and weight: y, x0, x1 ..., w."""
    pieces: list[str | Sql] = ["(", bound.target.extract if bound.target else "0", ") AS y"]
    for number, item in enumerate(bound.items):
        pieces += [", (", item.extract, f") AS x{number}"]
    if bound.options.rows.weight:
        pieces += [", CAST((", bound.options.rows.weight, ") AS DOUBLE) AS w"]
    return pieces


def _failing(
    checker: SqlChecker, bound: BoundTrain, reasons: Sequence[tuple[str, bool, str]]
) -> tuple[tuple[str, int], ...]:
    """Count the groups that no rows can train."""
    least, target = bound.options.rows.min_rows, bound.target
    fails, skipped = (
        " OR ".join(f"({condition})" for _, skips, condition in reasons if skips == kind) or _NEVER
        for kind in (False, True)
    )
    usable = f"FILTER (NOT coalesce({skipped}, false))"
    has_classes = target is not None and target.classification and not types.is_nested(target.type)
    why = (
        ("with a row that fails its group", f"bool_or(coalesce({fails}, false))"),
        (f"with fewer usable rows than min_rows = {least}", f"count(*) {usable} < {least}"),
        ("with one class alone", f"min(y) {usable} = max(y) {usable}" if has_classes else _NEVER),
    )
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, (_, condition) in enumerate(why))
    pieces = ["SELECT why, count(*) FROM (SELECT CASE ", *_inline(bound, cases), " END AS why ", *bound.source]
    counts = dict(checker.rows(*pieces, *grouping(bound.statement), ") WHERE why IS NOT NULL GROUP BY why"))
    return tuple((what, counts[number]) for number, (what, _) in enumerate(why) if number in counts)


def _inline(bound: BoundTrain, conditions: str) -> list[str | Sql]:
    """Return conditions on y, x0, x1 ... and w with the expressions in their place."""
    named: dict[str, list[str | Sql]] = {"y": ["(", bound.target.extract if bound.target else "0", ")"]}
    named |= {f"x{number}": ["(", item.extract, ")"] for number, item in enumerate(bound.items)}
    if bound.options.rows.weight:
        named["w"] = ["CAST((", bound.options.rows.weight, ") AS DOUBLE)"]
    parts = (named.get(part, [part]) for part in _NAMES.split(conditions))
    return [piece for part in parts for piece in part]


def _must_be_there(bound: BoundTrain, item: BoundItem) -> bool:
    """Whether a row with this item missing is skipped."""
    stored = item.stored.item
    filled = stored.impute is not None or encoder_of(stored).fills
    return not filled and (encoder_of(stored).required or not bound.learner.declaration.handles_missing)


def _infinite(number: int, item: BoundItem) -> str:
    return f" OR NOT isfinite(x{number})" if item.stored.item.kind == "numeric" else ""


def _odd(name: str) -> str:
    return f"{name} IS NULL OR NOT isfinite({name}) OR {name} < 0"
