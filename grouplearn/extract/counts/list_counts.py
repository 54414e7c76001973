"""Counts of list items before rows are read: entries, distinct elements, and invalid lists."""

from __future__ import annotations

from typing import NamedTuple

from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.clauses.features import BoundItem
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.dataset import Item
from grouplearn.data.encoding.lists.sparse import OUTSIDE
from grouplearn.data.encoding.registry import encoder_of, of_list
from grouplearn.parser.statements import Sql

_MEND = "Leave such rows out in WHERE, or mend the lists; an empty list, or NULL for both, is a row of zeros."


def list_counts(checker: SqlChecker, bound: BoundTrain) -> tuple[int, dict[int, int]]:
    """Return the number of entries of all lists, and by item number about how many distinct elements it has.

    Raises BindError if some rows have invalid lists.
    """
    listed = _listed(bound)
    entries = entry_count(checker, bound)
    for _, item in listed:
        _refuse_invalid_lists(checker, bound, item)
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


def _refuse_invalid_lists(checker: SqlChecker, bound: BoundTrain, item: BoundItem) -> None:
    flaw = list_error(checker, item.stored.item, "FROM (SELECT (", item.extract, ") AS entries", *bound.source, ")")
    if flaw:
        raise checker.error(flaw.told, item.span, flaw.hint)


class ListError(NamedTuple):
    """What is wrong with the lists of an item, in how many rows, and what to do about it."""

    told: str
    hint: str


def list_error(checker: SqlChecker, item: Item, *rows: str | Sql) -> ListError | None:
    """Return the first flaw of an item's lists, which are the column ``entries`` of ``rows``; None for none."""
    encoder = of_list(item)
    flaws = encoder.validation_sql(item)
    if not flaws:
        return None
    index = f"list_transform(entries, lambda entry: {encoder.column_sql('entry')})"
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in flaws.values())
    bounds = f"min(list_min({index})), max(list_max({index}))"
    *found, n_rows, least, greatest = checker.rows(f"SELECT {counts}, count(*), {bounds}", *rows)[0]
    for flaw, count in zip(flaws, found, strict=True):
        if count:
            inside = not flaw.startswith(OUTSIDE) or 1 <= least <= greatest <= item.buckets
            told, hint = (flaw, _MEND) if inside else _outside(flaw, least, greatest, item.buckets)
            return ListError(f'the lists of "{item.name}" have {told} in {count:,} of {n_rows:,} rows', hint)
    return None


def _outside(flaw: str, least: int, greatest: int, columns: int) -> tuple[str, str]:
    """Return a flaw with an index that is outside of the columns, and a hint."""
    if least == 0:
        room = f", and {greatest + 1:,} columns" if greatest >= columns else ""
        hint = f"Indices begin at 1: for those that begin at 0 take [i + 1 for i in indices]{room}."
    elif least > 0:
        hint = f"Give sparse {greatest:,} columns when you train, or leave such rows out in WHERE."
    else:
        hint = f"Indices begin at 1. {_MEND}"
    return f"{flaw}, such as {least if least < 1 else greatest},", hint
