"""The two queries that read rows: statistics (groups and classes) and the extract, sorted by group."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from grouplearn.data.dataset import Dataset, FloatArray, Group
from grouplearn.parser.statements import Sql
from grouplearn.plan import types
from grouplearn.plan.bind import grouping
from grouplearn.plan.bound import BoundKey, BoundTrain
from grouplearn.plan.features import AUTO_ONEHOT_LIMIT
from grouplearn.plan.judge import Judge

#: A label with more distinct values than this is not a class label.
MAX_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class GroupCount:
    """One group of the statement, after HAVING: its grouping set, key texts and number of rows."""

    level: int
    keys: tuple[str | None, ...]
    n_rows: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known about the rows before they are read: groups in order, the classes, distinct texts per category item."""

    groups: tuple[GroupCount, ...]
    classes: tuple[str, ...]
    categories: tuple[int, ...]
    n_rows: int


def statistics(judge: Judge, bound: BoundTrain) -> Statistics:
    """Count the groups, list the classes and check the limits that depend on values."""
    groups = _group_counts(judge, bound)
    classes = _classes(judge, bound) if bound.target.classification else ()
    n_rows, categories = _category_counts(judge, bound)
    return Statistics(groups, classes, categories, n_rows)


def _group_counts(judge: Judge, bound: BoundTrain) -> tuple[GroupCount, ...]:
    keys = [key.extract for key in bound.keys]
    names = [f"__grouplearn_k{number}" for number in range(len(keys))]
    texts = [name.join(types.as_text(key.stored.type)) for name, key in zip(names, bound.keys, strict=True)]
    mask = "__grouplearn_mask"
    # The order is by columns of a subquery: ORDER BY 'text' or 1 would mean something else.
    pieces: list[str | Sql] = [
        f"SELECT {', '.join(['__grouplearn_n', mask, *texts])} FROM (SELECT count(*) AS __grouplearn_n"
    ]
    pieces += [", GROUPING(", *_separated(keys), f") AS {mask}"] if keys else [f", 0 AS {mask}"]
    for key, name in zip(keys, names, strict=True):
        pieces += [", (", key, f") AS {name}"]
    pieces += [*bound.source, *grouping(bound.statement), f") ORDER BY {', '.join([mask, *names])}"]
    level_of = {_grouping_mask(members, len(keys)): level for level, members in enumerate(bound.sets)}
    rows = judge.rows(*pieces)
    counts = [GroupCount(level_of[row[1]] if keys else 0, tuple(row[2:]), row[0]) for row in rows]
    return tuple(sorted(counts, key=lambda count: count.level))


def _separated(fragments: Sequence[Sql]) -> list[str | Sql]:
    pieces: list[str | Sql] = []
    for position, fragment in enumerate(fragments):
        pieces += [","] if position else []
        pieces.append(fragment)
    return pieces


def _grouping_mask(members: Sequence[int], n_keys: int) -> int:
    """Return the value of GROUPING(k0, k1, ...) for a grouping set: a bit is 1 for a key that is rolled up."""
    return sum(1 << (n_keys - 1 - key) for key in range(n_keys) if key not in members)


def _classes(judge: Judge, bound: BoundTrain) -> tuple[str, ...]:
    finite = "AND isfinite(t)" if types.is_floating(bound.target.type) else ""
    rows = judge.rows(
        f"SELECT {'t'.join(types.as_text(bound.target.type))} FROM (SELECT DISTINCT (",
        bound.target.extract,
        ") AS t",
        *bound.source,
        f") WHERE t IS NOT NULL {finite} ORDER BY t LIMIT {MAX_CLASSES + 1}",
    )
    if len(rows) > MAX_CLASSES:
        message = f"the label has more than {MAX_CLASSES:,} distinct values, which is too many classes"
        hint = "Use WITH (task = 'regression') or linear_regression, or predict an expression such as y > 15."
        raise judge.error(message, bound.target.extract.span, hint)
    return tuple(row[0] for row in rows)


def _category_counts(judge: Judge, bound: BoundTrain) -> tuple[int, tuple[int, ...]]:
    """Return the number of rows, and the distinct values of every category item (0 for others), checking the limit."""
    wanted = [item for item in bound.items if item.stored.item.kind == "category"]
    pieces: list[str | Sql] = ["SELECT count(*)"]
    for item in wanted:
        pieces += [", approx_count_distinct(" if not item.automatic else ", count(DISTINCT ", item.extract, ")"]
    row = judge.rows(*pieces, *bound.source)[0]
    counts = dict(zip((id(item) for item in wanted), row[1:], strict=True))
    for item in wanted:
        if item.automatic and counts[id(item)] > AUTO_ONEHOT_LIMIT:
            name = item.stored.item.name
            message = (
                f'feature "{name}" has {counts[id(item)]:,} distinct texts; '
                f"without an encoder at most {AUTO_ONEHOT_LIMIT} are one-hot encoded"
            )
            hint = f"Use hash({name}, 64), ordinal({name}) or onehot({name}), or leave it out."
            raise judge.error(message, item.span, hint)
    return row[0], tuple(counts.get(id(item), 0) for item in bound.items)


