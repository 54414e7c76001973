"""The groups of a statement and their sizes, counted by DuckDB."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from grouplearn.amounts import amount_of_bytes
from grouplearn.bind.bind import grouping, named_keys
from grouplearn.bind.bound import BoundTrain
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.memory import memory_limit
from grouplearn.extract.batches import batches
from grouplearn.interrupting import with_checks
from grouplearn.parser.statements import Sql
from grouplearn.sqltext import folded, identifier

#: Columns of times that are looked at.
_MOST_TIMES = 4
#: Approximate bytes per value of a counted group; and most texts of a key that are deduplicated.
_COUNT_BYTES, _MOST_KNOWN = 64, 1 << 16


#: Bytes of a group (key, rows, fitted features) until it is stored: from the peak memory of runs with a million groups.
GROUP_BYTES = 2000
#: Memory that every machine has: no plan is refused below it, whatever memory_limit, which is about rows and training.
_ALWAYS = 1 << 28


class GroupCount(NamedTuple):
    """A group of the statement after HAVING: grouping set, key texts, number of rows."""

    level: int
    keys: tuple[str | None, ...]
    n_rows: int


class GroupCounts(NamedTuple):
    """The groups of a statement, and the names of columns with times that vary within one of them."""

    groups: tuple[GroupCount, ...]
    times: tuple[str, ...]


def group_counts(checker: SqlChecker, bound: BoundTrain) -> GroupCounts:
    """Return the groups that pass HAVING, by grouping set and key, NULLs last."""
    keys = [key.extract for key in bound.keys]
    names = [f"__grouplearn_k{number}" for number in range(len(keys))]
    texts = [name.join(types.as_text(key.stored.type)) for name, key in zip(names, bound.keys, strict=True)]
    mask = "__grouplearn_mask"
    times = _times(bound)
    varied = [f"__grouplearn_t{number}" for number in range(len(times))]
    # Ordered by columns of a subquery, as ORDER BY 'text' or 1 would mean something else.
    pieces: list[str | Sql] = [
        f"SELECT {', '.join(['__grouplearn_n', mask, *texts, *varied])} FROM (SELECT count(*) AS __grouplearn_n"
    ]
    for column, name in zip(map(identifier, times), varied, strict=True):
        pieces.append(f", min({column}) < max({column}) AS {name}")
    # One grouping set has no keys that are rolled up; DuckDB knows GROUPING of parts of row(a, b) alone.
    pieces += [", GROUPING(", *_separated(keys), f") AS {mask}"] if len(bound.sets) > 1 else [f", 0 AS {mask}"]
    for key, name in zip(keys, names, strict=True):
        pieces += [", (", key, f") AS {name}"]
    pieces += named_keys(bound.statement)
    in_bytes = (types.bytewise(name, key.stored.type) for name, key in zip(names, bound.keys, strict=True))
    order = ", ".join(f"{each} ASC NULLS LAST" for each in (mask, *in_bytes))
    pieces += [*bound.source, *grouping(bound.statement), f") ORDER BY {order}"]
    level_of = {_grouping_mask(members, len(keys)): level for level, members in enumerate(bound.sets)}
    by_level: list[list[GroupCount]] = [[] for _ in bound.sets]
    known: list[dict[str, str]] = [{} for _ in keys]
    counted, varying = 0, set[str]()
    with closing(batches(checker.connection, checker, pieces, _COUNT_BYTES * (2 + len(keys)))) as read:
        for batch in read:
            counted += batch.num_rows
            refuse_many_groups(checker, bound, counted)
            marks = batch.columns[2 + len(keys) :]
            varying |= {name for name, mark in zip(times, marks, strict=True) if mark.true_count}
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns[: 2 + len(keys)]]
            sizes, masks = columns[:2]
            named: list[list[str | None]] = [
                list(_once(column, seen)) for column, seen in zip(columns[2:], known, strict=True)
            ]
            told: Iterable[tuple[str | None, ...]] = zip(*named, strict=True) if keys else itertools.repeat(())
            for size, mask, group in zip(sizes, masks, told, strict=False):
                level = level_of[mask] if keys else 0
                by_level[level].append(GroupCount(level, group, size))
    groups = tuple(with_checks(itertools.chain.from_iterable(by_level)))
    return GroupCounts(groups, tuple(name for name in times if name in varying))


def _times(bound: BoundTrain) -> tuple[str, ...]:
    """Return the first columns of dates and times of FROM that are no keys, if rows are held out at random."""
    names = Counter(folded(column.name) for column in bound.columns)
    names.update(folded(key.extract.text.strip('"')) for key in bound.keys)
    alone = (column for column in bound.columns if names[folded(column.name)] == 1)
    times = [column.name for column in alone if column.type == "DATE" or column.type.startswith("TIMESTAMP")]
    return tuple(times[:_MOST_TIMES]) if bound.holdout.drawn else ()


def _once(texts: list[str | None], known: dict[str, str]) -> Iterator[str | None]:
    """Yield texts with equal ones as one object: groups of a CUBE repeat few values."""
    for text in texts:
        yield text if text is None or len(known) > _MOST_KNOWN else known.setdefault(text, text)


def _separated(fragments: Sequence[Sql]) -> list[str | Sql]:
    pieces: list[str | Sql] = []
    for position, fragment in enumerate(fragments):
        pieces += [","] if position else []
        pieces.append(fragment)
    return pieces


def _grouping_mask(members: Sequence[int], n_keys: int) -> int:
    """Return the value of GROUPING(k0, k1, ...) for a grouping set: bits are 1 for rolled-up keys."""
    return sum(1 << (n_keys - 1 - key) for key in range(n_keys) if key not in members)


def limit_of(bound: BoundTrain) -> int:
    """Return the bytes that a plan and its results may use."""
    return max(_ALWAYS, memory_limit(bound.options.placement.memory_limit))


def refuse_many_groups(checker: SqlChecker, bound: BoundTrain, groups: int) -> None:
    """Raise BindError if the groups counted so far do not fit into memory."""
    limit = limit_of(bound)
    if groups * GROUP_BYTES <= limit:
        return
    statement = bound.statement
    message = f"there are more than {groups:,} groups, which take {amount_of_bytes(limit)} of memory, the limit"
    span = statement.group_by.text.span if statement.group_by else statement.source.span
    hint = "Train fewer groups (WHERE, HAVING count(*) >= n), or set a higher memory_limit."
    raise checker.error(message, span, hint)
