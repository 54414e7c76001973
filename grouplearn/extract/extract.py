"""The query that reads rows, sorted by group, after ``statistics`` has counted them."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from grouplearn.bind import arrays
from grouplearn.bind.bound import BoundKey, BoundTarget, BoundTrain
from grouplearn.bind.clauses.features import BoundItem, all_fit_float, sized
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.arrays import LengthError
from grouplearn.data.dataset import Dataset, DatasetFiles, Group, Item
from grouplearn.data.encoding import types
from grouplearn.data.files.run_directory import RunDirectory
from grouplearn.data.memory import memory_limit, rows_stay_in_memory
from grouplearn.data.processors import processors
from grouplearn.extract.batches import batches
from grouplearn.extract.counts.statistics import Statistics
from grouplearn.extract.holdout import hold_out
from grouplearn.extract.sorted_rows import EXACT, ROUNDED, BatchLayout, SortedRows
from grouplearn.extract.split_hash import SplitHash
from grouplearn.interrupting import with_checks
from grouplearn.parser.statements import Sql
from grouplearn.sqltext import folded

#: Orders a group's rows: the same for equal seed and content, whichever thread reads them.
ROW_HASH = "hash({seed}, {content})"
#: Rows that DuckDB reads at once: there is nothing to read while they are stored, and to start a thread takes longer.
_FEW_ROWS = 2048
_SAME_ROWS = (
    "FROM needs the same rows each time that it is read. DISTINCT ON, any_value() and row_number() choose others where their "
    "ORDER BY does not decide: keep the rows in a table first (CREATE TEMP TABLE kept AS SELECT ...; TRAIN ... FROM kept)."
)


def extract(
    connection: duckdb.DuckDBPyConnection,
    checker: SqlChecker,
    bound: BoundTrain,
    stats: Statistics,
    directory: RunDirectory | None = None,
    limit: int | None = None,
) -> tuple[Dataset, tuple[Group, ...]]:
    """Read the rows once, sort them by finest group and a hash of (seed, row), and cut them into groups.

    Rows that exceed the memory limit (``limit`` bytes; see ``memory_limit``) go to files in ``directory``.
    """
    layout = _layout(bound, stats)
    files = None if fits_in_memory(bound, stats, limit) else directory
    rows = SortedRows(layout, stats.n_rows, files.array if files else _array, in_order=files is not None)
    query = _extract_query(bound, in_order=files is not None)
    threads = min(bound.options.placement.workers or processors(), processors())

    def take(batch: pa.RecordBatch) -> None:
        rows.take(batch)
        if files:
            files.forget_pages()

    # Closed at once if a batch fails: an open result blocks the connection, even for ROLLBACK.
    try:
        with closing(batches(connection, checker, query, layout.row_bytes)) as read, ThreadPoolExecutor(1) as taking:
            taken: Future[None] | None = None
            for batch in read:  # the next one is read while this one is stored
                if taken:
                    taken.result()
                if stats.n_rows > _FEW_ROWS:
                    taken = taking.submit(take, batch)
                else:
                    take(batch)
            if taken:
                taken.result()
        rows.arrange(threads)
    except LengthError as error:
        message = f"arrays had other lengths when the rows were read again: {error}"
        raise checker.error(message, bound.statement.source.span, _SAME_ROWS) from None
    _refuse_other_rows(checker, bound, stats, rows)
    if rows.lists is not None and rows.lists.misfit:
        message = "lists had other lengths when the rows were read again"
        raise checker.error(message, bound.statement.source.span, _SAME_ROWS)
    if rows.stray is not None:
        message = f"FROM gave other rows when it was read again: the class '{rows.stray}' was not there before"
        raise checker.error(message, bound.statement.source.span, _SAME_ROWS)
    rows.finish(files.forget_pages if files else None)
    hold_out(
        *(rows.split, bound.holdout, rows.leaves, rows.hashes, rows.y, threads),
        of_classes=bool(bound.target and bound.target.classification),
        has_coarser=len(bound.sets) > 1,
    )
    _refuse_one_sided(checker, bound, rows)
    if files:
        files.discard(ROUNDED)
        files.discard(EXACT)
        files.forget_pages()
    return _dataset(rows, stats, files), _groups(bound, stats, rows)


def fits_in_memory(bound: BoundTrain, stats: Statistics, limit: int | None = None) -> bool:
    """Return whether rows are kept in memory, under ``limit`` or the statement's memory limit."""
    given = bound.options.placement.memory_limit if limit is None else limit
    return rows_stay_in_memory(_layout(bound, stats).row_bytes * stats.n_rows, memory_limit(given))