def extract(
    connection: duckdb.DuckDBPyConnection, judge: Judge, bound: BoundTrain, stats: Statistics
) -> tuple[Dataset, tuple[Group, ...]]:
    """Read the rows once, sorted by finest group and then by a hash of (seed, row), and cut them into groups."""
    pieces = _extract_query(bound)
    try:
        query = "\n".join(piece if isinstance(piece, str) else piece.text for piece in pieces)
        table = connection.sql(query).to_arrow_table().combine_chunks()
    except duckdb.Error as error:
        judge.refuse(error, tuple(pieces))
    offsets, leaves = _leaves(table, len(bound.keys))
    _refuse_other_rows(judge, bound, stats, offsets, leaves)
    dataset = _dataset(table, bound, stats, offsets, leaves)
    return dataset, _groups(bound, stats, offsets, leaves)


def _extract_query(bound: BoundTrain) -> list[str | Sql]:
    before, after = types.as_text(bound.target.type) if bound.target.classification else ("CAST((", ") AS DOUBLE)")
    target = (before, bound.target.extract, after)
    columns: list[tuple[str, tuple[str | Sql, ...]]] = [
        *((f"k{number}", _key_text(key)) for number, key in enumerate(bound.keys)),
        *((f"x{number}", (item.extract,)) for number, item in enumerate(bound.items)),
        ("y", target),
    ]
    if bound.options.weight:
        columns.append(("w", ("CAST((", bound.options.weight, ") AS DOUBLE)")))
    if bound.holdout.predicate:
        columns.append(("v", ("coalesce(CAST((", bound.holdout.predicate, ") AS BOOLEAN), false)")))
    pieces: list[str | Sql] = ["SELECT * FROM (SELECT"]
    for number, (name, expression) in enumerate(columns):
        pieces += [*([","] if number else []), *expression, f"AS {name}"]
    keys = "".join(f"k{number} NULLS FIRST, " for number in range(len(bound.keys)))
    content = ", ".join(name for name, _ in columns)
    # Rows with equal hash and equal content are interchangeable, so the order is the same for any number of threads.
    return [*pieces, *bound.source, f") ORDER BY {keys}hash({bound.options.seed}, {content}), {content}"]


def _key_text(key: BoundKey) -> tuple[str | Sql, ...]:
    before, after = types.as_text(key.stored.type)
    return before, key.extract, after


def _refuse_other_rows(
    judge: Judge,
    bound: BoundTrain,
    stats: Statistics,
    offsets: npt.NDArray[np.int64],
    leaves: Sequence[tuple[str | None, ...]],
) -> None:
    """Raise BindError unless the rows just read make the groups that were counted."""
    n_rows = int(offsets[-1])
    if n_rows == stats.n_rows:
        read = dict(zip(leaves, np.diff(offsets).tolist(), strict=True))
        counted = {
            group.keys: group.n_rows for group in stats.groups if len(bound.sets[group.level]) == len(bound.keys)
        }
        if n_rows == 0 or all(read.get(keys) == count for keys, count in counted.items()):
            return
        message = "counted and read, the groups are not the same"
        group_by = bound.statement.group_by
        span = group_by.text.span if group_by else bound.statement.source.span
        hint = (
            "A key needs the same value each time, and equal values one text: no random(), epoch(x) for an INTERVAL, "
            "lower(x) for a collation; and rows from a table or TABLESAMPLE ... REPEATABLE (seed)."
        )
    else:
        message = f"FROM has {stats.n_rows:,} rows, but reading the features, the label and the keys gave {n_rows:,}"
        span = bound.statement.source.span
        hint = (
            "FROM needs the same rows each time (a table, or TABLESAMPLE ... REPEATABLE (seed)), and an expression "
            "one value per row (no aggregate, no unnest)."
        )
    raise judge.error(message, span, hint)


def _leaves(table: pa.Table, n_keys: int) -> tuple[npt.NDArray[np.int64], list[tuple[str | None, ...]]]:
    """Return the row offsets of the finest groups (one longer than the groups) and their key texts."""
    n_rows = table.num_rows
    starts = np.zeros(n_rows, dtype=bool)
    starts[:1] = True
    for number in range(n_keys):
        column = _chunk(table, f"k{number}")
        codes = pc.fill_null(pc.dictionary_encode(column).indices, -1).to_numpy(zero_copy_only=False)
        starts[1:] |= codes[1:] != codes[:-1]
    first = np.flatnonzero(starts)
    offsets = np.append(first, n_rows).astype(np.int64)
    texts = [_chunk(table, f"k{number}").take(pa.array(first)).to_pylist() for number in range(n_keys)]
    leaves: list[tuple[str | None, ...]] = [()] * len(first)
    return offsets, list(zip(*texts, strict=True)) if n_keys else leaves


