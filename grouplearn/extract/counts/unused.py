"""Rows that no model will use, and rows that will fail their groups: counted for EXPLAIN, before training."""

from __future__ import annotations

from dataclasses import dataclass

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.parser.statements import Sql

_NEVER = "false"


@dataclass(frozen=True, slots=True)
class Unused:
    """Numbers of rows by the reason why they are skipped, or fail their groups; a row counts for its first reason."""

    skipped: tuple[tuple[str, int], ...] = ()
    failing: tuple[tuple[str, int], ...] = ()


def unused(checker: SqlChecker, bound: BoundTrain) -> Unused:
    """Count them in one query."""
    skips = (bound.statement.null_label or "skip") == "skip"
    floating, weighted = (
        bound.target is not None and types.is_floating(bound.target.type),
        bound.options.rows.weight is not None,
    )
    weighs = " AND w IS DISTINCT FROM 0" if weighted else ""
    missing = [f"x{n} IS NULL{_infinite(n, item)}" for n, item in enumerate(bound.items) if _must_be_there(bound, item)]
    reasons = (
        ("without a label", skips, "y IS NULL"),
        ("with a label that is NaN or infinite", False, f"NOT isfinite(y){weighs}" if floating else _NEVER),
        ("with a weight that is NULL, infinite or negative", False, _odd("w") if weighted else _NEVER),
        ("of weight 0", True, "w = 0" if weighted else _NEVER),
        ("with a missing or infinite feature", True, " OR ".join(missing) or _NEVER),
    )
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, (_, _, condition) in enumerate(reasons))
    before = f"SELECT reason, count(*) FROM (SELECT CASE {cases} END AS reason FROM (SELECT ("
    pieces: list[str | Sql] = [before, bound.target.extract if bound.target else "0", ") AS y"]
    for number, item in enumerate(bound.items):
        pieces += [", (", item.extract, f") AS x{number}"]
    if bound.options.rows.weight:
        pieces += [", CAST((", bound.options.rows.weight, ") AS DOUBLE) AS w"]
    counts = dict(checker.rows(*pieces, *bound.source, ")) WHERE reason IS NOT NULL GROUP BY reason"))
    found = [(what, skipped, counts.get(number, 0)) for number, (what, skipped, _) in enumerate(reasons)]
    return Unused(
        tuple((what, rows) for what, skipped, rows in found if skipped and rows),
        tuple((what, rows) for what, skipped, rows in found if not skipped and rows),
    )


def _must_be_there(bound: BoundTrain, item: BoundItem) -> bool:
    """Whether a row with this item missing is skipped."""
    stored = item.stored.item
    filled = stored.impute is not None or encoder_of(stored).fills
    return not filled and not bound.learner.declaration.handles_missing


def _infinite(number: int, item: BoundItem) -> str:
    return f" OR NOT isfinite(x{number})" if item.stored.item.kind == "numeric" else ""


def _odd(name: str) -> str:
    return f"{name} IS NULL OR NOT isfinite({name}) OR {name} < 0"