def _array(_: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.empty(shape, dtype)


def _layout(bound: BoundTrain, stats: Statistics) -> BatchLayout:
    return BatchLayout(
        n_keys=len(bound.keys),
        items=(*(item.stored.item for item in sized(bound.items, stats.lengths)), *carried_items(bound)),
        whole=(*(item.whole for item in bound.items), *(False for _ in bound.carried)),
        label_length=stats.label_length,
        classes=stats.classes if bound.target and bound.target.classification else None,
        weighted=bound.options.rows.weight is not None,
        marked=bound.holdout.kind in ("where", "rolling"),
        drawn=bound.holdout.drawn,
        single=all_fit_float(bound.items),
        n_entries=stats.n_entries,
        n_rows=stats.n_rows,
    )


def carried_items(bound: BoundTrain) -> tuple[Item, ...]:
    """Return what ``bound.carried`` is as further columns of ``Dataset.codes``, which are no features."""
    first = sum(item.is_coded for item in bound.stored_items)
    return tuple(Item(key.stored.name, "category", place) for place, key in enumerate(bound.carried, first))


def columns_read(bound: BoundTrain) -> list[tuple[str, tuple[str | Sql, ...]]]:
    """Return the names and the SQL of the columns of a batch, see ``BatchLayout``, without hashes."""
    columns: list[tuple[str, tuple[str | Sql, ...]]] = [
        *((f"k{number}", _key_text(key)) for number, key in enumerate(bound.keys)),
        *((f"x{number}", (item.read,)) for number, item in enumerate(bound.items)),
        *((f"x{number}", _key_text(key)) for number, key in enumerate(bound.carried, len(bound.items))),
        ("y", _label(bound.target)),
    ]
    if bound.options.rows.weight:
        columns.append(("w", ("CAST((", bound.options.rows.weight, ") AS DOUBLE)")))
    if bound.holdout.predicate:
        columns.append(("v", ("coalesce(CAST((", bound.holdout.predicate, ") AS BOOLEAN), false)")))
    elif bound.holdout.kind == "rolling":
        columns.append(("v", _distance(bound)))
    return columns


def _extract_query(bound: BoundTrain, in_order: bool) -> list[str | Sql]:
    columns = columns_read(bound)
    content = ", ".join(name for name, _ in columns)
    # The hash is of DOUBLEs, and of texts, so that equal values have the same order in every type; FLOAT is half the size to
    # transfer, and whole numbers are less than texts.
    narrow = ", ".join(
        f"x{n}::FLOAT{'[]' if item.array else ''} AS x{n}" for n, item in enumerate(bound.items) if item.fits_float
    )
    # FROM's columns by position, as columns of a join may share names.
    given = ", ".join(f"c{number}" for number in range(len(bound.columns) if bound.holdout.drawn else 0))
    every = f"*{f' EXCLUDE ({given})' if given else ''}{f' REPLACE ({narrow})' if narrow else ''}"
    distinct = [
        *map(_hashed_key, range(len(bound.keys)), bound.keys),
        *map(_hashed_item, range(len(bound.items)), bound.items),
        _hashed_label(bound.target),
        *(name for name, _ in columns if name in ("w", "v")),
    ]
    hashes = f"{_row_hash(bound, distinct)} AS h"
    if given:
        split = SplitHash.of(bound.columns, bound.options.training.seed)
        hashes += f", {split.rounded} AS s, {split.exact} AS t"
    pieces: list[str | Sql] = [f"SELECT {every}, {hashes} FROM (SELECT{' *,' if given else ''}"]
    for number, (name, expression) in enumerate(columns):
        pieces += [*([","] if number else []), *expression, f"AS {name}"]
    pieces += [*bound.source, f") AS rows({given}, {content})" if given else ")"]
    if in_order:
        keys = "".join(f"k{number} ASC NULLS FIRST, " for number in range(len(bound.keys)))
        # SortedRows orders rows of one group and hash: only keys and one number are compared here.
        pieces.append(f"ORDER BY {keys}h ASC")
    return pieces


def checksums(checker: SqlChecker, bound: BoundTrain) -> dict[tuple[int, tuple[str | None, ...]], tuple[int, int]]:
    """Return by grouping set and key the number of rows and the checksum of each group, as ``extract`` would read it."""
    keys = ", ".join(f"k{number}" for number in range(len(bound.keys)))
    pieces = [f"SELECT {keys}{', ' if keys else ''}count(*), (sum(h::HUGEINT) % {1 << 64})::UBIGINT FROM ("]
    leaves = checker.rows(*pieces, *_extract_query(bound, in_order=False), ") GROUP BY ALL")
    found: dict[tuple[int, tuple[str | None, ...]], tuple[int, int]] = {}
    for level, members in enumerate(bound.sets):
        for *own, count, checksum in with_checks(leaves):
            name = level, tuple(text if place in members else None for place, text in enumerate(own))
            before = found.get(name, (0, 0))
            found[name] = before[0] + count, (before[1] + checksum) % (1 << 64)
    return found


def _distance(bound: BoundTrain) -> tuple[str | Sql, ...]:
    """Return a row's distance from the end of its group, the number that ``Split`` has of it; 0 without a time."""
    series = bound.series.keys if bound.series else ()
    keys = [piece for key in (*bound.keys, *series) for piece in (", ", key.extract)][1:]
    of_group: tuple[str | Sql, ...] = ("PARTITION BY", *keys) if keys else ()
    most = bound.holdout.split.farthest
    if bound.series is None:
        by = (bound.holdout.by or Sql("NULL"),)
        ranked = ("dense_rank() OVER (", *of_group, "ORDER BY (", *by, ") DESC NULLS LAST)")
        return ("CAST(CASE WHEN (", *by, f") IS NULL THEN 0 ELSE least({most},", *ranked, ") END AS SMALLINT)")
    step, label = bound.items[0].read, bound.target.extract if bound.target else Sql("0")
    last = ("max(CASE WHEN (", label, ") IS NOT NULL THEN", step, "END) OVER (", *of_group, ")")
    return ("CAST(coalesce(greatest(0, least(", f"{most},", *last, "-", step, "+ 1)), 0) AS SMALLINT)")


def _row_hash(bound: BoundTrain, content: Sequence[str]) -> str:
    """Return the hash of a row; a list of one element is hashed as its element, so that ``[x]`` has the order of ``x``."""

    def hashed(of: Sequence[str]) -> str:
        return ROW_HASH.format(seed=bound.options.training.seed, content=", ".join(of))

    listed = [len(bound.keys) + number for number, item in enumerate(bound.items) if item.stored.item.is_list]
    if not listed:
        return hashed(content)
    alone = [f"({each})[1]" if number in listed else each for number, each in enumerate(content)]
    single = " AND ".join(f"len({content[number]}) = 1" for number in listed)
    return f"CASE WHEN {single} THEN {hashed(alone)} ELSE {hashed(content)} END"


def _label(target: BoundTarget | None) -> tuple[str | Sql, ...]:
    if target is None:
        return ("CAST(0 AS DOUBLE)",)
    if target.array:
        before, after = arrays.reading(target.array)
    else:
        before, after = types.as_text(target.type) if target.classification else ("CAST((", ") AS DOUBLE)")
    return before, target.extract, after


def _key_text(key: BoundKey) -> tuple[str | Sql, ...]:
    before, after = types.as_text(key.stored.type)
    return before, key.extract, after


def _hashed_key(number: int, key: BoundKey) -> str:
    """Return a key's part in the row hash: numbers without trailing zeros, which depend on the type."""
    name = f"k{number}"
    if types.has_fractions(key.stored.type):
        name = f"CASE WHEN contains({name}, '.') THEN rtrim(rtrim({name}, '0'), '.') ELSE {name} END"
    return types.bytewise(name, "VARCHAR")


def _hashed_item(number: int, item: BoundItem) -> str:
    """Return an item's part in the row hash: whole numbers are hashed as their texts."""
    name, kind = f"x{number}", item.stored.item.kind
    if item.stored.item.is_named:
        return types.bytewise(f"CAST({name} AS VARCHAR)" if item.whole else name, "VARCHAR")
    return types.bytewise(name, "VARCHAR[]") if kind == "categories" else name


def _hashed_label(target: BoundTarget | None) -> str:
    return types.bytewise("y", "VARCHAR") if target and target.classification and not target.array else "y"


def _refuse_one_sided(checker: SqlChecker, bound: BoundTrain, rows: SortedRows) -> None:
    """Raise BindError if VALIDATE WHERE leaves no rows for validation or training, or a row has no time for ROLLING."""
    predicate, by = bound.holdout.predicate, bound.holdout.by
    if by is not None and (missing := int(np.count_nonzero(rows.split == 0))):
        message = f"the time of VALIDATE ROLLING is NULL in {missing:,} of {rows.n_read:,} rows"
        raise checker.error(message, by.span, f"Leave them out: WHERE {by.text.strip()} IS NOT NULL.")
    if predicate is None or not rows.n_read:
        return
    if not rows.split.any():
        message = f"VALIDATE WHERE holds for none of the {rows.n_read:,} rows, so that no model could be judged"
        raise checker.error(
            message, predicate.span, "VALIDATE NONE judges none, VALIDATE SAMPLE 10% holds out a tenth."
        )
    if rows.split.all():
        message = f"VALIDATE WHERE holds for each of the {rows.n_read:,} rows, so that none are left to train on"
        raise checker.error(message, predicate.span, "It is for the rows that are held out.")


def _refuse_other_rows(checker: SqlChecker, bound: BoundTrain, stats: Statistics, rows: SortedRows) -> None:
    """Raise BindError unless the rows read form the groups that were counted."""
    n_rows = rows.n_read
    if n_rows == stats.n_rows:
        read = dict(with_checks(zip(rows.leaves.keys, np.diff(rows.leaves.offsets).tolist(), strict=True)))
        finest = {level for level, members in enumerate(bound.sets) if len(members) == len(bound.keys)}
        counted = (group for group in with_checks(stats.groups) if group.level in finest)
        if n_rows == 0 or all(read.get(group.keys) == group.n_rows for group in counted):
            return
        for key in bound.keys:
            _refuse_many_texts(checker, bound, key)
        message = "the groups were others when the rows were read again"
        group_by = bound.statement.group_by
        span = group_by.text.span if group_by else bound.statement.source.span
        hint = f"A key needs the same value each time, and equal values one text. {_SAME_ROWS}"
    else:
        message = f"FROM has {stats.n_rows:,} rows, but reading the features, the label and the keys gave {n_rows:,}"
        span = bound.statement.source.span
        hint = (
            "FROM needs the same rows each time (a table, or TABLESAMPLE reservoir(10%) REPEATABLE (seed)), and an expression "
            "one value per row (no aggregate, no unnest)."
        )
    raise checker.error(message, span, hint)


def _refuse_many_texts(checker: SqlChecker, bound: BoundTrain, key: BoundKey) -> None:
    """Raise BindError for a key with several texts for one value: its group's name would be arbitrary."""
    kind = key.stored.type
    if not types.has_text(kind) and not types.has_inner_numbers(kind):
        return
    name = key.extract.text.strip()
    if kind != "VARCHAR":
        name = f"CAST({name} AS VARCHAR)"
    before, after = types.as_text(kind)
    text = (f"(({before}", key.extract, f"{after}) COLLATE POSIX)")
    # Each value has one or more of the texts: two are shown.
    several = ("FROM (SELECT (", key.extract, ") AS k,", *text, "AS t", *bound.source, ") GROUP BY k")
    found = checker.rows("SELECT min(t), max(t)", *several, "HAVING count(DISTINCT t) > 1 ORDER BY ALL ASC LIMIT 1")
    if not found:
        return
    first, second = found[0]
    if types.has_inner_numbers(kind) and folded(first) != folded(second):
        why = "equal values of the key have several texts"
        hint = f"Write GROUP BY {name} AS name for a group per text, or make such values one before: -0.0 + 0 is 0.0."
    else:
        why = "the collation of the key takes texts for equal that are written differently"
        hint = f"For a group per text GROUP BY {name} COLLATE POSIX, for one group of them all GROUP BY lower({name})."
    raise checker.error(f"{why}: '{first}' and '{second}' are one group", key.extract.span, hint)


def _dataset(rows: SortedRows, stats: Statistics, files: RunDirectory | None) -> Dataset:
    if files:
        names, has_lists = (rows.dictionaries, stats.classes), rows.lists is not None
        return DatasetFiles(str(files.path), 0, stats.n_rows, *names, has_lists).open()
    return Dataset(
        numeric=rows.numeric,
        codes=rows.codes,
        y=rows.y,
        weight=rows.weight,
        split=rows.split,
        dictionaries=rows.dictionaries,
        classes=stats.classes,
        lists=None if rows.lists is None else rows.lists.lists,
    )


def _groups(bound: BoundTrain, stats: Statistics, rows: SortedRows) -> tuple[Group, ...]:
    found: list[Group] = []
    # Groups come level by level, and only one level's runs are in memory.
    for level, counts in itertools.groupby(with_checks(stats.groups), key=operator.attrgetter("level")):
        members = bound.sets[level]
        runs, all_keys = rows.leaves.runs(members), tuple(members) == tuple(range(len(bound.keys)))
        checksums = rows.leaves.checksums_of(members)
        for count in counts:
            own = count.keys if all_keys else tuple([count.keys[key] for key in members])
            found.append(Group(len(found), level, count.keys, runs.get(own, ()), checksums.get(own, 0)))
    return tuple(with_checks(found))