def _chunk(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)


def _dataset(
    table: pa.Table,
    bound: BoundTrain,
    stats: Statistics,
    offsets: npt.NDArray[np.int64],
    leaves: Sequence[tuple[str | None, ...]],
) -> Dataset:
    items = [(f"x{number}", item.stored.item) for number, item in enumerate(bound.items)]
    numeric = [_floats(_chunk(table, name)) for name, item in items if item.kind == "numeric"]
    coded = [_coded(_chunk(table, name), item.kind == "hash") for name, item in items if item.kind != "numeric"]
    n_rows = table.num_rows
    label = _chunk(table, "y")
    return Dataset(
        numeric=np.stack(numeric, axis=1) if numeric else np.empty((n_rows, 0)),
        codes=np.stack([codes for codes, _ in coded], axis=1) if coded else np.empty((n_rows, 0), dtype=np.int32),
        y=_class_numbers(label, stats.classes) if bound.target.classification else _floats(label),
        weight=_floats(_chunk(table, "w")) if bound.options.weight else np.ones(n_rows),
        split=_split(table, bound, offsets, leaves),
        dictionaries=tuple(dictionary for _, dictionary in coded),
        classes=stats.classes,
    )


def _floats(column: Any) -> FloatArray:
    values: FloatArray = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    return values


def _coded(column: Any, is_hash: bool) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """Return codes into the sorted dictionary, -1 for NULL; buckets are codes already."""
    if is_hash:
        return pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int32), ()
    encoded = pc.dictionary_encode(column)
    texts: list[str] = encoded.dictionary.to_pylist()
    order = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts) + 1, dtype=np.int32)
    rank[order] = np.arange(len(texts), dtype=np.int32)
    rank[-1] = -1
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return rank[codes], tuple(texts[position] for position in order)


def _class_numbers(column: Any, classes: Sequence[str]) -> FloatArray:
    numbers = pc.index_in(column, value_set=pa.array(classes, type=pa.string()))
    return _floats(numbers)


def _split(
    table: pa.Table,
    bound: BoundTrain,
    offsets: npt.NDArray[np.int64],
    leaves: Sequence[tuple[str | None, ...]],
) -> npt.NDArray[np.int16]:
    """Return held-out marks or fold numbers; they follow from the order of rows inside each finest group."""
    n_rows, holdout = table.num_rows, bound.holdout
    if holdout.kind == "where":
        return np.asarray(_chunk(table, "v").to_numpy(zero_copy_only=False)).astype(np.int16)
    split = np.zeros(n_rows, dtype=np.int16)
    if holdout.kind == "none" or not n_rows:
        return split
    sizes = np.diff(offsets)
    position = np.arange(n_rows) - np.repeat(offsets[:-1], sizes)
    if holdout.kind == "sample":
        # At least one row of a group of five or more; smaller groups have none to spare.
        held = np.maximum(np.floor(sizes * holdout.share + 0.5), np.where(sizes >= 5, 1, 0))
        return (position < np.repeat(np.minimum(held, sizes - 1), sizes)).astype(np.int16)
    # Starting each group at a fold of its own keeps folds equal where groups are tiny.
    start = np.array([zlib.crc32(repr(keys).encode()) % holdout.folds for keys in leaves], dtype=np.int64)
    return ((position + np.repeat(start, sizes)) % holdout.folds).astype(np.int16)


def _groups(
    bound: BoundTrain, stats: Statistics, offsets: npt.NDArray[np.int64], leaves: Sequence[tuple[str | None, ...]]
) -> tuple[Group, ...]:
    runs: list[dict[tuple[str | None, ...], list[tuple[int, int]]]] = [{} for _ in bound.sets]
    for number, keys in enumerate(leaves):
        run = (int(offsets[number]), int(offsets[number + 1]))
        for level, members in enumerate(bound.sets):
            known = runs[level].setdefault(tuple(keys[key] for key in members), [])
            if known and known[-1][1] == run[0]:
                known[-1] = (known[-1][0], run[1])
            else:
                known.append(run)
    return tuple(
        Group(
            id=number,
            level=count.level,
            keys=count.keys,
            ranges=tuple(runs[count.level].get(tuple(count.keys[key] for key in bound.sets[count.level]), ())),
        )
        for number, count in enumerate(stats.groups)
    )
