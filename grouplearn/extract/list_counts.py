"""Counts of list items before rows are read: entries, distinct elements, and invalid lists."""

from __future__ import annotations

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding.registry import encoder_of, of_list
from grouplearn.parser.statements import Sql


def list_counts(checker: SqlChecker, bound: BoundTrain) -> tuple[int, dict[int, int]]:
    """Return the number of entries of all lists, and by item number about how many distinct elements it has.

    Raises BindError if some rows have invalid lists.
    """
    listed = _listed(bound)
    entries = entry_count(checker, bound)
    for _, item in listed:
        _refuse_flaws(checker, bound, item)
    return entries, {
        number: _distinct(checker, bound, item) for number, item in listed if encoder_of(item.stored.item).counted
    }


def entry_count(checker: SqlChecker, bound: BoundTrain) -> int:
    """Return the number of entries in all lists of a statement's rows."""
    columns: list[str | Sql] = []
    for number, item in _listed(bound):
        columns += [*([","] if columns else []), "(", item.extract, f") AS x{number}"]
    if not columns:
        return 0
    total = " + ".join(f"coalesce(sum(len(x{number})), 0)" for number, _ in _listed(bound))
    return int(checker.rows(f"SELECT CAST({total} AS BIGINT) FROM (SELECT", *columns, *bound.source, ")")[0][0])


def _listed(bound: BoundTrain) -> list[tuple[int, BoundItem]]:
    return [(number, item) for number, item in enumerate(bound.items) if item.stored.item.is_list]


def _distinct(checker: SqlChecker, bound: BoundTrain, item: BoundItem) -> int:
    column = of_list(item.stored.item).column_sql("element")
    rows = checker.rows(
        f"SELECT approx_count_distinct({column}) FROM (SELECT unnest(", item.extract, ") AS element", *bound.source, ")"
    )
    return int(rows[0][0])


def _refuse_flaws(checker: SqlChecker, bound: BoundTrain, item: BoundItem) -> None:
    stored = item.stored.item
    flaws = of_list(stored).flaws_sql(stored)
    if not flaws:
        return
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in flaws.values())
    rows = checker.rows(f"SELECT {counts}, count(*) FROM (SELECT (", item.extract, ") AS entries", *bound.source, ")")
    *found, n_rows = rows[0]
    for flaw, count in zip(flaws, found, strict=True):
        if count:
            message = f'the lists of "{stored.name}" have {flaw} in {count:,} of {n_rows:,} rows'
            hint = (
                "Leave such rows out in WHERE, or mend the lists; an empty list, or NULL for both, is a row of zeros."
            )
            raise checker.error(message, item.span, hint)
